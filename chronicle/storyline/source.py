"""StorylineDataSource: one pinned state of the three tables, for readers (design 5.2)."""

from __future__ import annotations

import heapq
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import pyarrow as pa

from chronicle.errors import IntegrityError, NotFoundError, UsageError
from chronicle.formats.story import Origin, StorylineDocument
from chronicle.layout import TABLES, DatasetPaths, generation_path, is_safe_segment, last_state_path
from chronicle.projection.schemas import SCHEMAS
from chronicle.projection.stories import origins, stories
from chronicle.storage import files, lanceio
from chronicle.storage.uri import lake_path
from chronicle.storyline.current import GENERATION_PREFIX, Current, Snapshot, decode
from chronicle.storyline.store import StorylineLanceStore
from chronicle.storyline.writer import quoted

if TYPE_CHECKING:
    from chronicle.sql.sandbox import Bounds, QueryResult

SCAN_ROWS = 1024
"""Rows of one batch; one batch a table is what a reader of stories holds."""
_ORIGIN_COLUMNS = ["document_id", "origin", "residual"]
_IO_BYTES = 16 << 20
_BATCH_BYTES = 16 << 20
"""Long texts make batches of fewer rows, not more memory."""
_DOCUMENTS_PER_FILTER = 32
_FEW_DOCUMENTS = 512
_MOST_STRETCHES = 32
_FEWEST_ROWS = 128
_ATTEMPTS = 3


class Extent(NamedTuple):
    """Rows of a table that follow each other: `[start, stop)` in the order of a scan."""

    start: int
    stop: int


