"""ingest: sources -> facts (design 2, 4.2, 4.4).

List, skip what a receipt or a quarantine entry covers, read, cut, append in micro-batches, note receipts after each publish.
What cannot be read goes to quarantine with its bytes; its neighbours are committed.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import msgspec

from chronicle import identity
from chronicle.discovery import check_alone
from chronicle.errors import InputError
from chronicle.events import imported
from chronicle.events.imported import Extent, ImportContext, Prefix, SourceRef, Stat
from chronicle.formats.cut import cut
from chronicle.formats.document import CutDocument, CutSource
from chronicle.journal import JOURNAL_KIND, put_journal
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
from chronicle.projection.sources import JOURNAL, KnownSource, Receipt
from chronicle.quarantine import Entry, Quarantine, entry_id
from chronicle.reading import ChangedWhileRead, Limits, SourceBytes, UnreadableSource, read_source, stat_of, unpack
from chronicle.receipts import Receipts
from chronicle.reports import IngestReport
from chronicle.sink import FactSink
from chronicle.storage.listing import SourceFile, list_sources

_AHEAD_BYTES = 32 << 20
"""Source bytes that may be read ahead of the cutter."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One source on its way in."""

    key: str
    root: str
    bytes: SourceBytes


@dataclass(slots=True)
class _Ingest:
    """State of one ingest."""

    options: IngestOptions
    receipts: Receipts
    quarantine: Quarantine
    sink: FactSink
    report: IngestReport
    retried: list[str] = field(default_factory=list)
    """Quarantine entries to drop when the facts that replace them are published."""

    def take(self, source: _Source) -> None:
        """Bring one source that was read into the lake, or into quarantine."""
        known = self.receipts.known(source.bytes.source_id)
        receipt = self.receipts.get(source.key)
        if known is not None and self._is_format_kept(known):
            if receipt is not None and receipt.source_id == known.source_id:
                self._met_again(source, receipt)
            else:
                self._bind(source)
            return
        try:
            self._store(source, self._prefix(source, receipt))
        except InputError as error:
            self._set_aside(source, error)

    def _is_format_kept(self, known: KnownSource) -> bool:
        return self.options.format is None or self.options.format == known.format

    def _met_again(self, source: _Source, receipt: Receipt) -> None:
        self.report.unchanged += 1
        self._report_members(source.key, receipt.source_id)
        self.receipts.saw(receipt, source.bytes.stat)

    def _bind(self, source: _Source) -> None:
        ref = imported.put_bound(self.sink, self.context(source))
        self.report.bound += 1
        self.report.events += 1
        self._report_members(source.key, ref.source_id)
        self._share_members(source)
        self.receipts.apply("source.bound", ref)

    def _share_members(self, source: _Source) -> None:
        """Members that could not be read are set aside under every key that holds them."""
        for entry in self.quarantine.members_of(self.receipts.coverage(source.bytes.source_id)):
            shared = entry_id(source.key, entry.source_id, entry.locator)
            if shared not in self.quarantine.entries:
                copied = msgspec.structs.replace(
                    entry, id=shared, source_key=source.key, root=source.root, stat=source.bytes.stat
                )
                self._quarantine(copied, self.quarantine.data(entry))

    def _prefix(self, source: _Source, receipt: Receipt | None) -> Prefix | None:
        """The known source that these bytes continue, if they are a JSONL that only grew (design 4.2)."""
        known = self.receipts.known(receipt.source_id) if receipt else None
        if known is None or known.container != "jsonl" or known.format == JOURNAL or not self._is_format_kept(known):
            return None
        data, size = source.bytes.data, known.size
        if len(data) <= size or data[size - 1 : size] != b"\n" or not data[size:].strip():
            return None
        if identity.source_id(data[:size]) != known.source_id:
            return None
        return Prefix(source_id=known.source_id, documents=known.documents, size=size)

    def _store(self, source: _Source, prefix: Prefix | None) -> None:
        tail = self._cut_tail(source, prefix) if prefix else None
        if prefix is not None and tail is not None:
            self._store_documents(source, tail, prefix)
            return
        name = source.key.rsplit("/", 1)[-1]
        try:
            found = cut(source.bytes.data, name=name, format=self.options.format)
        except InputError as error:
            if error.kind != JOURNAL_KIND or self.options.format is not None:
                raise
            self._store_journal(source)
        else:
            self._store_documents(source, found, None)

    def _cut_tail(self, source: _Source, prefix: Prefix) -> CutSource | None:
        """The new lines of a grown JSONL; None where they do not stand alone (rows of form A, none readable)."""
        data = source.bytes.data[prefix.size :]
        try:
            tail = cut(data, name="tail.jsonl", format=self.options.format, container="jsonl", first_locator=prefix.documents)
        except InputError:
            return None
        return None if any(document.form.startswith("A") for document in tail.documents) else tail

    def _store_documents(self, source: _Source, found: CutSource, prefix: Prefix | None) -> None:
        context = self.context(source)
        data = source.bytes.data[prefix.size :] if prefix else source.bytes.data
        imported.put_opened(self.sink, context, found, prefix)
        events = 2
        for index, document in enumerate(found.documents):
            events += imported.put_document(self.sink, context, data, found, index)
            if document.fault or document.invalid:
                self._set_member_aside(source, found, document, data)
        documents = (prefix.documents if prefix else 0) + len(found.documents)
        extent = Extent(documents, len(source.bytes.data), identity.digest(source.bytes.data))
        ref = imported.put_closed(self.sink, context, found, prefix, extent)
        if prefix is not None:
            self.report.continued += 1
            self._report_members(source.key, prefix.source_id)
        self.report.documents += sum(1 for document in found.documents if not document.fault)
        self._stored(source, events, ref)

    def _store_journal(self, source: _Source) -> None:
        context, data = self.context(source), source.bytes.data
        found = CutSource(format=JOURNAL, container="jsonl", documents=[], size=len(data))
        imported.put_opened(self.sink, context, found, None)
        journal = put_journal(self.sink, data, source.bytes.source_id, context.now_ms)
        for document in journal.rejected:
            self._set_member_aside(source, found, document, data)
        extent = Extent(0, len(data), identity.digest(data))
        ref = imported.put_closed(self.sink, context, found, None, extent)
        for kind, told in journal.sources:
            self.receipts.apply(kind, told)
        self._stored(source, journal.records + 2, ref)

    def _stored(self, source: _Source, events: int, ref: SourceRef) -> None:
        self.report.ingested += 1
        self.report.events += events
        self.report.source_bytes += len(source.bytes.data)
        self.receipts.apply("source.closed", ref)
        if self.sink.pending_bytes >= self.options.batch_bytes:
            self.publish()

    def publish(self) -> None:
        """One micro-batch: make the rows visible, then store the receipts behind them."""
        self.sink.publish()
        if self.options.dry_run:
            return
        self.receipts.flush()
        for entry in self.retried:
            self.quarantine.drop(entry)
        self.retried.clear()

    def context(self, source: _Source) -> ImportContext:
        """What all events of this reading of a source share."""
        return ImportContext(
            source_id=source.bytes.source_id,
            source_key=source.key,
            root=source.root,
            stat=source.bytes.stat,
            attempt=uuid.uuid4().hex,
            now_ms=time.time_ns() // 1_000_000,
            forced=self.options.format is not None,
        )

    def _set_aside(self, source: _Source, error: InputError) -> None:
        entry = self._entry(source.key, source.root, source.bytes.source_id, source.bytes.stat, error)
        entry.size = len(source.bytes.raw)
        self._quarantine(entry, source.bytes.raw)

    def set_unreadable_aside(self, key: str, root: str, error: UnreadableSource) -> None:
        """A source that could not even be read whole."""
        entry = self._entry(key, root, error.source_id, error.stat, error)
        entry.size, entry.stored = error.stat.size, error.raw is not None
        self._quarantine(entry, error.raw)

    def _entry(self, key: str, root: str, source_id: str, stat: Stat, error: InputError) -> Entry:
        return Entry(
            id=entry_id(key, source_id, None),
            source_key=key,
            root=root,
            source_id=source_id,
            kind=error.kind,
            reason=str(error),
            size=0,
            stat=stat,
            format=self.options.format,
            quarantined_at_unix_ms=time.time_ns() // 1_000_000,
        )

    def _set_member_aside(self, source: _Source, found: CutSource, document: CutDocument, data: bytes) -> None:
        entry = self._entry(source.key, source.root, source.bytes.source_id, source.bytes.stat, InputError(""))
        entry.id = entry_id(source.key, source.bytes.source_id, document.locator)
        entry.kind, entry.reason = document.fault or document.invalid, document.reason
        entry.locator, entry.container = document.locator, found.container
        entry.size = document.end - document.start
        entry.lead = data[document.lead : document.start]
        if found.documents and document is found.documents[-1]:
            entry.tail = data[document.end :]
        self._quarantine(entry, data[document.start : document.end])

    def _quarantine(self, entry: Entry, data: bytes | None) -> None:
        new = entry.id not in self.quarantine.entries
        if not self.options.dry_run:
            self.quarantine.add(entry, data)
        self.count_entry(entry, new=new)

    def count_entry(self, entry: Entry, *, new: bool) -> None:
        """Say in the report that an entry concerns a source of this run."""
        self.report.quarantine.append(entry.summary(new=new))
        if entry.kind == "empty":
            self.report.empty += 1
        elif new:
            self.report.quarantined_new += 1
        else:
            self.report.quarantined_still += 1

    def _report_members(self, key: str, source_id: str) -> None:
        entries = self.quarantine.of_key(key)
        ends = self.receipts.coverage(source_id) if entries else {}
        for entry in entries:
            if entry.locator is not None and entry.locator < ends.get(entry.source_id, 0):
                self.count_entry(entry, new=False)

    def is_covered(self, file: SourceFile) -> bool:
        """Whether nothing about this file is new, by its stat alone; counts it if so."""
        stat = stat_of(file)
        receipt = self.receipts.get(file.key)
        if receipt is not None and receipt.covers(stat):
            known = self.receipts.known(receipt.source_id)
            if known is None or not self._is_format_kept(known):
                return False
            self.report.unchanged += 1
            self._report_members(file.key, receipt.source_id)
            return True
        for entry in self.quarantine.of_key(file.key):
            is_same = entry.stat is not None and not entry.stat.racy and entry.stat.same_file_state(stat)
            if entry.locator is None and is_same and entry.format == self.options.format:
                self.count_entry(entry, new=False)
                return True
        return False


