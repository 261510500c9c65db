"""A DuckDB that can reach nothing but the tables it is given, and not for longer or with more than it may (design 8).

A statement comes from anybody. DuckDB's own parser says what it is, its syntax tree which functions it reads from; then it
runs without files, network, extensions, secrets or variables of this process, under locked settings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from chronicle.errors import IntegrityError, StorageError, UsageError
from chronicle.layout import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 4096
ALLOWED = "a query is one SELECT over runs, steps and tool_calls"
TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "generate_subscripts", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
    | {"histogram", "histogram_values", "summary", "regexp_split_to_table"}
)
"""What may stand in FROM with parentheses behind it. Others read files, settings or statements out of text."""
REFUSED_FUNCTIONS = frozenset(["current_setting", "getvariable", "write_log", "sleep_ms", "pg_sleep"])
REFUSED_SCHEMAS = frozenset({"pg_catalog"})
"""Settings stand there too."""
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B\Z", re.IGNORECASE)
_LEADING = frozenset({"explain", "analyze", "verbose"})

Tables = Mapping[str, Any]
"""Arrow tables, Arrow readers or Lance datasets by table name."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a statement may use. Past it, it is stopped with a UsageError of kind `stopped`."""

    seconds: float = 300.0
    memory: str = "2GB"
    bytes: int = 4 << 30
    """Of all rows that it gives, as Arrow lays them out."""

    @property
    def memory_bytes(self) -> int:
        """`memory` as a number. Raises UsageError where it is no size."""
        return size(self.memory, "memory")


