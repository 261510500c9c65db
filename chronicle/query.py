"""query: one SELECT over `runs`, `steps` and `tool_calls`, in DuckDB (design 5.2, 8).

The statement comes from anybody, so DuckDB is shut in: one statement of type SELECT, no file, network or extension, no
variable of this process as a table, bounded memory and time. Rows come in a stream.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self, TypeVar

from chronicle.discovery import Location, expand_story_locations
from chronicle.errors import IntegrityError, NotFoundError, StorageError, UsageError
from chronicle.layout import TABLES, DatasetPaths
from chronicle.options import QueryOptions

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 4096
_MEMORY = re.compile(r"\d+(\.\d+)?\s*[KMGT]i?B\Z", re.IGNORECASE)
_ALLOWED = "a query is one SELECT over runs, steps and tool_calls"

Tables = Mapping[str, Any]
"""Arrow tables or Lance datasets by table name."""
T = TypeVar("T")


class QueryResult:
    """Rows of a query, read while DuckDB makes them. Use it as a context manager, or read it to its end."""

    def __init__(self, connection: _Bounded, reader: pa.RecordBatchReader, limit: int | None, warnings: list[str]) -> None:
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
    if options.dataset is not None:
        return run(options, [("", _tables(_place(options.lake, options.dataset)))])
    return run(options, *_lake(options.lake))


def run(options: QueryOptions, sources: list[tuple[str, Tables]], warnings: list[str] | None = None) -> QueryResult:
    """Run a query over given tables: pairs of a dataset name and its tables. No name (``): no column `dataset`."""
    connection = _Bounded(options)
    try:
        connection.offer(sources)
        reader = connection.select(options.sql)
    except BaseException:
        connection.close()
        raise
    return QueryResult(connection, reader, options.limit, warnings or [])


def check(sql: str) -> None:
    """Raise UsageError where a text is not exactly one SELECT statement."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _wrong(error) from error
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        found = f"{len(kinds)} statements" if len(kinds) != 1 else f"a statement of type {kinds[0]}"
        raise UsageError(f"SQL refused: {found if kinds else 'no statement'}", hint=_ALLOWED, kind="sql")
    if statements[0].named_parameters:
        raise UsageError("SQL refused: a parameter without a value", hint="write the value into the statement", kind="sql")


