"""Export of the tables as Parquet: runs.parquet, steps.parquet, tool_calls.parquet, with the same columns (design 5.2, 8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, cast

from chronicle.exports.writer import Stream, Writer
from chronicle.layout import TABLES
from chronicle.options import ExportOptions
from chronicle.reports import ExportReport
from chronicle.storyline.source import StorylineDataSource

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".parquet"
_GROUP_ROWS = 1 << 16
_GROUP_BYTES = 32 << 20
"""A row group is held whole by its writer, and by many a reader."""


def export_tables(
    options: ExportOptions,
    report: ExportReport,
    writer: Writer,
    source: StorylineDataSource,
    chosen: Collection[str] | None,
) -> None:
    """Write the rows of all runs, or of those that are chosen, in storage order."""
    import pyarrow.parquet as parquet

    outputs = []
    for done, table in enumerate(TABLES):
        options.progress(done, len(TABLES))
        output = writer.file(f"{table}{SUFFIX}")
        schema = getattr(source, table).schema
        rows = 0
        with parquet.ParquetWriter(cast(Any, Stream(output)), schema, compression="zstd") as file:
            for group in _groups(source.ordered(table, chosen)):
                file.write_table(group, row_group_size=max(group.num_rows, 1))
                rows += group.num_rows
        if table == "runs":
            report.stories = rows
        outputs.append(output)
    for output in outputs:  # nothing appears before all three are whole
        output.finish()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
