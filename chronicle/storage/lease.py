"""A lock for stores without locks: an object that its holder renews, and that anybody may take who sees it stand still.

It keeps processes from doing the same work at the same time. It is no fence: a holder that was suspended for longer than
the patience of others goes on beside them, so what it guards must stay right even then.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from chronicle.errors import ChronicleError, ConflictError
from chronicle.storage.objects import MISSING, AtomicObject, Token
from chronicle.storage.s3object import S3Object

BEAT_SECONDS = 5.0
BEATS_TO_DEATH = 4
"""Our clock alone counts: a lease that stands still for so many of its beats has no holder."""
WAIT_SECONDS = 600.0
SILENT_SECONDS = 5.0
"""Whoever waits for longer says so, and asks less often."""
SHORT_PAUSE, LONG_PAUSE = 0.1, 1.0
"""Seconds between two looks, at most. What such locks guard is short, and there may be as many waiting as there are writers."""

_log = logging.getLogger(__name__)


class _Lease(msgspec.Struct, omit_defaults=True):
    """Who holds it; blank when nobody does. `beat` moves while the holder lives."""

    owner: str = ""
    beat: int = 0


@contextmanager
def leased(path: str) -> Iterator[None]:
    """Hold the lease of an object for the length of the block. Raises ConflictError after WAIT_SECONDS of waiting."""
    with held(S3Object(path), path):
        yield


@contextmanager
def held(
    target: AtomicObject,
    name: str,
    *,
    beat_seconds: float | None = None,
    wait_seconds: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold a lease kept in any kind of object. Raises ConflictError after `wait_seconds` (WAIT_SECONDS) of waiting."""
    beat_seconds = BEAT_SECONDS if beat_seconds is None else beat_seconds
    lease = _Lease(owner=os.urandom(16).hex())
    _acquire(target, lease, name, beat_seconds, WAIT_SECONDS if wait_seconds is None else wait_seconds, sleep)
    done = threading.Event()
    beating = threading.Thread(target=_beat, args=(target, lease, beat_seconds, done), name="chronicle-lock-beat", daemon=True)
    beating.start()
    try:
        yield
    finally:
        done.set()
        beating.join()
        with suppress(ChronicleError):  # whoever waits takes it over when it stands still
            data, token = target.read()
            if _decode(data).owner == lease.owner:
                target.swap(msgspec.json.encode(_Lease()), token)


def _acquire(
    target: AtomicObject,
    lease: _Lease,
    name: str,
    beat_seconds: float,
    wait_seconds: float,
    sleep: Callable[[float], None],
) -> None:
    began = time.monotonic()
    seen: Token | None = None
    since = began
    told = False
    while True:
        data, token = target.read()
        now = time.monotonic()
        if token != seen:
            seen, since = token, now
        free = token == MISSING or not _decode(data).owner
        if (free or now - since >= beat_seconds * BEATS_TO_DEATH) and target.swap(msgspec.json.encode(lease), token):
            return
        if now - began > wait_seconds:
            raise ConflictError(f"{name} has been held for {wait_seconds:g} s", hint="run again when the other process is done")
        if not told and now - began > SILENT_SECONDS:
            _log.warning("another process holds %s: waiting for at most %g s", name, wait_seconds)
            told = True
        longest = LONG_PAUSE if now - began > SILENT_SECONDS else SHORT_PAUSE
        sleep(random.uniform(0.2, 1.0) * min(beat_seconds / 4, longest))


def _beat(target: AtomicObject, lease: _Lease, beat_seconds: float, done: threading.Event) -> None:
    while not done.wait(beat_seconds):
        with suppress(ChronicleError):  # a store that is away for a moment is no reason to give up
            data, token = target.read()
            if _decode(data).owner != lease.owner:
                return
            lease.beat += 1
            target.swap(msgspec.json.encode(lease), token)


def _decode(data: bytes | None) -> _Lease:
    try:
        return msgspec.json.decode(data or b"{}", type=_Lease)
    except msgspec.MsgspecError:
        return _Lease()
