"""StorylineLanceStore: the three tables, replaced as one (design 5.2, physical.md 2).

A writer holds the lease in CURRENT, and on a local disk the flock of `.storyline-write.lock`, which tells at once that the
last holder is dead; elsewhere a lease that stands still for long enough has none. It writes table versions that nobody sees,
brings them to the disk, and swaps CURRENT: the one point at which all tables change. Old generations stay for `maintain`.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError, ConflictError, CurrentConflict, IntegrityError
from chronicle.layout import CURRENT, STORYLINE_LOCK
from chronicle.storage import files
from chronicle.storage.objects import MISSING, AtomicObject, atomic_object, update
from chronicle.storyline import current as states
from chronicle.storyline.current import Current, Snapshot

if TYPE_CHECKING:
    from chronicle.storyline.writer import StorylineWriter

CURRENT_LOCK = ".CURRENT.lock"
WAIT_SECONDS = 600.0
LEASE_SECONDS = 60.0
_LONGEST_PAUSE = 0.5

Clock = Callable[[], float]
"""Seconds since 1970."""

_log = logging.getLogger(__name__)
_counter = itertools.count()


def new_name(clock: Clock = time.time) -> str:
    """A name for a generation or a lease owner: `gen-<unix nanoseconds>-<pid>-<counter>`."""
    return f"{states.GENERATION_PREFIX}{int(clock() * 1_000_000_000)}-{os.getpid()}-{next(_counter)}"


class StorylineLanceStore:
    """The tables below one root directory. Any number of readers, one writer at a time."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._object = atomic_object(os.path.join(root, CURRENT), CURRENT_LOCK)

    def current(self) -> Current | None:
        """What CURRENT says now, None where nothing was committed yet. Raises IntegrityError where it does not read."""
        data, _ = self._object.read()
        return self._decoded(data)

    def move_damaged_aside(self) -> str | None:
        """Rename a CURRENT that does not read, so that tables can be made anew; the new path, None where it reads."""
        try:
            self.current()
        except IntegrityError:
            aside = f"{self._object.path}.damaged-{next(_counter)}-{os.getpid()}"
            files.move(self._object.path, aside)
            return aside
        return None

    @contextmanager
    def writer(
        self,
        owner: str = "",
        *,
        lease_seconds: float = LEASE_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        clock: Clock = time.time,
    ) -> Iterator[StorylineWriter]:
        """Hold the lease, and the flock where there is one, for the length of the block.

        Waits for another writer, at most `wait_seconds`, then raises CurrentConflict. A lease found under the flock is a
        dead writer's and is taken over at once, one without a flock when CURRENT has stood still for `lease_seconds` of
        our clock; the writer then makes a new generation. Where there is no CURRENT yet that could hold a lease, the lock's
        path holds one, so that first writers take turns too.
        """
        from chronicle.storyline.writer import StorylineWriter  # readers do without what makes tables

        owner = owner or new_name(clock)
        lock = os.path.join(self.root, STORYLINE_LOCK)
        deadline = time.monotonic() + wait_seconds
        files.make_dirs(self.root)
        with _flocked(lock, wait_seconds) as alone, ExitStack() as first:
            lease = _HeldLease(self._object, self._decoded, owner, lease_seconds, clock)
            pinned, dead = lease.acquire(alone=alone, wait_seconds=wait_seconds)
            if pinned is None and not alone:
                try:
                    first.enter_context(_first_turn(lock, lease_seconds, wait_seconds))
                except ConflictError as error:
                    raise _still_held(lock, wait_seconds) from error
                pinned, dead = lease.acquire(alone=False, wait_seconds=max(0.0, deadline - time.monotonic()))
                if pinned is not None:
                    first.close()  # somebody else was first, and CURRENT can hold a lease now
            try:
                yield StorylineWriter(self.root, pinned, dead, lease.commit, lambda: new_name(clock))
            finally:
                lease.release()

    def _decoded(self, data: bytes | None) -> Current | None:
        return None if data is None else states.decode(data, self._object.path)