def size(text: str, what: str) -> int:
    """Bytes of a text like `2GB` or `500MiB`. Raises UsageError for any other."""
    match = _MEMORY.match(text)
    if match is None:
        raise UsageError(f"{what} {text!r} is no size", hint="write it like 2GB or 500MB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** ("KMGT".index(match[2].upper()) + 1))


def check(sql: str) -> None:
    """Raise UsageError where a text is not exactly one statement that only reads: SELECT, or EXPLAIN of one."""
    statement = _single(sql)
    kind = statement.type.name
    if kind == "EXPLAIN":
        return check(_explained(sql))
    if kind != "SELECT":
        raise refused(f"a statement of type {kind}")
    if statement.named_parameters:
        raise UsageError("SQL refused: a parameter without a value", hint="write the value into the statement", kind="sql")
    return None


def refused(what: str) -> UsageError:
    """The error for a statement that is not run."""
    return UsageError(f"SQL refused: {what}", hint=ALLOWED, kind="sql")


def _single(sql: str) -> Any:
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise wrong(error) from error
    if len(statements) != 1:
        raise refused(f"{len(statements)} statements" if statements else "no statement")
    return statements[0]


def _explained(sql: str) -> str:
    """The statement behind EXPLAIN and its options: with ANALYZE it would run, whatever it is."""
    import duckdb

    text = sql.encode()
    starts = [at for at, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment]
    words = [text[at:end].decode("utf-8", "replace").split("--")[0].split("/*")[0].strip().lower() for at, end in _spans(starts)]
    at = next(number for number, word in enumerate(words) if word not in _LEADING)
    if words[at] == "(" and words[at + 1] in {"format", "analyze", "verbose"}:
        at = words.index(")", at) + 1
    if at >= len(starts):
        raise refused("no statement behind EXPLAIN")
    return text[starts[at] :].decode()


def _spans(starts: list[int]) -> Iterator[tuple[int, int | None]]:
    yield from zip(starts, [*starts[1:], None], strict=True)


class Sandbox:
    """One connection over the three tables. Use it as a context manager, or close it."""

    def __init__(self, bounds: Bounds) -> None:
        import duckdb

        _ = bounds.memory_bytes
        self._left = bounds.seconds
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
            },
        )

    def offer(self, sources: list[tuple[str, Tables]]) -> None:
        """Make tables readable, then lock the door: pairs of a dataset name (none: no column `dataset`) and its tables."""
        for table in TABLES:
            parts = []
            for number, (dataset, tables) in enumerate(sources):
                name = f"_{table}_{number}"
                self._connection.register(name, tables[table])
                column = f", {literal(dataset)} AS dataset" if dataset else ""
                parts.append(f"SELECT *{column} FROM {name}")
            self._connection.execute(f"CREATE TEMP VIEW {table} AS {' UNION ALL BY NAME '.join(parts)}")
        for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            self._connection.execute(f"SET {setting}")

    def select(self, sql: str) -> pa.RecordBatchReader:
        """Begin a statement that `check` has taken. Raises UsageError for one that reads from what it may not."""
        self._inspect(sql)
        # `execute` would make all rows before the first can be read; a relation makes them as they are read.
        reader: pa.RecordBatchReader = self.call(lambda: self._connection.sql(sql).to_arrow_reader(BATCH_ROWS))
        return reader

    def tree(self, sql: str) -> Any:
        """DuckDB's syntax tree of one SELECT. Raises UsageError where it has none."""
        found = self.call(lambda: self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall())
        parsed = msgspec.json.decode(found[0][0])
        if parsed.get("error", True) or len(parsed["statements"]) != 1:
            raise refused(str(parsed.get("error_message", "no single statement")))
        return parsed["statements"][0]["node"]

    def call(self, work: Callable[[], T]) -> T:
        """Run a piece of the query, interrupt it when the time is used up, and say its errors in our words."""
        if self._left <= 0:
            raise self.stopped()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _inspect(self, sql: str) -> None:
        while _single(sql).type.name == "EXPLAIN":
            sql = _explained(sql)
        for node in _nodes(self.tree(sql)):
            _check_node(node)

    def _interrupt(self, running: Future[T]) -> None:
        """Stop a piece that has not ended."""
        while not running.done():
            self._connection.interrupt()  # lost when the statement had not begun yet, so again
            wait([running], 0.1)

    def stopped(self) -> UsageError:
        """The error of a statement whose time is used up."""
        return UsageError(
            f"query stopped after {self._bounds.seconds:g} seconds", hint="narrow it, or raise --timeout", kind="stopped"
        )

    def _translated(self, error: Exception, late: bool) -> UsageError | StorageError | IntegrityError:
        from chronicle.storage import lanceio

        if late or isinstance(error, self._duckdb.InterruptException):
            return self.stopped()
        text = str(error)
        if isinstance(error, self._duckdb.OutOfMemoryException) or "Out of Memory Error" in text:
            return UsageError(
                f"query stopped: it needs more than {self._bounds.memory}", hint="narrow it, or raise --memory", kind="stopped"
            )
        if lanceio.is_outage(text):
            return StorageError("the object store does not answer", hint="run again when it does", transient=True)
        if "External error" in text:  # Arrow's word for what Lance could not read
            return IntegrityError(f"the tables do not read: {one_line(text)}", hint="run `chronicle rebuild --full`")
        if isinstance(error, self._duckdb.IOException) or "LanceError" in text:
            return StorageError(
                f"query failed while it read the tables: {one_line(text)}", hint="check the store", transient=False
            )
        return wrong(error)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a syntax tree, without recursion: statements may be nested deeply."""
    pending = [tree]
    while pending:
        at = pending.pop()
        if isinstance(at, dict):
            yield at
            pending += at.values()
        elif isinstance(at, list):
            pending += at


def _check_node(node: dict[str, Any]) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        name = str(node["function"].get("function_name")).lower()
        if name not in TABLE_FUNCTIONS:
            raise refused(f"the table function {name}")
    if node.get("class") == "FUNCTION" and str(node.get("function_name")).lower() in REFUSED_FUNCTIONS:
        raise refused(f"the function {node['function_name']}")
    if node.get("type") == "BASE_TABLE" and str(node.get("schema_name")).lower() in REFUSED_SCHEMAS:
        raise refused(f"tables of {node['schema_name']}")


def wrong(error: Exception) -> UsageError:
    """The error of a statement that DuckDB does not take."""
    text = one_line(str(error))
    hint = ALLOWED
    if "TIMESTAMPTZ_NS" in text:
        hint = "cast time stamps for arithmetic: CAST(timestamp AS TIMESTAMPTZ)"
    return UsageError(f"SQL does not run: {text}", hint=hint, kind="sql")


def one_line(text: str) -> str:
    """DuckDB's message without the picture of the statement below it."""
    return " ".join(text.split("\n\nLINE ")[0].split())


def literal(value: str) -> str:
    """A text as a SQL literal."""
    return "'" + value.replace("'", "''") + "'"
