"""The directory of a spool: numbered journal files that several processes append to, in turns.

    lock                      flocked for each change; whoever holds it may write
    journal-0000000007.open   takes records; at most one
    journal-0000000006.closed whole, waits for a drain
    sequence.json             what the removed files said about `seq`
    reserve                   room for sequence.json on a full disk

A file is closed by a rename, and only a closed one is ever removed. Before it is, sequence.json says on the disk which
numbers it used. A process learns what others wrote by reading on where it stopped, under the lock.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from chronicle.errors import ChronicleError, ConfigError, IntegrityError, NotFoundError, StorageError, UsageError
from chronicle.events import frames
from chronicle.events.sequence import Sequence as Numbers
from chronicle.storage import files

LOCK = "lock"
SEQUENCE = "sequence.json"
RESERVE = "reserve"
RESERVE_BYTES = 256 << 10
OPEN, CLOSED = ".open", ".closed"

Used = Sequence[tuple[str | None, int]]
"""(session, seq) of records in their order."""

_JOURNAL = re.compile(r"journal-(\d{10})\.(open|closed)\Z")


class _Place(msgspec.Struct):
    seq: int
    session_id: str | None = None


_decode_place = msgspec.json.Decoder(_Place).decode


class SpoolFiles:
    """The files of one spool, for one thread at a time. All but `closed` and `read` want the lock (`locked`)."""

    def __init__(self, path: str, roll_bytes: int, *, create: bool) -> None:
        """Open or make the directory. Raises ConfigError (no spool), NotFoundError (without `create`), StorageError."""
        self.path = path
        self.numbers = Numbers()
        self.bytes = 0
        """Bytes of all journal files, as far as this process knows; `measure` looks."""
        self.warnings: list[str] = []
        """What was wrong with the files that it found, for people."""
        self._roll_bytes = roll_bytes
        self._open = ""
        self._descriptor = -1
        self._inode = 0
        self._size = 0
        self._known = 0
        """Number of the first file that may hold something new."""
        _prepare(path, create)
        self._process = os.getpid()
        with files.translated(path):
            self._lock = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self.locked():
                self._make_reserve()
        except ChronicleError:
            self.close()
            raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the spool, and know what other processes have written to it."""
        if self._lock < 0 or self._process != os.getpid():
            raise UsageError(f"the spool at {self.path} is closed, or was opened before a fork", hint="open it anew")
        with files.translated(self.path):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self._catch_up()
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the files."""
        self._drop()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def write(self, data: bytes, used: Used) -> None:
        """Append whole frames and bring them to the disk. Raises what the disk says; then none of them is there.

        Where even that is not known the file takes no more records, and the numbers count as used.
        """
        with files.translated(self.path):
            if self._size and self._size + len(data) > self._roll_bytes:
                self.roll()
            if self._descriptor < 0:
                self._create()
            try:
                _write(self._descriptor, data)
                os.fsync(self._descriptor)
            except OSError:
                if not self._undo():
                    self._note(used)
                    with suppress(OSError, ChronicleError):
                        self.roll()
                    self._drop()
                raise
        self._note(used)
        self._size += len(data)
        self.bytes += len(data)

    def roll(self) -> None:
        """Close the open file, if it holds anything."""
        if self._size:
            name = self._open
            self._drop()
            self._rename(name)
            self._known = _number(name) + 1

    def closed(self) -> list[str]:
        """Names of the closed files, oldest first."""
        return [name for name in _journals(self.path) if name.endswith(CLOSED)]

    def read(self, name: str) -> bytes:
        """The bytes of a journal file."""
        data = files.read(f"{self.path}/{name}")
        if data is None:
            raise NotFoundError(f"{name} is not in the spool {self.path}", hint="another drain took it")
        return data

    def acknowledge(self, names: Sequence[str]) -> None:
        """Remove closed files whose records are in the log for good."""
        self.numbers.merge(_sequence(self.path))
        self._keep_sequence()
        for name in names:
            if not name.endswith(CLOSED) or not _JOURNAL.match(name):
                raise UsageError(f"{name!r} is no closed file of a spool", hint="take names from `closed`")
            files.remove(f"{self.path}/{name}")
        files.sync_dir(self.path)
        self._make_reserve()
        self.measure()

    def measure(self) -> int:
        """Look how many bytes the journal files have."""
        with files.translated(self.path):
            self.bytes = sum(os.stat(f"{self.path}/{name}").st_size for name in _journals(self.path))
        return self.bytes

    def _catch_up(self) -> None:
        if self._descriptor < 0:
            self._reload()
            return
        with files.translated(self.path):
            try:
                now = os.stat(f"{self.path}/{self._open}")
            except FileNotFoundError:
                now = None
            if now is None or now.st_ino != self._inode or now.st_size < self._size:
                self._reload()
            elif now.st_size > self._size:
                data = os.pread(self._descriptor, now.st_size - self._size, self._size)
                self.bytes += len(data)
                self._learn(self._open, data)

    def _reload(self) -> None:
        """Read what is there and is not known. The newest open file goes on, unless its last record is torn."""
        self._drop()
        self.numbers.merge(_sequence(self.path))
        names = _journals(self.path)
        for name in names:
            if _number(name) < self._known:
                continue
            data = self.read(name)
            self._known = _number(name)
            self.numbers.file = max(self.numbers.file, self._known)
            if name.endswith(OPEN):
                with files.translated(self.path):
                    self._take(name)
                self._learn(name, data)
                if name != names[-1]:
                    self.roll()
            else:
                self._learn(name, data)
                self._known += 1
        self.measure()

    def _learn(self, name: str, data: bytes) -> None:
        """Take note of the numbers in bytes of a journal. An open one with a torn end is closed with it."""
        torn = 0
        for piece in frames.pieces(data):
            if piece.kind == frames.RECORD:
                with suppress(msgspec.MsgspecError):
                    place = _decode_place(piece.text)
                    self.numbers.saw(place.session_id, place.seq)
            elif frames.is_torn(piece, len(data)):
                torn = len(piece.text)
        if name != self._open:
            return
        self._size += len(data)
        if torn:
            self.warnings.append(f"{self.path}/{name}: its last {torn} bytes are no whole record and were cut off")
            self.roll()

    def _note(self, used: Used) -> None:
        for session, seq in used:
            self.numbers.saw(session, seq)

    def _create(self) -> None:
        number = self.numbers.file + 1
        name = f"journal-{number:010}{OPEN}"
        os.close(os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        files.sync_dir(self.path)
        self._take(name)
        self.numbers.file = self._known = number

    def _take(self, name: str) -> None:
        self._drop()
        self._descriptor = os.open(f"{self.path}/{name}", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._inode = os.fstat(self._descriptor).st_ino
        self._open, self._size = name, 0

    def _drop(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._open, self._size = -1, "", 0

    def _undo(self) -> bool:
        """Take back what a failed write left; False when that failed too."""
        try:
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
        except OSError:
            return False
        return True

    def _rename(self, name: str) -> None:
        with files.translated(self.path):
            os.rename(f"{self.path}/{name}", f"{self.path}/{name.removesuffix(OPEN)}{CLOSED}")
        files.sync_dir(self.path)

    def _keep_sequence(self) -> None:
        path, data = f"{self.path}/{SEQUENCE}", msgspec.json.encode(self.numbers.kept())
        try:
            files.write_atomic(path, data, mode=0o600)
        except StorageError as error:
            if error.kind != "storage-full":
                raise
            files.remove(f"{self.path}/{RESERVE}")
            files.write_atomic(path, data, mode=0o600)

    def _make_reserve(self) -> None:
        """Hold some room while there is some: a full spool must be drainable on a full disk."""
        path = f"{self.path}/{RESERVE}"
        if not files.exists(path):
            with suppress(StorageError):
                files.write_atomic(path, bytes(RESERVE_BYTES), mode=0o600)


def spool_path(path: str) -> str:
    """The absolute path of a spool. Raises UsageError for a place in an object store: an fsync means nothing there."""
    if "://" in path:
        raise UsageError(f"{path} is no local directory", hint="a spool lies on a local disk")
    return os.path.abspath(path)


def journal_files(path: str) -> list[str]:
    """Names of all journal files of a spool, oldest first. Raises NotFoundError or ConfigError where there is no spool."""
    _prepare(path, create=False)
    return _journals(path)


def _journals(path: str) -> list[str]:
    return [name for name in files.list_dir(path) if _JOURNAL.match(name)]


def _number(name: str) -> int:
    match = _JOURNAL.match(name)
    assert match is not None
    return int(match[1])


def _sequence(path: str) -> Numbers:
    data = files.read(f"{path}/{SEQUENCE}")
    try:
        return Numbers() if data is None else msgspec.json.decode(data, type=Numbers)
    except msgspec.MsgspecError as error:
        raise IntegrityError(
            f"{path}/{SEQUENCE} does not read: {error}",
            hint="restore it; without it sessions count on from what the journal files say",
        ) from error


def _prepare(path: str, create: bool) -> None:
    if create and not files.exists(path):
        files.make_dirs(os.path.dirname(path) or ".")
        with files.translated(path), suppress(FileExistsError):
            os.mkdir(path, 0o700)
        files.sync_dir(os.path.dirname(path))
    with files.translated(path):
        names = os.listdir(path)
    if LOCK in names:
        return
    if names or not create:
        raise ConfigError(f"{path} is a directory, but no spool", hint="name a spool, or a directory that is empty or missing")
    with files.translated(path):
        os.chmod(path, 0o700)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
