"""RawEventLanceStore: the canonical event log. Appends through a fence, reads pinned snapshots (design 4.5).

An append never reads an old row. One micro-batch is one new private segment, brought to the disk, and one swap of the
manifest that shows it.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
import pyarrow as pa

from chronicle.errors import CommitStateUnknown, IntegrityError, NotFoundError, PublicationChanged, StaleFence
from chronicle.events import manifest as transitions
from chronicle.events.manifest import EventWriterFence, Manifest, Segment
from chronicle.events.record import EventRecord, timed
from chronicle.events.row import ENCODE, SCHEMA, EventColumns, row_of
from chronicle.events.snapshot import LogSnapshot, LogStats
from chronicle.events.unseen import UnseenSegment
from chronicle.layout import MANIFEST, MANIFEST_LOCK, segment_path
from chronicle.storage import files, lanceio, objects
from chronicle.storage.feed import Feed

if TYPE_CHECKING:
    from chronicle.reports import MaintainReport

__all__ = ["Ambient", "AppendReport", "EventWriter", "EventWriterFence", "LogSnapshot", "LogStats", "RawEventLanceStore"]

PUBLISH_ATTEMPTS = 20
LONGEST_PAUSE = 0.5
CHUNK_BYTES = 8 << 20
WEEK_SECONDS = 7 * 86400.0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> str:
    return str(uuid.uuid4())


class Ambient(msgspec.Struct, frozen=True):
    """What a log takes from the world around it; tests put their own in."""

    now_ms: Callable[[], int] = _now_ms
    new_id: Callable[[], str] = _new_id
    rng: random.Random = msgspec.field(default_factory=random.Random)
    sleep: Callable[[float], None] = time.sleep


class AppendReport(msgspec.Struct, frozen=True):
    """What one append showed; `segment` is None when there was nothing to append."""

    rows: int
    fact_version: int
    segment: Segment | None


class RawEventLanceStore:
    """The event log at `<…>/events.lance`."""

    def __init__(self, events: str, ambient: Ambient | None = None) -> None:
        self.events = events
        self.ambient = ambient or Ambient()
        self._object = objects.atomic_object(f"{events}/{MANIFEST}", MANIFEST_LOCK)
        self._written: tuple[bytes, Manifest | None] = b"", None

    def exists(self) -> bool:
        """Whether the log has a manifest."""
        return self._object.read()[0] is not None

    def manifest(self) -> Manifest:
        """Read the manifest. Raises NotFoundError where there is no log, IntegrityError where it contradicts itself."""
        manifest = self.found()
        if manifest is None:
            raise NotFoundError(f"no event log at {self.events}", hint="check --lake and --dataset", path=self.events)
        return manifest

    def found(self) -> Manifest | None:
        """The manifest; None where there is no log. Raises IntegrityError as `manifest` does."""
        data, _ = self._object.read()
        return None if data is None else transitions.decode(data)

    def change(self, change: Callable[[Manifest | None], Manifest]) -> Manifest:
        """Apply a transition by compare-and-swap and return the manifest that holds afterwards.

        A transition that returns the manifest it was given writes nothing. Raises what it raises, PublicationChanged
        after too many lost swaps, CommitStateUnknown when the answer was lost.
        """

        def swap(data: bytes | None) -> tuple[bytes | None, Manifest]:
            before = None if data is None else self._decoded(data)
            after = change(before)
            if after is before:
                return None, after
            new = transitions.encode(after)
            self._written = new, after
            return new, after

        return objects.update(self._object, swap, rng=self.ambient.rng, sleep=self.ambient.sleep)

    def _decoded(self, data: bytes) -> Manifest:
        """The manifest in these bytes; of a long one that nobody changed since this store wrote it, the one that it wrote."""
        written, manifest = self._written
        return manifest if manifest is not None and written == data else transitions.decode(data)

    def writer(self, fence: EventWriterFence | None = None, *, writer_id: str | None = None) -> EventWriter:
        """Return a writer. With a `fence` of the producer it writes under that one only, else under epochs of its own."""
        return EventWriter(self, writer_id or f"chronicle-{self.ambient.new_id()}", fence)

    def append(
        self, records: Iterable[EventRecord], *, fence: EventWriterFence | None = None, writer_id: str | None = None
    ) -> AppendReport:
        """Append records as one micro-batch; those without a timestamp_unix_ms get one (`record.timed`)."""
        columns = EventColumns()
        rows = 0
        with self.writer(fence, writer_id=writer_id) as writer:
            for record in records:
                columns.add_row(row_of(timed(record, self.ambient.now_ms())))
                if columns.bytes >= CHUNK_BYTES:
                    rows += columns.rows
                    writer.write(columns.batch())
            rows += columns.rows
            writer.write(columns.batch())
            segment = writer.publish()
        version = writer.fact_version
        if version is None:
            version = self.manifest().fact_version if self.exists() else 0
        return AppendReport(rows, version, segment)

    def maintain(
        self,
        *,
        compact: bool = True,
        index: bool = True,
        vacuum: bool = True,
        full: bool = False,
        retention_seconds: float = WEEK_SECONDS,
        retired: str | None = None,
        dry_run: bool = False,
    ) -> MaintainReport:
        """Merge, index and tidy up the log (design 6); no row, order or `fact_version` changes.

        `retired`: where the records of unreachable things lie, by default beside the log. Raises NotFoundError where
        there is no log, IntegrityError where rows would change: then nothing was replaced.
        """
        from chronicle.events.maintenance import LogMaintenance
        from chronicle.events.vacuum import vacuum_log
        from chronicle.reports import MaintainReport
        from chronicle.retired import Retired
        from chronicle.vacuum import Vacuum

        report = MaintainReport(dry_run=dry_run)
        records = Retired(retired or f"{self.events.rpartition('/')[0]}/retired")
        LogMaintenance(self, records, report).tend(compact=compact, index=index, full=full)
        if vacuum:
            vacuum_log(self, Vacuum.begin(records, retention_seconds, report))
        return report

    def snapshot(self) -> LogSnapshot:
        """Pin the log as it is now. Raises NotFoundError or IntegrityError as `manifest` does."""
        return LogSnapshot(self.events, self.manifest())

    def replay(
        self, session_id: str | None = None, start: int = 0, limit: int | None = None
    ) -> Iterator[tuple[int, EventRecord]]:
        """Yield (row number, record) of the log as it is now; see `LogSnapshot.replay`."""
        return self.snapshot().replay(session_id, start, limit)

    def stats(self) -> LogStats:
        """Count what the log holds now."""
        return self.snapshot().stats()


class EventWriter:
    """Writes micro-batches: `write` any number of batches, then `publish` shows them all at once.

    The fence is activated before the first write, so a writer that writes nothing changes nothing. Leaving a `with`
    block, or `close`, gives up what was not published.
    """

    def __init__(self, store: RawEventLanceStore, writer_id: str, fence: EventWriterFence | None) -> None:
        self._store = store
        self._writer_id = fence.writer_id if fence else writer_id
        self._given = fence
        self._fence: EventWriterFence | None = None
        self._seen: Manifest | None = None
        self._unknown_over: Manifest | None = None
        self._feed: Feed[pa.RecordBatch, int] | None = None
        self._id = ""
        self._rows = 0
        self._written: Segment | None = None
        self._undecided = False
        self.fact_version: int | None = None
        """fact_version of the manifest of the last publication."""
        self.end = 0
        """Rows of the log up to the end of the last publication."""

    @property
    def fence(self) -> EventWriterFence | None:
        """The fence it writes under; None before the first write."""
        return self._fence

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the micro-batch; they are encoded on another thread. Empty batches are passed over.

        Raises StaleFence or EpochAlreadyOwned where the producer's own fence is not accepted, and what writing raised.
        """
        if self._written is not None:
            raise RuntimeError("the last micro-batch is not published: call publish again, or close")
        if not batch.num_rows:
            return
        if self._feed is None:
            self._begin()
        assert self._feed is not None
        with self._removal_named():
            self._feed.put(batch)
        self._rows += batch.num_rows

    def publish(self) -> Segment | None:
        """Show what was written and return its segment; None when nothing was.

        Another writer's activation in between costs a new epoch, at most 20 times, never the data. Raises StaleFence
        when those are used up or the fence is the producer's; CommitStateUnknown when nobody knows: call it again.
        """
        if self._written is None:
            if self._feed is None:
                return None
            self._finish()
        segment = self._written
        assert segment is not None
        shown = self._show(segment)
        self.fact_version = shown.fact_version
        self.end = transitions.end_of(shown, segment)
        self._written, self._unknown_over, self._undecided = None, None, False
        return segment

    def close(self) -> None:
        """Give up what is not published, and remove its files. A segment that may be visible is left alone."""
        if self._feed is not None:
            self._feed.abort()
            self._feed = None
        elif self._written is None:
            return
        self._written = None
        if not self._undecided:
            files.remove_tree(segment_path(self._store.events, self._id))

    abort = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _begin(self) -> None:
        if self._fence is None:
            self._activate()
        assert self._fence is not None
        self._id = f"e{self._fence.epoch}-{self._store.ambient.new_id()}"
        self._rows = 0
        path = segment_path(self._store.events, self._id)
        files.make_dirs(path.rpartition("/")[0])
        self._feed = Feed(lambda batches: lanceio.create(path, SCHEMA, batches, ENCODE))

    def _finish(self) -> None:
        """End the segment and bring it to the disk, before any manifest names it."""
        assert self._feed is not None
        with self._removal_named():
            version = self._feed.finish()
            files.sync_tree(segment_path(self._store.events, self._id))
        self._feed = None
        self._written = Segment(self._id, version, self._rows, 0, True)

    @contextmanager
    def _removal_named(self) -> Iterator[None]:
        """Raise StaleFence where files are gone while they are written: vacuum takes the fence before it removes any."""
        try:
            yield
        except NotFoundError as error:
            if not self._store.exists() or transitions.fence_of(self._store.manifest()) == self._fence:
                raise
            raise _removed(self._id) from error

    def _activate(self) -> None:
        """Become the active writer. When the answer is lost, doing it again is harmless."""
        for attempt in range(PUBLISH_ATTEMPTS):
            try:
                active = self._store.change(self._activation)
                self._fence = transitions.fence_of(active)
                return
            except CommitStateUnknown:
                if attempt == PUBLISH_ATTEMPTS - 1:
                    raise

    def _activation(self, manifest: Manifest | None) -> Manifest:
        """The change that makes this writer the active one. Raises IntegrityError where segments lie there without a manifest.

        A log has its manifest before its first segment: it was lost, and a new one would make garbage of all facts.
        """
        events = self._store.events
        if manifest is None and files.list_dir(f"{events}/segments") and not self._store.exists():
            raise IntegrityError(
                f"{events} holds segments, but its {MANIFEST} is gone",
                hint="restore that file; to begin a new log, move the directory away first",
                path=events,
            )
        return transitions.activate(manifest, self._writer_id, self._given)

    def _show(self, segment: Segment) -> Manifest:
        """Publish under the fence, or where that is over by swaps that take it and publish in one: these starve nobody."""
        ambient = self._store.ambient
        taken = False
        for attempt in range(PUBLISH_ATTEMPTS):
            last = attempt == PUBLISH_ATTEMPTS - 1
            try:
                self._undecided = True
                shown = self._store.change(self._taking(segment) if taken else lambda m: self._publication(m, segment))
            except StaleFence:
                self._undecided = False
                if self._given is not None or taken or last:
                    raise
                taken = True
                ambient.sleep(ambient.rng.uniform(0, LONGEST_PAUSE / 50))
            except PublicationChanged:
                self._undecided = False
                raise
            except CommitStateUnknown:
                # The next round reads the manifest: it finds the segment there, or may publish it.
                self._unknown_over = self._seen
                if last:
                    raise
            else:
                self._keep_fence(shown)
                return shown
        raise AssertionError("unreachable")

    def _keep_fence(self, shown: Manifest) -> None:
        active = transitions.fence_of(shown)
        if active.writer_id == self._writer_id:
            self._fence = active

    def _taking(self, segment: Segment) -> Callable[[Manifest | None], Manifest]:
        """The change that activates a new epoch and publishes under it. Raises StaleFence where a vacuum took the segment."""
        unseen = UnseenSegment(self._store.events, segment)

        def change(manifest: Manifest | None) -> Manifest:
            if manifest is None or segment in manifest.segments:
                return self._publication(manifest, segment)
            if not unseen.is_whole():
                raise _removed(segment.id)
            shown = transitions.maintained(manifest, self._writer_id, lambda m, fence: self._publication(m, segment, fence))
            self._seen = manifest
            return shown

        return change

    def _publication(
        self, manifest: Manifest | None, segment: Segment, fence: EventWriterFence | None = None
    ) -> Manifest:
        if manifest is None:
            raise NotFoundError(f"the event log at {self._store.events} is gone", hint="run again", path=self._store.events)
        if segment in manifest.segments:
            return manifest  # an earlier swap landed, only its answer was lost
        if self._unknown_over is not None and _may_hide(manifest, self._unknown_over):
            raise CommitStateUnknown(
                f"segment {segment.id} may be visible: the log was compacted before its swap could be read back",
                hint="run again: what is there already is skipped by its receipt or dropped by the fold",
                id=segment.id,
            )
        fence = fence or self._fence
        assert fence is not None
        after = transitions.publish(manifest, fence, segment)
        self._seen = manifest
        return after


def _removed(segment_id: str) -> StaleFence:
    return StaleFence(
        f"segment {segment_id} was removed by `maintain` before it could be shown",
        hint="run again: nothing of it was shown; give `maintain` a longer --retention",
        id=segment_id,
    )


def _may_hide(manifest: Manifest, before: Manifest) -> bool:
    """Whether a merge since `before` may have swallowed a segment that was published over it."""
    known = {segment.id for segment in before.segments}
    merged = any(segment.level > 0 for segment in manifest.segments if segment.id not in known)
    return merged or not known <= {segment.id for segment in manifest.segments}
