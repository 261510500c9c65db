"""Figures about runs, by agent, model and tool, asked of the tables with SQL (design 8: `report`).

Tokens are those that turns state; of a run whose turns state none, those of its `final_metrics`. Turns that were copied from an
earlier run were counted there. A call has failed where its result says so: `is_error`, an exit code that is not 0, a status of
error, failed or timeout. What a tool wrote as text is not looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from chronicle.sql.sandbox import Bounds, Tables

MOST_ROWS = 200
"""Lines of a table; the longest ones come first."""

_FAILED = (
    r'"is_?[eE]rror"\s*:\s*true'
    r'|"(?:exit_?[cC]ode|exit_status|return_?code)"\s*:\s*-?[1-9]'
    r'|"status"\s*:\s*"(?:error|failed|failure|timeout)"'
)


def _number(column: str, name: str, kind: str = "BIGINT") -> str:
    return f"CASE WHEN json_valid({column}) THEN TRY_CAST({column} ->> '$.{name}' AS {kind}) END"


_TURNS = f"""
    WITH turns AS (
        SELECT dataset, document_id, source, coalesce(is_copied_context, false) AS copied, model_name,
            {_number("metrics", "prompt_tokens")} AS asked, {_number("metrics", "completion_tokens")} AS answered,
            {_number("metrics", "cost_usd", "DOUBLE")} AS cost
        FROM steps
    ), calls AS (
        SELECT dataset, document_id, step_id, function_name, duration, results = '[]' AS unanswered,
            regexp_matches(results, '{_FAILED}') AS failed
        FROM tool_calls
    )
"""
_AGENTS = f"""{_TURNS}, of_turns AS (
        SELECT dataset, document_id, count(*) AS turns, sum(asked) FILTER (NOT copied) AS asked,
            sum(answered) FILTER (NOT copied) AS answered, sum(cost) FILTER (NOT copied) AS cost
        FROM turns GROUP BY ALL
    ), of_calls AS (
        SELECT dataset, document_id, count(*) AS calls, count(*) FILTER (failed) AS failed,
            count(*) FILTER (unanswered) AS unanswered
        FROM calls GROUP BY ALL
    )
    SELECT agent_id AS name, count(*) AS runs, coalesce(sum(turns), 0)::BIGINT AS turns, coalesce(sum(calls), 0)::BIGINT AS calls,
        coalesce(sum(failed), 0)::BIGINT AS failed, coalesce(sum(unanswered), 0)::BIGINT AS unanswered,
        coalesce(sum(coalesce(asked, {_number("final_metrics", "total_prompt_tokens")})), 0)::BIGINT AS prompt_tokens,
        coalesce(sum(coalesce(answered, {_number("final_metrics", "total_completion_tokens")})), 0)::BIGINT AS completion_tokens,
        coalesce(sum(coalesce(cost, {_number("final_metrics", "total_cost_usd", "DOUBLE")})), 0) AS cost_usd
    FROM runs LEFT JOIN of_turns USING (dataset, document_id) LEFT JOIN of_calls USING (dataset, document_id)
    GROUP BY ALL ORDER BY runs DESC, name
"""
_MODELS = f"""{_TURNS}, named AS (
        SELECT t.*, coalesce(t.model_name, r.agent_model_name, '') AS name
        FROM turns t JOIN runs r USING (dataset, document_id) WHERE t.source = 'agent' AND NOT t.copied
    ), of_calls AS (
        SELECT coalesce(s.model_name, r.agent_model_name, '') AS name, count(*) AS calls, count(*) FILTER (failed) AS failed,
            count(*) FILTER (unanswered) AS unanswered
        FROM calls c JOIN steps s USING (dataset, document_id, step_id) JOIN runs r USING (dataset, document_id)
        WHERE s.source = 'agent' AND NOT coalesce(s.is_copied_context, false) GROUP BY ALL
    )
    SELECT name, count(DISTINCT (dataset, document_id)) AS runs, count(*) AS turns, coalesce(any_value(calls), 0) AS calls,
        coalesce(any_value(failed), 0) AS failed, coalesce(any_value(unanswered), 0) AS unanswered,
        coalesce(sum(asked), 0)::BIGINT AS prompt_tokens, coalesce(sum(answered), 0)::BIGINT AS completion_tokens,
        coalesce(sum(cost), 0) AS cost_usd
    FROM named LEFT JOIN of_calls USING (name) GROUP BY ALL ORDER BY turns DESC, name
"""
_TOOLS = f"""{_TURNS}
    SELECT function_name AS name, count(DISTINCT (dataset, document_id)) AS runs, count(*) AS calls,
        count(*) FILTER (failed) AS failed, count(*) FILTER (unanswered) AS unanswered, avg(duration) AS mean_ms
    FROM calls GROUP BY ALL ORDER BY calls DESC, name
"""
_TOTALS = f"""
    SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM steps) AS turns, (SELECT count(*) FROM tool_calls) AS calls,
        (SELECT count(*) FROM tool_calls WHERE regexp_matches(results, '{_FAILED}')) AS failed,
        (SELECT count(DISTINCT agent_id) FROM runs) AS agents, (SELECT count(DISTINCT function_name) FROM tool_calls) AS tools,
        (SELECT strftime(min(timestamp)::TIMESTAMPTZ, '%Y-%m-%d %H:%M') FROM steps) AS first,
        (SELECT strftime(max(timestamp)::TIMESTAMPTZ, '%Y-%m-%d %H:%M') FROM steps) AS last
"""


class Table(NamedTuple):
    """Rows with one name each, and how many there are in all."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    total: int


class Figures(NamedTuple):
    """What a report says about runs."""

    totals: dict[str, Any]
    agents: Table
    models: Table
    tools: Table


def figures(sources: Sequence[tuple[str, Tables]], bounds: Bounds) -> Figures:
    """Ask the tables of some datasets, given by name. Raises UsageError of kind `stopped` at a bound, IntegrityError."""
    totals = _asked(_TOTALS, sources, bounds)
    return Figures(
        totals=dict(zip(totals.columns, totals.rows[0], strict=True)),
        agents=_asked(_AGENTS, sources, bounds),
        models=_asked(_MODELS, sources, bounds),
        tools=_asked(_TOOLS, sources, bounds),
    )


def _asked(sql: str, sources: Sequence[tuple[str, Tables]], bounds: Bounds) -> Table:
    from chronicle.sql.sandbox import run

    rows: list[tuple[Any, ...]] = []
    total = 0
    with run(sql, list(sources), bounds) as result:
        columns = tuple(result.columns)
        for batch in result.batches():
            total += batch.num_rows
            few = batch.slice(0, max(MOST_ROWS - len(rows), 0))
            rows += zip(*(column.to_pylist() for column in few.columns), strict=True)
    return Table(columns, rows, total)
