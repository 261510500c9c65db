"""A DuckDB that can reach nothing but the tables it is given, and not for longer or with more than it may (design 8).

A statement comes from anybody. DuckDB's own parser says what it is, its syntax tree which functions it reads from; then it
runs without files, network, extensions, secrets or variables of this process, under locked settings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from tempfile import TemporaryDirectory
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from chronicle.errors import IntegrityError, StorageError, UsageError
from chronicle.layout import TABLES
from chronicle.sql.statement import behind_explain, check, check_reads, one_line, refused, wrong

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 4096
_SPILL = 10
"""Times its memory that a statement may write to the disk for itself."""
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B\Z", re.IGNORECASE)
_OURS = re.compile(r"chronicle\.errors\.IntegrityError: (.+?)(?:; (.+))?\s*\Z")
"""The end of what DuckDB says where a reader of ours failed."""
_MACROS = (
    "json_text(json, pointer) AS TRY(json_extract_string(json, pointer))",
    "json_number(json, pointer) AS CASE WHEN isfinite(TRY_CAST(TRY(json_extract_string(json, pointer)) AS DOUBLE)) "
    "THEN TRY_CAST(TRY(json_extract_string(json, pointer)) AS DOUBLE) END",
    "json_items(json, pointer) AS coalesce(TRY(json_extract_string(json_extract(json, pointer), '$[*]')), [])",
)
"""For JSON in text columns (docs/questions.md): what is no JSON, or not there, is NULL and stops nothing."""

Tables = Mapping[str, Any]
"""Arrow tables or Lance datasets by table name."""
Watch = Callable[[float | None], None]
"""Told the seconds that a piece of work may take when it begins, and None when it ends."""
T = TypeVar("T")


def nobody_watches(seconds: float | None) -> None:
    """Tell nobody."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a statement may use. Past it, it is stopped with a UsageError of kind `stopped`."""

    seconds: float = 300.0
    memory: str = "2GB"
    rows: int | None = None
    """It ends behind so many rows, without an error."""
    max_bytes: str = "4GB"
    """Of all rows that it gives, as Arrow lays them out."""

    @property
    def memory_bytes(self) -> int:
        """`memory` as a number. Raises UsageError where it is no size."""
        return size(self.memory, "memory")

    @property
    def row_bytes(self) -> int:
        """`max_bytes` as a number. Raises UsageError where it is no size."""
        return size(self.max_bytes, "max-bytes")


def size(text: str, what: str) -> int:
    """Bytes of a text like `2GB` or `500MiB`. Raises UsageError for any other."""
    match = _MEMORY.match(text)
    if match is None:
        raise UsageError(f"{what} {text!r} is no size", hint="write it like 2GB or 500MB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** ("KMGT".index(match[2].upper()) + 1))


class Sandbox:
    """One connection over the three tables. Use it as a context manager, or close it."""

    def __init__(self, bounds: Bounds, watch: Watch = nobody_watches) -> None:
        import duckdb

        _ = bounds.row_bytes
        self._watch = watch
        self._left = bounds.seconds
        self._is_closed = False
        self._bounds = bounds
        self._spill = TemporaryDirectory(prefix="chronicle-query-")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="chronicle-query")
        self._duckdb: Any = duckdb
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "memory_limit": bounds.memory,
                "temp_directory": self._spill.name,
                "max_temp_directory_size": f"{_SPILL * bounds.memory_bytes // 1_000_000}MB",
            },
        )

    def offer(self, sources: list[tuple[str, Tables]]) -> None:
        """Make tables readable, then lock the door: pairs of a dataset name (none: no column `dataset`) and its tables."""
        for table in TABLES:
            parts = []
            for number, (dataset, tables) in enumerate(sources):
                name = f"_{table}_{number}"
                self._connection.register(name, _scannable(tables[table]))
                column = f", {literal(dataset)} AS dataset" if dataset else ""
                parts.append(f"SELECT *{column} FROM {name}")
            self._connection.execute(f"CREATE TEMP VIEW {table} AS {' UNION ALL BY NAME '.join(parts)}")
        for macro in _MACROS:
            self._connection.execute(f"CREATE TEMP MACRO {macro}")
        for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            self._connection.execute(f"SET {setting}")

    def select(self, sql: str) -> pa.RecordBatchReader:
        """Begin a statement that `check` has taken. Raises UsageError for one that reads from what it may not."""
        check_reads(self.serialized(behind_explain(sql)))
        # `execute` would make all rows before the first can be read; a relation makes them as they are read.
        reader: pa.RecordBatchReader = self.call(lambda: self._connection.sql(sql).to_arrow_reader(BATCH_ROWS))
        return reader

    def serialized(self, sql: str) -> str:
        """DuckDB's syntax tree of one SELECT, as JSON. Raises UsageError where it has none."""
        text = str(self.call(lambda: self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall())[0][0])
        if not text.startswith('{"error":false'):
            raise refused("it has no syntax tree")
        return text

    def tree(self, sql: str) -> Any:
        """The same as a value: the node of its SELECT. Raises UsageError where it has none, or a very deep one."""
        try:
            return msgspec.json.decode(self.serialized(sql))["statements"][0]["node"]
        except RecursionError as error:
            raise refused("it is nested too deeply") from error

    def call(self, work: Callable[[], T]) -> T:
        """Run a piece of the query, interrupt it when the time is used up, and say its errors in our words."""
        if self._is_closed:
            raise UsageError("the rows of this query were read already", hint="ask again", kind="closed")
        if self._left <= 0:
            raise too_much_time(self._bounds)
        began = time.monotonic()
        self._watch(self._left)
        # DuckDB looks for signals now and then only: it works on a thread of its own, and this one waits for both.
        running = self._worker.submit(work)
        late = False
        try:
            late = not wait([running], min(self._left, TIMEOUT_MAX)).done
            if late:
                self._interrupt(running)
            return running.result()
        except (self._duckdb.Error, OSError) as error:  # OSError: what Arrow makes of an error while rows are read
            raise self._translated(error, late) from error
        finally:
            self._interrupt(running)
            self._left -= time.monotonic() - began
            self._watch(None)

    def close(self) -> None:
        """Stop what runs; nothing happens the second time."""
        if self._is_closed:
            return
        self._is_closed = True
        self._worker.shutdown()
        self._watch(max(self._left, 0.0))  # what is at work still may not hear of it
        self._connection.interrupt()  # else it would go on for seconds, for rows that nobody reads
        self._connection.close()
        self._watch(None)
        self._spill.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _interrupt(self, running: Future[T]) -> None:
        """Stop a piece that has not ended."""
        while not running.done():
            self._connection.interrupt()  # lost when the statement had not begun yet, so again
            wait([running], 0.1)

    def _translated(self, error: Exception, late: bool) -> UsageError | StorageError | IntegrityError:
        from chronicle.storage import lanceio

        if late or isinstance(error, self._duckdb.InterruptException):
            return too_much_time(self._bounds)
        text = str(error)
        if isinstance(error, self._duckdb.OutOfMemoryException) or "Out of Memory Error" in text:
            return too_much_memory(self._bounds)
        if lanceio.is_outage(text):
            return StorageError("the object store does not answer", hint="run again when it does", transient=True)
        if ours := _OURS.search(text):
            return IntegrityError(ours[1], hint=ours[2] or "run `chronicle rebuild --full`")
        if "External error" in text:  # Arrow's word for what Lance could not read
            hint = "run it again if `maintain` removed old states without retention meanwhile, else `chronicle rebuild --full`"
            return IntegrityError(f"the tables do not read: {one_line(text)}", hint=hint)
        if isinstance(error, self._duckdb.IOException) or "LanceError" in text:
            return StorageError(
                f"query failed while it read the tables: {one_line(text)}", hint="check the store", transient=False
            )
        return wrong(error)


