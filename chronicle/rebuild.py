"""rebuild: facts -> the three tables (design 5.2).

Incremental by default: reads the new range of facts, fetches what it needs of older ones by document, replaces the documents they
touch and commits once. `--full` folds the whole log into a new generation. Both give equal rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from chronicle import facts, identity
from chronicle.cursor import Cursor, first_event
from chronicle.errors import IntegrityError, NotFoundError
from chronicle.events.imported import DOCUMENT_KINDS, SOURCE_KINDS, SourceRef, decode_record
from chronicle.events.mark import mark_of
from chronicle.options import RebuildOptions
from chronicle.plural import be, counted
from chronicle.project import Projector, Stories
from chronicle.projection.fold import DocumentFold
from chronicle.projection.sources import SourceFold, Wanted, copy, fold_all, gained, wanted_documents
from chronicle.projection.tables import TableBuilder
from chronicle.reports import RebuildReport
from chronicle.storage import files
from chronicle.storyline.current import EventsSource, Projection
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from chronicle.storyline.writer import Batches, StorylineWriter

if TYPE_CHECKING:
    from chronicle.events.log import LogSnapshot

PROJECTOR = "chronicle"
RECIPE = "chronicle: documents of current sources, first verified copy, columns as text with residual, 2"


class _Rebuild(msgspec.Struct):
    """One rebuild at work."""

    options: RebuildOptions
    snapshot: LogSnapshot
    report: RebuildReport
    projector: Projector = msgspec.field(default_factory=Projector)
    fold: SourceFold = msgspec.field(default_factory=SourceFold)
    strays: list[str] = []

    def full(self, writer: StorylineWriter) -> None:
        """Fold the whole log into a new generation."""
        self.report.rows_before = 0
        fold = facts.source_fold(self.snapshot)
        documents = DocumentFold(wanted_documents(fold, fold.coverage()))
        packed = msgspec.json.encode(fold)  # nobody asks it while documents are read, and of very many sources it is large
        del fold
        rows = facts.document_rows(self.snapshot, ignored=self.report.events_ignored)
        projected = self.projector.stories(facts.whole_documents(self.snapshot, documents, rows, self.snapshot.fact_rows))
        snapshot = writer.rebuild(self._batches(projected), self._lineage())
        self.fold = msgspec.json.decode(packed, type=SourceFold)
        if documents.strays:
            known = wanted_documents(self.fold, {s: source.documents for s, source in self.fold.known.items()})
            self.strays = sorted(documents.strays - known.keys())
        self._commit(snapshot.generation)
        self.report.facts_read = self.snapshot.fact_rows
        self._note_faults(documents)

    def incremental(self, writer: StorylineWriter, cursor: Cursor) -> None:
        """Fold the rows since the cursor and replace the documents that they touch."""
        self.report.rows_before = cursor.fact_rows
        change = _Change.read(self.snapshot, cursor, self.report.events_ignored)
        self.fold = change.fold
        self.strays = change.strays
        documents = DocumentFold(change.wanted)
        old = facts.rows_of_documents(self.snapshot, change.older, stop=cursor.fact_rows)
        new = facts.document_rows(self.snapshot, start=cursor.fact_rows) if change.wanted else ()
        counted = _Counted(chain(old, new))
        projected = self.projector.stories(facts.whole_documents(self.snapshot, documents, counted, self.snapshot.fact_rows))
        stale = _stories_of(self.options.paths.storyline, change.replaced)
        snapshot = writer.replace(stale, self._batches(projected), self._lineage())
        self._commit(snapshot.generation)
        self.report.stories_removed = len(stale)
        self.report.facts_read = counted.rows + change.source_rows
        self._note_faults(documents)

    def _batches(self, projected: Iterable[Stories]) -> Iterator[Batches]:
        builder = TableBuilder()
        done, total = 0, self.snapshot.fact_rows
        for ordinal, stories in projected:
            self.report.stories_replaced += len(stories)
            done += sum(len(story.turns) for story in stories)
            builder.add(stories, ordinal)
            while builder.is_full:
                yield builder.batches()
                self.options.progress(min(done, total), total)
        yield builder.batches()
        self.options.progress(total, total)

    def _lineage(self) -> Projection:
        uri = self.options.paths.events
        return Projection(
            source_id=f"events:{identity.digest(uri.encode())}",
            source_file=f"events/{self.options.paths.dataset}/events.lance",
            source=EventsSource(
                kind="canonical_events",
                source_uri=uri,
                fact_version=self.snapshot.fact_version,
                fact_rows=self.snapshot.fact_rows,
                layout_revision=self.snapshot.revision,
            ),
            projector_name=PROJECTOR,
            recipe_hash=identity.digest(RECIPE.encode()),
            completeness="full",
        )

    def _commit(self, generation: str) -> None:
        """Store the cursor of a commit. A crash before this makes the next rebuild a full one, nothing worse."""
        cursor = Cursor(
            generation=generation,
            fact_rows=self.snapshot.fact_rows,
            fact_version=self.snapshot.fact_version,
            recipe=RECIPE,
            log=mark_of(self.snapshot),
            first_event=first_event(self.snapshot),
            fold=self.fold,
            strays=self.strays,
        )
        path = self.options.paths.projection
        files.make_dirs(self.options.paths.ops)
        files.write_atomic(path, msgspec.json.encode(cursor))
        self.report.generation = generation

    def _note_faults(self, documents: DocumentFold) -> None:
        sources = {*self.fold.begun.values(), *self.fold.broken()}
        if documents.incomplete or sources:
            found = (documents.incomplete, "document"), (sources, "source")
            said = " and ".join(counted(len(few), noun) for few, noun in found if few)
            verb = be(len(documents.incomplete) + len(sources))
            self.report.warnings.append(f"{said} {verb} not whole in the facts and left out: run `chronicle verify`")
        self.report.incomplete = documents.incomplete + [f"source {key}" for key in sorted(sources)]
        self.report.failed = self.projector.failed
        if documents.corrupt:
            self.report.lints["document-digest-mismatch"] = len(documents.corrupt)


class _Change(msgspec.Struct, frozen=True):
    """What the rows since a cursor change."""

    fold: SourceFold
    wanted: dict[str, Wanted]
    """Documents to project."""
    older: list[str]
    """Of `wanted`: those that may have rows before the cursor."""
    replaced: list[str]
    """Documents whose stories leave the tables (some come back from `wanted`)."""
    strays: list[str]
    source_rows: int

    @classmethod
    def read(cls, snapshot: LogSnapshot, cursor: Cursor, ignored: dict[str, int]) -> _Change:
        """Read the ids of the new rows and decide. Decodes the `source.*` and `document.opened` rows only."""
        new = _NewRows.read(snapshot, cursor.fact_rows)
        before = cursor.fold.coverage()
        fold = fold_all(new.sources, copy(cursor.fold))
        after = fold.coverage()
        strays = set(cursor.strays)
        added = gained(fold, before, after)
        removed = gained(fold, after, before)
        touched = _touched(snapshot, cursor, new, fold, after)
        touched.update(_reforced(cursor.fold, fold, before, after))
        wanted = {**touched, **added}
        older = [
            document_id
            for document_id, want in wanted.items()
            if document_id not in added or want.source_id in cursor.fold.known or document_id in strays
        ]
        strays |= {each for each, (source_id, _) in new.opened.items() if source_id not in fold.known}
        strays |= new.documents - new.opened.keys() - wanted.keys()
        for kind, count in new.ignored.items():
            ignored[kind] = count
        return cls(
            fold=fold,
            wanted=wanted,
            older=older,
            replaced=[*removed, *(each for each in touched if each not in added)],
            strays=sorted(strays - wanted.keys()),
            source_rows=len(new.sources),
        )


class _NewRows(msgspec.Struct):
    """Ids in a range of rows."""

    sources: list[tuple[str, SourceRef]] = []
    documents: set[str] = set()
    opened: dict[str, tuple[str, int]] = {}
    """Document id -> (source id, locator), of those whose beginning lies in the range."""
    ignored: dict[str, int] = {}

    @classmethod
    def read(cls, snapshot: LogSnapshot, start: int) -> _NewRows:
        """Read the rows from `start` on."""
        found = cls()
        for _, batch in snapshot.scan(facts.ROW_COLUMNS, start=start):
            kinds, records = batch["kind"].to_pylist(), facts.payloads(batch["payload_json"])
            found.sources += facts.source_refs(kinds, records)
            for kind, trace_id, record in zip(kinds, batch["trace_id"].to_pylist(), records, strict=True):
                found._take(kind, trace_id, record)
        return found

    def _take(self, kind: str, trace_id: str, record: bytes) -> None:
        if kind in DOCUMENT_KINDS:
            self.documents.add(trace_id)
            if kind == "document.opened":
                self.opened.update(_opened(trace_id, record))
        elif kind not in SOURCE_KINDS:
            self.ignored[kind] = self.ignored.get(kind, 0) + 1


def rebuild(options: RebuildOptions) -> RebuildReport:
    """Bring the tables of a dataset up to its facts.

    Raises NotFoundError (no facts), CurrentConflict (another writer holds the tables), StorageError, IntegrityError.
    """
    began = time.monotonic()
    snapshot = facts.pin(options.paths)
    report = RebuildReport(dataset=options.paths.dataset, dry_run=options.dry_run, fact_version=snapshot.fact_version)
    store = StorylineLanceStore(options.paths.storyline)
    if options.full and not options.dry_run and (aside := store.move_damaged_aside()):
        report.warnings.append(f"CURRENT did not read; it lies at {aside} now")
    run = _Rebuild(options, snapshot, report)
    current = store.current()
    cursor, report.why = _usable_cursor(options, snapshot, current.committed.generation if current else None)
    report.mode = _mode(cursor, snapshot)
    if report.mode != "fresh" and not options.dry_run:
        with store.writer(lease_seconds=options.lease_seconds) as writer:
            run.snapshot = snapshot = facts.pin(options.paths)
            report.fact_version = snapshot.fact_version
            cursor, report.why = _usable_cursor(options, snapshot, writer.pinned.generation if writer.pinned else None)
            report.mode = _mode(cursor, snapshot)
            if cursor is not None and report.mode == "incremental":
                try:
                    run.incremental(writer, cursor)
                except (IntegrityError, NotFoundError) as error:
                    cursor, report.mode, report.why = None, "full", f"the tables are damaged: {error.message}"
                    report.stories_replaced = 0
                    run = _Rebuild(options, snapshot, report)
            if cursor is None:
                run.full(writer)
    if report.mode == "fresh":
        report.rows_before = snapshot.fact_rows
    report.lints |= run.projector.lints
    if store.current() is not None:
        counts = StorylineDataSource.open(options.paths.storyline).counts()
        report.runs, report.steps, report.tool_calls = counts["runs"], counts["steps"], counts["tool_calls"]
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _mode(cursor: Cursor | None, snapshot: LogSnapshot) -> str:
    if cursor is None:
        return "full"
    return "fresh" if cursor.fact_rows == snapshot.fact_rows else "incremental"


def _usable_cursor(options: RebuildOptions, snapshot: LogSnapshot, generation: str | None) -> tuple[Cursor | None, str]:
    """The cursor, if the tables can be continued from it; else why not."""
    if options.full:
        return None, "asked for"
    if generation is None:
        return None, "there are no tables yet"
    data = files.read(options.paths.projection)
    try:
        cursor = msgspec.json.decode(data or b"", type=Cursor)
    except msgspec.MsgspecError:
        return None, "there is no cursor of the tables"
    if cursor.generation != generation:
        return None, "the cursor belongs to another commit of the tables"
    if not _is_whole(options.paths.storyline):
        return None, "some of the tables are missing"
    if cursor.recipe != RECIPE:
        return None, "the tables were made by another version"
    if not cursor.is_of(snapshot):
        return None, "the log is another one than the tables were made from"
    return cursor, ""


def _is_whole(storyline: str) -> bool:
    """Whether the tables that CURRENT names are there, as far as their metadata tells."""
    try:
        StorylineDataSource.open(storyline).counts()
    except (IntegrityError, NotFoundError):
        return False
    return True


def _opened(document_id: str, record: bytes) -> dict[str, tuple[str, int]]:
    try:
        ref = decode_record(record).payload.document
    except msgspec.MsgspecError:
        return {}
    if ref is None or ref.source_id is None or ref.locator is None:
        return {}
    return {document_id: (ref.source_id, ref.locator)}


def _touched(snapshot: LogSnapshot, cursor: Cursor, new: _NewRows, fold: SourceFold, after: dict[str, int]) -> dict[str, Wanted]:
    """Live documents that have new rows: their chosen copy may be another one now."""
    opened = dict(new.opened)
    headless = sorted(new.documents - opened.keys())
    for _, kind, trace_id, record in facts.rows_of_documents(snapshot, headless, stop=cursor.fact_rows):
        if kind == "document.opened":
            opened.update(_opened(trace_id, record))
    touched = {}
    for document_id, (source_id, locator) in opened.items():
        source = fold.known.get(source_id)
        if source is not None and source.first <= locator < after.get(source_id, 0):
            touched[document_id] = Wanted(source_id, locator, source.forced)
    return touched


def _reforced(old: SourceFold, new: SourceFold, before: dict[str, int], after: dict[str, int]) -> dict[str, Wanted]:
    """Live documents whose source has another forced format now."""
    changed = {
        source_id: min(end, before[source_id])
        for source_id, end in after.items()
        if source_id in before and old.known[source_id].forced != new.known[source_id].forced
    }
    return wanted_documents(new, changed) if changed else {}


def _stories_of(root: str, documents: list[str]) -> list[str]:
    """Story ids in the tables that belong to some documents."""
    if not documents:
        return []
    wanted = frozenset(documents)
    return [story_id for story_id, origin in StorylineDataSource.open(root).origins() if origin.document_id in wanted]


class _Counted:
    """Passes rows on and counts them."""

    def __init__(self, rows: Iterable[facts.Row]) -> None:
        self._rows = rows
        self.rows = 0

    def __iter__(self) -> Iterator[facts.Row]:
        for row in self._rows:
            self.rows += 1
            yield row
