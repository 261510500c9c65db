"""Looking for words in the tables: an index narrows the rows down where `maintain` has built one, a condition elsewhere.

Both ways give the same rows in the same order: every row that may match is read and looked at, and rows that were added since
the index was built are scanned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from chronicle.storage import lanceio
from chronicle.storyline.maintenance import INDICES
from chronicle.words import Words

if TYPE_CHECKING:
    import pyarrow as pa

    from chronicle.storyline.source import StorylineDataSource

COLUMNS = {
    table: tuple(index.column for index in INDICES if (index.table, index.kind) == (table, "INVERTED"))
    for table in ("steps", "tool_calls")
}
"""Columns of text; `results` repeats what `observation` says."""
_ROWS_A_FILTER = 1024
_FRAGMENT_BITS = 32
"""A row id is the number of its fragment and, in so many bits, its place there."""
_COMMON = 0.25
"""Of all rows: for more a scan is faster than an index."""


class Hit(NamedTuple):
    """One cell that matches."""

    document_id: str
    session_id: str
    step_id: int
    column: str
    snippet: str


def hits(source: StorylineDataSource, words: Words) -> Iterator[Hit]:
    """Every cell that holds the words: of steps, then of tool calls, as their rows lie."""
    for table, columns in COLUMNS.items():
        for batch in _candidates(source, table, columns, words):
            yield from _matching(batch, table, columns, words)


def _matching(batch: pa.RecordBatch, table: str, columns: Sequence[str], words: Words) -> Iterator[Hit]:
    keys = [batch[name].to_pylist() for name in ("document_id", "session_id", "step_id")]
    texts = [batch[name].to_pylist() for name in columns]
    for (document, session, step), *cells in zip(zip(*keys, strict=True), *texts, strict=True):
        for column, cell in zip(columns, cells, strict=True):
            snippet = words.snippet(cell) if cell is not None else None
            if snippet is not None:
                yield Hit(document, session, step, f"{table}.{column}", snippet)


def _candidates(source: StorylineDataSource, table: str, columns: Sequence[str], words: Words) -> Iterator[pa.RecordBatch]:
    dataset = getattr(source, table)
    wanted = ["document_id", "session_id", "step_id", *columns]
    if not hasattr(dataset, "describe_indices"):  # texts that lie elsewhere are no use in a condition
        yield from source.scan(table, wanted)
        return
    condition = " OR ".join(f"({words.in_cell(column)})" for column in columns)
    found = _indexed(dataset, columns, words, source.root)
    if found is None:
        yield from source.scan(table, wanted, condition)
        return
    for is_indexed, fragments in groupby(dataset.get_fragments(), key=lambda fragment: fragment.fragment_id in found):
        some = list(fragments)
        if not is_indexed:
            yield from source.scan(table, wanted, condition, some)
            continue
        rows = [row for fragment in some for row in found[fragment.fragment_id]]
        for at in range(0, len(rows), _ROWS_A_FILTER):
            few = ",".join(map(str, rows[at : at + _ROWS_A_FILTER]))
            yield from source.scan(table, wanted, f"_rowid IN ({few})")


def _indexed(dataset: Any, columns: Sequence[str], words: Words, where: str) -> dict[int, list[int]] | None:
    """Fragment -> ids of its rows that may match, in order, of the fragments that are in the indices of all columns.

    None where there are none, where the index cannot tell, or where so many rows may match that a scan is faster.
    """
    query = words.index_query()
    if query is None:
        return None
    found: set[int] = set()
    with lanceio.translated(where, reading=True):
        covered = _covered(dataset, columns)
        if not covered:
            return None
        most = _COMMON * dataset.count_rows()
        for column in columns:
            # Looking for so many words in rows that are in no index takes seconds: those are scanned.
            options = {"full_text_query": {"columns": [column], "query": query}, "fast_search": True}
            for batch in dataset.scanner(columns=["_score"], with_row_id=True, **options).to_batches():
                found.update(batch["_rowid"].to_pylist())
            if len(found) > most:
                return None
    rows: dict[int, list[int]] = {fragment: [] for fragment in covered}
    for row in sorted(found):
        if row >> _FRAGMENT_BITS in rows:
            rows[row >> _FRAGMENT_BITS].append(row)
    return rows


def _covered(dataset: Any, columns: Sequence[str]) -> set[int]:
    """Fragments whose rows are in the full-text indices of all columns."""
    covered: dict[str, set[int]] = {}
    for index in dataset.describe_indices():
        covered[index.name] = {int(fragment) for segment in index.segments for fragment in segment.fragment_ids}
    names = [index.name for index in INDICES if index.kind == "INVERTED" and index.column in columns]
    return set.intersection(*(covered.get(name, set()) for name in names))
