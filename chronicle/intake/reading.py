"""Reading a source: its bytes, the stat of the file that was read, decompression within limits (design 4.2, 4.4)."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator

import msgspec

from chronicle import identity
from chronicle.errors import InputError, NotFoundError
from chronicle.events.imported import Stat
from chronicle.storage.files import translated
from chronicle.storage.listing import SourceFile
from chronicle.storage.uri import is_s3

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind a byte 0x50 to 0x5f: a frame to skip, with which a zstd file may begin."""
TOO_LARGE = "too-large"
_CHUNK = 1 << 20
_FINE_GRAIN_NS = 20_000_000
_SMALLER = "raise max_source_bytes, or split the file"
_ZSTD_SLICE = 4_096
"""Input per call: one call gives back everything its input unpacks to, at most some 100 MB for this much."""
_RATIO_FREE_BYTES = 1 << 20
"""Below this many decompressed bytes the ratio is nobody's problem: small repetitive files compress well."""


class Limits(msgspec.Struct, frozen=True):
    """What one source may be: bytes after decompression, and decompressed bytes per byte read."""

    max_bytes: int
    max_ratio: int


class SourceBytes(msgspec.Struct, frozen=True):
    """A source as it was read."""

    raw: bytes
    """As it lay."""
    data: bytes
    """Decompressed; the same object as `raw` where it was plain."""
    stat: Stat
    source_id: str
    digest: str = ""
    """BLAKE3 hex digest of `data`; blank where `data` is a part of the source only."""


class UnreadableSource(InputError):
    """A source that cannot be read into memory as a whole: its identity is known, its text is not.

    `raw` holds the bytes as they lay, None where they are too large to keep.
    """

    def __init__(self, cause: InputError, *, raw: bytes | None, stat: Stat, source_id: str) -> None:
        super().__init__(cause.message, hint=cause.hint, kind=cause.kind)
        self.raw = raw
        self.stat = stat
        self.source_id = source_id


class ChangedWhileRead(Exception):
    """The file changed between the first and the last byte; the next run takes it."""


def stat_of(file: SourceFile) -> Stat:
    """The stat that listing saw."""
    if file.etag:
        return Stat(size=file.size, etag=file.etag, last_modified=file.last_modified)
    return Stat(size=file.size, mtime_ns=file.mtime_ns, ctime_ns=file.ctime_ns, inode=file.inode)


def read_source(file: SourceFile, limits: Limits) -> SourceBytes:
    """Read a file whole.

    Raises ChangedWhileRead (also where it is gone), UnreadableSource (`too-large`, `truncated`, `unreadable`).
    """
    if is_s3(file.path):
        return _read_object(file, limits)
    with translated(file.path):
        try:
            handle = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise _unopened(file) from error
        except FileNotFoundError as error:  # gone since it was listed; its neighbours are there
            raise ChangedWhileRead(file.key) from error
        try:
            began_ns = _settled(os.fstat(handle))
            before = _stat(os.fstat(handle), began_ns)
            if before.size > limits.max_bytes:
                raise UnreadableSource(_too_large(before.size, limits), raw=None, stat=before, source_id=_digest_file(handle))
            raw = _read_all(handle, before.size)
            after = _stat(os.fstat(handle), began_ns)
        finally:
            os.close(handle)
    if len(raw) != before.size or not after.same_file_state(before):
        raise ChangedWhileRead(file.key)
    return unpack(raw, before, limits)


def unpack(raw: bytes, stat: Stat, limits: Limits) -> SourceBytes:
    """Decompress by magic bytes and digest. Raises UnreadableSource."""
    try:
        if raw.startswith(GZIP_MAGIC):
            data = _bounded(_gunzip(raw), len(raw), limits)
        elif raw.startswith(ZSTD_MAGIC) or (raw[1:4] == ZSTD_SKIPPABLE and raw[0] & 0xF0 == 0x50):
            data = _bounded(_unzstd(raw), len(raw), limits)
        else:
            data = raw
    except InputError as error:
        raise UnreadableSource(error, raw=raw, stat=stat, source_id=identity.source_id(raw)) from error
    digest = identity.digest(data)
    return SourceBytes(raw=raw, data=data, stat=stat, source_id=digest[: identity.ID_LENGTH], digest=digest)