class _HeldLease:
    """The lease in CURRENT: taken, renewed by a thread, given back. Before the first commit there is none to hold."""

    def __init__(
        self, target: AtomicObject, decode: Callable[[bytes | None], Current | None], owner: str, seconds: float, clock: Clock
    ) -> None:
        self._object = target
        self._decode = decode
        self._owner = owner
        self._seconds = seconds
        self._clock = clock
        self._rng = random.Random()
        self._held = False
        self._done = threading.Event()
        self._swapping = threading.Lock()
        self._thread: threading.Thread | None = None

    def acquire(self, *, alone: bool, wait_seconds: float) -> tuple[Snapshot | None, bool]:
        """Take the lease; returns the state it begins from and whether a dead writer held it.

        `alone`: no living process can hold it. Else waits for whoever renews it, then raises CurrentConflict.
        """
        deadline = time.monotonic() + wait_seconds
        seen, since, told = MISSING, 0.0, False
        while True:
            data, token = self._object.read()
            found = self._decode(data)
            if found is None:
                return None, False
            now = time.monotonic()
            if token != seen:
                seen, since = token, now
            if alone or found.lease is None or now - since >= self._seconds:
                taken = states.leased(found, self._owner, self._now_ms(), self._lease_ms())
                if self._object.swap(states.encode(taken), token):
                    self._start()
                    return found.committed, found.lease is not None
            elif now >= deadline:
                raise _still_held(self._object.path, wait_seconds)
            elif not told:
                _log.warning("another writer has the lease of %s: waiting for at most %g s", self._object.path, wait_seconds)
                told = True
            time.sleep(self._rng.uniform(0.2, 1.0) * min(self._seconds / 10, _LONGEST_PAUSE))

    def commit(self, snapshot: Snapshot) -> None:
        """Swap CURRENT. Raises CurrentConflict when the lease was lost or another state became visible."""

        def change(data: bytes | None) -> tuple[bytes | None, None]:
            return states.encode(states.committed(self._decode(data), self._owner, snapshot)), None

        with self._swapping:
            if self._held:
                update(self._object, change, rng=self._rng)
                return
            made = states.first(snapshot, self._owner, self._now_ms(), self._lease_ms())
            if not self._object.swap(states.encode(made), MISSING):
                raise CurrentConflict(f"{self._object.path}: another writer was first", hint="run again", owner=self._owner)
            self._start()

    def release(self) -> None:
        """Stop renewing and give the lease back, if it is still ours."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()

        def give_back(data: bytes | None) -> tuple[bytes | None, None]:
            left = states.released(self._decode(data), self._owner)
            return (None if left is None else states.encode(left)), None

        if self._held:
            # A lease that stays behind is taken over by whoever comes next.
            with suppress(ChronicleError):
                update(self._object, give_back, rng=self._rng)

    def _start(self) -> None:
        self._held = True
        self._thread = threading.Thread(target=self._renew, name="chronicle-lease", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        def put_off(data: bytes | None) -> tuple[bytes | None, None]:
            return states.encode(states.renewed(self._decode(data), self._owner, self._now_ms(), self._lease_ms())), None

        while not self._done.wait(self._seconds / 3):
            try:
                with self._swapping:
                    update(self._object, put_off, rng=self._rng)
            except ConflictError:
                return  # lost: the commit will notice and say so
            except ChronicleError as error:
                _log.warning("could not renew the lease in %s: %s", self._object.path, error)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _lease_ms(self) -> int:
        return max(1, int(self._seconds * 1000))


@contextmanager
def _flocked(path: str, wait_seconds: float) -> Iterator[bool]:
    """Hold the flock; whether there is one, so that nobody else can be at work."""
    deadline = time.monotonic() + wait_seconds
    pause = 0.02
    while (lock := files.try_lock(path)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _still_held(path, wait_seconds)
        if pause == 0.02:
            _log.warning("another writer holds %s: waiting for at most %g s", path, wait_seconds)
        time.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)
    try:
        yield lock.excludes
    finally:
        lock.release()


def _first_turn(path: str, lease_seconds: float, wait_seconds: float) -> AbstractContextManager[None]:
    """Be the only first writer; one that stands still for `lease_seconds` is taken for dead."""
    from chronicle.storage import lease

    beat = lease_seconds / lease.BEATS_TO_DEATH
    return lease.held(atomic_object(path, ""), path, beat_seconds=beat, wait_seconds=wait_seconds)


def _still_held(path: str, wait_seconds: float) -> CurrentConflict:
    return CurrentConflict(f"another writer has held {path} for {wait_seconds:g} s", hint="run again when it is done", path=path)
