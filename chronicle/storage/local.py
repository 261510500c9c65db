"""The local disk: atomic writes, durable directories, file locks, and the one translation of OSError (design 9).

Readers of a path see the old bytes or the new ones, never a part. What `durable` wrote is on the disk, with its
directory entry, when the call returns.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from chronicle.errors import ChronicleError, ConfigError, NotFoundError, StorageError

NAME_MAX = 255
"""Bytes of one name on the disks we know."""

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp\Z")
"""Names of files that a write renames when they are whole; one that stays was left by a process that died."""

FileStates = dict[str, tuple[int, int, int]]
"""Path -> what changes when the file is written."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_SHAPE = {errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EEXIST, errno.EINVAL}
_TRANSIENT = {errno.EINTR, errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE, errno.EMFILE, errno.ENFILE}


def from_oserror(error: OSError, path: str) -> ChronicleError:
    """Say an OSError in our words: full or broken disk StorageError, permissions and shape ConfigError, gone NotFoundError."""
    reason = error.strerror or str(error)
    where = f"{path}: {reason}"
    if error.errno in _FULL:
        return StorageError(where, hint="free some space and run again", kind="storage-full", path=path, transient=False)
    if error.errno in _DENIED:
        return ConfigError(where, hint="make the path writable for this user, or choose another one", path=path)
    if error.errno == errno.EISDIR:
        return ConfigError(where, hint="there should be a file: name another one, or move the directory away", path=path)
    if error.errno in _SHAPE:
        return ConfigError(where, hint="choose another path: short names, and every parent a directory", path=path)
    if error.errno == errno.ENOENT:
        return NotFoundError(where, hint="check that the path exists", path=path)
    transient = error.errno in _TRANSIENT
    hint = "run again" if transient else "check the disk, then run again"
    return StorageError(where, hint=hint, path=path, transient=transient)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise the OSErrors of the block as `from_oserror` says; errors that are ours already pass."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ChronicleError):
            raise
        raise from_oserror(error, path) from error


def read(path: str, first_bytes: int | None = None) -> bytes | None:
    """Return the bytes of a file, or the first of them, or None when there is no such file."""
    with translated(path):
        try:
            with open(path, "rb") as file:
                return file.read(first_bytes)
        except FileNotFoundError:
            return None


def read_all(paths: Sequence[str]) -> Iterator[bytes | None]:
    """`read` one after the other."""
    return map(read, paths)


def exists(path: str) -> bool:
    """Whether something lies at the path; unlike os.path.exists it does not take 'not permitted' for 'no'."""
    with translated(path):
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True


def modified(path: str) -> float | None:
    """When a file was last written, by the clock of the store (seconds since 1970); None when there is no such file."""
    with translated(path):
        try:
            return os.stat(path).st_mtime
        except FileNotFoundError:
            return None


def list_dir(path: str) -> list[str]:
    """Return the names in a directory, sorted; none when there is no such directory."""
    with translated(path):
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []


def directories(path: str) -> list[str]:
    """Return the names of the directories in a directory, links left out; none when there is no such directory."""
    with translated(path):
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []


def is_file(path: str) -> bool:
    """Whether a file lies at the path."""
    return os.path.isfile(path)


def dir_exists(path: str) -> bool:
    """What `exists` says: a file in the place of a directory is there too, and in the way."""
    return exists(path)