class StorylineDataSource(msgspec.Struct, frozen=True):
    """The tables at the versions that CURRENT named when it was opened; later commits do not show."""

    root: str
    snapshot: Snapshot
    revision: int
    runs: Any
    """Lance dataset (`lance.LanceDataset`); also `steps` and `tool_calls`."""
    steps: Any
    tool_calls: Any

    @classmethod
    def open(cls, uri: str | os.PathLike[str], dataset: str | None = None, *, generation: str | None = None) -> Self:
        """Pin a state of the tables: of the store at `uri` itself, or of a dataset of the lake at `uri`.

        The visible one, or the last one of an earlier generation that is still there. Raises NotFoundError where there is no
        such state, UsageError for a name that is not allowed, IntegrityError where it does not read.
        """
        place = lake_path(os.fspath(uri))
        root = place if dataset is None else DatasetPaths(place, dataset).storyline
        if generation is not None:
            return cls.at(root, last_state(root, generation))
        store = StorylineLanceStore(root)
        current = _current(store)
        for attempt in range(_ATTEMPTS):
            committed = current.committed
            try:
                tables = _tables(root, committed)
            except NotFoundError:
                # Perhaps a vacuum without retention came between; a state that stays must have its tables.
                newer = _current(store)
                if newer.committed.generation == committed.generation or attempt == _ATTEMPTS - 1:
                    raise
                current = newer
            else:
                break
        return cls(root=root, snapshot=committed, revision=current.revision, **tables)

    @classmethod
    def at(cls, root: str, snapshot: Snapshot) -> Self:
        """Pin a state that is known, say from another source's `snapshot`. Raises NotFoundError where it is not kept."""
        return cls(root=root, snapshot=snapshot, revision=0, **_tables(root, snapshot))

    def sql(self, sql: str, bounds: Bounds | None = None) -> QueryResult:
        """Rows of one SELECT over `runs`, `steps` and `tool_calls`: in batches, as an Arrow table or for pandas.

        DuckDB runs it in this process, shut in as for `chronicle query`. Raises UsageError where it is refused, wrong or
        stopped.
        """
        from chronicle.sql import sandbox

        tables = {name: getattr(self, name) for name in TABLES}
        return sandbox.run(sql, [("", tables)], bounds or sandbox.Bounds())

    def stream(self, table: str, columns: Sequence[str] | None = None, filter: str | None = None) -> pa.RecordBatchReader:
        """Rows of a table as an Arrow stream, in flat memory; `filter` is text for Lance, like `source = 'agent'`.

        Raises UsageError for a table, a column or a filter that cannot be.
        """
        if table not in TABLES:
            raise UsageError(f"there is no table {table!r}", hint=f"tables: {', '.join(TABLES)}")
        dataset = getattr(self, table)
        names = list(columns or dataset.schema.names)
        _check_scan(dataset, table, names, filter)
        schema = pa.schema([dataset.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, _scanned(dataset, self.root, columns=names, filter=filter))

    def to_pandas(self, table: str, columns: Sequence[str] | None = None, filter: str | None = None) -> Any:
        """Rows of a table as a pandas DataFrame, all at once; as `stream`."""
        return self.stream(table, columns, filter).read_pandas()

    def story(self, document_id: str) -> StorylineDocument:
        """One story. Raises NotFoundError where there is none of this id."""
        found = next(self.stories([document_id]), None)
        if found is None:
            raise NotFoundError(f"{self.root} holds no story {document_id!r}", hint="`runs.document_id` names the stories")
        return found

    def counts(self) -> dict[str, int]:
        """Rows of each table, from metadata."""
        return {name: int(getattr(self, name).count_rows()) for name in TABLES}

    def document_ids(self) -> list[str]:
        """All document ids in storage order: by `storage_ordinal`, and as they were written where it is equal.

        So the stories of one document come root first, as they were added.
        """
        with _reading(self.runs, self.root):
            columns = self.runs.to_table(columns=["storage_ordinal", "document_id"])
        pairs = zip(columns["storage_ordinal"].to_pylist(), columns["document_id"].to_pylist(), strict=True)
        return [document for _, document in sorted(pairs, key=itemgetter(0))]

    def ordered(self, table: str, document_ids: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of a table in storage order, in flat memory: documents as in `document_ids`, of each as they lie; all or some."""
        order = self.document_ids()
        if document_ids is not None:
            wanted = frozenset(document_ids)
            order = [document for document in order if document in wanted]
        return _in_order(getattr(self, table), order, self.root)

    def scan(
        self, table: str, columns: Sequence[str], filter: str | None = None, fragments: Sequence[Any] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows of a table that a filter takes, as they lie; of all of it or of some fragments.

        Raises IntegrityError as `rows` does.
        """
        return _scanned(getattr(self, table), self.root, columns=list(columns), filter=filter, fragments=fragments)

    def rows(self, table: str) -> Iterator[pa.RecordBatch]:
        """All rows of a table with all columns, as they lie. Raises IntegrityError where they do not read."""
        return _scanned(getattr(self, table), self.root)

    def origins(self) -> list[tuple[str, Origin]]:
        """(story id, where it came from) of all stories that have an origin.

        Raises IntegrityError where the tables are of the peer, which has no place for that.
        """
        if missing := [name for name in _ORIGIN_COLUMNS if name not in self.runs.schema.names]:
            raise IntegrityError(
                f"the tables at {self.root} are not Chronicle's: runs has no column {missing[0]}",
                hint="make them anew with `chronicle rebuild --full`",
                path=self.root,
            )
        return [found for batch in _scanned(self.runs, self.root, columns=_ORIGIN_COLUMNS) for found in origins(batch)]

    def stories(self, document_ids: Collection[str] | None = None) -> Iterator[StorylineDocument]:
        """Stories in storage order: all, or those of some document ids (unknown ones are passed over).

        Holds the ids, the places of their rows, a batch of each table and one story. Raises IntegrityError where the tables
        contradict each other.
        """
        order = self.document_ids()
        if document_ids is not None:
            wanted = frozenset(document_ids)
            order = [document for document in order if document in wanted]
            if len(order) <= _FEW_DOCUMENTS:
                yield from self._some(order)
                return
        batches = (_in_order(getattr(self, name), order, self.root) for name in TABLES)
        yield from stories(*batches)

    def _some(self, order: list[str]) -> Iterator[StorylineDocument]:
        """A few stories by filter: with an index on `document_id` nothing else is read."""
        for at in range(0, len(order), _DOCUMENTS_PER_FILTER):
            few = order[at : at + _DOCUMENTS_PER_FILTER]
            yield from stories(*(_filtered(getattr(self, name), few, self.root) for name in TABLES))


def last_state(root: str, generation: str) -> Snapshot:
    """What was visible last of a generation. Raises UsageError for a name that is not allowed, NotFoundError where it is gone."""
    if not (generation.startswith(GENERATION_PREFIX) and is_safe_segment(generation)):
        raise UsageError(f"generation {generation!r} is not allowed", hint="generations/ in the store names them")
    current = StorylineLanceStore(root).current()
    if current is not None and generation in {current.committed.generation, current.committed.table_generation}:
        return current.committed
    data = files.read(last_state_path(root, generation))
    if data is None:
        raise NotFoundError(
            f"{root} holds no generation {generation!r}", hint="vacuum removes what nobody can reach any more", path=root
        )
    return decode(data, root).committed


def _current(store: StorylineLanceStore) -> Current:
    current = store.current()
    if current is None:
        hint = "name the dataset too" if files.exists(f"{store.root}/events") else "run `chronicle rebuild` first"
        raise NotFoundError(f"{store.root} holds no tables", hint=hint, path=store.root)
    return current


def _tables(root: str, snapshot: Snapshot) -> dict[str, Any]:
    """The tables, to be read as if every text lay in its cell."""
    places = {name: generation_path(root, snapshot.table_generation, name) for name in TABLES}
    tables = {name: lanceio.open_version(uri, snapshot.versions[name]) for name, uri in places.items()}
    if snapshot.objects_version == 1 and all(tables[name].schema.equals(SCHEMAS[name]) for name in TABLES):
        return tables  # as we make them: nothing lies elsewhere
    from chronicle.storyline.filled import FilledTable
    from chronicle.storyline.objects import Objects

    objects = Objects(root, snapshot.objects_version)
    return {name: FilledTable(table, name, objects) for name, table in tables.items()}


def _check_scan(dataset: Any, table: str, names: list[str], filter: str | None) -> None:
    """Raise UsageError where a table cannot be asked for these columns and rows. Reads none of them."""
    if missing := [name for name in names if name not in dataset.schema.names]:
        raise UsageError(f"{table} has no column {missing[0]!r}", hint=f"columns: {', '.join(dataset.schema.names)}")
    try:
        dataset.scanner(columns=names, filter=filter, limit=0).to_table()
    except ValueError as error:
        text = str(error).removeprefix("Invalid user input: ").split(", /")[0].split(". Valid fields")[0]
        raise UsageError(f"the filter {filter!r} does not fit {table}: {text}", hint="write SQL like source = 'agent'") from error


@contextmanager
def _reading(dataset: Any, where: str) -> Iterator[None]:
    """Translate errors; what is missing is damage, or a state that maintenance has removed since it was opened."""
    try:
        with lanceio.translated(where, reading=True):
            yield
    except IntegrityError as error:
        if not _is_visible(dataset, where):
            raise NotFoundError(
                f"the state of {where} that was opened is not kept any more",
                hint="run again; give `maintain` a longer --retention than reading takes",
                path=where,
            ) from error
        raise


def _is_visible(dataset: Any, root: str) -> bool:
    """Whether CURRENT still names this version of this table."""
    current = StorylineLanceStore(root).current()
    if current is None:
        return True
    names = current.committed.versions.items()
    places = {(generation_path(root, current.committed.table_generation, table), version) for table, version in names}
    return any(str(dataset.uri).endswith(uri.lstrip("/")) and int(dataset.version) == version for uri, version in places)


def _scanned(dataset: Any, where: str, rows: int = SCAN_ROWS, **what: Any) -> Iterator[pa.RecordBatch]:
    with _reading(dataset, where):
        few = lanceio.batch_rows(dataset, rows)
        scanner = dataset.scanner(batch_size=few, io_buffer_size=_IO_BYTES, scan_in_order=True, **what)
        yield from scanner.to_batches()


def _filtered(dataset: Any, few: list[str], where: str) -> Iterator[pa.RecordBatch]:
    """The rows of a few documents, in the order of `few`."""
    found: dict[str, list[pa.RecordBatch]] = {}
    for batch in _scanned(dataset, where, filter=f"document_id IN ({quoted(few)})"):
        for document, extent in _extents(batch.column("document_id")):
            found.setdefault(document, []).append(batch.slice(extent.start, extent.stop - extent.start))
    for document in few:
        yield from found.get(document, ())


def _in_order(dataset: Any, order: list[str], where: str) -> Iterator[pa.RecordBatch]:
    """The rows of the documents, in the order of `order`.

    Every commit appends its documents in storage order, so a table is a few ordered stretches: each is scanned once, side by
    side. Where nobody has compacted for long there are too many of them, and rows are fetched by their places.
    """
    rank = {document: at for at, document in enumerate(order)}
    places = [(rank[document], extent) for document, extent in _places(dataset, where) if document in rank]
    stretches = _stretches(places)
    if len(stretches) > _MOST_STRETCHES:
        yield from _fetched(dataset, [extent for _, extent in sorted(places)], where)
        return
    rows = max(_FEWEST_ROWS, SCAN_ROWS // max(len(stretches), 1))
    scans = [_stretch(dataset, stretch, rows, rank, where) for stretch in stretches]
    yield from _packed(piece for _, piece in heapq.merge(*scans, key=itemgetter(0)))


def _stretches(places: list[tuple[int, Extent]]) -> list[Extent]:
    """The fewest parts of a table in which documents come in order."""
    found: list[Extent] = []
    last = -1
    for rank, extent in places:
        if found and rank >= last:
            found[-1] = Extent(found[-1].start, extent.stop)
        else:
            found.append(extent)
        last = rank
    return found


def _stretch(dataset: Any, stretch: Extent, rows: int, rank: dict[str, int], where: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in _scanned(dataset, where, rows, offset=stretch.start, limit=stretch.stop - stretch.start):
        for document, extent in _extents(batch.column("document_id")):
            if document in rank:
                yield rank[document], batch.slice(extent.start, extent.stop - extent.start)


def _fetched(dataset: Any, extents: list[Extent], where: str) -> Iterator[pa.RecordBatch]:
    rows: list[int] = []
    for extent in extents:
        rows += range(extent.start, extent.stop)
        while len(rows) >= SCAN_ROWS or (rows and extent is extents[-1]):
            with _reading(dataset, where):
                table = dataset.take(rows[:SCAN_ROWS])
            rows = rows[SCAN_ROWS:]
            yield from table.to_batches()


def _packed(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a useful size: a column costs as much to open for one row as for a hundred."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        held.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
        if rows >= SCAN_ROWS or size >= _BATCH_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, size = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _places(dataset: Any, where: str) -> Iterator[tuple[str, Extent]]:
    """Where the rows of each document lie, in the order of a scan."""
    offset = 0
    for batch in _scanned(dataset, where, columns=["document_id"]):
        for document, extent in _extents(batch.column("document_id")):
            yield document, Extent(extent.start + offset, extent.stop + offset)
        offset += batch.num_rows


def _extents(column: pa.Array) -> Iterator[tuple[str, Extent]]:
    """Values of a column with the rows over which each repeats."""
    import pyarrow.compute as compute

    encoded = compute.run_end_encode(column)
    start = 0
    for value, stop in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield value, Extent(start, stop)
        start = stop
