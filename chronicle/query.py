"""query: one SELECT over `runs`, `steps` and `tool_calls`, in DuckDB (design 5.2, 8).

The statement comes from anybody, so DuckDB is shut in: one statement of type SELECT, no file, network or extension, no
variable of this process as a table, bounded memory and time. Rows come in a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from chronicle.bounded import Bounds, Sandbox, Tables, check
from chronicle.discovery import Location, places_with_tables
from chronicle.layout import TABLES
from chronicle.options import QueryOptions

if TYPE_CHECKING:
    import pyarrow as pa


class QueryResult:
    """Rows of a query, read while DuckDB makes them. Use it as a context manager, or read it to its end."""

    def __init__(self, connection: Sandbox, reader: pa.RecordBatchReader, limit: int | None, warnings: list[str]) -> None:
        self._connection = connection
        self._reader = reader
        self._limit = limit
        self.warnings = warnings
        """Sentences about tables that are missing."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._reader.schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order; a name may repeat."""
        return list(self._reader.schema.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most as many as the limit says. Raises UsageError where the query fails or hits a bound."""
        left = self._limit
        try:
            while left is None or left > 0:
                batch = self._connection.call(lambda: next(self._reader, None))
                if batch is None:
                    return
                batch = batch if left is None else batch.slice(0, left)
                left = None if left is None else left - batch.num_rows
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Stop the query and free what it holds."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def query(options: QueryOptions) -> QueryResult:
    """Run one SELECT over the tables of a dataset, or of all datasets of a lake with a column `dataset`.

    Raises UsageError for a statement that is refused or wrong, or a bound that was hit (kind `stopped`); NotFoundError
    where there is no such dataset, or no tables; IntegrityError where tables do not read.
    """
    check(options.sql)  # before the tables are opened: a wrong statement is told at once
    places, warnings = places_with_tables(options.lake, options.dataset)
    named = options.dataset is None
    return run(options, [(place.name if named else "", _tables(place)) for place in places], warnings)


def run(options: QueryOptions, sources: list[tuple[str, Tables]], warnings: list[str] | None = None) -> QueryResult:
    """Run a query over given tables: pairs of a dataset name and its tables. No name (``): no column `dataset`."""
    connection = Sandbox(Bounds(seconds=options.timeout_seconds, memory=options.memory))
    try:
        connection.offer(sources)
        reader = connection.select(options.sql)
    except BaseException:
        connection.close()
        raise
    return QueryResult(connection, reader, options.limit, warnings or [])


def _tables(place: Location) -> Tables:
    from chronicle.storyline.source import StorylineDataSource

    source = StorylineDataSource.open(place.storyline)
    return {table: getattr(source, table) for table in TABLES}
