"""report: one HTML page about a dataset or a lake: figures by agent, model and tool, and the health of it (design 8)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from chronicle.discovery import Location, expand_story_locations, places_with_tables
from chronicle.errors import ChronicleError, UsageError
from chronicle.figures import Figures, Table, figures
from chronicle.freshness import stale_tables
from chronicle.layout import TABLES
from chronicle.options import ReportOptions
from chronicle.reports import PageReport
from chronicle.stats import StatsReport, stats
from chronicle.storage import files
from chronicle.storyline.source import StorylineDataSource
from chronicle.webpage import Page

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_FAILED = "A call has failed where its result says so: is_error, an exit code other than 0, a status of error, failed or timeout."
_TOKENS = "Tokens are those that turns state, else the totals of the run; turns copied from an earlier run are left out."
_NAMES = {"name": "", "prompt_tokens": "prompt tokens", "completion_tokens": "completion tokens", "cost_usd": "cost, USD"}


def report(options: ReportOptions) -> PageReport:
    """Write the page.

    Raises UsageError (a target inside the lake, or that is there already without `overwrite`), NotFoundError where there
    is no such dataset or none with tables, IntegrityError where tables do not read.
    """
    from chronicle.sql.sandbox import Bounds

    began = time.monotonic()
    _check_target(options)
    places, warnings = places_with_tables(options.lake, options.dataset)
    found = PageReport(dataset=options.dataset or "", to=options.to, dry_run=options.dry_run)
    opened = [(place, StorylineDataSource.open(place.storyline)) for place in places]
    found.warnings = [*warnings, *stale_tables(opened)]
    sources = [(place.name, {table: getattr(source, table) for table in TABLES}) for place, source in opened]
    said = figures(sources, Bounds(seconds=options.timeout_seconds, memory=options.memory))
    healths = _healths(options, found)
    page = _page(options.dataset or options.lake, said, healths)
    found.datasets, found.runs = len(places), int(said.totals["runs"])
    data = page.encode()
    found.bytes = len(data)
    if not options.dry_run:
        files.make_dirs(os.path.dirname(options.to), durable=False)
        files.write_atomic(options.to, data, durable=False)
    found.seconds = round(time.monotonic() - began, 3)
    return found


def _check_target(options: ReportOptions) -> None:
    to, lake = os.path.realpath(options.to), os.path.realpath(options.lake)
    if to == lake or to.startswith(lake + os.sep):
        raise UsageError(f"--to {options.to} is inside the lake", hint="choose a place outside of it")
    if os.path.isdir(to):
        raise UsageError(f"--to {options.to} is a directory", hint="name a file, like report.html")
    if os.path.lexists(to) and not options.overwrite:
        raise UsageError(f"--to {options.to} is there already", hint="choose another name, or add --overwrite")


def _healths(options: ReportOptions, found: PageReport) -> list[StatsReport]:
    """Stats of every dataset that is asked for, also of those without tables; one that does not read gets a warning."""
    healths = []
    for place in _places(options):
        if place.paths is None:
            found.warnings.append(f"{place.name}: not laid out as a lake, so nothing is said about its health")
            continue
        try:
            healths.append(stats(place.paths))
        except ChronicleError as error:
            found.warnings.append(f"{place.name}: {error.message}")
    return healths


def _places(options: ReportOptions) -> Sequence[Location]:
    if options.dataset is not None:
        return places_with_tables(options.lake, options.dataset)[0]
    return expand_story_locations(options.lake)


def _page(title: str, said: Figures, healths: list[StatsReport]) -> Page:
    page = Page(f"Agent runs: {title}")
    page.note(f"Made by chronicle on {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC. All times are UTC.")
    totals = said.totals
    page.figures(
        [
            ("runs", totals["runs"]),
            ("turns", totals["turns"]),
            ("tool calls", totals["calls"]),
            ("failed calls", totals["failed"]),
            ("agents", totals["agents"]),
            ("tools", totals["tools"]),
            ("first time stamp", totals["first"]),
            ("last time stamp", totals["last"]),
        ]
    )
    page.hints(f"{health.dataset}: {hint}" for health in healths for hint in health.hints)
    for name, table in (("agents", said.agents), ("models", said.models), ("tools", said.tools)):
        page.heading(name.capitalize())
        _draw(page, name, table)
    page.note(_TOKENS)
    page.note(_FAILED)
    page.heading("Health")
    _draw_health(page, healths)
    return page


def _draw(page: Page, name: str, table: Table) -> None:
    columns = [_NAMES.get(column, column.replace("_", " ")) for column in table.columns]
    columns.insert(table.columns.index("failed") + 1, "failed, %")
    page.table(name, columns, [_with_rate(table, row) for row in table.rows])
    if table.total > len(table.rows):
        page.note(f"{table.total - len(table.rows):,} more are not shown.")


def _with_rate(table: Table, row: tuple[Any, ...]) -> list[Any]:
    values = dict(zip(table.columns, row, strict=True))
    rate = 100 * values["failed"] / values["calls"] if values["calls"] else None
    cells = [int(value) if isinstance(value, float) and value.is_integer() else value for value in row]
    cells[0] = row[0] or "(not said)"
    cells.insert(table.columns.index("failed") + 1, None if rate is None else round(rate, 1))
    return cells


def _draw_health(page: Page, healths: list[StatsReport]) -> None:
    rows = [
        (
            health.dataset,
            health.sources,
            health.fact_rows,
            health.freshness,
            "" if health.lag_seconds is None else f"{health.lag_seconds:,.0f} s",
            health.markdown,
            health.quarantined,
            health.segments,
            _size(sum(health.bytes.values())),
            _size(health.retired_bytes),
        )
        for health in healths
    ]
    names = "dataset,sources,facts,tables,lag,Markdown,in quarantine,segments,bytes,of these not reachable"
    page.table("health", names.split(","), rows)
    for name, heading, part in (
        ("lints", "What is odd about runs", "lints"),
        ("quarantine", "In quarantine, by kind", "quarantine_kinds"),
        ("bytes", "Bytes by layer", "bytes"),
    ):
        counts = [(health.dataset, code, count) for health in healths for code, count in getattr(health, part).items()]
        if counts:
            page.heading(heading, 3)
            page.table(name, ("dataset", "", "bytes" if part == "bytes" else "count"), counts)


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_SIZES) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.1f} {_SIZES[unit]}" if unit else f"{count:,.0f} B"
