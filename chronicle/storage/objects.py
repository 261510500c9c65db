"""Small objects that several processes change by compare-and-swap: the log's manifest, CURRENT, run.json.

One protocol, one backend a kind of store. Local: flock, temporary file, fsync, rename, fsync of the directory. An object
store: conditional writes (`s3object`).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from blake3 import blake3

from chronicle.errors import ChronicleError, CommitStateUnknown, PublicationChanged
from chronicle.storage import files
from chronicle.storage.uri import is_s3

Token = str
"""Names one state of an object; `MISSING` where there is none."""

MISSING: Token = ""
ATTEMPTS = 64
LONGEST_PAUSE = 0.05

Outcome = TypeVar("Outcome")


class AtomicObject(Protocol):
    """A value that is replaced as a whole, and only by whoever has seen the state before."""

    @property
    def path(self) -> str:
        """Where it is."""
        ...

    def read(self) -> tuple[bytes | None, Token]:
        """Return the bytes (None: no such object) and the token of this state."""
        ...

    def swap(self, data: bytes, token: Token) -> bool:
        """Replace the state that `token` names by `data`; False when somebody was faster.

        Raises CommitStateUnknown when nobody knows whether it landed: read it back, never take it for a loss.
        """
        ...


class LocalObject(msgspec.Struct, frozen=True):
    """A file on a local disk. Every writer flocks the file `lock_name` beside it (the peer does too)."""

    path: str
    lock_name: str

    def read(self) -> tuple[bytes | None, Token]:
        """Return bytes and token. Needs no lock: a rename shows the old bytes or the new ones."""
        data = files.read(self.path)
        return data, _token(data)

    def swap(self, data: bytes, token: Token) -> bool:
        """Replace the file if its content is still what `token` names; makes the directory if it is missing."""
        folder = os.path.dirname(self.path)
        files.make_dirs(folder)
        with files.locked(os.path.join(folder, self.lock_name)):
            if _token(files.read(self.path)) != token:
                return False
            files.replace_file(self.path, data)
            try:
                files.sync_dir(folder)
            except ChronicleError as error:
                # Readers see it already, a power cut may still take it back.
                raise CommitStateUnknown(
                    f"{self.path} was replaced, but its directory could not be synced",
                    hint="check the disk and run again",
                    path=self.path,
                ) from error
            return True


def atomic_object(path: str, lock_name: str) -> AtomicObject:
    """The backend for a path; `lock_name` matters on a local disk only."""
    if is_s3(path):
        from chronicle.storage.s3object import S3Object

        return S3Object(path)
    return LocalObject(path, lock_name)


def update(
    target: AtomicObject,
    change: Callable[[bytes | None], tuple[bytes | None, Outcome]],
    *,
    rng: random.Random,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Read, change, swap, until the swap is not lost; return what `change` made of the state it was given.

    `change` gets the bytes (None: missing) and returns the new ones (None: nothing to write) with an outcome; it may
    raise to give up. Raises PublicationChanged after `attempts` lost swaps; CommitStateUnknown passes.
    """
    longest = getattr(target, "longest_pause", LONGEST_PAUSE)  # a store that is far away asks for longer ones
    for attempt in range(attempts):
        data, token = target.read()
        new, outcome = change(data)
        if new is None or target.swap(new, token):
            return outcome
        sleep(rng.uniform(0, min(longest, longest / 50 * 2**attempt)))
    raise PublicationChanged(
        f"lost the swap of {target} {attempts} times", hint="run again when fewer writers are at work", attempts=attempts
    )


def _token(data: bytes | None) -> Token:
    return MISSING if data is None else blake3(data).hexdigest()
