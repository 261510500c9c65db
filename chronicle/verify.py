"""verify: facts = sources where they still exist, tables = fold(facts), markdown = materialize(facts) (design 2, 11).

A source that changed or went away since is counted, it is no difference; a derived layer that is stale is compared with the facts
it was made from. Everything else that does not agree is listed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from chronicle import facts, identity
from chronicle.cursor import made_from
from chronicle.errors import ChronicleError, IntegrityError, NotFoundError
from chronicle.events.log import LogSnapshot
from chronicle.events.row import COLUMNS, record_of, rows_of
from chronicle.exports.sources import exact_sources
from chronicle.intake.reading import ChangedWhileRead, Limits, read_source
from chronicle.layout import TABLES
from chronicle.materialize import Index, read_index
from chronicle.options import VerifyOptions
from chronicle.plural import counted
from chronicle.project import Projector, Stories
from chronicle.projection.fold import DocumentFold
from chronicle.projection.markdown import render
from chronicle.projection.sources import KnownSource, Receipt, SourceFold, wanted_documents
from chronicle.projection.tables import TableBuilder
from chronicle.reports import Difference, VerifyReport
from chronicle.storage import files
from chronicle.storage.listing import file_at
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore

if TYPE_CHECKING:
    import pyarrow as pa

_NO_LIMITS = Limits(1 << 62, 1 << 62)
_SAMPLE_SEED = 7
_MOST_ROWS = 20


class _Verify(msgspec.Struct):
    """One verification at work."""

    options: VerifyOptions
    snapshot: LogSnapshot
    fold: SourceFold
    report: VerifyReport
    chosen: dict[str, KnownSource] = {}
    """Live sources to check."""

    def differ(self, layer: str, what: str, detail: str) -> None:
        """Note one difference."""
        self.report.differences.append(Difference(layer=layer, what=what, detail=detail))

    def check_rows(self) -> None:
        """Every row's columns say what its record says: the folds go by the columns. Left out of a sample."""
        if self.options.sample is not None:
            return
        wrong = 0
        for first, batch in self.snapshot.scan(COLUMNS, start=self.options.since_row):
            for number, row in enumerate(rows_of(batch), first):
                try:
                    record_of(row)
                except IntegrityError as error:
                    wrong += 1
                    if wrong <= _MOST_ROWS:
                        self.differ("facts", f"row {number}", error.message)
        if wrong > _MOST_ROWS:
            self.differ("facts", "rows", f"{wrong - _MOST_ROWS} more rows are not what their records say")

    def check_facts(self) -> None:
        """Every chosen source comes back from the facts byte for byte, and is what still lies at its keys."""
        total = len(self.chosen)
        for done, (source_id, data) in enumerate(exact_sources(self.snapshot, self.fold, self.chosen), 1):
            self.report.sources += 1
            self.options.progress(done, total)
            if data is None:
                self.differ("facts", self.chosen[source_id].keys[-1], self._fault_of(self.chosen[source_id]))
            for key in self.chosen[source_id].keys:
                receipt = self.fold.current.get(key)
                if receipt is not None and receipt.source_id == source_id:
                    self._compare_file(receipt)

    def _fault_of(self, source: KnownSource) -> str:
        """Which documents of a source the facts do not give back. Reads them all once more."""
        documents = DocumentFold(wanted_documents(self.fold, self.fold.coverage([source])), keep_opaque=True)
        rows = facts.document_rows(self.snapshot)
        for _ in chain(facts.whole_documents(self.snapshot, documents, rows, self.snapshot.fact_rows), documents.finish()):
            pass
        faulty = documents.incomplete
        if not faulty:
            return "the facts do not give back what stands between its documents"
        more = f" and {len(faulty) - _MOST_ROWS} more" if len(faulty) > _MOST_ROWS else ""
        return f"its facts are incomplete or do not verify: document {', '.join(faulty[:_MOST_ROWS])}{more}"

    def _compare_file(self, receipt: Receipt) -> None:
        file = file_at(receipt.source_key)
        if file is None:
            self.report.sources_gone += 1
            return
        try:
            found = read_source(file, _NO_LIMITS)
        except (ChangedWhileRead, ChronicleError):
            self.report.sources_changed += 1
            return
        if found.source_id != receipt.source_id:
            self.report.sources_changed += 1
            if found.stat.same_file_state(receipt.stat) and not receipt.stat.racy:
                self.differ("facts", receipt.source_key, "its bytes changed though size, times and inode did not")

    def check_tables(self) -> None:
        """The tables hold exactly the stories of the facts that they were made from."""
        try:
            is_missing = StorylineLanceStore(self.options.paths.storyline).current() is None
        except IntegrityError as error:
            self._note_damage(error)
            return
        if is_missing:
            self.report.freshness = "missing"
            self.report.warnings.append("there are no tables; run `chronicle rebuild`")
            return
        try:
            source = StorylineDataSource.open(self.options.paths.storyline)
        except (IntegrityError, NotFoundError) as error:
            self._note_damage(error)
            return
        projection = source.snapshot.projection
        rows = projection.source.fact_rows if projection else None
        cursor = made_from(self.options.paths, source.snapshot.generation)
        if rows is None or rows > self.snapshot.fact_rows or (cursor is not None and not cursor.is_of(self.snapshot)):
            self.differ("tables", "CURRENT", "they were not made from this log")
            return
        behind = self.snapshot.fact_rows - rows
        self.report.freshness = f"stale by {counted(behind, 'fact')}" if behind else "fresh"
        if behind:
            self.report.warnings.append(f"the tables are {self.report.freshness}; run `chronicle rebuild`")
        fold = self.fold if not behind else facts.source_fold(self.snapshot, rows)
        expected = _RowSums()
        builder = TableBuilder()
        for ordinal, stories in self._stories(fold, rows):
            builder.add(stories, ordinal)
            while builder.is_full:
                expected.add(builder.batches())
        expected.add(builder.batches())
        self.report.stories = len(expected.sums)
        self._compare_stories(source, expected, fold)

    def _note_damage(self, error: ChronicleError) -> None:
        self.report.freshness = self.report.freshness or "damaged"
        self.differ("tables", "rows", f"{error.message}; run `chronicle rebuild --full`")

    def _compare_stories(self, source: StorylineDataSource, due: _RowSums, fold: SourceFold) -> None:
        chosen = wanted_documents(fold, fold.coverage(self._present(fold))).keys()
        expected = due.sums
        there = _RowSums()
        try:
            ids = {story_id for story_id, origin in source.origins() if origin.document_id in chosen}
            for table in TABLES:
                for batch in source.rows(table):
                    there.add({table: batch}, only=ids if self._is_part else None)
        except IntegrityError as error:
            self._note_damage(error)
            return
        found = there.sums
        for story_id in sorted(expected.keys() - found.keys()):
            self.differ("tables", story_id, "the facts hold this story, the tables do not")
        for story_id in sorted(found.keys() - expected.keys()):
            self.differ("tables", story_id, "the tables hold this story, the facts do not")
        for story_id in sorted(expected.keys() & found.keys()):
            if expected[story_id] != found[story_id]:
                self.differ("tables", story_id, "its rows are not what the facts give")

    def check_markdown(self) -> None:
        """Every AgenticMD file is what its story renders to; one that was edited by hand is not, though nobody overwrites it."""
        index = read_index(self.options.paths)
        if index is None or not index.complete:
            self.report.warnings.append("there are no AgenticMD files, or not all; run `chronicle materialize`")
            return
        if not index.is_of(self.snapshot):
            self.report.warnings.append("the AgenticMD files are stale; run `chronicle materialize`")
            return
        by_story = {file.story_id: name for name, file in index.files.items()}
        for story in (story for _, stories in self._stories(self.fold, None) for story in stories):
            name = by_story.get(story.story_id)
            if name is None:
                self.differ("markdown", story.session, "the story has no file")
                continue
            self._compare_markdown(index, name, identity.digest(render(story, reasoning=index.reasoning)))

    def _compare_markdown(self, index: Index, name: str, due: str) -> None:
        self.report.markdown_files += 1
        data = files.read(f"{self.options.paths.agenticmd}/{name}")
        if index.files[name].digest != due:
            self.differ("markdown", name, "it was written from other facts")
        elif not data:
            self.differ("markdown", name, "the file is missing or empty; run `chronicle materialize`")
        elif identity.digest(data) != due:
            self.differ("markdown", name, "edited by hand, or damaged; `materialize` writes it again when it is moved away")

    @property
    def _is_part(self) -> bool:
        return self.options.sample is not None or self.options.since_row > 0

    def _present(self, fold: SourceFold) -> list[KnownSource]:
        live = fold.live()
        return [live[source_id] for source_id in self.chosen if source_id in live] if self._is_part else list(live.values())

    def _stories(self, fold: SourceFold, stop: int | None) -> Iterator[Stories]:
        wanted = wanted_documents(fold, fold.coverage(self._present(fold)))
        end = self.snapshot.fact_rows if stop is None else stop
        rows = facts.document_rows(self.snapshot, stop=end)
        return Projector().stories(facts.whole_documents(self.snapshot, DocumentFold(wanted), rows, end))


