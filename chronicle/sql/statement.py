"""What a SQL statement is, by DuckDB's own parser, and whether it may run (design 8; environment.md 8).

Exactly one statement that only reads, and only from tables that it was given: the locked settings of a connection alone still
let through what changes the connection itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from chronicle.errors import UsageError

ALLOWED = "a query is one SELECT over runs, steps and tool_calls"
_PIVOT = "name them: PIVOT runs ON agent_id IN ('a', 'b') USING count(*)"
TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "generate_subscripts", "unnest", "repeat", "repeat_row"}
    | {"json_each", "json_tree", "regexp_split_to_table"}
)
"""What may stand in FROM with parentheses behind it. Others read files, settings, or tables and statements named in text."""
REFUSED_FUNCTIONS = frozenset(["current_setting", "getvariable", "write_log", "sleep_ms", "pg_sleep"])
REFUSED_SCHEMAS = frozenset({"pg_catalog"})
"""Settings stand there too."""
_STRING = r'"((?:[^"\\]|\\.)*)"'
_FUNCTION = re.compile(rf'"function_name":{_STRING}')
_SCHEMA = re.compile(rf'"schema_name":{_STRING}')
_TABLE_FUNCTION = re.compile(
    rf'"function":\{{"class":"FUNCTION","type":"FUNCTION","alias":"(?:[^"\\]|\\.)*","query_location":\d+,'
    rf'"query_location_length":\d+,"function_name":{_STRING}'
)
_LEADING = frozenset({"explain", "analyze", "verbose"})


def check(sql: str) -> None:
    """Raise UsageError where a text is not exactly one statement that only reads: SELECT, or EXPLAIN of one."""
    statement = _single(behind_explain(sql))
    if statement.type.name == "MULTI":  # DuckDB would make a type of the values that it finds, then ask
        raise UsageError("SQL refused: a PIVOT that does not name its columns", hint=_PIVOT, kind="sql")
    if statement.type.name != "SELECT":
        raise refused(f"a statement of type {statement.type.name}")
    if statement.named_parameters:
        raise UsageError("SQL refused: a parameter without a value", hint="write the value into the statement", kind="sql")


def behind_explain(sql: str) -> str:
    """The statement itself where EXPLAIN stands before it: with ANALYZE it would run, whatever it is."""
    while _single(sql).type.name == "EXPLAIN":
        sql = _explained(sql)
    return sql


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
    """What stands behind the first EXPLAIN and its options."""
    import duckdb

    text = sql.encode()
    starts = [at for at, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment]
    words = [text[at:end].decode("utf-8", "replace").split("--")[0].split("/*")[0].strip().lower() for at, end in _spans(starts)]
    at = next((number for number, word in enumerate(words) if word not in _LEADING), len(words))
    if words[at : at + 1] == ["("] and words[at + 1] in {"format", "analyze", "verbose"}:
        at = words.index(")", at) + 1
    if at >= len(starts):
        raise refused("no statement behind EXPLAIN")
    return text[starts[at] :].decode()


def _spans(starts: list[int]) -> Iterator[tuple[int, int | None]]:
    yield from zip(starts, [*starts[1:], None], strict=True)


def check_reads(tree: str) -> None:
    """Raise UsageError where a statement reads from what it may not; `tree` as `json_serialize_sql` writes it.

    It is looked through as text: a tree may be deeper than any reader of JSON takes, and no literal can look like one of its
    members, because its quotes are escaped.
    """
    named = _TABLE_FUNCTION.findall(tree)
    if len(named) != tree.count('"type":"TABLE_FUNCTION"'):
        raise refused("its syntax tree is not as expected")  # another DuckDB: nothing is let through unseen
    for name in map(str.lower, named):
        if name not in TABLE_FUNCTIONS:
            raise refused(f"the table function {name}")
    for name in map(str.lower, _FUNCTION.findall(tree)):
        if name in REFUSED_FUNCTIONS:
            raise refused(f"the function {name}")
    for name in map(str.lower, _SCHEMA.findall(tree)):
        if name in REFUSED_SCHEMAS:
            raise refused(f"tables of {name}")


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
