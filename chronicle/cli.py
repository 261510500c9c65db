"""The verbs of `chronicle` that run the library in this process (design 8); `flows/cli.py` adds those that need Prefect.

Each verb fills the options of its library function from flags and settings, calls it and returns its report.
Library modules are imported inside the verbs, so that `chronicle --help` loads none of them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chronicle.command import Call, root_flags, verb
from chronicle.console import Lines
from chronicle.errors import UsageError

if TYPE_CHECKING:
    from chronicle.reports import Report

app = typer.Typer(
    name="chronicle",
    help="Exports of agent runs in; one append-only event log, tables, Markdown and the same files out.",
    epilog="Every verb takes --json, --config FILE.toml and --quiet; verbs that change something take --dry-run.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PREVIEW_BYTES = 2_000
SOURCES_HELP = "File, directory, glob, NAME=PATH, or - for standard input."
Sources = Annotated[list[str], typer.Argument(metavar="SOURCE", help=SOURCES_HELP, show_default=False)]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="F", help="Read as this format: atif, openai_msg, storyline.", show_default=False),
]
Workers = Annotated[int | None, typer.Option(metavar="N", min=1, help="How many sources to cut at a time.", show_default=False)]
AllowQuarantine = Annotated[bool, typer.Option("--allow-quarantine", help="Exit 0 where inputs are in quarantine.")]
Profile = Annotated[Literal["seed", "peer"], typer.Option(help="Dialect of written Storyline files.")]


app.callback()(root_flags)


@verb(app, "ingest", changes=True)
def ingest(
    call: Call, sources: Sources, format: Format = None, workers: Workers = None, allow_quarantine: AllowQuarantine = False
) -> "Report":
    """Store exports as facts. What cannot be read goes to quarantine, with the reason."""
    from chronicle.ingest import ingest as run
    from chronicle.options import IngestOptions

    settings = call.settings
    with call.console.progress("ingest") as progress:
        return run(
            IngestOptions(
                paths=call.paths,
                sources=tuple(sources),
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


@verb(app, "rebuild", changes=True)
def rebuild(
    call: Call, full: Annotated[bool, typer.Option("--full", help="Write the tables anew from all facts.")] = False
) -> "Report":
    """Bring the tables up to date. Reads the facts that are new, or with --full all of them."""
    from chronicle.options import RebuildOptions
    from chronicle.rebuild import rebuild as run

    with call.console.progress("rebuild") as progress:
        return run(
            RebuildOptions(
                paths=call.paths, full=full, dry_run=call.dry_run, lease_seconds=call.settings.lease_seconds, progress=progress
            )
        )


@verb(app, "materialize", changes=True)
def materialize(
    call: Call, reasoning: Annotated[bool, typer.Option("--reasoning", help="Show reasoning too, in a collapsed block.")] = False
) -> "Report":
    """Write one Markdown file a story. Files that were edited by hand are left alone."""
    from chronicle.materialize import materialize as run
    from chronicle.options import MaterializeOptions

    with call.console.progress("materialize") as progress:
        return run(
            MaterializeOptions(
                paths=call.paths, reasoning=reasoning or call.settings.reasoning, dry_run=call.dry_run, progress=progress
            )
        )


@verb(app, "export", changes=True)
def export(
    call: Call,
    to: Annotated[str, typer.Option(metavar="PATH", help="Directory outside the lake.", show_default=False)],
    exact: Annotated[bool, typer.Option("--exact", help="Give back the bytes that came in.")] = False,
    all_versions: Annotated[bool, typer.Option("--all-versions", help="With --exact: superseded sources too.")] = False,
    format: Annotated[
        Literal["atif", "openai_msg", "storyline", "agenticmd"] | None,
        typer.Option("--format", help="Convert to this format.", show_default=False),
    ] = None,
    profile: Profile = "seed",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a directory that is not empty.")] = False,
) -> "Report":
    """Write the stored runs as files. Exactly as they came, or in another format."""
    from chronicle.export import export as run
    from chronicle.options import ExportOptions

    if exact == (format is not None):
        raise UsageError("export needs exactly one of --exact and --format", hint="see `chronicle export --help`")
    if all_versions and not exact:
        raise UsageError("--all-versions goes with --exact only", hint="add --exact")
    with call.console.progress("export") as progress:
        return run(
            ExportOptions(
                paths=call.paths,
                to=to,
                exact=exact,
                all_versions=all_versions,
                format=format,
                profile=profile,
                overwrite=overwrite,
                dry_run=call.dry_run,
                progress=progress,
            )
        )


@verb(app, "verify")
def verify(
    call: Call,
    sample: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Check this many sources only.", show_default=False)
    ] = None,
) -> "Report":
    """Check facts, tables and Markdown. Facts against sources, the others against facts; 65 where something differs."""
    from chronicle.options import VerifyOptions
    from chronicle.verify import verify as run

    with call.console.progress("verify") as progress:
        return run(VerifyOptions(paths=call.paths, sample=sample, progress=progress))


@verb(app, "replay")
def replay(
    call: Call,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only events of this session.", show_default=False)] = None,
    from_row: Annotated[int, typer.Option(metavar="N", min=0, help="Begin at this row of the log.")] = 0,
    limit: Annotated[int | None, typer.Option(metavar="N", min=0, help="At most this many events.", show_default=False)] = None,
) -> None:
    """Print the facts. One EventRecord a line, as JSON, in append order."""
    from chronicle.events.log import RawEventLanceStore

    store = RawEventLanceStore(call.paths.events)
    with Lines() as lines:
        for _, record in store.replay(session_id=session, start=from_row, limit=limit):
            lines.add(record.text)


@verb(app, "list", on="lake")
def list_datasets(call: Call) -> "Report":
    """List the datasets of a lake. With what they hold and whether their tables are fresh."""
    from chronicle.stats import list_lake

    return list_lake(call.lake)


@verb(app, "stats")
def stats(call: Call) -> "Report":
    """Count what a dataset holds. Facts, tables, Markdown, quarantine and bytes."""
    from chronicle.stats import stats as run

    return run(call.paths)


quarantine = typer.Typer(help="Look at inputs that could not be read, and decide about them.", rich_markup_mode=None)
app.add_typer(quarantine, name="quarantine")
Entry = Annotated[str, typer.Argument(metavar="ID", help="An id of `quarantine list`, or its beginning.", show_default=False)]


@verb(quarantine, "list")
def quarantine_list(call: Call) -> "Report":
    """List the entries. With source key, locator, kind and reason."""
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    entries = Quarantine(call.paths).entries.values()
    return QuarantineReport(dataset=call.paths.dataset, entries=[entry.summary() for entry in entries])


@verb(quarantine, "show")
def quarantine_show(call: Call, id: Entry) -> "Report":
    """Show one entry. With the beginning of its bytes."""
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    found = Quarantine(call.paths)
    entry = found.get(id)
    preview = (found.data(entry) or b"")[:PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    return QuarantineReport(verb="quarantine show", dataset=call.paths.dataset, entries=[entry.summary()], preview=preview)


@verb(quarantine, "retry", changes=True)
def quarantine_retry(
    call: Call,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One entry; all without it.", show_default=False)] = None,
) -> "Report":
    """Try to read entries again. From their stored bytes, under the same source key."""
    from chronicle.ingest import retry
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    if call.dry_run:
        found = Quarantine(call.paths)
        entries = [found.get(id)] if id else list(found.entries.values())
        would = [entry.summary() for entry in entries]
        return QuarantineReport(verb="quarantine retry", dataset=call.paths.dataset, dry_run=True, entries=would)
    return retry(call.paths, (id,) if id else ())


@verb(quarantine, "drop", changes=True)
def quarantine_drop(call: Call, id: Entry) -> "Report":
    """Remove one entry and its bytes. Never a fact."""
    from chronicle.quarantine import Quarantine
    from chronicle.reports import QuarantineReport

    found = Quarantine(call.paths)
    entry = found.get(id) if call.dry_run else found.drop(id)
    return QuarantineReport(verb="quarantine drop", dataset=call.paths.dataset, dry_run=call.dry_run, entries=[entry.summary()])


receipts = typer.Typer(help="Look at what is known of each source, or fold it anew from facts.", rich_markup_mode=None)
app.add_typer(receipts, name="receipts")


@verb(receipts, "list")
def receipts_list(call: Call) -> "Report":
    """List what each source key holds."""
    from chronicle.receipts import list_receipts

    return _receipts_report("receipts list", call, list_receipts(call.paths))


@verb(receipts, "rebuild", changes=True)
def receipts_rebuild(call: Call) -> "Report":
    """Write the receipts anew from facts."""
    from chronicle.receipts import rebuild_receipts

    return _receipts_report("receipts rebuild", call, rebuild_receipts(call.paths, dry_run=call.dry_run))


def _receipts_report(verb_name: str, call: Call, found: Sequence[object]) -> "Report":
    import msgspec

    from chronicle.reports import ReceiptsReport

    rows = [msgspec.to_builtins(receipt) for receipt in found]
    return ReceiptsReport(verb=verb_name, dataset=call.paths.dataset, dry_run=call.dry_run, receipts=rows)
