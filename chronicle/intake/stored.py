"""Receipts as they lie: read whole, decoded and found one by one (design 4.4). What they say together is `receipts`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from chronicle.errors import IntegrityError, NotFoundError
from chronicle.events.imported import SourceRef
from chronicle.events.mark import LogMark
from chronicle.layout import DatasetPaths, remedy

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("kind", "source_key", "source_id", "source")
"""`source` is the JSON of the SourceRef, the two before it what it is found by."""
MARK = "log"
"""Kind of a row that is no receipt: its `source` is a LogMark, how far the log was read."""
_FEW = 64
"""So many questions are answered by a look at a whole column; after that it is sorted once."""
Row = tuple[str, SourceRef]
"""(kind, source) of a `source.*` fact, or of a note."""


class StoredReceipts:
    """Receipts as they lie, in memory; rows are decoded when they are asked for."""

    def __init__(self, paths: DatasetPaths, rows: pa.RecordBatch | None = None) -> None:
        """Load them, or take `rows` for them."""
        import pyarrow as pa

        self._path = paths.receipts
        self._columns: dict[str, pa.Array] = {}
        self._places: dict[str, _Places] = {}
        self._decode = msgspec.json.Decoder(SourceRef).decode
        self._last: tuple[int, Row] = -1, ("", SourceRef(source_id="", source_key=""))
        with self._damage_named():
            table = _table(self._path) if rows is None else pa.Table.from_batches([rows])
            self.exist = table is not None
            if table is not None:
                self._columns = {name: table[name].combine_chunks() for name in COLUMNS}
                self._places = {name: _Places(self._columns[name]) for name in ("source_key", "source_id")}

    def of(self, column: str, value: str) -> list[Row]:
        """The rows of one source key or source id, in the order in which they were written."""
        places = self._places.get(column)
        if places is None or not value:  # a mark has neither key nor content, and no receipt is without
            return []
        return [self._row(at) for at in places.of(value)]

    def rows(self) -> Iterator[Row]:
        """All rows in the order in which they were written."""
        import pyarrow.compute as pc

        if not self._columns:
            return iter(())
        return map(self._row, pc.indices_nonzero(pc.not_equal(self._columns["kind"], MARK)).to_pylist())

    @property
    def count(self) -> int:
        """How many rows there are, marks too."""
        return len(self._columns["kind"]) if self._columns else 0

    def mark(self) -> LogMark | None:
        """How far the log was read; None where nothing says."""
        import pyarrow.compute as pc

        if not self._columns:
            return None
        with self._damage_named():
            places = pc.indices_nonzero(pc.equal(self._columns["kind"], MARK)).to_pylist()
            found = [msgspec.json.decode(self._columns["source"][at].as_py(), type=LogMark) for at in places]
        return max(found, key=lambda mark: mark.rows, default=None)

    def _row(self, at: int) -> Row:
        if at != self._last[0]:  # whoever asks for a key mostly asks for its content next
            with self._damage_named():
                kind, text = self._columns["kind"][at].as_py(), self._columns["source"][at].as_py()
                self._last = at, (kind, self._decode(text))
        return self._last[1]

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except (IntegrityError, msgspec.MsgspecError, KeyError) as error:
            raise IntegrityError(
                f"the receipts at {self._path} are damaged: {error}",
                hint=remedy(self._path),
                path=self._path,
            ) from error


class _Places:
    """Where the values of a column lie."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        self._asked = 0
        self._sorted: tuple[dict[str, int], list[int], list[int]] | None = None

    def of(self, value: str) -> list[int]:
        """Rows that hold a value, first to last."""
        import pyarrow.compute as pc

        self._asked += 1
        if self._asked <= _FEW:
            found: list[int] = pc.indices_nonzero(pc.equal(self._column, value)).to_pylist()
            return found
        codes, order, starts = self._sorted = self._sorted or self._sort()
        code = codes.get(value)
        return [] if code is None else order[starts[code] : starts[code + 1]]

    def _sort(self) -> tuple[dict[str, int], list[int], list[int]]:
        """Value -> its code; rows in order of their codes; where the rows of each code begin."""
        import numpy as np

        encoded = self._column.dictionary_encode()
        codes = encoded.indices.to_numpy()
        names = encoded.dictionary.to_pylist()
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
        return dict(zip(names, range(len(names)), strict=True)), order.tolist(), starts.tolist()


def _table(path: str) -> pa.Table | None:
    """All rows as they are now. A version that a vacuum takes away while it is read gives way to the one that came after it."""
    from chronicle.storage import lanceio

    while (dataset := latest(path)) is not None:
        try:
            with lanceio.translated(path, reading=True):
                return dataset.to_table()
        except IntegrityError:
            newer = latest(path)
            if newer is not None and newer.version == dataset.version:
                raise
    return None


def latest(path: str) -> Any:
    """The receipts' Lance dataset as it is now; None where there is none, or only what a killed first writer left."""
    from chronicle.storage import files, lanceio

    if not files.dir_exists(path):
        return None
    try:
        return lanceio.open_latest(path)
    except NotFoundError:
        return None
