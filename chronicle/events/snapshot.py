"""Reading a log at one manifest: scan, lookup, take, replay and stats over exactly the pinned segment versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronicle.errors import IntegrityError, NotFoundError
from chronicle.events.manifest import Manifest, Segment, decode
from chronicle.events.record import EventRecord
from chronicle.events.row import COLUMNS, SCHEMA, record_of, rows_of
from chronicle.layout import MANIFEST, MANIFEST_LOCK, segment_path
from chronicle.storage import files, lanceio, objects

MAX_BATCH_ROWS = 1024
MIN_BATCH_ROWS = 16
STORED_BATCH_BYTES = 4 << 20
"""About as much of a segment's files goes into one batch: long values make batches of fewer rows, not more memory."""
IO_BUFFER_BYTES = 16 << 20
VALUES_A_FILTER = 4096
"""Values of one `IN (…)`; more become several filters."""


class LogStats(msgspec.Struct, kw_only=True):
    """What a snapshot holds. Times in ms since 1970, None where there are no rows; bytes as they lie on disk."""

    rows: int
    segments: int
    bytes: int
    kinds: dict[str, int]
    sessions: int
    first_unix_ms: int | None
    last_unix_ms: int | None
    imported_unix_ms: int | None = None
    """When a source was last read: the newest `source.*` fact."""


