"""Files in an object store: what `files` does, for `s3://bucket/key` (design 3, 4.5).

A directory is a prefix: it needs no making, and nothing has to be synced, because an object that was answered for is kept
and appears whole. Writing probes once a process whether the store can be trusted with conditional writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import islice

import msgspec

from chronicle.storage.local import FileStates
from chronicle.storage.s3client import Client, client
from chronicle.storage.s3errors import S3Error, translated
from chronicle.storage.uri import S3, split_s3

AT_ONCE = 16
"""Requests on their way at a time, where there are many to send."""


@contextmanager
def at(path: str) -> Iterator[tuple[Client, str, str]]:
    """(client, bucket, key) of a path; failed requests of the block are raised in our words."""
    bucket, key = split_s3(path)
    try:
        yield client(), bucket, key
    except S3Error as error:
        raise translated(error, bucket, key) from error


def read(path: str, first_bytes: int | None = None) -> bytes | None:
    """Return the bytes of an object, or the first of them, or None when there is none."""
    with at(path) as (store, bucket, key):
        try:
            return store.get(bucket, key, first_bytes=first_bytes)[0]
        except S3Error as error:
            if error.kind != "missing":
                raise
            return None


def read_all(paths: Sequence[str]) -> Iterator[bytes | None]:
    """`read`, AT_ONCE at a time."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="chronicle-read") as readers:
        for begin in range(0, len(paths), AT_ONCE):  # no more in memory than that
            yield from readers.map(read, paths[begin : begin + AT_ONCE])


def exists(path: str) -> bool:
    """Whether there is such an object, or any below it."""
    with at(path) as (store, bucket, key):
        return (bool(key) and store.head(bucket, key) is not None) or dir_exists(path)


def is_file(path: str) -> bool:
    """Whether there is such an object."""
    with at(path) as (store, bucket, key):
        return bool(key) and store.head(bucket, key) is not None


def dir_exists(path: str) -> bool:
    """Whether there is any object below a prefix."""
    with at(path) as (store, bucket, key):
        try:
            return next(store.objects(bucket, _below(key), limit=1), None) is not None
        except S3Error as error:
            if error.code != "NoSuchBucket":
                raise
            return False


def modified(path: str) -> float | None:
    """When an object was written, in whole seconds of the store's clock since 1970; None when there is none."""
    with at(path) as (store, bucket, key):
        found = store.head(bucket, key)
        return None if found is None else float(found.modified)


def list_dir(path: str) -> list[str]:
    """Return the names directly below a prefix, sorted."""
    with at(path) as (store, bucket, key):
        names, folders = store.names(bucket, _below(key))
        return sorted({*names, *folders})


def directories(path: str) -> list[str]:
    """Return the names directly below a prefix that are prefixes themselves, sorted."""
    with at(path) as (store, bucket, key):
        return sorted(store.names(bucket, _below(key))[1])


def write_atomic(path: str, data: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """Write an object. It replaces the one before as a whole; permissions are the bucket's."""
    check_writable(path)
    with at(path) as (store, bucket, key):
        store.patiently(lambda: store.put(bucket, key, data))


replace_file = write_atomic


def replace_all(files: Iterable[tuple[str, bytes]]) -> None:
    """`write_atomic`, AT_ONCE at a time."""
    pending = iter(files)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="chronicle-write") as writers:
        while some := list(islice(pending, AT_ONCE)):
            for _ in writers.map(lambda one: write_atomic(*one), some):
                pass


def make_dirs(path: str, *, durable: bool = True) -> None:
    """Do nothing: a prefix is there as soon as an object is."""


def move(path: str, to: str) -> None:
    """Copy an object to another key and remove it; nothing happens when it is not there."""
    data = read(path)
    if data is not None:
        write_atomic(to, data)
        remove(path)


def remove(path: str) -> None:
    """Remove an object; nothing happens when it is not there."""
    with at(path) as (store, bucket, key):
        store.delete(bucket, key)


def remove_tree(path: str) -> None:
    """Remove all objects below a prefix, and the empty folders that some stores keep of it and list like full ones."""
    with at(path) as (store, bucket, key):
        store.delete_all(bucket, [one.key for one in store.objects(bucket, _below(key))])
        if key and store.head(bucket, _below(key)) is not None:  # its listing does not tell
            _remove_folders(store, bucket, _below(key))


def _remove_folders(store: Client, bucket: str, below: str) -> None:
    """Inner ones first. A folder that holds something again is kept by the store."""
    for folder in store.names(bucket, below)[1]:
        _remove_folders(store, bucket, f"{below}{folder}/")
    store.delete(bucket, below)


def tree_bytes(path: str) -> int:
    """Return the sizes of all objects below a prefix, summed."""
    with at(path) as (store, bucket, key):
        return sum(one.size for one in store.objects(bucket, _below(key)))


def sync_dir(path: str) -> None:
    """Do nothing: what was answered for is kept."""


def file_states(path: str) -> FileStates:
    """Nothing: nothing has to be synced here."""
    return {}


def sync_tree(path: str, known: FileStates | None = None) -> None:
    """Do nothing: what was answered for is kept."""


def locked(path: str) -> AbstractContextManager[None]:
    """Hold the lease of an object; waits for whoever renews it, takes over from whoever does not."""
    from chronicle.storage.lease import leased

    return leased(path)


class NoLock(msgspec.Struct, frozen=True):
    """What stands for a lock of the operating system here. It excludes nobody."""

    excludes: bool = False

    def release(self) -> None:
        """Do nothing."""


def try_lock(path: str) -> NoLock:
    """An object store has no locks that end with their process: leases and conditional writes do their work."""
    return NoLock()


def check_writable(path: str) -> None:
    """Refuse a store that would lose writes, before the first one. Raises ConfigError."""
    from chronicle.storage.probe import check

    with at(path) as (store, bucket, key):
        check(store, bucket, key.rpartition("/")[0])


def _below(key: str) -> str:
    return f"{key.rstrip('/')}/" if key else ""


def uri(bucket: str, key: str) -> str:
    """The path of a key."""
    return f"{S3}{bucket}/{key}"
