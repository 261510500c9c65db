"""How `query` is asked on the command line (design 8): its flags, and where they say that the tables are."""

from __future__ import annotations

from typing import Any

import click

from chronicle.commandline.command import Call, Count, Seconds
from chronicle.errors import UsageError

LIMIT = click.Option(["--limit"], type=Count(min=0), metavar="N", help="At most this many.")
SQL = click.Argument(["sql"], metavar="SQL")
TIMEOUT = click.Option(
    ["--timeout"], type=Seconds(), default=300.0, show_default=True, metavar="S", help="Stop after so many seconds."
)
MEMORY = click.Option(["--memory"], default="2GB", show_default=True, metavar="M", help="Memory that the query may use.")
MAX_BYTES = click.Option(
    ["--max-bytes"], default="4GB", show_default=True, metavar="M", help="Stop where its rows hold more than this."
)
FILES = click.Option(
    ["files", "--from"],
    multiple=True,
    metavar="FILE...",
    help="Ask these files instead of a lake: ATIF, OpenAI messages, Storyline.",
)
MORE_FILES = click.Argument(["more"], nargs=-1, metavar="")
ROW_FORMAT = click.Option(
    ["--format"],
    type=click.Choice(("table", "jsonl", "csv", "parquet")),
    help="How to print rows; a table on a terminal, else JSON lines.",
)
FLAGS = (SQL, MORE_FILES, FILES, LIMIT, TIMEOUT, MEMORY, MAX_BYTES, ROW_FORMAT)


def query(
    call: Call, sql: str, more: tuple[str, ...], files: tuple[str, ...], limit: int | None, format: str | None, **bounds: Any
) -> None:
    """Ask the tables with SQL.

    One SELECT over runs, steps and tool_calls; over a whole lake (no --dataset, or an empty one) they have a column
    `dataset`. With --from they are made of files, without a lake.
    """
    from chronicle.commandline.rows import check_place
    from chronicle.options import QueryOptions
    from chronicle.query import print_rows

    shown = format or ("table" if call.console.for_people else "jsonl")
    check_place(shown)
    place = _asked_place(call, (*files, *more) if files else (), more)
    asked = QueryOptions(
        sql=sql, limit=limit, timeout_seconds=bounds["timeout"], memory=bounds["memory"], max_bytes=bounds["max_bytes"], **place
    )
    try:
        print_rows(asked, shown, call.console)
    except UsageError as error:
        if asked.dataset is not None and 'column "dataset" not found' in error.message:
            error.hint = "only a query over the whole lake has the column `dataset`: add --dataset ''"
        raise


def _asked_place(call: Call, files: tuple[str, ...], more: tuple[str, ...]) -> dict[str, Any]:
    """Where a query reads from, as options. Raises UsageError for a place that is none, or two."""
    if not files:
        if more:
            raise UsageError(f"query takes one SQL statement, {more[0]!r} is one too many", hint="quote the statement")
        call.check_place("lake")
        return {"lake": call.lake, "dataset": call.settings.dataset or None}
    if call.flags["lake"] is not None or call.flags["dataset"] is not None:
        raise UsageError("--from goes without --lake and --dataset", hint="leave either out")
    limits = call.settings.limits
    return {"files": files, "max_source_bytes": limits.max_source_bytes, "max_ratio": limits.max_ratio}
