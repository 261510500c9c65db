"""Reading a source out of an object store: its bytes and its stat, of one answer (design 4.4)."""

from __future__ import annotations

from chronicle import identity
from chronicle.events.imported import Stat
from chronicle.storage import s3
from chronicle.storage.s3client import Head
from chronicle.storage.s3errors import S3Error
from chronicle.storage.s3listing import stat_text

_WITHHELD = frozenset({"InvalidObjectState"})
"""Archived: it must be restored before it can be read."""


class Denied(Exception):
    """This one object may not be read, though its listing may."""


def fetch(path: str) -> tuple[bytes, Stat]:
    """An object's bytes and what the same answer says about it. Raises Denied, NotFoundError, StorageError."""
    with s3.at(path) as (store, bucket, key):
        try:
            data, head = store.get(bucket, key)
        except S3Error as error:
            raise _withheld(error) from error
        return data, _stat(head)


def digest(path: str) -> tuple[Stat, str]:
    """Stat and identity of an object that is too large to hold. Raises as `fetch` does."""
    from blake3 import blake3

    hasher = blake3()
    with s3.at(path) as (store, bucket, key):
        try:
            head, pieces = store.pieces(bucket, key)
            for piece in pieces:
                hasher.update(piece)
        except S3Error as error:
            raise _withheld(error) from error
        return _stat(head), hasher.hexdigest()[: identity.ID_LENGTH]


def _withheld(error: S3Error) -> Exception:
    if error.code in _WITHHELD or (error.kind == "denied" and error.code == "AccessDenied"):
        return Denied(str(error))
    return error


def _stat(head: Head) -> Stat:
    return Stat(size=head.size, etag=head.etag.strip('"'), version_id=head.version_id, last_modified=stat_text(head.modified))
