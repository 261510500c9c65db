"""The three tables of files that no lake holds, as an ingest and a rebuild would make them, in memory (design 5.2)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from chronicle import identity
from chronicle.errors import InputError, NotFoundError
from chronicle.events import imported
from chronicle.events.imported import ImportContext
from chronicle.events.row import Common, Run
from chronicle.formats.cut import cut
from chronicle.formats.document import CutSource
from chronicle.intake.reading import ChangedWhileRead, Limits, SourceBytes, read_source
from chronicle.project import Projector
from chronicle.projection.fold import DocumentFold, FactDocument
from chronicle.projection.schemas import SCHEMAS
from chronicle.projection.sources import Wanted
from chronicle.projection.tables import TableBuilder
from chronicle.sql.sandbox import Tables
from chronicle.storage.listing import SourceFile, key_text, list_sources

_TAKEN = "--from takes ATIF, OpenAI messages and Storyline files: JSON or JSONL, as UTF-8"


def tables_of(sources: Sequence[str], limits: Limits) -> tuple[Tables, list[str]]:
    """Arrow tables by name, and sentences about what could not be taken in whole.

    Sources are named as for an ingest; rows are those that it and a rebuild would make. A file that does not read and was met
    in a directory is left out, with such a sentence. Raises NotFoundError for what does not exist, InputError (kinds of
    design 4.2) for a file that was named by itself and does not read, or where none does.
    """
    listing = list_sources(tuple(sources), "")
    if not listing.files:
        raise NotFoundError(f"no file to read in {', '.join(sources)}", hint="name ATIF, OpenAI messages or Storyline files")
    reading = _Reading(limits, warnings=listing.warnings)
    batches: dict[str, list[pa.RecordBatch]] = {table: [] for table in SCHEMAS}
    for made in reading.batches(listing.files):
        for table, batch in made.items():
            batches[table].append(batch)
    return {table: pa.Table.from_batches(batches[table], schema) for table, schema in SCHEMAS.items()}, reading.warnings


class _Reading(msgspec.Struct):
    """Files on their way into tables; it is a sink of the rows that their facts would be."""

    limits: Limits
    warnings: list[str]
    row: int = 0
    """Number of the next row of the log that an ingest would write; the ends of sources would follow all of these."""
    projector: Projector = msgspec.field(default_factory=Projector)
    _rows: list[tuple[int, str, str, bytes]] = []
    _known: set[str] = set()

    def batches(self, files: Sequence[SourceFile]) -> Iterator[dict[str, pa.RecordBatch]]:
        """Record batches of all tables, some documents at a time."""
        builder = TableBuilder()
        for file, source, found in self._taken(files):
            for ordinal, stories in self.projector.stories(self._documents(file, source, found)):
                builder.add(stories, ordinal)
                while builder.is_full:
                    yield builder.batches()
            self.warnings += self.projector.failed
            self.projector.failed.clear()
        yield builder.batches()

    def _taken(self, files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, SourceBytes, CutSource]]:
        """The files that read, cut. Each content once."""
        unread: list[InputError] = []
        for file in files:
            try:
                source = self._read(file)
                if source.source_id in self._known:
                    continue
                found = self._cut(file, source)
            except InputError as error:
                if file.named:
                    raise
                unread.append(error)
                self.warnings.append(f"left out: {error.message}")
                continue
            self._known.add(source.source_id)
            if found is not None:
                yield file, source, found
        if unread and not self._known:
            raise unread[0]

    def add(self, seq: int, event_id: str | None, timestamp_ms: int, kind: str, pieces: Sequence[bytes], common: Common) -> None:
        """Take one row, as the log would."""
        self.extend(Run(kind, common, (seq,), (event_id,), (timestamp_ms,), (b"".join(pieces),)))

    def extend(self, run: Run) -> None:
        """Take some rows, as the log would."""
        for payload in run.payloads:
            self._rows.append((self.row, run.kind, run.common.trace_id or "", payload))
            self.row += 1

    def _read(self, file: SourceFile) -> SourceBytes:
        try:
            return read_source(file, self.limits)
        except InputError as error:
            error.message = f"{key_text(file.path)}: {error.message}"
            raise
        except ChangedWhileRead as error:
            raise InputError(f"{key_text(file.path)}: changed while it was read", hint="run again", kind="unreadable") from error

    def _documents(self, file: SourceFile, source: SourceBytes, found: CutSource) -> Iterator[FactDocument]:
        name = key_text(file.path)
        context = ImportContext(source.source_id, file.key, file.root, source.stat, "0", time.time_ns() // 1_000_000, False)
        self.row += 1  # source.opened
        for index, document in enumerate(found.documents):
            imported.put_document(self, context, source.data, found, index)
            if document.fault:
                self.warnings.append(f"{name}: document {document.locator} left out: {document.reason}")
            elif document.invalid:
                self.warnings.append(f"{name}: document {document.locator} is {document.invalid}")
            wanted = Wanted(source.source_id, document.locator, None)
            yield from DocumentFold({identity.document_id(*wanted[:2]): wanted}).feed(self._rows)
            self._rows.clear()

    def _cut(self, file: SourceFile, source: SourceBytes) -> CutSource | None:
        name = key_text(file.path)  # it stands in the message
        try:
            return cut(source.data, name=name)
        except InputError as error:
            if error.kind in ("encoding", "unreadable") or error.kind.startswith("unsupported:"):
                error.hint = _TAKEN
            if error.kind != "empty":
                raise
            self.warnings.append(f"{name}: there is nothing in it")
            return None
