"""Intake: one source after another into facts or into quarantine (design 4.2, 4.4). What `ingest` and `retry` share."""

from __future__ import annotations

import os
import time

import msgspec

from chronicle import identity
from chronicle.discovery import check_alone
from chronicle.errors import InputError
from chronicle.events import imported
from chronicle.events.imported import Extent, ImportContext, Prefix, SourceRef, Stat
from chronicle.formats.cut import cut
from chronicle.formats.document import CutDocument, CutSource
from chronicle.intake.journal import JOURNAL_KIND, put_journal
from chronicle.intake.reading import TOO_LARGE, SourceBytes, UnreadableSource, stat_of, unopened_id
from chronicle.intake.receipts import Receipts, open_receipts
from chronicle.intake.sink import FactSink
from chronicle.options import IngestOptions
from chronicle.projection.sources import JOURNAL, KnownSource, Receipt
from chronicle.quarantine import Entry, Quarantine, entry_id
from chronicle.reports import IngestReport
from chronicle.storage.listing import SourceFile

MOST_RECEIPTS = 20_000
"""Receipts of one micro-batch: of very many small sources they weigh more than the rows."""


class Source(msgspec.Struct, frozen=True):
    """One source on its way in."""

    key: str
    root: str
    read: SourceBytes


class Intake(msgspec.Struct):
    """State of one ingest."""

    options: IngestOptions
    receipts: Receipts
    quarantine: Quarantine
    sink: FactSink
    report: IngestReport
    replaced: set[str] = set()
    """Quarantine entries to drop when the facts that replace them are published."""

    def take(self, source: Source) -> None:
        """Bring one source that was read into the lake, or into quarantine."""
        known = self.receipts.known(source.read.source_id)
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

    def _met_again(self, source: Source, receipt: Receipt) -> None:
        self.report.unchanged += 1
        self._report_members(source.key, receipt.source_id)
        self.receipts.saw(receipt, source.read.stat)

    def _bind(self, source: Source) -> None:
        ref = imported.put_bound(self.sink.last, self.context(source))
        self.report.bound += 1
        self.report.events += 1
        self._report_members(source.key, ref.source_id)
        self._share_members(source)
        self._replace_entry(source)
        self.receipts.apply("source.bound", ref)
        self._publish_if_full()

    def _share_members(self, source: Source) -> None:
        """Members that could not be read are set aside under every key that holds them."""
        for entry in self.quarantine.members_of(self.receipts.coverage(source.read.source_id)):
            shared = entry_id(source.key, entry.source_id, entry.locator)
            if shared not in self.quarantine.entries:
                copied = msgspec.structs.replace(
                    entry, id=shared, source_key=source.key, root=source.root, stat=source.read.stat
                )
                self._quarantine(copied, self.quarantine.data(entry))

    def _prefix(self, source: Source, receipt: Receipt | None) -> Prefix | None:
        """The known source that these bytes continue, if they are a JSONL that only grew (design 4.2)."""
        known = self.receipts.known(receipt.source_id) if receipt else None
        if known is None or known.container != "jsonl" or known.format == JOURNAL or not self._is_format_kept(known):
            return None
        data, size = source.read.data, known.size
        if len(data) <= size or data[size - 1 : size] != b"\n" or not data[size:].strip():
            return None
        if identity.source_id(data[:size]) != known.source_id:
            return None
        return Prefix(source_id=known.source_id, documents=known.documents, size=size)

    def _store(self, source: Source, prefix: Prefix | None) -> None:
        tail = self._cut_tail(source, prefix) if prefix else None
        if prefix is not None and tail is not None:
            self._store_documents(source, tail, prefix)
            return
        name = source.key.rsplit("/", 1)[-1]
        try:
            found = cut(source.read.data, name=name, format=self.options.format)
        except InputError as error:
            if error.kind != JOURNAL_KIND or self.options.format is not None:
                raise
            self._store_journal(source)
        else:
            self._store_documents(source, found, None)

    def _cut_tail(self, source: Source, prefix: Prefix) -> CutSource | None:
        """The new lines of a grown JSONL; None where they do not stand alone (rows of form A, none readable)."""
        data = source.read.data[prefix.size :]
        try:
            tail = cut(data, name="tail.jsonl", format=self.options.format, container="jsonl", first_locator=prefix.documents)
        except InputError:
            return None
        return None if any(document.form.startswith("A") for document in tail.documents) else tail

    def _store_documents(self, source: Source, found: CutSource, prefix: Prefix | None) -> None:
        context = self.context(source)
        data = source.read.data
        if prefix is not None:
            context, data = context._replace(digest=""), data[prefix.size :]
        imported.put_opened(self.sink, context, found, prefix)
        events = 2
        for index, document in enumerate(found.documents):
            events += imported.put_document(self.sink, context, data, found, index)
            if document.fault or document.invalid:
                self._set_member_aside(source, found, document, data)
        documents = (prefix.documents if prefix else 0) + len(found.documents)
        extent = Extent(documents, len(source.read.data), source.read.digest)
        ref = imported.put_closed(self.sink.last, context, found, prefix, extent)
        if prefix is not None:
            self.report.continued += 1
            self._report_members(source.key, prefix.source_id)
        self.report.documents += sum(1 for document in found.documents if not document.fault)
        self._stored(source, events, ref)

    def _store_journal(self, source: Source) -> None:
        context, data = self.context(source), source.read.data
        found = CutSource(format=JOURNAL, container="jsonl", documents=[], size=len(data))
        imported.put_opened(self.sink, context, found, None)
        self.sink.settle()  # the journal may tell of the same keys
        journal = put_journal(self.sink, data, source.read.source_id, context.now_ms)
        for document in journal.rejected:
            self._set_member_aside(source, found, document, data)
        extent = Extent(0, len(data), source.read.digest)
        ref = imported.put_closed(self.sink.last, context, found, None, extent)
        for kind, told in journal.sources:
            self.receipts.apply(kind, told)
        self._stored(source, journal.records + 2, ref)

    def _stored(self, source: Source, events: int, ref: SourceRef) -> None:
        self.report.ingested += 1
        self.report.events += events
        self.report.source_bytes += len(source.read.data)
        self._replace_entry(source)
        self.receipts.apply("source.closed", ref)
        self._publish_if_full()

    def _publish_if_full(self) -> None:
        if self.sink.pending_bytes >= self.options.batch_bytes or self.receipts.pending >= MOST_RECEIPTS:
            self.publish()

    def _replace_entry(self, source: Source) -> None:
        """A source that can be read now, as another format, under other limits or with other rights, leaves the quarantine."""
        for source_id in (source.read.source_id, unopened_id(source.key)):
            entry = entry_id(source.key, source_id, None)
            if entry in self.quarantine.entries:
                self.replaced.add(entry)

    def publish(self) -> None:
        """One micro-batch: make the rows visible, then store the receipts behind them."""
        self.sink.publish()
        if self.options.dry_run:
            return
        self.receipts.flush(self.sink.mark)
        for entry in sorted(self.replaced):
            self.quarantine.drop(entry)
        self.replaced.clear()

    def context(self, source: Source) -> ImportContext:
        """What all events of this reading of a source share."""
        return ImportContext(
            source_id=source.read.source_id,
            source_key=source.key,
            root=source.root,
            stat=source.read.stat,
            attempt=os.urandom(16).hex(),
            now_ms=time.time_ns() // 1_000_000,
            forced=self.options.format is not None,
            digest=source.read.digest,
        )

    def _set_aside(self, source: Source, error: InputError) -> None:
        entry = self._entry(source.key, source.root, source.read.source_id, source.read.stat, error)
        entry.size = len(source.read.raw)
        self._quarantine(entry, source.read.raw)

    def set_unreadable_aside(self, key: str, root: str, error: UnreadableSource) -> None:
        """A source that could not even be read whole."""
        entry = self._entry(key, root, error.source_id, error.stat, error)
        entry.size, entry.stored = error.stat.size, error.raw is not None
        if error.kind == TOO_LARGE:
            entry.max_bytes, entry.max_ratio = self.options.max_source_bytes, self.options.max_ratio
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

    def _set_member_aside(self, source: Source, found: CutSource, document: CutDocument, data: bytes) -> None:
        entry = self._entry(source.key, source.root, source.read.source_id, source.read.stat, InputError(""))
        entry.id = entry_id(source.key, source.read.source_id, document.locator)
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
            if entry.locator is None and is_same and self._would_end_there_again(entry):
                self.count_entry(entry, new=False)
                return True
        return False


    def _would_end_there_again(self, entry: Entry) -> bool:
        """Whether what kept a source out is in its bytes, or a limit that is no higher now.

        A file that could not even be opened says nothing of whether it can be by now.
        """
        if entry.kind == TOO_LARGE:
            return self.options.max_source_bytes <= entry.max_bytes and self.options.max_ratio <= entry.max_ratio
        return entry.stored and entry.format == self.options.format


def begin(options: IngestOptions) -> Intake:
    """An intake of a dataset; its receipts come back from the facts where somebody deleted them."""
    check_alone(options.paths)
    sink = FactSink(options.paths, dry_run=options.dry_run)
    receipts = open_receipts(options.paths, dry_run=options.dry_run)
    return Intake(
        options=options,
        receipts=receipts,
        quarantine=Quarantine(options.paths),
        sink=sink,
        report=IngestReport(
            dataset=options.paths.dataset,
            dry_run=options.dry_run,
            allow_quarantine=options.allow_quarantine,
            rows_before=sink.log()[1],
            warnings=list(receipts.warnings),
        ),
    )
