"""retry: quarantined bytes are read once more (design 4.2)."""

from __future__ import annotations

from msgspec.structs import replace

from chronicle import identity
from chronicle.errors import InputError
from chronicle.events import imported
from chronicle.events.imported import Stat
from chronicle.formats.cut import cut
from chronicle.formats.document import CutSource
from chronicle.intake.reading import Limits, SourceBytes, UnreadableSource, unpack
from chronicle.intake.sources import Intake, Source, begin
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
from chronicle.quarantine import Entry
from chronicle.reports import IngestReport


def retry(
    paths: DatasetPaths,
    ids: tuple[str, ...] = (),
    *,
    format: str | None = None,
    limits: Limits | None = None,
    dry_run: bool = False,
) -> IngestReport:
    """Read quarantined bytes again under the same keys (all entries where no id is given), within the limits of `ingest`.

    An entry that can be read now becomes facts and leaves the quarantine; if its key holds newer bytes by now, it still does.
    A dry run reads them too and writes nothing: its report tells what would become of each. Raises NotFoundError for an
    unknown id.
    """
    options = IngestOptions(paths=paths, sources=(), format=format, dry_run=dry_run)
    if limits is not None:
        options = replace(options, max_source_bytes=limits.max_bytes, max_ratio=limits.max_ratio)
    run = begin(options)
    entries = [run.quarantine.get(entry) for entry in ids] or [e for e in run.quarantine.entries.values() if e.kind != "empty"]
    run.report.sources = len({entry.source_key for entry in entries})
    with run.sink:
        for entry in entries:
            data = run.quarantine.data(entry)
            if data is None:
                run.count_entry(entry, new=False)
                run.report.warnings.append(f"{entry.source_key}: its bytes were not kept ({entry.kind}); ingest the file again")
            elif entry.locator is None:
                _retry_source(run, entry, data)
            else:
                _retry_member(run, entry, data)
        run.publish()
    run.report.segments = run.sink.segments
    run.report.fact_version, _ = run.sink.log()
    return run.report


def _retry_source(run: Intake, entry: Entry, data: bytes) -> None:
    limits = Limits(run.options.max_source_bytes, run.options.max_ratio)
    newer = run.receipts.get(entry.source_key)
    try:
        source = Source(entry.source_key, entry.root, unpack(data, entry.stat or Stat(size=len(data)), limits))
    except UnreadableSource:
        run.count_entry(entry, new=False)
        return
    if entry.source_id not in (source.read.source_id, identity.source_id(data)):
        run.count_entry(entry, new=False)
        run.report.warnings.append(f"{entry.source_key}: its bytes in quarantine were changed; ingest the file again")
        return
    before = run.report.ingested + run.report.bound + run.report.unchanged
    run.take(source)
    if run.report.ingested + run.report.bound + run.report.unchanged == before:
        return
    run.replaced.add(entry.id)
    if newer is not None and newer.source_id != source.read.source_id:
        kept = replace(source.read, source_id=newer.source_id, digest="", stat=newer.stat)
        bound = imported.put_bound(run.sink.last, run.context(Source(newer.source_key, newer.root, kept)))
        run.receipts.apply("source.bound", bound)


def _retry_member(run: Intake, entry: Entry, data: bytes) -> None:
    """A member that can be read now supersedes the `document.opaque` of its (source id, locator)."""
    assert entry.locator is not None
    try:
        found = cut(data, format=run.options.format)
        if len(found.documents) != 1 or found.documents[0].fault or found.documents[0].invalid:
            raise InputError("still not one readable document", kind=entry.kind)
    except InputError:
        run.count_entry(entry, new=False)
        return
    document = found.documents[0]
    shift = len(entry.lead)
    parts = [replace(part, start=part.start + shift, end=part.end + shift) for part in document.parts]
    moved = replace(document, locator=entry.locator, lead=0, start=document.start + shift, end=document.end + shift, parts=parts)
    whole = CutSource(format=found.format, container=entry.container or found.container, documents=[moved], size=len(data))
    kept = SourceBytes(raw=data, data=data, stat=entry.stat or Stat(size=len(data)), source_id=entry.source_id)
    context = run.context(Source(entry.source_key, entry.root, kept))
    run.report.events += imported.put_document(run.sink, context, entry.lead + data + entry.tail, whole, 0)
    run.report.documents += 1
    run.replaced.add(entry.id)
