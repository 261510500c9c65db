"""EventRow: the stable physical row of `events.lance` (events.md 2, physical.md 1.3), and batches of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from chronicle.errors import InputError, IntegrityError
from chronicle.events.record import EventRecord, parse

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("event_id", pa.string()),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("agent_id", pa.string()),
        pa.field("session_id", pa.string()),
        pa.field("call_id", pa.string()),
        pa.field("trace_id", pa.string()),
        pa.field("parent_call_id", pa.string()),
        pa.field("model", pa.string()),
        pa.field("payload_json", pa.string(), nullable=False),
    ]
)
"""The peer compares names, order, types and nullability, and refuses any metadata."""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
ENCODE: tuple[str, ...] = ("payload_json",)
"""Columns that are stored densely (`storage.lanceio`)."""

MAX_BATCH_BYTES = (1 << 31) - 1
"""Offsets of a column of texts are int32."""

Piece = bytes | memoryview


class EventRow(NamedTuple):
    """One row. `timestamp` is in ms since 1970; `payload_json` is the whole record."""

    seq: int
    event_id: str | None
    timestamp: int
    kind: str
    source: str
    agent_id: str | None
    session_id: str | None
    call_id: str | None
    trace_id: str | None
    parent_call_id: str | None
    model: str | None
    payload_json: bytes


class Common(NamedTuple):
    """Columns that mostly repeat from row to row. Hand in the same object for rows that share them: that is cheap."""

    source: str
    agent_id: str | None = None
    session_id: str | None = None
    call_id: str | None = None
    trace_id: str | None = None
    parent_call_id: str | None = None
    model: str | None = None


class Run(NamedTuple):
    """Rows of one kind with the same common columns: to take them together costs a part of one by one."""

    kind: str
    common: Common
    seqs: Sequence[int]
    event_ids: Sequence[str | None]
    timestamps: Sequence[int]
    payloads: Sequence[bytes]


class _Block:
    """Bytes one after another where they will stay: of a large array numpy asks the system for large pages."""

    def __init__(self, room: int) -> None:
        self._room = np.empty(room, np.uint8)
        self.size = 0

    def reserve(self, size: int) -> None:
        end = self.size + size
        if end > len(self._room):
            room = np.empty(max(end, 2 * self.size), np.uint8)
            room[: self.size] = self._room[: self.size]
            self._room = room

    def put(self, data: Piece) -> None:
        end = self.size + len(data)
        self._room.data[self.size : end] = data
        self.size = end

    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self._room[: self.size])


class EventColumns:
    """Collects rows as columns. One `batch` at a time: taking it empties the builder."""

    def __init__(self, room: int = 0) -> None:
        """`room`: bytes of `payload_json` that a batch is likely to have."""
        self._room = room
        self._clear()

    def _clear(self) -> None:
        self._seq = array("q")
        self._event_id: list[str | None] = []
        self._timestamp = array("q")
        self._kind: list[str] = []
        self._payloads = _Block(self._room)
        self._ends = array("i", [0])
        self._commons: list[Common] = []
        self._common_at = array("i")
        self._common: Common | None = None

    @property
    def rows(self) -> int:
        """Rows collected since the last batch."""
        return len(self._seq)

    @property
    def bytes(self) -> int:
        """Bytes of `payload_json` collected since the last batch."""
        return self._payloads.size

    def add(self, seq: int, event_id: str | None, timestamp_ms: int, kind: str, pieces: Sequence[Piece], common: Common) -> None:
        """Add one row; `pieces` joined are its payload_json and must be UTF-8.

        Raises InputError (`too-large`) when the batch would reach 2 GiB: take the batch first, then add again.
        """
        self._make_ready(sum(map(len, pieces)), common)
        self._seq.append(seq)
        self._event_id.append(event_id)
        self._timestamp.append(timestamp_ms)
        self._kind.append(kind)
        self._common_at.append(len(self._commons) - 1)
        for piece in pieces:
            self._payloads.put(piece)
        self._ends.append(self._payloads.size)

    def extend(self, run: Run) -> None:
        """Add some rows; raises as `add` does."""
        sizes = list(map(len, run.payloads))
        self._make_ready(sum(sizes), run.common)
        rows = len(sizes)
        self._seq.extend(run.seqs)
        self._event_id.extend(run.event_ids)
        self._timestamp.extend(run.timestamps)
        self._kind.extend(repeat(run.kind, rows))
        self._common_at.extend(repeat(len(self._commons) - 1, rows))
        self._ends.extend(accumulate(sizes, initial=self._ends.pop()))
        self._payloads.put(b"".join(run.payloads))

    def _make_ready(self, size: int, common: Common) -> None:
        if self._payloads.size + size > MAX_BATCH_BYTES:
            raise InputError("rows of 2 GiB and more do not fit into one batch", kind="too-large")
        self._payloads.reserve(size)
        if common is not self._common:
            self._common = common
            self._commons.append(common)

    def add_row(self, row: EventRow) -> None:
        """Add one row that is there as a whole."""
        common = Common(row.source, row.agent_id, row.session_id, row.call_id, row.trace_id, row.parent_call_id, row.model)
        if common == self._common and self._common is not None:
            common = self._common
        self.add(row.seq, row.event_id, row.timestamp, row.kind, (row.payload_json,), common)

    def batch(self) -> pa.RecordBatch:
        """Return what was collected as one RecordBatch of `SCHEMA`, and begin anew."""
        at = _fixed(pa.int32(), self._common_at)
        common = {name: pa.array([getattr(c, name) for c in self._commons], pa.string()).take(at) for name in Common._fields}
        columns = [
            _fixed(pa.int64(), self._seq),
            pa.array(self._event_id, pa.string()),
            _fixed(SCHEMA.field("timestamp").type, self._timestamp),
            pa.array(self._kind, pa.string()),
            *(common[name] for name in Common._fields),
            pa.StringArray.from_buffers(self.rows, pa.py_buffer(self._ends), self._payloads.buffer()),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _fixed(kind: pa.DataType, values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def row_of(record: EventRecord) -> EventRow:
    """The row of a record. Raises InputError (`member:invalid`) where it has no timestamp_unix_ms (`record.timed`)."""
    envelope = record.envelope
    if envelope.timestamp_unix_ms is None:
        raise InputError("record has no timestamp_unix_ms", kind="member:invalid")
    return EventRow(
        seq=envelope.seq,
        event_id=envelope.event_id,
        timestamp=envelope.timestamp_unix_ms,
        kind=envelope.kind,
        source=envelope.source,
        agent_id=record.agent_id,
        session_id=record.session_id,
        call_id=envelope.call_id,
        trace_id=envelope.trace_id,
        parent_call_id=envelope.parent_call_id,
        model=record.model,
        payload_json=record.text,
    )


def record_of(row: EventRow) -> EventRecord:
    """The record of a row; the physical session_id and agent_id override the record's own (events.md 5).

    Raises IntegrityError where payload_json is no record, or where another column differs from it.
    """
    try:
        claimed = parse(row.payload_json)
    except InputError as error:
        raise IntegrityError(f"payload_json of seq {row.seq} is no record: {error.message}", hint=_HINT, seq=row.seq) from error
    record = EventRecord(row.payload_json, claimed.envelope, row.session_id, row.agent_id)
    envelope = claimed.envelope
    pairs = {
        "seq": (envelope.seq, row.seq),
        "event_id": (envelope.event_id, row.event_id),
        "timestamp": (envelope.timestamp_unix_ms, row.timestamp),
        "kind": (envelope.kind, row.kind),
        "source": (envelope.source, row.source),
        "call_id": (envelope.call_id, row.call_id),
        "trace_id": (envelope.trace_id, row.trace_id),
        "parent_call_id": (envelope.parent_call_id, row.parent_call_id),
        "model": (record.model, row.model),
    }
    wrong = [name for name, (claim, column) in pairs.items() if claim != column]
    if wrong:
        where = f"columns {', '.join(wrong)} of the row with seq {row.seq}"
        raise IntegrityError(f"{where} differ from its payload_json", hint=_HINT, columns=wrong)
    return record


_HINT = "the row was not written by Chronicle or the peer; replay the log into a new dataset without it"


def rows_of(batch: pa.RecordBatch) -> Iterator[EventRow]:
    """The rows of a batch that holds all 12 columns."""
    columns = []
    for name in COLUMNS:
        column = batch.column(name)
        if name == "timestamp":
            column = column.cast(pa.int64())
        elif name == "payload_json":
            column = column.cast(pa.binary())
        columns.append(column.to_pylist())
    return map(EventRow, *columns)
