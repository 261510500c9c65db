"""Identities of sources, documents, stories, copies and events (design 4.2).

No path and no clock is part of an identity of content: the same bytes have the same ids everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from blake3 import blake3

ID_LENGTH = 32
CUT_RULES = "1"
_AT_ONCE_BYTES = 1 << 20


def fingerprint(*fields: str) -> str:
    """hash(a, b, ...): the first 32 hex digits of BLAKE3 over the fields, each with its byte length before it."""
    return _hash(_laid_out(fields))


def _laid_out(fields: Iterable[str]) -> bytes:
    pieces: list[bytes] = []
    for field in fields:
        data = field.encode("utf-8", "surrogatepass")
        pieces += (len(data).to_bytes(8, "big"), data)
    return b"".join(pieces)


def _hash(data: bytes) -> str:
    return blake3(data).digest(ID_LENGTH // 2).hex()


def digest(data: bytes) -> str:
    """The full BLAKE3 hex digest of some bytes."""
    return blake3(data).hexdigest()


def digest_of(pieces: Iterable[bytes]) -> str:
    """The digest of pieces as if they were joined."""
    hasher = blake3()
    held: list[bytes] = []
    size = 0
    for piece in pieces:  # a call for each small piece costs more than the hash
        held.append(piece)
        size += len(piece)
        if size >= _AT_ONCE_BYTES:
            hasher.update(b"".join(held))
            held, size = [], 0
    return hasher.update(b"".join(held)).hexdigest()


def source_id(data: bytes) -> str:
    """Identity of a source: digest of its decompressed bytes."""
    return digest(data)[:ID_LENGTH]


def document_id(source: str, locator: int) -> str:
    """Identity of the document at ordinal `locator` of a source."""
    return fingerprint(source, str(locator))


def story_id(document: str, discriminator: str = "") -> str:
    """Identity of a story: the document's for its root, else derived from the pointer or session that tells it apart."""
    return fingerprint(document, discriminator) if discriminator else document


def copy_id(document: str, form: str, attempt: str) -> str:
    """Identity of one complete writing of a document under the current cut rules."""
    return fingerprint(document, form, CUT_RULES, attempt)


def event_ids(document: str, copy: str) -> Callable[[Iterable[int]], list[str]]:
    """Identities of the events of one copy of a document, by `seq`; what they share is laid out once."""
    shared = _laid_out((document, copy))
    hasher = blake3()  # a new one for each costs more than the hash

    def ids(seqs: Iterable[int]) -> list[str]:
        found = []
        for seq in seqs:
            hasher.reset()
            hasher.update(shared + _laid_out_number(seq))
            found.append(hasher.digest(ID_LENGTH // 2).hex())
        return found

    return ids


@lru_cache(maxsize=4096)
def _laid_out_number(number: int) -> bytes:
    return _laid_out((str(number),))


def source_event_id(kind: str, source_key: str, source: str, attempt: str) -> str:
    """Identity of a `source.*` event."""
    return fingerprint(kind, source_key, source, attempt)
