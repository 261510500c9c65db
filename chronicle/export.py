"""export: facts or tables -> files (design 8, 11).

`--exact` gives back the bytes that came in, from facts. `--format` goes through the hub, from tables: a file for each source,
or, of a selection, one for each document; as one file of JSON lines, as Markdown, or the tables themselves as Parquet.
"""

from __future__ import annotations

import os
import time

from chronicle.errors import UsageError
from chronicle.events.log import RawEventLanceStore
from chronicle.exports.documents import FORMATS, MARKDOWN, PARQUET
from chronicle.exports.selection import export_selection, selected_runs
from chronicle.exports.sources import export_converted, export_exact
from chronicle.exports.writer import Writer
from chronicle.formats import hub
from chronicle.options import ExportOptions
from chronicle.reports import ExportReport
from chronicle.storyline.source import StorylineDataSource

__all__ = ["FORMATS", "check", "export"]


def export(options: ExportOptions) -> ExportReport:
    """Write files below `options.to`, or that one file.

    Raises UsageError (flags that do not go together, `to` inside the lake, or not empty without `overwrite`), NotFoundError
    (no such dataset, no tables, no such session), IntegrityError (a source key that would leave `to`, bytes that do not verify).
    """
    began = time.monotonic()
    check(options)
    report = ExportReport(dataset=options.paths.dataset, to=options.to, dry_run=options.dry_run)
    with Writer(options, report) as writer:
        if options.exact:
            export_exact(options, report, writer)
        else:
            _export_format(options, report, writer)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _export_format(options: ExportOptions, report: ExportReport, writer: Writer) -> None:
    from chronicle.freshness import freshness

    source = StorylineDataSource.open(options.paths.storyline)
    projection = source.snapshot.projection
    report.fact_version = (projection.source.fact_version or 0) if projection else 0
    report.freshness = freshness(source, RawEventLanceStore(options.paths.events).snapshot(), options.paths)
    if options.format == PARQUET:
        from chronicle.exports.tables import export_tables

        export_tables(options, report, writer, source, selected_runs(options, report, source) if options.is_selection else None)
    elif options.is_selection or options.is_one_file or options.format == MARKDOWN:
        export_selection(options, report, writer, source)
    else:
        export_converted(options, report, writer, source)


def check(options: ExportOptions) -> None:
    """Refuse what does not go together, and a target that must not be written. Raises UsageError."""
    if options.exact == (options.format is not None):
        raise UsageError("export needs exactly one of --exact and --format", hint=f"formats: {', '.join(FORMATS)}")
    if options.exact:
        if options.is_selection or options.is_filtered:
            raise UsageError(
                "--exact gives back whole sources", hint="leave out --where, --session, --since and --skip-…, or name a --format"
            )
    elif options.format not in (MARKDOWN, PARQUET):
        _check_format(options.format or "")
    if options.all_versions and not options.exact:
        raise UsageError("--all-versions goes with --exact only", hint="add --exact")
    if options.format == PARQUET and options.is_filtered:
        raise UsageError("--skip-… leaves turns out of documents, not rows", hint="name another format, or filter the rows")
    if options.is_one_file and options.format in (MARKDOWN, PARQUET):
        raise UsageError(f"{options.format} is not written as JSON lines", hint="name a directory with --to")
    _check_target(options)


def _check_format(format: str) -> None:
    try:
        hub.check_format(format)
    except UsageError as error:
        error.hint = error.hint if format == "events" else f"formats: {', '.join(FORMATS)}"
        raise


def _check_target(options: ExportOptions) -> None:
    to, lake = os.path.realpath(options.to), os.path.realpath(options.paths.lake)
    if to == lake or to.startswith(lake + os.sep):
        raise UsageError(f"--to {options.to} is inside the lake", hint="choose a place outside of it")
    if options.is_one_file:
        if os.path.isdir(to):
            raise UsageError(f"--to {options.to} is a directory", hint="name a file, or a directory without .jsonl at its end")
        if os.path.lexists(to) and not options.overwrite:
            raise UsageError(f"--to {options.to} is there already", hint="choose another name, or add --overwrite")
        return
    if os.path.lexists(to) and not os.path.isdir(to):
        raise UsageError(f"--to {options.to} is not a directory", hint="choose another path")
    if os.path.isdir(to) and os.listdir(to) and not options.overwrite:
        raise UsageError(f"--to {options.to} is not empty", hint="choose an empty directory, or add --overwrite")
