"""Export of sources: the bytes that came in, or the same runs in another format, a file for each source (design 8, 11).

A source may hold any number of documents: its file is written as they come, and those that come too early wait as text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

import msgspec

from chronicle import facts, identity
from chronicle.errors import IntegrityError
from chronicle.exports.documents import Documents, line_of
from chronicle.exports.writer import Output, Writer
from chronicle.formats import hub
from chronicle.formats.story import Origin, StorylineDocument
from chronicle.options import ExportOptions
from chronicle.plural import be, counted
from chronicle.projection.fold import DocumentFold, FactDocument
from chronicle.projection.sources import JOURNAL, KnownSource, SourceFold, wanted_documents
from chronicle.reports import ExportReport
from chronicle.storyline.source import StorylineDataSource
from chronicle.targets import converted, distinct, fitting, output_container, relative_targets

if TYPE_CHECKING:
    from chronicle.events.log import LogSnapshot


def exact_sources(
    snapshot: LogSnapshot, fold: SourceFold, sources: Mapping[str, KnownSource]
) -> Iterator[tuple[str, list[bytes] | None]]:
    """(source id, its bytes in pieces) of the given sources; None where the facts do not give them back byte for byte."""
    assemblies = {source_id: _Assembly(source.documents) for source_id, source in sources.items()}
    parts_of = _links(fold, sources.values())
    wanted = wanted_documents(fold, fold.coverage(sources.values()))
    documents = DocumentFold(wanted, keep_opaque=True)
    whole = facts.whole_documents(snapshot, documents, facts.document_rows(snapshot), snapshot.fact_rows)
    for document in chain(whole, documents.finish()):
        for source_id, end in parts_of[document.source_id]:
            if document.locator < end and assemblies[source_id].take(document):
                pieces = assemblies.pop(source_id).pieces
                yield source_id, pieces if identity.digest_of(pieces).startswith(source_id) else None
    yield from ((source_id, None) for source_id in sorted(assemblies))


class _Assembly(msgspec.Struct):
    """Documents of one source on their way to its bytes, in order of their locators."""

    documents: int
    pieces: list[bytes] = []
    _next: int = 0
    _waiting: dict[int, list[bytes]] = {}

    def take(self, document: FactDocument) -> bool:
        """Take one document; True when the source is whole."""
        self._waiting[document.locator] = document.pieces()
        while self._next in self._waiting:
            self.pieces += self._waiting.pop(self._next)
            self._next += 1
        return self._next == self.documents


def _links(fold: SourceFold, sources: Iterable[KnownSource]) -> dict[str, list[tuple[str, int]]]:
    """Source id of documents -> the sources that hold them, each with the locator where they end."""
    links: dict[str, list[tuple[str, int]]] = {}
    for source in sources:
        for source_id, end in fold.chain(source):
            links.setdefault(source_id, []).append((source.source_id, end))
    return links


def export_exact(options: ExportOptions, report: ExportReport, writer: Writer) -> None:
    """Write the bytes that came in. Raises IntegrityError where the facts do not give them back, or a key leaves `to`."""
    snapshot = facts.pin(options.paths)
    fold = facts.source_fold(snapshot)
    report.fact_version = snapshot.fact_version
    sources = fold.live()
    if options.all_versions:
        sources = {key: source for key, source in fold.known.items() if source.format != JOURNAL}
    targets = _exact_targets(fold, sources, all_versions=options.all_versions)
    for source_id, pieces in exact_sources(snapshot, fold, sources):
        if pieces is None:
            raise IntegrityError(
                f"the facts do not give back source {source_id}, last seen as {sources[source_id].keys[-1]}",
                hint="`chronicle verify` lists all such; restore the log from a copy",
                source_id=source_id,
            )
        output = writer.file(*targets[source_id])
        for piece in pieces:
            output.add(piece)
        output.finish()
        report.documents += sources[source_id].documents
    report.skipped += [f"{key}: incomplete, it has no source.closed" for key in sorted(fold.begun.values())]
    report.skipped += [f"{key}: incomplete, the facts do not hold all of it" for key in fold.broken()]


def _exact_targets(fold: SourceFold, sources: Mapping[str, KnownSource], *, all_versions: bool) -> dict[str, list[str]]:
    """Source id -> relative paths. A superseded version lies beside its key's file as `<path>@<8 hex of the source id>`."""
    sizes = {source_id: source.size for source_id, source in fold.known.items()}
    live = fold.live()
    held = [receipt for receipt in fold.current.values() if receipt.source_id in live]
    paths = relative_targets(held, sizes)
    targets: dict[str, list[str]] = {source_id: [] for source_id in sources}
    for source_id, source in sources.items():
        for key in source.keys:
            if key not in paths:
                continue
            if fold.current[key].source_id == source_id:
                targets[source_id].append(paths[key])
            elif all_versions:
                targets[source_id].append(fitting(f"{paths[key]}@{source_id[:8]}", key))
    return targets


