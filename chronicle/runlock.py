"""Which pipeline run is at work on a dataset: `ops/<dataset>/run.json` (design 7).

A courtesy, not a guard: it keeps two scheduled runs from doing the same work twice. What makes two writers safe is the
fence of the log and the lease of the tables. The record moves every few seconds while its run lives, and on a local
disk the run holds a flock beside it. A run that finds a record decides: the flock is held, or the record moves within
three beats: somebody is at work; else its run is dead and the record is taken over.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from chronicle.errors import ChronicleError
from chronicle.layout import DatasetPaths
from chronicle.storage import files
from chronicle.storage.files import Lock
from chronicle.storage.objects import MISSING, AtomicObject, Token, atomic_object

BEAT_SECONDS = 5.0
BEATS_TO_WATCH = 3


class RunRecord(msgspec.Struct, kw_only=True):
    """What run.json says of the run at work."""

    run_id: str = "unknown"
    host: str = ""
    pid: int = 0
    started_at: str = ""
    """UTC, ISO 8601."""
    beat: int = 0
    """Counts up while the run lives."""


class RunLock:
    """A dataset's run.json, held: it beats on a thread of its own until `release`."""

    def __init__(self, target: AtomicObject, flock: Lock, record: RunRecord, *, beat_seconds: float = BEAT_SECONDS) -> None:
        self.record = record
        self._target = target
        self._flock = flock
        self._token: Token = MISSING
        self._beat_seconds = beat_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="chronicle-run-beat", daemon=True)

    def release(self) -> None:
        """Stop beating and remove the record, unless another run has taken it over."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(ChronicleError):
            if self._target.read()[1] == self._token:
                files.remove(self._target.path)
        self._flock.release()

    def _take(self, token: Token) -> bool:
        if not self._swap(token):
            return False
        self._thread.start()
        return True

    def _swap(self, token: Token) -> bool:
        data = msgspec.json.encode(self.record)
        if not self._target.swap(data, token):
            return False
        self._token = self._target.read()[1]
        return True

    def _beat(self) -> None:
        while not self._done.wait(self._beat_seconds):
            self.record.beat += 1
            with suppress(ChronicleError):  # a disk that is full for a moment is no reason to give the run up
                if not self._swap(self._token):
                    return


def take_run(
    paths: DatasetPaths, run_id: str, *, beat_seconds: float = BEAT_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> RunLock | RunRecord:
    """Make this run the one at work on a dataset, or return the record of the one that is.

    Waits at most three beats. Raises StorageError or ConfigError where `ops/` cannot be written.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    record = RunRecord(run_id=run_id, host=socket.gethostname(), pid=os.getpid(), started_at=started)
    target = atomic_object(paths.run, ".run.json.lock")
    files.make_dirs(paths.ops)
    flock = files.try_lock(f"{paths.ops}/.run.lock")
    if flock is None:
        return _decode(target.read()[0])
    lock = RunLock(target, flock, record, beat_seconds=beat_seconds)
    try:
        data, token = target.read()
        moves = False
        if data is not None and not (flock.excludes and _is_dead(_decode(data))):
            moves, token = _watch(target, token, beat_seconds, sleep)
        if not moves and lock._take(token):
            return lock
    except ChronicleError:
        flock.release()
        raise
    flock.release()
    return _decode(target.read()[0])


def _decode(data: bytes | None) -> RunRecord:
    try:
        return msgspec.json.decode(data or b"{}", type=RunRecord)
    except msgspec.MsgspecError:
        return RunRecord()


def _is_dead(record: RunRecord) -> bool:
    """Whether the record is certainly of a process that has ended: it ran on this host, and its pid is gone."""
    if record.host != socket.gethostname() or record.pid <= 0:
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return record.pid == os.getpid()


def _watch(target: AtomicObject, token: Token, beat_seconds: float, sleep: Callable[[float], None]) -> tuple[bool, Token]:
    """Whether the record changes into another one within three beats; the token to take it over with."""
    for _ in range(BEATS_TO_WATCH):
        sleep(beat_seconds)
        data, now = target.read()
        if data is None:
            return False, MISSING
        if now != token:
            return True, now
    return False, token