class LogSnapshot:
    """A pinned log. A row's number is its place in append order: segment by segment, from 0.

    Every read raises IntegrityError where a pinned segment is gone, does not decode or is not what the manifest says.
    """

    def __init__(self, events: str, manifest: Manifest) -> None:
        self._events = events
        self._manifest = manifest
        self._starts = [0, *accumulate(segment.rows for segment in manifest.segments)]
        self._open: dict[int, Any] = {}

    @property
    def manifest(self) -> Manifest:
        """The manifest that pins this snapshot."""
        return self._manifest

    @property
    def fact_version(self) -> int:
        """Grows with every publication that showed more rows."""
        return self._manifest.fact_version

    @property
    def fact_rows(self) -> int:
        """Rows of all segments."""
        return self._manifest.fact_rows

    @property
    def revision(self) -> int:
        """Grows with every manifest."""
        return self._manifest.revision

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Pinned segments in append order."""
        return self._manifest.segments

    def scan(self, columns: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (number of the first row, batch) for the rows `start` to `stop`, in append order, in flat memory."""
        _known(columns)
        stop = self.fact_rows if stop is None else min(stop, self.fact_rows)
        for at, (first, end) in self._overlapping(max(start, 0), stop):
            options = {"columns": list(columns), "offset": first - self._starts[at], "limit": end - first}
            for batch in self._batches(at, options):
                yield first, batch
                first += batch.num_rows
            if first != end:
                raise self._damaged(at, f"{end - first} rows are missing")

    def lookup(self, column: str, values: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Yield (row numbers, batch) of the rows whose `column` is one of `values`, using its index where there is one.

        Row numbers rise within a segment, and over all of them while `values` fit into one filter (4,096).
        """
        _known([column, *columns])
        unique = sorted(set(values))
        chunks = [unique[at : at + VALUES_A_FILTER] for at in range(0, len(unique), VALUES_A_FILTER)]
        for at in range(len(self.segments)):
            for chunk in chunks:
                yield from self._matching(at, f"{column} IN ({', '.join(map(_literal, chunk))})", columns)

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return the given rows, in the order given. Raises IndexError for a row that is not there."""
        _known(columns)
        wanted = np.asarray(rows, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.fact_rows):
            raise IndexError(f"rows beyond the {self.fact_rows} of this log")
        ordered, places = np.unique(wanted, return_inverse=True)
        parts = [pa.schema([SCHEMA.field(name) for name in columns]).empty_table()]
        for at, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            low, high = np.searchsorted(ordered, [start, end])
            if low < high:
                local = (ordered[low:high] - start).tolist()
                with self._reading(at):
                    parts.append(self.dataset(at).take(local, columns=list(columns)))
        table = pa.concat_tables(parts)
        return table if np.array_equal(wanted, ordered) else table.take(pa.array(places))

    def replay(
        self, session_id: str | None = None, start: int = 0, limit: int | None = None
    ) -> Iterator[tuple[int, EventRecord]]:
        """Yield (row number, record) from row `start` on, in append order; of one physical session where it is named.

        Raises IntegrityError at a row whose columns and payload_json disagree.
        """
        left = self.fact_rows if limit is None else limit
        for numbers, batch in self._replayed(session_id, start, left):
            for number, row in zip(numbers, rows_of(batch), strict=True):
                if left <= 0:
                    return
                if number >= start:
                    yield number, record_of(row)
                    left -= 1

    def _replayed(self, session_id: str | None, start: int, limit: int) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
        if limit <= 0:
            return
        if session_id is None:
            for first, batch in self.scan(COLUMNS, start, start + limit):
                yield range(first, first + batch.num_rows), batch
            return
        where = f"session_id = {_literal(session_id)}"
        for at in range(len(self.segments)):
            if self._starts[at + 1] > start:
                for numbers, batch in self._matching(at, where, COLUMNS):
                    yield numbers.to_pylist(), batch

    def stats(self) -> LogStats:
        """Count rows by kind, sessions, and the span of time; reads three small columns."""
        kinds: Counter[str] = Counter()
        sessions: set[str] = set()
        first: int | None = None
        last: int | None = None
        imported: int | None = None
        for _, batch in self.scan(["kind", "session_id", "timestamp"]):
            for pair in batch["kind"].value_counts().to_pylist():
                kinds[pair["values"]] += pair["counts"]
            sessions.update(value for value in batch["session_id"].unique().to_pylist() if value is not None)
            times = batch["timestamp"].cast(pa.int64()).to_numpy()
            first = min(int(times.min()), int(times.max()) if first is None else first)
            last = max(int(times.max()), int(times.min()) if last is None else last)
            read = times[pc.starts_with(batch["kind"], "source.").to_numpy(zero_copy_only=False)]
            if len(read):
                imported = max(int(read.max()), imported or 0)
        return LogStats(
            rows=self.fact_rows,
            segments=len(self.segments),
            bytes=sum(files.tree_bytes(self._path(at)) for at in range(len(self.segments))),
            kinds=dict(sorted(kinds.items())),
            sessions=len(sessions),
            first_unix_ms=first,
            last_unix_ms=last,
            imported_unix_ms=imported,
        )

    def dataset(self, at: int) -> Any:
        """The pinned Lance dataset of the segment at place `at`, checked against the manifest."""
        if at not in self._open:
            segment = self.segments[at]
            with self._reading(at):
                dataset = lanceio.open_version(self._path(at), segment.version)
            if not dataset.schema.equals(SCHEMA):
                raise self._damaged(at, "its columns are not those of an event log")
            rows = dataset.count_rows()
            if rows != segment.rows:
                raise self._damaged(at, f"it holds {rows} rows, the manifest says {segment.rows}")
            self._open[at] = dataset
        return self._open[at]

    @contextmanager
    def _reading(self, at: int) -> Iterator[None]:
        """Translate errors; what is missing is damage, or a log that maintenance has changed since this snapshot."""
        segment = self.segments[at]
        try:
            with lanceio.translated(self._path(at), reading=True):
                yield
        except (IntegrityError, NotFoundError) as error:
            if not self._is_named_now(segment):
                raise NotFoundError(
                    f"fact_version {self.fact_version} of {self._events} is not kept any more: segment {segment.id} was merged "
                    "with others and removed",
                    hint="run again; give `maintain` a longer --retention than reading takes",
                    id=segment.id,
                ) from error
            if isinstance(error, IntegrityError):
                raise
            raise self._damaged(at, f"version {segment.version} is gone") from error

    def _is_named_now(self, segment: Segment) -> bool:
        data, _ = objects.atomic_object(f"{self._events}/{MANIFEST}", MANIFEST_LOCK).read()
        return data is None or segment in decode(data).segments

    def _path(self, at: int) -> str:
        return segment_path(self._events, self.segments[at].id)

    def _damaged(self, at: int, what: str) -> IntegrityError:
        return IntegrityError(
            f"segment {self.segments[at].id} of {self._events}: {what}",
            hint="restore the directory of this segment",
            id=self.segments[at].id,
        )

    def _overlapping(self, start: int, stop: int) -> Iterator[tuple[int, tuple[int, int]]]:
        for at, (first, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            if max(first, start) < min(end, stop):
                yield at, (max(first, start), min(end, stop))

    def _batches(self, at: int, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        dataset = self.dataset(at)
        with self._reading(at):
            scanner = dataset.scanner(
                batch_size=_batch_rows(dataset), io_buffer_size=IO_BUFFER_BYTES, scan_in_order=True, **options
            )
            batches = iter(scanner.to_batches())
        while True:
            with self._reading(at):
                batch = next(batches, None)
            if batch is None:
                return
            if batch.num_rows:
                yield batch

    def _matching(self, at: int, where: str, columns: Sequence[str]) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        options = {"columns": list(columns), "filter": where, "with_row_address": True}
        ordinals: _Ordinals | None = None
        for batch in self._batches(at, options):
            ordinals = ordinals or _Ordinals(self.dataset(at))
            addresses = batch["_rowaddr"].to_numpy()
            numbers = pa.array(ordinals.of(addresses) + self._starts[at], pa.int64())
            yield numbers, batch.select(list(columns))


class _Ordinals:
    """Turns Lance row addresses (fragment, offset) of one dataset version into places in its scan order."""

    def __init__(self, dataset: Any) -> None:
        fragments = dataset.get_fragments()
        if any(fragment.num_deletions for fragment in fragments):
            scanned = dataset.scanner(columns=[], with_row_address=True, scan_in_order=True).to_table()
            self._addresses = scanned["_rowaddr"].to_numpy()
            self._places = np.arange(len(self._addresses))
        else:
            # Without deletions each fragment is one run: its first address and place say it all.
            self._addresses = np.array([fragment.fragment_id << 32 for fragment in fragments], dtype=np.uint64)
            rows = [fragment.physical_rows for fragment in fragments]
            self._places = np.array([0, *accumulate(rows)], dtype=np.int64)[:-1]
        order = np.argsort(self._addresses)
        self._addresses, self._places = self._addresses[order], self._places[order]

    def of(self, addresses: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Places of the rows at these addresses."""
        run = np.searchsorted(self._addresses, addresses, side="right") - 1
        places: np.ndarray[Any, np.dtype[np.int64]] = self._places[run] + (addresses - self._addresses[run]).astype(np.int64)
        return places


def _batch_rows(dataset: Any) -> int:
    stored = sum(file.file_size_bytes or 0 for fragment in dataset.get_fragments() for file in fragment.data_files())
    rows = STORED_BATCH_BYTES * int(dataset.count_rows()) // max(stored, 1)
    return max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, rows))


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _known(columns: Sequence[str]) -> None:
    if unknown := set(columns) - set(COLUMNS):
        raise ValueError(f"an event log has no column {', '.join(sorted(unknown))}")