def ingest(options: IngestOptions) -> IngestReport:
    """Bring sources into the facts of a dataset.

    Raises NotFoundError (a source does not exist), ConfigError, StorageError, ConflictError, CommitStateUnknown.
    What was published before stays published; a later run goes on from there.
    """
    began = time.monotonic()
    listing = list_sources(options.sources, options.paths.lake)
    run = _begin(options)
    run.report.ignored = listing.ignored
    run.report.warnings += listing.warnings
    files = [file for file in listing.files if _is_in_window(file, options)]
    run.report.sources = len(files) + listing.stdin
    with run.sink:
        _take_files(run, files)
        if listing.stdin:
            _take_stdin(run)
        run.publish()
    run.report.segments = run.sink.segments
    run.report.fact_version, _ = run.sink.log()
    run.report.seconds = round(time.monotonic() - began, 3)
    return run.report


def retry(paths: DatasetPaths, ids: tuple[str, ...] = (), *, format: str | None = None) -> IngestReport:
    """Read quarantined bytes again under the same keys (all entries where no id is given).

    An entry that can be read now becomes facts and leaves the quarantine; if its key holds newer bytes by now, it still does.
    Raises NotFoundError for an unknown id.
    """
    run = _begin(IngestOptions(paths=paths, sources=(), format=format))
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