def _read_object(file: SourceFile, limits: Limits) -> SourceBytes:
    """Read an object whole. Bytes and stat are of one answer, so they belong together whatever the listing saw."""
    from chronicle.storage import s3source

    try:
        if file.size > limits.max_bytes:
            stat, source_id = s3source.digest(file.path)
            raise UnreadableSource(_too_large(stat.size, limits), raw=None, stat=stat, source_id=source_id)
        raw, stat = s3source.fetch(file.path)
    except s3source.Denied as error:
        raise _unopened(file) from error
    except NotFoundError as error:
        raise ChangedWhileRead(file.key) from error
    if len(raw) > limits.max_bytes:
        raise UnreadableSource(_too_large(len(raw), limits), raw=None, stat=stat, source_id=identity.source_id(raw))
    return unpack(raw, stat, limits)


def _stat(found: os.stat_result, began_ns: int) -> Stat:
    newest = max(found.st_mtime_ns, found.st_ctime_ns)
    return Stat(
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        inode=found.st_ino,
        racy=newest >= began_ns - _grain_ns(found.st_mtime_ns),
    )


def _settled(found: os.stat_result) -> int:
    """The clock (ns), once a file that was written just now is older than a fine clock's grain: then it need not be racy."""
    now = time.time_ns()
    age = now - max(found.st_mtime_ns, found.st_ctime_ns)
    if 0 <= age <= _FINE_GRAIN_NS:
        time.sleep((_FINE_GRAIN_NS - age) / 1e9 + 0.001)
        now = time.time_ns()
    return now


def _grain_ns(mtime_ns: int) -> int:
    """How coarse the file's clock may be: 20 ms, or 2 s where it shows whole seconds only."""
    return 2_000_000_000 if mtime_ns % 1_000_000_000 == 0 else _FINE_GRAIN_NS


def _read_all(handle: int, size: int) -> bytes:
    pieces = []
    while piece := os.read(handle, max(size + 1, 1)):
        pieces.append(piece)
        size -= len(piece)
        if size < 0:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _digest_file(handle: int) -> str:
    from blake3 import blake3

    hasher = blake3()
    while piece := os.read(handle, _CHUNK):
        hasher.update(piece)
    return hasher.hexdigest()[: identity.ID_LENGTH]


def unopened_id(key: str) -> str:
    """What stands for the identity of a source that nobody could open."""
    return identity.fingerprint(key)


def _unopened(file: SourceFile) -> UnreadableSource:
    """Not allowed to open it: known by its key alone, so that its neighbours go on."""
    cause = InputError("permission denied", hint="make the file readable for this user, then run again", kind="unreadable")
    return UnreadableSource(cause, raw=None, stat=stat_of(file), source_id=unopened_id(file.key))


def _too_large(size: int, limits: Limits) -> InputError:
    return InputError(
        f"{size} bytes, more than the limit of {limits.max_bytes}",
        hint=_SMALLER,
        kind=TOO_LARGE,
    )


def _bounded(pieces: Iterator[bytes], packed: int, limits: Limits) -> bytes:
    """Join decompressed pieces, giving up at the first one over a limit."""
    kept: list[bytes] = []
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > limits.max_bytes:
            raise InputError(
                f"decompresses to more than {limits.max_bytes} bytes",
                hint=_SMALLER,
                kind=TOO_LARGE,
            )
        if total > _RATIO_FREE_BYTES and total > packed * limits.max_ratio:
            raise InputError(
                f"decompresses to more than {limits.max_ratio} times its size",
                hint="raise max_ratio to allow it",
                kind=TOO_LARGE,
            )
        kept.append(piece)
    return b"".join(kept)


def _gunzip(raw: bytes) -> Iterator[bytes]:
    rest = raw
    while rest:
        stream = zlib.decompressobj(wbits=31)
        try:
            while not stream.eof:
                piece = stream.decompress(rest, _CHUNK)
                rest = stream.unconsumed_tail
                yield piece
                if not piece and not rest and not stream.eof:
                    raise InputError("the gzip stream ends early", hint="copy the file again", kind="truncated")
        except zlib.error as error:
            raise InputError(f"not a sound gzip stream: {error}", hint="copy the file again", kind="unreadable") from error
        rest = stream.unused_data.lstrip(b"\0")


def _unzstd(raw: bytes) -> Iterator[bytes]:
    import zstandard

    at = 0
    while at < len(raw):
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            while not frame.eof:
                if at >= len(raw):
                    raise InputError("the zstd stream ends early", hint="copy the file again", kind="truncated")
                yield frame.decompress(raw[at : at + _ZSTD_SLICE])
                at += _ZSTD_SLICE
        except zstandard.ZstdError as error:
            raise InputError(f"not a sound zstd stream: {error}", hint="copy the file again", kind="unreadable") from error
        at = min(at, len(raw)) - len(frame.unused_data)
