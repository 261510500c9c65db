"""Where ingest puts rows: columns in chunks, chunks into one private segment a micro-batch, published by one swap."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from chronicle.events.log import EventWriter, EventWriterFence, RawEventLanceStore
from chronicle.events.mark import LogMark
from chronicle.events.row import Common, EventColumns, Run
from chronicle.layout import DatasetPaths

CHUNK_BYTES = 8 << 20
"""Payload bytes of one record batch on its way to the writer thread."""
_CHUNK_ROOM = CHUNK_BYTES + (2 << 20)
"""What a chunk is ended by comes in addition."""


Row = tuple[int, str | None, int, str, Sequence[bytes], Common]


class LastRows:
    """Takes rows (`events.imported.RowSink`) for the end of a micro-batch."""

    def __init__(self) -> None:
        self.held: list[Row] = []

    def add(self, seq: int, event_id: str | None, timestamp_ms: int, kind: str, pieces: Sequence[bytes], common: Common) -> None:
        """Take one row."""
        self.held.append((seq, event_id, timestamp_ms, kind, pieces, common))


class FactSink:
    """Takes rows (`events.imported.RowSink`). Nothing is visible before `publish`; leaving by an exception discards the rest."""

    def __init__(self, paths: DatasetPaths, *, fence: EventWriterFence | None = None, dry_run: bool = False) -> None:
        """Of a dataset's log, under a `fence` of the producer or under epochs of its own."""
        self._fence = fence
        self._store = RawEventLanceStore(paths.events)
        self._writer: EventWriter | None = None
        self._columns = EventColumns(_CHUNK_ROOM)
        self._dry_run = dry_run
        self._flushed_bytes = 0
        self._last_event = ""
        self.last = LastRows()
        """For what is read without the rest, the ends of sources: side by side they are found in a few chunks of the column."""
        self.segments = 0
        """Segments published so far."""
        self.mark: LogMark | None = None
        """The end of the last of them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, seq: int, event_id: str | None, timestamp_ms: int, kind: str, pieces: Sequence[bytes], common: Common) -> None:
        """Take one row."""
        self._last_event = event_id or ""
        self._columns.add(seq, event_id, timestamp_ms, kind, pieces, common)
        if self._columns.bytes >= CHUNK_BYTES:
            self._flush()

    def extend(self, run: Run) -> None:
        """Take some rows."""
        self._last_event = run.event_ids[-1] or ""
        self._columns.extend(run)
        if self._columns.bytes >= CHUNK_BYTES:
            self._flush()

    def settle(self) -> None:
        """Put the rows of `last` behind those that came so far."""
        held, self.last.held = self.last.held, []
        for row in held:
            self.add(*row)

    @property
    def pending_bytes(self) -> int:
        """Payload bytes since the last publish."""
        return self._flushed_bytes + self._columns.bytes

    def publish(self) -> None:
        """Make all rows since the last publish visible, durably; does nothing where there are none."""
        self.settle()
        self._flush()
        if self._writer is not None and (segment := self._writer.publish()) is not None:
            self.segments += 1
            self.mark = LogMark(segment.id, self._writer.end, self._last_event)
        self._flushed_bytes = 0

    def log(self) -> tuple[int, int]:
        """(`fact_version`, rows) of the log as it is now; zeros where there is none."""
        manifest = self._store.found()
        return (0, 0) if manifest is None else (manifest.fact_version, manifest.fact_rows)

    def _flush(self) -> None:
        if not self._columns.rows:
            return
        self._flushed_bytes += self._columns.bytes
        if self._dry_run:
            self._columns.batch()
            return
        if self._writer is None:
            self._writer = self._store.writer(self._fence)
        self._writer.write(self._columns.batch())