class QueryResult:
    """Rows of a query, read while DuckDB makes them. Use it as a context manager, or read it to its end."""

    def __init__(self, sandbox: Sandbox, reader: pa.RecordBatchReader, bounds: Bounds, warnings: Sequence[str] = ()) -> None:
        self._sandbox = sandbox
        self._reader = reader
        self._bounds = bounds
        self.warnings = list(warnings)
        """Sentences about tables that are missing or stale."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._reader.schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order; a name may repeat."""
        return list(self._reader.schema.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most as many as the bounds say. Raises UsageError where the query fails or hits a bound."""
        left, room = self._bounds.rows, self._bounds.row_bytes
        try:
            while left is None or left > 0:
                batch = self._sandbox.call(lambda: next(self._reader, None))
                if batch is None:
                    return
                batch = batch if left is None else batch.slice(0, left)
                left = None if left is None else left - batch.num_rows
                room -= batch.nbytes
                if room < 0:
                    raise UsageError(
                        f"query stopped: its rows hold more than {self._bounds.max_bytes}",
                        hint="narrow it, or raise --max-bytes",
                        kind="stopped",
                    )
                yield batch
        finally:
            self.close()

    def to_table(self) -> pa.Table:
        """All rows at once. Raises as `batches` does."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame. Raises as `batches` does."""
        return self.to_table().to_pandas()

    def close(self) -> None:
        """Stop the query and free what it holds."""
        self._sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    sql: str, sources: list[tuple[str, Tables]], bounds: Bounds, warnings: Sequence[str] = (), watch: Watch = nobody_watches
) -> QueryResult:
    """Run one SELECT over given tables: pairs of a dataset name and its tables. No name (``): no column `dataset`.

    Raises UsageError for a statement that is refused or wrong, or a bound that was hit (kind `stopped`); IntegrityError
    where tables do not read.
    """
    check(sql)
    sandbox = Sandbox(bounds, watch)
    try:
        sandbox.offer(sources)
        reader = sandbox.select(sql)
    except BaseException:
        sandbox.close()
        raise
    return QueryResult(sandbox, reader, bounds, warnings)


def _scannable(table: Any) -> Any:
    """A table as DuckDB may have it."""
    if not hasattr(table, "scanner"):
        return table
    from chronicle.storyline.scans import Scanned

    return Scanned(table)


def too_much_time(bounds: Bounds) -> UsageError:
    """The error of a statement whose time is used up."""
    return UsageError(f"query stopped after {bounds.seconds:g} seconds", hint="narrow it, or raise --timeout", kind="stopped")


def too_much_memory(bounds: Bounds) -> UsageError:
    """The error of a statement that needs more memory than it may have."""
    return UsageError(f"query stopped: it needs more than {bounds.memory}", hint="narrow it, or raise --memory", kind="stopped")


def literal(value: str) -> str:
    """A text as a SQL literal."""
    return "'" + value.replace("'", "''") + "'"