class _Bounded:
    """A DuckDB in memory that can reach nothing but the tables it was given, and not for longer than it may."""

    def __init__(self, options: QueryOptions) -> None:
        import duckdb

        if not _MEMORY.match(options.memory):
            raise UsageError(f"memory {options.memory!r} is no size", hint="write it like 2GB or 500MB")
        self._left = options.timeout_seconds
        self._seconds = options.timeout_seconds
        self._memory = options.memory
        self._spill = TemporaryDirectory(prefix="chronicle-query-")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="chronicle-query")
        self._duckdb: Any = duckdb
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "memory_limit": options.memory,
                "temp_directory": self._spill.name,
            },
        )

    def offer(self, sources: list[tuple[str, Tables]]) -> None:
        """Make the tables readable, then lock the door."""
        for table in TABLES:
            parts = []
            for number, (dataset, tables) in enumerate(sources):
                name = f"_{table}_{number}"
                self._connection.register(name, tables[table])
                column = f", {_literal(dataset)} AS dataset" if dataset else ""
                parts.append(f"SELECT *{column} FROM {name}")
            self._connection.execute(f"CREATE TEMP VIEW {table} AS {' UNION ALL BY NAME '.join(parts)}")
        for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            self._connection.execute(f"SET {setting}")

    def select(self, sql: str) -> pa.RecordBatchReader:
        """Begin a statement that `check` has taken."""
        # `execute` would make all rows before the first can be read; a relation makes them as they are read.
        reader: pa.RecordBatchReader = self.call(lambda: self._connection.sql(sql).to_arrow_reader(BATCH_ROWS))
        return reader

    def call(self, work: Callable[[], T]) -> T:
        """Run a piece of the query, interrupt it when the time is used up, and say its errors in our words."""
        if self._left <= 0:
            raise self._stopped()
        began = time.monotonic()
        # DuckDB looks for signals now and then only: it works on a thread of its own, and this one waits for both.
        running = self._worker.submit(work)
        late = False
        try:
            late = not wait([running], self._left).done
            if late:
                self._interrupt(running)
            return running.result()
        except (self._duckdb.Error, OSError) as error:  # OSError: what Arrow makes of an error while rows are read
            raise self._translated(error, late) from error
        finally:
            self._interrupt(running)
            self._left -= time.monotonic() - began

    def close(self) -> None:
        """Stop what runs; nothing happens the second time."""
        self._worker.shutdown()
        self._connection.close()
        self._spill.cleanup()

    def _interrupt(self, running: Future[T]) -> None:
        """Stop a piece that has not ended."""
        while not running.done():
            self._connection.interrupt()  # lost when the statement had not begun yet, so again
            wait([running], 0.1)

    def _stopped(self) -> UsageError:
        return UsageError(f"query stopped after {self._seconds:g} seconds", hint="narrow it, or raise --timeout", kind="stopped")

    def _translated(self, error: Exception, late: bool) -> UsageError | StorageError | IntegrityError:
        from chronicle.storage import lanceio

        if late or isinstance(error, self._duckdb.InterruptException):
            return self._stopped()
        text = str(error)
        if isinstance(error, self._duckdb.OutOfMemoryException) or "Out of Memory Error" in text:
            return UsageError(
                f"query stopped: it needs more than {self._memory}", hint="narrow it, or raise --memory", kind="stopped"
            )
        if lanceio.is_outage(text):
            return StorageError("the object store does not answer", hint="run again when it does", transient=True)
        if "External error" in text:  # Arrow's word for what Lance could not read
            return IntegrityError(f"the tables do not read: {_one_line(text)}", hint="run `chronicle rebuild --full`")
        if isinstance(error, self._duckdb.IOException) or "LanceError" in text:
            return StorageError(
                f"query failed while it read the tables: {_one_line(text)}", hint="check the store", transient=False
            )
        return _wrong(error)


def _lake(lake: str) -> tuple[list[tuple[str, Tables]], list[str]]:
    """Tables of every dataset of a lake that has some, and a warning for those that have none."""
    places = expand_story_locations(lake)
    if not places:
        raise NotFoundError(f"{lake} holds no dataset", hint="check --lake; `chronicle ingest` makes a dataset")
    ready = [place for place in places if place.has_tables]
    if not ready:
        raise NotFoundError(f"no dataset of {lake} has tables", hint="run `chronicle rebuild`")
    missing = [place.name for place in places if not place.has_tables]
    warnings = [f"without tables, left out: {', '.join(missing)}; run `chronicle rebuild`"] if missing else []
    return [(place.name, _tables(place)) for place in ready], warnings


def _place(lake: str, dataset: str) -> Location:
    paths = DatasetPaths(lake, dataset)
    place = Location(dataset, "lake", paths.events, paths.storyline)
    if place.has_tables:
        return place
    known = {found.name: found for found in expand_story_locations(lake)}
    if dataset not in known:
        hint = f"known: {', '.join(known) or 'none'}"
        raise NotFoundError(f"dataset {dataset!r} is not in {lake}", hint=hint, dataset=dataset)
    if not known[dataset].has_tables:
        raise NotFoundError(f"dataset {dataset!r} has no tables yet", hint="run `chronicle rebuild`", dataset=dataset)
    return known[dataset]


def _tables(place: Location) -> Tables:
    from chronicle.storyline.source import StorylineDataSource

    source = StorylineDataSource.open(place.storyline)
    return {table: getattr(source, table) for table in TABLES}


def _wrong(error: Exception) -> UsageError:
    text = _one_line(str(error))
    hint = _ALLOWED
    if "TIMESTAMPTZ_NS" in text:
        hint = "cast time stamps for arithmetic: CAST(timestamp AS TIMESTAMPTZ)"
    return UsageError(f"SQL does not run: {text}", hint=hint, kind="sql")


def _one_line(text: str) -> str:
    """DuckDB's message without the picture of the statement below it."""
    return " ".join(text.split("\n\nLINE ")[0].split())


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
