"""How runs are taken out on the command line (design 8): flags and functions of `export`, `find` and `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chronicle.commandline.asking import LIMIT, ROW_FORMAT
from chronicle.commandline.command import Call

if TYPE_CHECKING:
    from chronicle.reports import Report

PROFILE = click.Option(
    ["--profile"], type=click.Choice(("seed", "peer")), default="seed", show_default=True, help="Dialect of Storyline files."
)
EXPORT = (
    click.Option(["--to"], required=True, metavar="PATH", help="Directory outside the lake, or a file X.jsonl."),
    click.Option(["--exact"], is_flag=True, help="Give back the bytes that came in."),
    click.Option(["--all-versions"], is_flag=True, help="With --exact: superseded sources too."),
    click.Option(
        ["--format"], metavar="F", help="Convert to atif, openai_msg, storyline or agenticmd; parquet: the three tables."
    ),
    PROFILE,
    click.Option(["--where"], metavar="SQL", help="Only runs for which this expression over the table runs is true."),
    click.Option(["--session"], metavar="ID", help="Only runs of this session."),
    click.Option(["--since"], metavar="T", help="Only runs that began at or after T: a date, a time, or 24h."),
    click.Option(["--skip-copied"], is_flag=True, help="Leave out turns that were replayed from an earlier run."),
    click.Option(["--skip-zero-llm"], is_flag=True, help="Leave out turns of the agent that no model made."),
    click.Option(["--overwrite"], is_flag=True, help="Write into a directory that is not empty."),
)
FIND = (
    click.Argument(["text"], metavar="TEXT-OR-ID"),
    click.Option(["--words"], is_flag=True, help="Look for words also where TEXT is an id."),
    LIMIT,
    ROW_FORMAT,
)
REPORT = (
    click.Option(["--to"], required=True, metavar="FILE.html", help="The page, outside the lake."),
    click.Option(["--overwrite"], is_flag=True, help="Write over a file that is there."),
)


def export(call: Call, to: str, since: str | None, **flags: Any) -> Report:
    """Write the stored runs as files.

    Exactly as they came, or in another format: a file for each source. With --where, --session or --since one document a
    file; with --to X.jsonl all documents in one file, one a line.
    """
    import time

    from chronicle.export import export as run
    from chronicle.freshness import FRESH, not_from_all_facts
    from chronicle.options import ExportOptions
    from chronicle.settings import instant_ns
    from chronicle.storage.uri import local_path

    with call.console.progress("export") as progress:
        report = run(
            ExportOptions(
                paths=call.paths,
                to=local_path(to, "--to"),
                since_ns=instant_ns(since, time.time_ns()) if since is not None else None,
                reasoning=call.settings.reasoning,
                dry_run=call.dry_run,
                progress=progress,
                **flags,
            )
        )
    if report.freshness not in ("", FRESH):
        call.console.note(f"warning: {not_from_all_facts([f'{report.dataset} ({report.freshness})'])}")
    elif report.skipped:
        more = len(report.skipped) - 1
        call.console.note(f"warning: not written: {report.skipped[0]}{f' (and {more} more)' if more else ''}")
    if not report.stories and report.warnings:  # nobody should have to look for the reason in the report
        call.console.note(f"nothing was written: {'; '.join(report.warnings)}")
    return report


def find(call: Call, text: str, words: bool, limit: int | None, format: str | None) -> None:
    """Find runs by an id or by words.

    An id of a document, session, run, tool call or event, or a source key; else all cells of messages, reasoning,
    observations and arguments that hold the words. One row for each place.
    """
    from chronicle.commandline.rows import check_place, write_rows
    from chronicle.find import find as run
    from chronicle.options import FindOptions

    shown = format or ("table" if call.console.for_people else "jsonl")
    check_place(shown)
    found = run(FindOptions(lake=call.lake, text=text, dataset=call.settings.dataset or None, words=words, limit=limit))
    for warning in found.warnings:
        call.console.note(f"warning: {warning}")
    write_rows(shown, found.schema, found.batches(), call.console)
    if not found.count and limit != 0:
        call.console.note("nothing was found")


def report(call: Call, to: str, overwrite: bool) -> Report:
    """Write a page about runs. Figures by agent, model and tool, and the health of the dataset or the lake, in one HTML file."""
    from chronicle.options import ReportOptions
    from chronicle.report import report as run
    from chronicle.storage.uri import local_path

    found = run(
        ReportOptions(
            lake=call.lake,
            to=local_path(to, "--to"),
            dataset=call.settings.dataset or None,
            overwrite=overwrite,
            dry_run=call.dry_run,
        )
    )
    if not call.console.for_people:  # who sees the report sees them there
        for warning in found.warnings:
            call.console.note(f"warning: {warning}")
    return found