def verify(options: VerifyOptions) -> VerifyReport:
    """Compare facts, tables and Markdown with what they should be.

    Raises NotFoundError where the dataset has no facts, IntegrityError where the log itself cannot be read.
    """
    began = time.monotonic()
    snapshot = facts.pin(options.paths)
    report = VerifyReport(dataset=options.paths.dataset, fact_version=snapshot.fact_version)
    run = _Verify(options, snapshot, facts.source_fold(snapshot), report)
    run.chosen = _chosen(snapshot, run.fold, options)
    run.check_rows()
    run.check_facts()
    run.check_tables()
    run.check_markdown()
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _chosen(snapshot: LogSnapshot, fold: SourceFold, options: VerifyOptions) -> dict[str, KnownSource]:
    live = fold.live()
    if options.since_row:
        touched = {ref.source_id for _, ref in facts.source_facts(snapshot, start=options.since_row)}
        live = {source_id: source for source_id, source in live.items() if source_id in touched}
    if options.sample is not None and options.sample < len(live):
        ids = random.Random(_SAMPLE_SEED).sample(sorted(live), options.sample)
        live = {source_id: live[source_id] for source_id in ids}
    return live


class _RowSums:
    """Story id -> sum of the digests of its rows in all tables: equal for equal rows, in whatever order they lie."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def add(self, batches: Mapping[str, pa.RecordBatch], only: Collection[str] | None = None) -> None:
        """Take rows, or those of some stories; of times their nanoseconds count."""
        for table, batch in batches.items():
            columns = [column.cast("int64") if "timestamp" in str(column.type) else column for column in batch.columns]
            stories = batch["document_id"].to_pylist()
            for story_id, row in zip(stories, zip(*(c.to_pylist() for c in columns), strict=True), strict=True):
                if only is None or story_id in only:
                    digest = int(identity.digest(msgspec.msgpack.encode((table, row))), 16)
                    self.sums[story_id] = self.sums.get(story_id, 0) + digest