def write_atomic(path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """Replace the file at `path` by `data` in one step. The directory must exist.

    The temporary file is `.<name>.<hex>.tmp` beside it; of a long name another word stands there. With `durable` the
    bytes are on the disk before the rename, and the rename before the return.
    """
    replace_file(path, data, durable=durable, mode=mode)
    if durable:
        sync_dir(os.path.dirname(path))


def replace_file(path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """`write_atomic` up to the rename: readers see the new file, a power cut may still bring the old one back."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, _temporary(name))
    with translated(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


class NewFile:
    """A file that is written in pieces and appears whole, by rename, at the end; not durably.

    No descriptor stays open between two pieces, so any number of them can be at work. The directory must exist.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        folder, name = os.path.split(path)
        self._temporary = os.path.join(folder, _temporary(name))
        self._begun = False

    def add(self, data: bytes) -> None:
        """Write one more piece."""
        with translated(self.path), open(self._temporary, "ab" if self._begun else "xb") as file:
            self._begun = True
            file.write(data)

    def finish(self) -> None:
        """Let the file appear, with all pieces, in place of one that was there."""
        if not self._begun:
            self.add(b"")
        with translated(self.path):
            os.replace(self._temporary, self.path)

    def discard(self) -> None:
        """Forget what was written and not finished."""
        with suppress(OSError):
            os.unlink(self._temporary)


def replace_all(files: Iterable[tuple[str, bytes]]) -> None:
    """`replace_file` one after the other, not durably."""
    for path, data in files:
        replace_file(path, data, durable=False)


def _temporary(name: str) -> str:
    temporary = f".{name}.{os.urandom(8).hex()}.tmp"
    return temporary if len(os.fsencode(temporary)) <= NAME_MAX else f".long-name.{os.urandom(8).hex()}.tmp"


def make_dirs(path: str, *, durable: bool = True) -> None:
    """Create a directory and its missing parents; with `durable` the new entries are on the disk too."""
    with translated(path):
        missing = []
        at = path
        while not os.path.isdir(at):
            missing.append(at)
            at, tail = os.path.split(at)
            if not tail:
                break
        for folder in reversed(missing):
            with suppress(FileExistsError):
                _make_dir(folder)
        if missing and not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if durable:
            for folder in reversed(missing):
                sync_dir(os.path.dirname(folder))


def _make_dir(path: str) -> None:
    """Make one directory. Its parent is there, so that "no such file" means a file system that takes none (/proc)."""
    try:
        os.mkdir(path)
    except FileNotFoundError as error:
        if not os.path.isdir(os.path.dirname(path)):
            raise
        raise PermissionError(errno.EACCES, "no directory can be made here", path) from error


def move(path: str, to: str) -> None:
    """Give a file another name; nothing happens when it is not there."""
    with translated(to), suppress(FileNotFoundError):
        os.rename(path, to)


def remove(path: str) -> None:
    """Remove a file; nothing happens when it is not there."""
    with translated(path), suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str) -> None:
    """Remove a directory with all below it; nothing happens when it is not there. Links are removed, not followed."""
    with translated(path), suppress(FileNotFoundError):
        shutil.rmtree(path)


def tree_bytes(path: str) -> int:
    """Return the sizes of all files below a directory, summed; files that vanish meanwhile count as nothing."""
    total = 0
    with translated(path):
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(folder, name)).st_size
    return total


def sync_dir(path: str) -> None:
    """Bring the entries of a directory to the disk."""
    _sync(path or ".", os.O_RDONLY | os.O_DIRECTORY)


def file_states(path: str) -> FileStates:
    """What tells whether a file below a directory was written since."""
    with translated(path):
        return {name: _state(name) for folder, _, names in os.walk(path) for name in (os.path.join(folder, n) for n in names)}


def _state(path: str) -> tuple[int, int, int]:
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def sync_tree(path: str, known: FileStates | None = None) -> None:
    """Bring a directory to the disk: every file and directory below it, itself, and its entry in its parent.

    Make the parents with `make_dirs`, which syncs the ones it creates. `known`: states of files that are there already.
    """
    known = known or {}
    with translated(path):
        for folder, _, names in os.walk(path, topdown=False, onerror=_raise):
            for name in (os.path.join(folder, n) for n in names):
                if name not in known or _state(name) != known[name]:
                    _sync(name, os.O_RDONLY)
            _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
    sync_dir(os.path.dirname(path))


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the exclusive flock of a file, which is made if it is missing; waits for whoever holds it."""
    descriptor = _open_lock(path)
    try:
        with translated(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class FileLock(msgspec.Struct, frozen=True):
    """A flock that this process holds until it lets go of it, or ends."""

    descriptor: int
    excludes: bool = True
    """Nobody else has it: what its last holder left behind is a dead process's."""

    def release(self) -> None:
        """Let go of the lock."""
        os.close(self.descriptor)


def try_lock(path: str) -> FileLock | None:
    """Take the exclusive flock of a file, which is made if it is missing; None while a living process holds it."""
    descriptor = _open_lock(path)
    try:
        with translated(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except StorageError as error:
        os.close(descriptor)
        if isinstance(error.__cause__, BlockingIOError):
            return None
        raise
    return FileLock(descriptor)


def _open_lock(path: str) -> int:
    with translated(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _sync(path: str, flags: int) -> None:
    with translated(path):
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _raise(error: OSError) -> None:
    raise error
