"""A table that reads as if every text lay in its cell, and every JSON column were text (physical.md 2.4, 2.5).

For stores that `pchronicle` wrote, and for ours where objects.lance holds something. It stands wherever a Lance dataset does
for those who read: DuckDB, Arrow and pandas take it as a dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from chronicle.storage import lanceio
from chronicle.storyline.objects import Objects, as_text, filled

lanceio.lance()  # the first import of pyarrow.dataset must be this one: it keeps pandas out

from pyarrow.dataset import Dataset  # noqa: E402

BATCH_ROWS = 128
"""Texts may be long, and a batch is held whole."""


class FilledTable(Dataset):  # type: ignore[misc]
    """One version of a table with its texts. A column that nobody asks for is not filled, so what it lacks harms nobody."""

    def __init__(self, dataset: Any, table: str, objects: Objects) -> None:
        self._dataset = dataset
        self._table = table
        self._objects = objects

    @property
    def uri(self) -> str:
        """Where it lies."""
        return str(self._dataset.uri)

    @property
    def version(self) -> int:
        """The version it shows."""
        return int(self._dataset.version)

    @property
    def schema(self) -> pa.Schema:
        """Names as in the store, JSON columns as text."""
        return as_text(self._dataset.schema)

    def count_rows(self, filter: Any = None, **_: Any) -> int:
        """Number of rows; a filter is text for Lance, over columns that need no filling."""
        return int(self._dataset.count_rows(filter))

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> _Scan:
        """Rows with some columns. A filter as text goes to Lance and names ids only; an expression is applied to the texts."""
        names = self._dataset.schema.names if columns is None else list(columns)
        if filter is None or isinstance(filter, str):
            return _Scan(self, names, names, None, {**options, "filter": filter})
        said = str(filter)
        needed = [name for name in self._dataset.schema.names if name in names or name in said]
        return _Scan(self, names, needed, filter, options)

    def to_batches(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Record batches of `scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> pa.Table:
        """All rows of `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def take(self, rows: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by their places."""
        found = self._dataset.take(rows, columns=columns)
        batches = [filled(batch, self._table, self._objects) for batch in found.to_batches()]
        return pa.Table.from_batches(batches, self.projected(found.schema.names))

    def projected(self, names: Sequence[str]) -> pa.Schema:
        """Schema of some columns."""
        return pa.schema([self.schema.field(name) for name in names])

    def scan(self, names: Sequence[str], options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Filled batches of some columns, as they lie."""
        rows = min(options.pop("batch_size", None) or BATCH_ROWS, BATCH_ROWS)
        scanner = self._dataset.scanner(columns=list(names) or [self.schema.names[0]], batch_size=rows, **options)
        for batch in scanner.to_batches():
            yield filled(batch, self._table, self._objects)


class _Scan:
    """What `pyarrow.dataset.Scanner` is to a dataset: as much of it as its readers use."""

    def __init__(
        self, source: FilledTable, names: Sequence[str], needed: Sequence[str], filter: Any, options: dict[str, Any]
    ) -> None:
        self._source = source
        self._names = list(names)
        self._needed = needed
        self._filter = filter
        self._options = options

    @property
    def projected_schema(self) -> pa.Schema:
        return self._source.projected(self._names)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source.scan(self._needed, dict(self._options)):
            if self._filter is None:
                yield batch.select(self._names)
            else:
                yield from pa.Table.from_batches([batch]).filter(self._filter).select(self._names).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)