def _begin(options: IngestOptions) -> _Ingest:
    check_alone(options.paths)
    sink = FactSink(options.paths, dry_run=options.dry_run)
    return _Ingest(
        options=options,
        receipts=Receipts(options.paths),
        quarantine=Quarantine(options.paths),
        sink=sink,
        report=IngestReport(
            dataset=options.paths.dataset,
            dry_run=options.dry_run,
            allow_quarantine=options.allow_quarantine,
            rows_before=sink.log()[1],
        ),
    )


def _is_in_window(file: SourceFile, options: IngestOptions) -> bool:
    since, until = options.since_ns, options.until_ns
    return (since is None or file.mtime_ns >= since) and (until is None or file.mtime_ns < until)


def _take_files(run: _Ingest, files: list[SourceFile]) -> None:
    options = run.options
    total = sum(file.size for file in files)
    done = 0
    for file, pending in _read_ahead(run, files):
        if pending is not None:
            run.report.files_opened += 1
            try:
                run.take(_Source(file.key, file.root, pending.result()))
            except ChangedWhileRead:
                run.report.changed_while_read.append(file.key)
                run.report.warnings.append(f"{file.key}: changed while it was read; the next run takes it")
            except UnreadableSource as error:
                run.set_unreadable_aside(file.key, file.root, error)
        done += file.size
        options.progress(done, total)


