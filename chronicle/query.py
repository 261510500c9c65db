"""query: one SELECT over `runs`, `steps` and `tool_calls`, in DuckDB (design 5.2, 8).

The tables are those of a dataset, of all datasets of a lake with a column `dataset`, or of files that no lake holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from chronicle.discovery import Location, places_with_tables
from chronicle.freshness import stale_tables
from chronicle.layout import TABLES
from chronicle.options import QueryOptions
from chronicle.sql import sandbox
from chronicle.sql.sandbox import Bounds, QueryResult, Tables, Watch, nobody_watches
from chronicle.sql.statement import check

if TYPE_CHECKING:
    from chronicle.commandline.console import Console
    from chronicle.sql.process import Channel
    from chronicle.storyline.source import StorylineDataSource

_OPENED_AT_ONCE = 8

__all__ = ["QueryResult", "bounds_of", "query"]


def query(options: QueryOptions, watch: Watch = nobody_watches) -> QueryResult:
    """Run one SELECT over the tables of a dataset, of a lake, or of files.

    Raises UsageError for a statement that is refused or wrong, or a bound that was hit (kind `stopped`); NotFoundError
    where there is no such dataset or file, or no tables; InputError for a file that does not read; IntegrityError where
    tables do not read.
    """
    check(options.sql)  # before the tables are opened: a wrong statement is told at once
    if options.files:
        from chronicle.intake.reading import Limits
        from chronicle.sql.filetables import tables_of

        tables, warnings = tables_of(options.files, Limits(options.max_source_bytes, options.max_ratio))
        return sandbox.run(options.sql, [("", tables)], bounds_of(options), warnings, watch)
    places, warnings = places_with_tables(options.lake, options.dataset)
    sources: list[tuple[str, Tables]] = []
    opened = list(zip(places, _opened(places), strict=True))
    for place, source in opened:
        sources.append((place.name if options.dataset is None else "", {table: getattr(source, table) for table in TABLES}))
    warnings = [*warnings, *stale_tables(opened)]
    return sandbox.run(options.sql, sources, bounds_of(options), warnings, watch)


def print_rows(options: QueryOptions, format: str, console: Console) -> None:
    """Run a query in a process of its own and write its rows on standard output. Raises as `query` does."""
    from chronicle.sql import process

    bounds = bounds_of(options)
    _ = bounds.memory_bytes, bounds.row_bytes  # told without a process
    process.run(f"{__name__}:_print_here", options, format, console.quiet, bounds=bounds, note=console.note)


def _print_here(channel: Channel, options: QueryOptions, format: str, quiet: bool) -> None:
    from chronicle.commandline.console import Console
    from chronicle.commandline.rows import write_rows

    with query(options, channel.watch) as result:
        for warning in result.warnings:
            channel.note(f"warning: {warning}")
        write_rows(format, result.schema, result.batches(), Console(quiet=quiet))


def bounds_of(options: QueryOptions) -> Bounds:
    """What the statement of a query may use."""
    return Bounds(seconds=options.timeout_seconds, memory=options.memory, rows=options.limit, max_bytes=options.max_bytes)


def _opened(places: Sequence[Location]) -> list[StorylineDataSource]:
    """The tables of all places, opened side by side: the way to a store takes the time."""
    from chronicle.storyline.source import StorylineDataSource

    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="chronicle-open") as pool:
        return list(pool.map(lambda place: StorylineDataSource.open(place.storyline), places))

