"""Reading facts: sources and documents of a pinned log (design 4.2). The edge between the log and the pure folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from chronicle.errors import NotFoundError
from chronicle.events.imported import DOCUMENT_KINDS, SOURCE_KINDS, SourceRef, decode_record
from chronicle.formats.document import drained
from chronicle.layout import DatasetPaths
from chronicle.projection.fold import DocumentFold, FactDocument
from chronicle.projection.sources import SourceFold, fold_all, wanted_documents

if TYPE_CHECKING:
    import pyarrow as pa

    from chronicle.events.log import LogSnapshot

ROW_COLUMNS = ["kind", "trace_id", "payload_json"]
_ROWS_A_TAKE = 5_000

Row = tuple[int, str, str, bytes]
"""(row number, kind, trace_id, payload_json)."""


def pin(paths: DatasetPaths) -> LogSnapshot:
    """The log of a dataset as it is now. Raises NotFoundError where there is none."""
    from chronicle.events.log import LogSnapshot, RawEventLanceStore

    manifest = RawEventLanceStore(paths.events).found()
    if manifest is None:
        raise NotFoundError(
            f"dataset {paths.dataset!r} is not in {paths.lake}",
            hint="check --lake and --dataset; `chronicle list` shows what is there",
            dataset=paths.dataset,
        )
    return LogSnapshot(paths.events, manifest)


def source_fold(snapshot: LogSnapshot, stop: int | None = None) -> SourceFold:
    """Fold of all `source.*` facts of a snapshot, or of those before row `stop`."""
    return fold_all(source_facts(snapshot, stop))


def source_facts(snapshot: LogSnapshot, stop: int | None = None, start: int = 0) -> Iterator[tuple[str, SourceRef]]:
    """(kind, payload.source) of the `source.*` facts `[start, stop)`, found by their columns alone: ends in append order.

    Then those `source.opened` of whose source no `source.closed` is in the range: that one would say all of it again.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    sought = pa.array(sorted(SOURCE_KINDS))
    ends: list[int] = []
    begins: list[tuple[int, str | None]] = []
    for first, batch in snapshot.scan(["kind", "trace_id"], start=start, stop=stop):
        hits = pc.indices_nonzero(pc.is_in(batch["kind"], value_set=sought))
        few = batch.take(hits)
        for hit, kind, trace_id in zip(hits.to_pylist(), few["kind"].to_pylist(), few["trace_id"].to_pylist(), strict=True):
            if kind == "source.opened":
                begins.append((first + hit, trace_id))
            else:
                ends.append(first + hit)
    whole: set[str | None] = set()
    for kind, ref in _refs_of(snapshot, ends):
        if kind == "source.closed":
            whole.add(ref.source_id)
        yield kind, ref
    # Records of others may have no trace id, or one of their own.
    yield from _refs_of(snapshot, [row for row, trace_id in begins if trace_id not in whole])


def _refs_of(snapshot: LogSnapshot, rows: Sequence[int]) -> Iterator[tuple[str, SourceRef]]:
    for at in range(0, len(rows), _ROWS_A_TAKE):
        taken = snapshot.take(rows[at : at + _ROWS_A_TAKE], ["kind", "payload_json"])
        yield from source_refs(taken["kind"].to_pylist(), payloads(taken["payload_json"]))


def source_refs(kinds: Iterable[str], records: Iterable[bytes]) -> Iterator[tuple[str, SourceRef]]:
    """The `payload.source` of each `source.*` record; records of another shape are passed over."""
    for kind, record in zip(kinds, records, strict=True):
        if kind in SOURCE_KINDS:
            try:
                ref = decode_record(record).payload.source
            except msgspec.MsgspecError:
                continue
            if ref is not None:
                yield kind, ref


def payloads(column: pa.Array | pa.ChunkedArray) -> list[bytes]:
    """A utf8 column as bytes objects."""
    import pyarrow as pa

    found: list[bytes] = column.cast(pa.binary()).to_pylist()
    return found


def rows_of(first: int | Sequence[int], batch: pa.RecordBatch) -> Iterator[Row]:
    """Rows of one batch with `ROW_COLUMNS`; `first` is the number of its first row, or the numbers of all."""
    numbers = range(first, first + batch.num_rows) if isinstance(first, int) else first
    records = drained(payloads(batch["payload_json"]))  # each may be large, and is held by what it becomes
    return zip(numbers, batch["kind"].to_pylist(), batch["trace_id"].to_pylist(), records, strict=True)


def document_rows(
    snapshot: LogSnapshot, start: int = 0, stop: int | None = None, ignored: dict[str, int] | None = None
) -> Iterator[Row]:
    """The `document.*` rows `[start, stop)`, in append order; kinds that are no import's are counted in `ignored`."""
    for first, batch in snapshot.scan(ROW_COLUMNS, start=start, stop=stop):
        for row in rows_of(first, batch):
            kind = row[1]
            if kind in DOCUMENT_KINDS:
                yield row
            elif ignored is not None and kind not in SOURCE_KINDS:
                ignored[kind] = ignored.get(kind, 0) + 1


def rows_of_documents(snapshot: LogSnapshot, document_ids: Sequence[str], stop: int) -> Iterator[Row]:
    """`document.*` rows before row `stop` that belong to the given documents; of one document in append order."""
    if document_ids and stop:
        for numbers, batch in snapshot.lookup("trace_id", document_ids, ROW_COLUMNS):
            yield from (row for row in rows_of(numbers.to_pylist(), batch) if row[0] < stop and row[1] in DOCUMENT_KINDS)


def whole_documents(snapshot: LogSnapshot, documents: DocumentFold, rows: Iterable[Row], stop: int) -> Iterator[FactDocument]:
    """What a fold makes of rows before row `stop`; the documents that it puts off are looked up again, few at a time."""
    yield from documents.feed(rows)
    for few in documents.put_off():
        yield from documents.feed(rows_of_documents(snapshot, few, stop))


def live_documents(snapshot: LogSnapshot, fold: SourceFold, *, keep_opaque: bool = False) -> Iterator[FactDocument]:
    """Every document of all current sources, as the facts hold it, in the order in which they become whole."""
    documents = DocumentFold(wanted_documents(fold, fold.coverage()), keep_opaque=keep_opaque)
    yield from whole_documents(snapshot, documents, document_rows(snapshot), snapshot.fact_rows)
    if keep_opaque:
        yield from documents.finish()
