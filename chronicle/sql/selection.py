"""Selecting stories with a SQL expression over `runs` (design 8: `--where`), under the same lock and bounds as a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.errors import UsageError
from chronicle.layout import TABLES
from chronicle.sql.sandbox import Bounds, Sandbox, Watch, nobody_watches
from chronicle.sql.statement import check, refused

if TYPE_CHECKING:
    from chronicle.sql.process import Channel
    from chronicle.storyline.current import Snapshot
    from chronicle.storyline.source import StorylineDataSource

_HINT = "write a condition over the columns of runs, like session_id LIKE 'eval-%'"


def selected(source: StorylineDataSource, expression: str, bounds: Bounds) -> list[str]:
    """Document ids of the runs for which a SQL expression holds, in storage order.

    The expression sees the columns of `runs`, and subqueries all three tables. Raises UsageError where it is not one
    expression, does not run, or hits a bound (kind `stopped`); IntegrityError where tables do not read. It is evaluated in a
    process of its own, over the state that the source has pinned.
    """
    from chronicle.sql import process

    work = f"{__name__}:_select_there"
    try:
        found = process.run(work, source.root, source.snapshot, expression, bounds, bounds=bounds, note=_silent)
    except UsageError as error:
        if error.kind == "stopped":
            error.hint = "write a condition that takes less"
        raise
    return list(found)


def _silent(text: str) -> None:
    """Nothing is said here."""


def _select_there(channel: Channel, root: str, snapshot: Snapshot, expression: str, bounds: Bounds) -> list[str]:
    from chronicle.storyline.source import StorylineDataSource

    return evaluated(StorylineDataSource.at(root, snapshot), expression, bounds, channel.watch)


def evaluated(source: StorylineDataSource, expression: str, bounds: Bounds, watch: Watch = nobody_watches) -> list[str]:
    """What `selected` gives, worked out in this process: what a single function takes is not bounded."""
    sql = f"SELECT document_id FROM runs WHERE (\n{expression}\n)"
    check_expression(expression)
    with Sandbox(bounds, watch) as sandbox:
        sandbox.offer([("", {table: getattr(source, table) for table in TABLES})])
        # A place for one expression in any grammar: without parentheses even a SELECT does not fit.
        if not (
            _is_one_condition(sandbox.tree(sql)) and _is_one_case(sandbox.tree(f"SELECT CASE WHEN\n{expression}\nTHEN 1 END"))
        ):
            raise _no_expression(expression)
        reader = sandbox.select(sql)
        chosen: set[str] = set()
        while (batch := sandbox.call(lambda: next(reader, None))) is not None:
            chosen.update(batch.column(0).to_pylist())
    return [document for document in source.document_ids() if document in chosen]


def check_expression(expression: str) -> None:
    """Raise UsageError where a text cannot be one SQL expression, before any table is opened."""
    import duckdb

    depth = 0
    text = expression.encode()
    for at, kind in duckdb.tokenize(expression):
        mark = text[at : at + 1] if kind == duckdb.token_type.operator else b""
        depth += (mark == b"(") - (mark == b")")
        if depth < 0 or mark == b";":
            raise _no_expression(expression)
    if not text.strip() or depth:
        raise _no_expression(expression)
    try:
        check(f"SELECT (\n{expression}\n)")
    except UsageError as error:
        error.hint = _HINT
        raise


def _is_one_condition(node: dict[str, Any]) -> bool:
    """Whether the statement around an expression is still what was put around it."""
    return (
        node["type"] == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and node["from_table"]["type"] == "BASE_TABLE"
        and node["where_clause"] is not None
        and not node["modifiers"]
        and not node["group_expressions"]
        and node["having"] is None
        and node["qualify"] is None
        and node["sample"] is None
    )


def _is_one_case(node: dict[str, Any]) -> bool:
    (case,) = node["select_list"] if len(node["select_list"]) == 1 else [{}]
    return bool(case.get("class") == "CASE" and len(case["case_checks"]) == 1)


def _no_expression(expression: str) -> UsageError:
    error = refused(f"{expression[:80]!r} is not one expression")
    error.hint = _HINT
    return error
