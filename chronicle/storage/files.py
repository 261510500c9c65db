"""Files of a lake, wherever it lies: each function hands its path to the store that the path names.

Readers of a path see the old bytes or the new ones, never a part. What `durable` wrote is on the disk, with its
directory entry, when the call returns; an object store keeps what it has answered for. Errors are ours (design 9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from chronicle.storage import local
from chronicle.storage.local import NAME_MAX, TEMPORARY, FileStates, from_oserror, translated
from chronicle.storage.uri import is_s3

__all__ = ["NAME_MAX", "TEMPORARY", "FileStates", "Lock", "from_oserror", "translated"]


class Lock(Protocol):
    """A lock that was taken."""

    @property
    def excludes(self) -> bool:
        """Whether nobody else can have it now. False where the store has no such locks: it excludes nobody."""
        ...

    def release(self) -> None:
        """Let go of it."""
        ...


class _Store(Protocol):
    """What a place for files can do. The functions of this module say what each of these does."""

    def read(self, path: str, first_bytes: int | None = None) -> bytes | None: ...
    def read_all(self, paths: Sequence[str]) -> Iterator[bytes | None]: ...
    def exists(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool: ...
    def dir_exists(self, path: str) -> bool: ...
    def modified(self, path: str) -> float | None: ...
    def list_dir(self, path: str) -> list[str]: ...
    def directories(self, path: str) -> list[str]: ...
    def write_atomic(self, path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None: ...
    def replace_all(self, files: Iterable[tuple[str, bytes]]) -> None: ...
    def replace_file(self, path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None: ...
    def make_dirs(self, path: str, *, durable: bool = True) -> None: ...
    def move(self, path: str, to: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def tree_bytes(self, path: str) -> int: ...
    def sync_dir(self, path: str) -> None: ...
    def file_states(self, path: str) -> FileStates: ...
    def sync_tree(self, path: str, known: FileStates | None = None) -> None: ...
    def locked(self, path: str) -> AbstractContextManager[None]: ...
    def try_lock(self, path: str) -> Lock | None: ...


def _store(path: str) -> _Store:
    """The store in which a path lies."""
    if is_s3(path):
        from chronicle.storage import s3

        return s3
    return local


def read(path: str, first_bytes: int | None = None) -> bytes | None:
    """Return the bytes of a file, or the first of them, or None when there is no such file."""
    return _store(path).read(path, first_bytes)


def read_all(folder: str, names: Iterable[str]) -> Iterator[bytes | None]:
    """What `read` gives for files of a directory, in the order of the names; many at once where each is a long way."""
    return _store(folder).read_all([f"{folder}/{name}" for name in names])


def exists(path: str) -> bool:
    """Whether something lies at the path, a file or a directory; 'not permitted' is an error, no 'no'."""
    return _store(path).exists(path)


def is_file(path: str) -> bool:
    """Whether a file lies at the path."""
    return _store(path).is_file(path)


def dir_exists(path: str) -> bool:
    """Whether something lies at the path of a directory: one question to an object store, where `exists` asks two."""
    return _store(path).dir_exists(path)


def modified(path: str) -> float | None:
    """When a file was last written, by the clock of the store (seconds since 1970); None when there is no such file."""
    return _store(path).modified(path)


def list_dir(path: str) -> list[str]:
    """Return the names in a directory, sorted; none when there is no such directory."""
    return _store(path).list_dir(path)


def directories(path: str) -> list[str]:
    """Return the names of the directories in a directory, sorted, links left out; none when there is no such directory."""
    return _store(path).directories(path)


def write_atomic(path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """Replace the file at `path` by `data` in one step, durably if asked. The directory must exist."""
    _store(path).write_atomic(path, data, durable=durable, mode=mode)


def replace_file(path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """`write_atomic` up to the rename: readers see the new file, a power cut may still bring the old one back."""
    _store(path).replace_file(path, data, durable=durable, mode=mode)


def replace_all(folder: str, named: Iterable[tuple[str, bytes]]) -> None:
    """`replace_file`, not durably, for many files of a directory: pairs of name and bytes, taken few at a time."""
    _store(folder).replace_all((f"{folder}/{name}", data) for name, data in named)


def make_dirs(path: str, *, durable: bool = True) -> None:
    """Create a directory and its missing parents, where the store knows directories."""
    _store(path).make_dirs(path, durable=durable)


def move(path: str, to: str) -> None:
    """Give a file another name in the same store; nothing happens when it is not there."""
    _store(path).move(path, to)


def remove(path: str) -> None:
    """Remove a file; nothing happens when it is not there."""
    _store(path).remove(path)


def remove_tree(path: str) -> None:
    """Remove a directory with all below it; nothing happens when it is not there. Links are removed, not followed."""
    _store(path).remove_tree(path)


def tree_bytes(path: str) -> int:
    """Return the sizes of all files below a directory, summed; files that vanish meanwhile count as nothing."""
    return _store(path).tree_bytes(path)


def sync_dir(path: str) -> None:
    """Bring the entries of a directory to the disk."""
    _store(path).sync_dir(path)


def file_states(path: str) -> FileStates:
    """What tells later which files below a directory were written since; empty where nothing has to be synced."""
    return _store(path).file_states(path)


def sync_tree(path: str, known: FileStates | None = None) -> None:
    """Bring a directory to the disk: every file and directory below it, itself, and its entry in its parent.

    Make the parents with `make_dirs`, which syncs the ones it creates. `known`: what `file_states` said when all that lay
    there was on the disk; files that are still the same are passed over.
    """
    _store(path).sync_tree(path, known)


def locked(path: str) -> AbstractContextManager[None]:
    """Let one process at a time into the block; others wait. Who dies in it does not keep them waiting for ever."""
    return _store(path).locked(path)


def try_lock(path: str) -> Lock | None:
    """Take a lock that ends with this process at the latest; None while a living process has it."""
    return _store(path).try_lock(path)
