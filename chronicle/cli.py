"""The verbs of `chronicle` that run the library in this process (design 8); `flows/cli.py` adds those that need Prefect.

Each verb fills the options of its library function from flags and settings, calls it and returns its report.
Library modules are imported inside the verbs, so that `chronicle --help` loads none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from chronicle.commandline import asking, taking
from chronicle.commandline.command import Call, Count, Verbs, verb
from chronicle.commandline.console import Lines, say
from chronicle.errors import InputError, NotFoundError, UsageError
from chronicle.plural import be, counted

if TYPE_CHECKING:
    from chronicle.layout import DatasetPaths
    from chronicle.reports import Report, VerifyReport

app = Verbs(
    "chronicle",
    help="Exports of agent runs in; one append-only event log, tables, Markdown and the same files out.",
    epilog="Every verb takes --json, --config FILE.toml and --quiet; verbs that change something take --dry-run.",
)
click.version_option(package_name="chronicle", prog_name="chronicle", message="%(prog)s %(version)s")(app)

PREVIEW_BYTES = 2_000
SOURCES = click.Argument(["sources"], nargs=-1, required=True, metavar="SOURCE...")
FORMAT = click.Option(["--format"], metavar="F", help="Read as this format: atif, openai_msg, storyline.")
WORKERS = click.Option(["--workers"], type=Count(min=1), metavar="N", help="Sources cut at a time.")
ALLOW_QUARANTINE = click.Option(["--allow-quarantine"], is_flag=True, help="Exit 0 where inputs are in quarantine.")
FULL = click.Option(["--full"], is_flag=True, help="Write the tables anew from all facts.")
SPOOL = click.Argument(["spool"], metavar="SPOOL")
REASONING = click.Option(["--reasoning"], is_flag=True, help="Show reasoning too, in a collapsed block.")
COMPACT = click.Option(["--compact"], is_flag=True, help="Merge small pieces. Without any of these three: all of them.")
INDEX = click.Option(["--index"], is_flag=True, help="Build indices.")
VACUUM = click.Option(["--vacuum"], is_flag=True, help="Remove what nobody can reach any more.")
FULL_COMPACT = click.Option(["--full"], is_flag=True, help="Merge the whole log into one segment.")
RETENTION = click.Option(
    ["--retention"], metavar="T", help="Keep what nobody can reach for so long: 7d, 12h, 30m or 0.  [default: 7d]"
)
SAMPLE = click.Option(["--sample"], type=Count(min=1), metavar="N", help="Check this many sources only.")
SESSION = click.Option(["--session"], metavar="ID", help="Only events of this session.")
FROM_ROW = click.Option(
    ["--from-row"], type=Count(min=0), default=0, show_default=True, metavar="N", help="Begin at this row of the log."
)
LIMIT = click.Option(["--limit"], type=Count(min=0), metavar="N", help="At most this many.")
IN = click.Argument(["source"], metavar="IN")
OUT = click.Argument(["target"], metavar="OUT")
FROM = click.Option(["from_", "--from"], required=True, metavar="F", help="Format of IN: atif, openai_msg, storyline.")
CONVERT_TO = click.Option(
    ["--to"], required=True, metavar="F", help="Format of OUT: atif, openai_msg, storyline; agenticmd: one run, to read."
)
STRICT = click.Option(["--strict"], is_flag=True, help="Write nothing where something would be lost; exit 65.")
RESIDUAL = click.Option(
    ["--residual"],
    type=click.Choice(("carry", "drop")),
    default="carry",
    show_default=True,
    help="Whether what OUT cannot say travels along in it. Only Storyline files have a place for that.",
)
ENTRY = click.Argument(["id"], metavar="ID")
ENTRIES = click.Argument(["ids"], metavar="ID...", nargs=-1, required=True)
ENTRY_OR_ALL = click.Argument(["id"], metavar="[ID]", required=False)


@verb(app, "ingest", SOURCES, FORMAT, WORKERS, ALLOW_QUARANTINE, changes=True)
def ingest(call: Call, sources: tuple[str, ...], format: str | None, workers: int | None, allow_quarantine: bool) -> Report:
    """Store exports as facts.

    What cannot be read goes to quarantine, with the reason. SOURCE is a file, a directory, a glob, s3://…, NAME=PATH,
    or - for standard input.
    """
    from chronicle.ingest import ingest as run
    from chronicle.options import IngestOptions

    settings = call.settings
    with call.console.progress("ingest") as progress:
        return run(
            IngestOptions(
                paths=call.paths,
                sources=sources,
                format=format or settings.format,
                allow_quarantine=allow_quarantine or settings.allow_quarantine,
                max_source_bytes=settings.limits.max_source_bytes,
                max_ratio=settings.limits.max_ratio,
                batch_bytes=settings.limits.batch_bytes,
                workers=workers or settings.workers,
                dry_run=call.dry_run,
                progress=progress,
            )
        )


@verb(app, "rebuild", FULL, changes=True)
def rebuild(call: Call, full: bool) -> Report:
    """Bring the tables up to date. Reads the facts that are new, or with --full all of them."""
    from chronicle.options import RebuildOptions
    from chronicle.rebuild import rebuild as run

    with call.console.progress("rebuild") as progress:
        return run(
            RebuildOptions(
                paths=call.paths, full=full, dry_run=call.dry_run, lease_seconds=call.settings.lease_seconds, progress=progress
            )
        )


@verb(app, "materialize", REASONING, changes=True)
def materialize(call: Call, reasoning: bool) -> Report:
    """Write one Markdown file a story. Files that were edited by hand are left alone."""
    from chronicle.materialize import materialize as run
    from chronicle.options import MaterializeOptions

    with call.console.progress("materialize") as progress:
        return run(
            MaterializeOptions(
                paths=call.paths, reasoning=reasoning or call.settings.reasoning, dry_run=call.dry_run, progress=progress
            )
        )


@verb(app, "drain", SPOOL, changes=True)
def drain(call: Call, spool: str) -> Report:
    """Bring a spool into the facts. Takes what live producers have written there, and removes it once it is in the log."""
    from chronicle.drain import drain as run
    from chronicle.options import DrainOptions

    with call.console.progress("drain") as progress:
        return run(
            DrainOptions(
                paths=call.paths,
                spool=spool,
                batch_bytes=call.settings.limits.batch_bytes,
                dry_run=call.dry_run,
                progress=progress,
            )
        )


@verb(app, "maintain", COMPACT, INDEX, VACUUM, FULL_COMPACT, RETENTION, changes=True)
def maintain(call: Call, compact: bool, index: bool, vacuum: bool, full: bool, retention: str | None) -> Report:
    """Merge, index and tidy up. No fact, no row and no byte that anybody can read changes.

    Small segments become large ones, tables and receipts are written in fewer pieces, indices are built, and what
    nobody could reach for the retention is removed.
    """
    from chronicle.maintain import maintain as run
    from chronicle.options import MaintainOptions
    from chronicle.settings import duration

    seconds = call.settings.retention_seconds() if retention is None else duration(retention)
    if seconds is None:
        raise UsageError(f"--retention {retention!r} is not a duration", hint="write 7d, 12h, 30m or 0")
    everything = not (compact or index or vacuum)
    with call.console.progress("maintain") as progress:
        return run(
            MaintainOptions(
                paths=call.paths,
                compact=compact or full or everything,
                index=index or everything,
                vacuum=vacuum or everything,
                full=full,
                retention_seconds=seconds,
                lease_seconds=call.settings.lease_seconds,
                dry_run=call.dry_run,
                progress=progress,
            )
        )


verb(app, "export", *taking.EXPORT, changes=True)(taking.export)


@verb(app, "verify", SAMPLE, on="lake")
def verify(call: Call, sample: int | None) -> Report:
    """Check facts, tables and Markdown.

    Facts against the sources they came from, tables and Markdown against facts, of one dataset or of all in the lake;
    exit 65 where something differs.
    """
    from chronicle.options import VerifyOptions
    from chronicle.verify import verify as run

    with call.console.progress("verify") as progress:
        found = [run(VerifyOptions(paths=paths, sample=sample, progress=progress)) for paths in _datasets(call)]
    return found[0] if call.settings.dataset else _verified_lake(found)


def _datasets(call: Call) -> list[DatasetPaths]:
    """The dataset that is named, else all of the lake. Raises NotFoundError where there is none."""
    from chronicle.discovery import expand_story_locations

    if call.settings.dataset:
        return [call.paths]
    found = [place.paths for place in expand_story_locations(call.lake) if place.paths is not None]
    if not found:
        raise NotFoundError(f"{call.lake} holds no dataset", hint="check --lake; `chronicle ingest` makes a dataset")
    return found


def _verified_lake(found: Sequence[VerifyReport]) -> VerifyReport:
    """One report for all datasets of a lake: counts summed, differences and warnings under the name of their dataset."""
    from chronicle.reports import Difference, VerifyReport

    total = VerifyReport()
    for report in found:
        for count in ("sources", "sources_changed", "sources_gone", "stories", "markdown_files"):
            setattr(total, count, getattr(total, count) + getattr(report, count))
        for one in report.differences:
            total.differences.append(Difference(layer=one.layer, what=f"{report.dataset}: {one.what}", detail=one.detail))
        total.warnings += [f"{report.dataset}: {warning}" for warning in report.warnings]
    total.freshness = ", ".join(f"{report.dataset}: {report.freshness}" for report in found)
    return total


@verb(app, "replay", SESSION, FROM_ROW, LIMIT)
def replay(call: Call, session: str | None, from_row: int, limit: int | None) -> None:
    """Print the facts. One EventRecord a line, as JSON, in append order."""
    from chronicle.events.log import RawEventLanceStore
    from chronicle.intake.journal import one_line

    snapshot = RawEventLanceStore(call.paths.events).snapshot()
    if session is not None and next(snapshot.replay(session, limit=1), None) is None:
        raise NotFoundError(
            f"dataset {call.paths.dataset!r} has no facts of a session {session!r}",
            hint='`chronicle query "SELECT DISTINCT session_id FROM runs"` names the sessions that have tables',
        )
    with Lines() as lines:
        for _, record in snapshot.replay(session, from_row, limit):
            lines.add(one_line(record.text))


verb(app, "query", *asking.FLAGS, on="lake or files")(asking.query)
verb(app, "find", *taking.FIND, on="lake")(taking.find)
verb(app, "report", *taking.REPORT, on="lake", changes=True, keeps=False)(taking.report)


@verb(app, "convert", IN, OUT, FROM, CONVERT_TO, STRICT, RESIDUAL, taking.PROFILE, on=None, changes=True)
def convert(call: Call, source: str, target: str, **flags: Any) -> Report | None:
    """Convert a file to another format.

    Through Storyline, without a lake. IN and OUT may be - for standard input and output. The report lists under `lost`
    each place of IN that OUT does not give back.
    """
    from chronicle.convert import STDIO
    from chronicle.convert import convert as run
    from chronicle.options import ConvertOptions

    reasoning = call.settings.reasoning
    report = run(ConvertOptions(source=source, target=target, dry_run=call.dry_run, reasoning=reasoning, **flags))
    places = counted(len(report.lost), "place")
    if report.lost and report.strict:
        lossy = f"nothing was written: {places} would be lost, first: {report.lost[0]}"
        if target == STDIO and not call.dry_run:  # stdout is the file's, so the report cannot stand there
            raise InputError(lossy, hint="leave --strict out", kind="lossy")
        say(f"{lossy}; leave --strict out to write it all the same")
    if target != STDIO or call.dry_run:
        return report
    if report.lost:
        call.console.note(f"warning: {places} {be(len(report.lost))} lost, first: {report.lost[0]}; --strict would refuse that")
    return None


@verb(app, "list", on="whole lake")
def list_datasets(call: Call) -> Report:
    """List all datasets of a lake. With what they hold and whether their tables are fresh."""
    from chronicle.stats import list_lake

    return list_lake(call.lake)


@verb(app, "stats", on="lake")
def stats(call: Call) -> Report:
    """Count what a dataset holds. Facts, tables, Markdown, quarantine and bytes; without --dataset as `list`."""
    from chronicle.stats import list_lake
    from chronicle.stats import stats as run

    return run(call.paths) if call.settings.dataset else list_lake(call.lake)


@verb(app, "doctor", on="lake")
def doctor(call: Call) -> Report:
    """Look whether work can be done on a lake. Credentials, conditional writes, clock, versions; exit 78 or 69 where not."""
    from chronicle.doctor import doctor as run

    return run(call.lake)


quarantine = Verbs("quarantine", help="Look at inputs that could not be read, and decide about them.")
app.add_command(quarantine)


@verb(quarantine, "list")
def quarantine_list(call: Call) -> Report:
    """List the entries. With source key, locator, kind and reason."""
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    entries = Quarantine.of(call.paths).entries.values()
    return QuarantineReport(dataset=call.paths.dataset, entries=[entry.summary() for entry in entries])


@verb(quarantine, "show", ENTRY)
def quarantine_show(call: Call, id: str) -> Report:
    """Show one entry. With the beginning of its bytes."""
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    found = Quarantine.of(call.paths)
    entry = found.get(id)
    preview = (found.data(entry) or b"")[:PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    return QuarantineReport(verb="quarantine show", dataset=call.paths.dataset, entries=[entry.summary()], preview=preview)


@verb(quarantine, "retry", ENTRY_OR_ALL, changes=True)
def quarantine_retry(call: Call, id: str | None) -> Report:
    """Try to read entries again. From their stored bytes, under the same source key."""
    from chronicle.intake.reading import Limits
    from chronicle.quarantine import Quarantine
    from chronicle.retry import retry

    Quarantine.of(call.paths)  # of a dataset that is there
    limits = Limits(call.settings.limits.max_source_bytes, call.settings.limits.max_ratio)
    return retry(call.paths, (id,) if id else (), limits=limits, dry_run=call.dry_run)


@verb(quarantine, "drop", ENTRIES, changes=True)
def quarantine_drop(call: Call, ids: tuple[str, ...]) -> Report:
    """Remove entries and their bytes. Never a fact; nothing at all where an ID is unknown or names several."""
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    found = Quarantine.of(call.paths)
    entries = [entry.summary() for entry in (found.find(*ids) if call.dry_run else found.drop(*ids))]
    return QuarantineReport(verb="quarantine drop", dataset=call.paths.dataset, dry_run=call.dry_run, entries=entries)


receipts = Verbs("receipts", help="Look at what is known of each source, or fold it anew from facts.")
app.add_command(receipts)


@verb(receipts, "list")
def receipts_list(call: Call) -> Report:
    """List what each source key holds."""
    from chronicle.intake.receipts import list_receipts

    return _receipts_report("receipts list", call, list_receipts(call.paths))


@verb(receipts, "rebuild", changes=True)
def receipts_rebuild(call: Call) -> Report:
    """Write the receipts anew from facts."""
    from chronicle.intake.receipts import rebuild_receipts

    return _receipts_report("receipts rebuild", call, rebuild_receipts(call.paths, dry_run=call.dry_run))


def _receipts_report(verb_name: str, call: Call, found: Sequence[object]) -> Report:
    import msgspec

    from chronicle.reports import ReceiptsReport

    rows = [msgspec.to_builtins(receipt) for receipt in found]
    return ReceiptsReport(verb=verb_name, dataset=call.paths.dataset, dry_run=call.dry_run, receipts=rows)