def _read_ahead(run: _Ingest, files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, Future[SourceBytes] | None]]:
    """Each file in order, with its bytes on the way; None where it is covered. At most `_AHEAD_BYTES` wait."""
    limits = Limits(run.options.max_source_bytes, run.options.max_ratio)
    waiting: deque[tuple[SourceFile, Future[SourceBytes] | None]] = deque()
    ahead = 0
    with ThreadPoolExecutor(max_workers=max(run.options.workers, 1), thread_name_prefix="chronicle-read") as readers:
        try:
            for file in files:
                if run.is_covered(file):
                    waiting.append((file, None))
                else:
                    waiting.append((file, readers.submit(read_source, file, limits)))
                    ahead += file.size
                while ahead > _AHEAD_BYTES:
                    ready = waiting.popleft()
                    ahead -= ready[0].size if ready[1] is not None else 0
                    yield ready
            while waiting:
                yield waiting.popleft()
        finally:
            readers.shutdown(wait=True, cancel_futures=True)


def _take_stdin(run: _Ingest) -> None:
    limits = Limits(run.options.max_source_bytes, run.options.max_ratio)
    raw = sys.stdin.buffer.read(limits.max_bytes + 1)
    if len(raw) > limits.max_bytes:
        raise InputError(
            f"standard input holds more than {limits.max_bytes} bytes", hint="raise max_source_bytes", kind="too-large"
        )
    try:
        data = unpack(raw, Stat(size=len(raw)), limits)
    except UnreadableSource as error:
        run.set_unreadable_aside(f"stdin:{error.source_id}", "stdin:", error)
        return
    run.take(_Source(f"stdin:{data.source_id}", "stdin:", data))


def _retry_source(run: _Ingest, entry: Entry, data: bytes) -> None:
    limits = Limits(run.options.max_source_bytes, run.options.max_ratio)
    newer = run.receipts.get(entry.source_key)
    try:
        source = _Source(entry.source_key, entry.root, unpack(data, entry.stat or Stat(size=len(data)), limits))
    except UnreadableSource:
        run.count_entry(entry, new=False)
        return
    before = run.report.ingested + run.report.bound + run.report.unchanged
    run.take(source)
    if run.report.ingested + run.report.bound + run.report.unchanged == before:
        return
    run.retried.append(entry.id)
    if newer is not None and newer.source_id != source.bytes.source_id:
        kept = replace(source.bytes, source_id=newer.source_id, stat=newer.stat)
        run.receipts.apply("source.bound", imported.put_bound(run.sink, run.context(_Source(newer.source_key, newer.root, kept))))


def _retry_member(run: _Ingest, entry: Entry, data: bytes) -> None:
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
    parts = [part._replace(start=part.start + shift, end=part.end + shift) for part in document.parts]
    moved = replace(document, locator=entry.locator, lead=0, start=document.start + shift, end=document.end + shift, parts=parts)
    whole = CutSource(format=found.format, container=entry.container or found.container, documents=[moved], size=len(data))
    kept = SourceBytes(raw=data, data=data, stat=entry.stat or Stat(size=len(data)), source_id=entry.source_id)
    context = run.context(_Source(entry.source_key, entry.root, kept))
    run.report.events += imported.put_document(run.sink, context, entry.lead + data + entry.tail, whole, 0)
    run.report.documents += 1
    run.retried.append(entry.id)