def export_converted(options: ExportOptions, report: ExportReport, writer: Writer, source: StorylineDataSource) -> None:
    """Write the stories of each source in another format, in the container form in which they came."""
    assert options.format is not None
    fold = facts.source_fold(facts.pin(options.paths))
    live = fold.live()
    links = _links(fold, live.values())
    targets = _converted_targets(fold, options.format)
    due: dict[str, set[int]] = {}
    for _, origin in source.origins():
        for source_id in _owners(origin, links):
            due.setdefault(source_id, set()).add(origin.locator or 0)
    documents = Documents(options, report)
    work: dict[str, _Conversion] = {}
    strangers = done = 0
    total = source.counts()["runs"]
    for stories in documents_of(source):
        done += len(stories)
        options.progress(done, total)
        came_from = stories[0].origin or Origin(format="")
        owners = _owners(came_from, links)
        strangers += 0 if owners else len(stories)
        for source_id in owners:
            if source_id not in work:
                output = writer.file(*targets[source_id])
                work[source_id] = _Conversion(documents, live[source_id], output, sorted(due[source_id]))
            if work[source_id].take(came_from.locator or 0, stories):
                work.pop(source_id).finish()
    report.skipped += _left_out(fold, {key: known.documents - len(due.get(key, ())) for key, known in live.items()})
    if strangers:
        found = f"{counted(strangers, 'run')} {be(strangers)} of no source file"
        report.skipped.append(f"{found}: --where true writes all runs, each document as a file")


def _left_out(fold: SourceFold, missing: Mapping[str, int]) -> Iterator[str]:
    """Sentences about sources of which the tables do not hold all documents; `missing`: how many, by source id."""
    for key, receipt in sorted(fold.current.items()):
        if count := missing.get(receipt.source_id, 0):
            found = f"{key}: {counted(count, 'document')} {be(count)} not in the tables"
            yield f"{found}; see `chronicle quarantine list`, or run `chronicle rebuild`"


def documents_of(source: StorylineDataSource, ids: Collection[str] | None = None) -> Iterator[list[StorylineDocument]]:
    """The stories of each document, in storage order, the root first; of all stories or of some ids."""
    for _, found in groupby(source.stories(ids), key=_document_id):
        yield sorted(found, key=lambda story: story.origin.index if story.origin else 0)


def _document_id(story: StorylineDocument) -> str:
    return (story.origin.document_id if story.origin else None) or story.story_id


def _owners(origin: Origin, links: Mapping[str, list[tuple[str, int]]]) -> list[str]:
    """The sources that hold a document: its own, and those that continue it."""
    return [source_id for source_id, end in links.get(origin.source_id or "", ()) if (origin.locator or 0) < end]


class _Conversion(msgspec.Struct):
    """One source on its way to a file, document by document in order of their locators."""

    documents: Documents
    source: KnownSource
    output: Output
    due: list[int]
    _taken: int = 0
    _next: int = 0
    _waiting: dict[int, list[bytes]] = {}
    _held: dict[int, list[StorylineDocument]] = {}
    _frame: hub.Frame | None = None

    def take(self, locator: int, stories: list[StorylineDocument]) -> bool:
        """Take one document; True when it was the last one."""
        self._taken += 1
        if self._is_linked:
            self._held[locator] = stories
        else:
            self._waiting[locator] = self.documents.texts(stories)
            while self._next < len(self.due) and self.due[self._next] in self._waiting:
                self._write(self._waiting.pop(self.due[self._next]))
                self._next += 1
        return self._taken == len(self.due)

    def finish(self) -> None:
        """Let the file appear; there is none where nothing is left of its documents."""
        if self._is_linked:
            stories = [story for _, found in sorted(self._held.items()) for story in found]
            self._write([text for group in hub.grouped(stories, self._format) for text in self.documents.texts(group)])
        if self._frame is None:
            self.output.discard()
            return
        self.output.add(self._frame.after)
        self.output.finish()

    @property
    def _format(self) -> str:
        return self.documents.options.format or ""

    @property
    def _is_linked(self) -> bool:
        """Whether a document may be embedded in another one of the same source: stories of Storyline files name each other."""
        return self.source.format == "storyline" != self._format

    @property
    def _container(self) -> str:
        if self.source.format == self._format:
            return self.source.container
        return output_container(self._format, self.source.container)

    def _write(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            value = line_of(self._format, text) if self._container == "jsonl" else text
            if self._frame is None:
                self._frame = hub.frame(self._container, len(texts) > 1 or len(self.due) > 1)
                self.output.add(self._frame.before + value)
            else:
                self.output.add(self._frame.between + value)


def _converted_targets(fold: SourceFold, format: str) -> dict[str, list[str]]:
    """Source id -> relative paths: a source of this format keeps its name, another one changes its suffix."""
    live = fold.live()
    held = {key: receipt for key, receipt in fold.current.items() if receipt.source_id in live}
    paths = relative_targets(held.values(), {source_id: source.size for source_id, source in fold.known.items()})
    for key, path in paths.items():
        known = fold.known[held[key].source_id]
        if known.format != format:
            paths[key] = converted(path, format, known.container)
    targets: dict[str, list[str]] = {}
    for key, path in distinct(paths).items():
        targets.setdefault(held[key].source_id, []).append(path)
    return targets
