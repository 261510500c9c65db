"""Can this store be trusted with conditional writes? Asked once a process and bucket, before anything is written (design 4.5).

A store that ignores a condition loses facts without a word: both our manifest and Lance's versions are made by them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import msgspec

from chronicle.errors import ConfigError
from chronicle.storage.s3client import Client
from chronicle.storage.s3config import S3Options
from chronicle.storage.s3errors import S3Error

NAME = ".chronicle-probe-"
_WRONG = '"00000000000000000000000000000000"'

_trusted: set[tuple[int, S3Options, str]] = set()
_lock = threading.Lock()


class Verdict(msgspec.Struct, frozen=True):
    """What a store does with conditions: `faults` are sentences, none where it honours all of them."""

    faults: tuple[str, ...] = ()

    @property
    def honours(self) -> bool:
        """Whether compare-and-swap works here."""
        return not self.faults


def check(store: Client, bucket: str, folder: str) -> None:
    """Probe below `folder` unless this process did already. Raises ConfigError for a store that ignores conditions.

    With `single_writer` nothing is probed: the user has said that there is nobody to lose a race against.
    """
    known = (os.getpid(), store.options, bucket)
    if store.options.single_writer or known in _trusted:
        return
    with _lock:
        if known in _trusted:
            return
        verdict = probe(store, bucket, folder)
        if not verdict.honours:
            raise untrusted(store, bucket, verdict)
        _trusted.add(known)


def untrusted(store: Client, bucket: str, verdict: Verdict) -> ConfigError:
    """What to raise for a store that does not honour conditions."""
    return ConfigError(
        f"the object store at {store.endpoint} cannot be trusted with bucket {bucket!r}: {'; '.join(verdict.faults)}",
        hint="use a store with conditional writes; or, if never more than one process writes, set single_writer = true",
        kind="no-conditional-writes",
        bucket=bucket,
    )


def probe(store: Client, bucket: str, folder: str) -> Verdict:
    """Write one small object under conditions that must hold and others that must not, and remove it.

    Raises S3Error where the store cannot be written at all.
    """
    key = f"{folder}/{NAME}{os.urandom(8).hex()}".lstrip("/")
    try:
        return Verdict(tuple(_faults(store, bucket, key)))
    finally:
        store.delete(bucket, key)


def _faults(store: Client, bucket: str, key: str) -> Iterator[str]:
    if not _lands(store, bucket, key, IfNoneMatch="*") and store.head(bucket, key) is None:
        yield "it refuses If-None-Match: *"
        return
    if _lands(store, bucket, key, IfNoneMatch="*"):
        yield "it ignores If-None-Match: * and overwrites what is there"
    if _lands(store, bucket, key, IfMatch=_WRONG):
        yield "it ignores If-Match and overwrites another state"
    head = store.head(bucket, key)
    if head is None or not _lands(store, bucket, key, IfMatch=head.etag):
        yield "it refuses If-Match with the right ETag"


def _lands(store: Client, bucket: str, key: str, **condition: str) -> bool:
    """Whether a write under a condition is carried out."""

    def write() -> bool:
        try:
            store.put(bucket, key, b"probe", **condition)
        except S3Error as error:
            if error.kind in {"lost", "refused"}:
                return False
            raise
        return True

    return store.patiently(write)
