"""Compare-and-swap of an object in an object store: conditional writes, with the ETag as token (physical.md 1.6).

Bytes and ETag come from one answer. Every write carries a nonce, so that a writer whose answer was lost finds out
whether the state that it meets is its own.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from chronicle.errors import CommitStateUnknown
from chronicle.storage import s3
from chronicle.storage.s3client import ATTEMPTS, NONCE, Client, pause
from chronicle.storage.s3errors import S3Error

MISSING = ""
LONGEST_PAUSE = 1.0


class S3Object(msgspec.Struct, frozen=True):
    """An object that is replaced only by whoever has seen the state before (`objects.AtomicObject`)."""

    path: str

    @property
    def longest_pause(self) -> float:
        """Seconds between two tries of `objects.update`, at most: some round trips, or writers only disturb each other."""
        return LONGEST_PAUSE

    def read(self) -> tuple[bytes | None, str]:
        """Return bytes and ETag of one answer."""
        with s3.at(self.path) as (store, bucket, key):
            try:
                data, head = store.get(bucket, key)
            except S3Error as error:
                if error.kind != "missing":
                    raise
                return None, MISSING
            return data, head.etag

    def swap(self, data: bytes, token: str) -> bool:
        """Write under the condition that the state is still what `token` names; False when somebody was faster."""
        s3.check_writable(self.path)
        with s3.at(self.path) as (store, bucket, key):
            if store.options.single_writer:
                return self._swap_alone(data, token)
            return _Swap(store, bucket, key, token).run(data)

    def _swap_alone(self, data: bytes, token: str) -> bool:
        """Without conditions: the user has said that nobody else writes."""
        if self.read()[1] != token:
            return False
        s3.write_atomic(self.path, data)
        return True


class _Swap(msgspec.Struct):
    """One conditional write, sent until it is decided."""

    store: Client
    bucket: str
    key: str
    token: str

    def run(self, data: bytes) -> bool:
        """Send it; whether it landed. Raises S3Error where it did not and somebody must know why."""
        nonce = os.urandom(16).hex()
        condition: dict[str, Any] = {"IfMatch": self.token} if self.token else {"IfNoneMatch": "*"}
        failures: list[S3Error] = []
        while len(failures) < ATTEMPTS:
            try:
                self.store.put(self.bucket, self.key, data, Metadata={NONCE: nonce}, **condition)
                return True
            except S3Error as error:
                failures.append(error)
            if not failures[-1].transient:
                break
            pause(len(failures) - 1)
        last = failures[-1]
        if any(failure.kind in {"busy", "cut"} for failure in failures):
            return self._is_ours(nonce, failures)  # a server that fails, or is cut off, may have written first
        if last.kind == "lost":
            return self._nonce() == nonce  # in case a layer below sent it twice
        if last.kind == "missing":
            return False
        raise last

    def _nonce(self) -> str:
        head = self.store.head(self.bucket, self.key)
        return "" if head is None else head.nonce

    def _is_ours(self, nonce: str, failures: list[S3Error]) -> bool:
        """After answers that say nothing: whether the state that is there is the one we sent.

        Raises CommitStateUnknown where that cannot be told, S3Error where a server that answered has surely not written.
        """
        try:
            head = self.store.head(self.bucket, self.key)
        except S3Error:
            head = None
        else:
            if head is not None and head.nonce == nonce:
                return True
            is_as_before = (head.etag if head else MISSING) == self.token
            if is_as_before and all(failure.kind != "cut" for failure in failures):
                raise failures[-1]
        path = s3.uri(self.bucket, self.key)
        raise CommitStateUnknown(
            f"{path}: the answer to a write was lost ({failures[-1]}), and what is there now does not tell whether it landed",
            hint="run again: it reads back what is there",
            path=path,
        ) from failures[-1]
