"""Journals: JSONL of EventRecords, taken in as the records they are, with their ids (design 4.3; `replay | ingest -`)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chronicle import identity
from chronicle.errors import InputError
from chronicle.events.imported import SOURCE_KINDS, RowSink, SourceRef, decode_record
from chronicle.events.record import EventRecord, parse, timed, with_members
from chronicle.events.row import Common, row_of
from chronicle.formats.document import CutDocument

JOURNAL_KIND = "unsupported:event-journal"
"""How the cutter names a journal: it holds no documents."""


class JournalRows(msgspec.Struct):
    """What a journal held."""

    records: int = 0
    rejected: list[CutDocument] = []
    """Lines that are no record, as members to set aside."""
    sources: list[tuple[str, SourceRef]] = []
    """Its `source.*` facts, for the receipts."""


def put_journal(sink: RowSink, data: bytes, source_id: str, now_ms: int) -> JournalRows:
    """Write the records of a journal to the log in their order."""
    found = JournalRows()
    for locator, (start, end) in enumerate(_lines(data)):
        try:
            record = _record(data[start:end], source_id, locator, now_ms)
        except InputError as error:
            found.rejected.append(
                CutDocument(
                    format="", form="", locator=locator, lead=start, start=start, end=end, fault=error.kind, reason=str(error)
                )
            )
            continue
        found.sources += put_record(sink, record)
        found.records += 1
    return found


def put_record(sink: RowSink, record: EventRecord) -> list[tuple[str, SourceRef]]:
    """Write one record to the log as it is; what a `source.*` fact among them tells the receipts comes back."""
    row = row_of(record)
    common = Common(row.source, row.agent_id, row.session_id, row.call_id, row.trace_id, row.parent_call_id, row.model)
    sink.add(row.seq, row.event_id, row.timestamp, row.kind, (row.payload_json,), common)
    return _source_ref(record) if record.kind in SOURCE_KINDS else []


def one_line(record: bytes) -> bytes:
    """A record's text on one line: a part that holds a line break is written as `text` instead of `value`, no byte changes."""
    if b"\n" not in record and b"\r" not in record:
        return record
    try:
        value = bytes(decode_record(record).payload.value)
    except msgspec.MsgspecError:
        value = b""
    as_text = b'"text":' + msgspec.json.encode(value.decode("utf-8"))
    moved = record.replace(b'"value":' + value, as_text, 1) if value else record
    if b"\n" in moved or b"\r" in moved:
        moved = msgspec.json.encode(msgspec.json.decode(moved, type=dict[str, msgspec.Raw]))
        moved = moved.replace(b"\r", b" ").replace(b"\n", b" ")
    return moved


def _lines(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        if data[at:end].strip():
            yield at, end
        at = end + 1


def _record(line: bytes, source_id: str, locator: int, now_ms: int) -> EventRecord:
    record = parse(line.removeprefix(b"\xef\xbb\xbf"))
    if record.event_id is None:
        record = parse(with_members(record.text, {"event_id": identity.fingerprint(source_id, str(locator))}))
    return timed(record, now_ms)


def _source_ref(record: EventRecord) -> list[tuple[str, SourceRef]]:
    try:
        ref = decode_record(record.text).payload.source
    except msgspec.MsgspecError:
        return []
    return [(record.kind, ref)] if ref is not None else []
