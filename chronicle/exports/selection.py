"""Export of selected runs: one document a file, or all of them as JSON lines in one (design 8).

Embedded runs go with the document of a root that is selected; one that is selected without its root is a document of its own.
A name depends on what the dataset holds, not on what is selected: the same document has the same name in every export.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from chronicle.errors import NotFoundError
from chronicle.exports.documents import MARKDOWN, Documents, frame_of, json_lines, line_of, one_file
from chronicle.exports.sources import documents_of
from chronicle.exports.writer import Writer
from chronicle.formats.agenticmd import SUFFIX, file_names
from chronicle.formats.story import Origin, StorylineDocument
from chronicle.options import ExportOptions
from chronicle.plural import counted
from chronicle.projection.markdown import render
from chronicle.reports import ExportReport
from chronicle.storyline.source import StorylineDataSource
from chronicle.targets import suffix_of

if TYPE_CHECKING:
    import pyarrow as pa


def selected_runs(options: ExportOptions, report: ExportReport, source: StorylineDataSource) -> list[str]:
    """Story ids that every condition of the options takes, in storage order.

    Raises NotFoundError for a session that no run has, UsageError for an expression that does not run.
    """
    if options.where is not None:
        from chronicle.sql.sandbox import Bounds
        from chronicle.sql.selection import selected

        found = selected(source, options.where, Bounds())
    else:
        found = source.document_ids()
    if options.session is not None:
        own = {story for story, session in _sessions(source) if session == options.session}
        if not own:
            raise NotFoundError(
                f"dataset {options.paths.dataset!r} has no run of a session {options.session!r}",
                hint='`chronicle query "SELECT DISTINCT session_id FROM runs"` names the sessions',
            )
        found = [story for story in found if story in own]
    if options.since_ns is not None:
        began = _first_instants(source)
        without = sum(story not in began for story in found)
        found = [story for story in found if began.get(story, -1) >= options.since_ns]
        if without:
            report.warnings.append(f"{counted(without, 'run')} without any time stamp left out by --since")
    if not found:
        report.warnings.append("no run is selected")
    return found


def export_selection(options: ExportOptions, report: ExportReport, writer: Writer, source: StorylineDataSource) -> None:
    """Write the documents of the selected runs, as files or as lines of one file."""
    chosen = selected_runs(options, report, source)
    if options.format == MARKDOWN:
        _export_markdown(options, report, writer, source, chosen)
        return
    picked = _Picked.of(source, frozenset(chosen))
    documents = Documents(options, report)
    if options.is_one_file:
        _write_lines(documents, writer, _documents(source, picked, options))
        return
    names = _Names(source, picked)
    for found, is_whole in _documents(source, picked, options):
        stories = one_file(options, found)
        texts = documents.texts(stories, in_part=not is_whole)
        if texts:
            before, between, after = frame_of(stories, texts)
            output = writer.file(names.of(stories[0].story_id) + suffix_of(options.format or ""))
            output.add(before + between.join(texts) + after)
            output.finish()


def _write_lines(documents: Documents, writer: Writer, found: Iterator[tuple[list[StorylineDocument], bool]]) -> None:
    options = documents.options
    output = writer.target()
    for stories, is_whole in found:
        for text in documents.texts(json_lines(options, stories), in_part=not is_whole):
            output.add(line_of(options.format or "", text) + b"\n")
    if documents.report.documents:
        output.finish()


def _export_markdown(
    options: ExportOptions, report: ExportReport, writer: Writer, source: StorylineDataSource, chosen: Sequence[str]
) -> None:
    """One file a run, under the name that `materialize` gives it."""
    names = file_names(_sessions(source))
    wanted = _Picked.of(source, frozenset(chosen)).story_ids
    documents = Documents(options, report)
    for done, story in enumerate(source.stories(wanted), 1):
        options.progress(done, len(wanted))
        kept = documents.without_spare_turns(story) if options.is_filtered else story
        if not kept.turns and story.turns:
            report.skipped.append(f"session {story.session}: no turn is left")
            continue
        report.documents += 1
        report.stories += 1
        output = writer.file(names[story.story_id])
        output.add(render(kept, reasoning=options.reasoning))
        output.finish()


def _documents(
    source: StorylineDataSource, picked: _Picked, options: ExportOptions
) -> Iterator[tuple[list[StorylineDocument], bool]]:
    """(stories of a document to write, whether they are all that their source's document held), in storage order."""
    done = 0
    for stories in documents_of(source, picked.story_ids):
        done += len(stories)
        options.progress(done, len(picked.story_ids))
        groups: dict[str, list[StorylineDocument]] = {}
        for story in stories:
            groups.setdefault(picked.head_of[story.story_id], []).append(story)
        for head, group in groups.items():
            # What embeds others is whole wherever it stands; a session of a row corpus is a part of its document.
            yield group, head in picked.whole or _is_embedded(group[0])


def _is_embedded(story: StorylineDocument) -> bool:
    pointer = story.origin.pointer if story.origin else None
    return pointer is None or pointer.startswith("/")


class _Picked(msgspec.Struct, frozen=True):
    """Which stories are written, and with which others."""

    head_of: dict[str, str]
    """Story id -> the first story of the document in which it is written."""
    whole: frozenset[str]
    """Heads of documents that are written with all their stories."""

    @property
    def story_ids(self) -> Collection[str]:
        return self.head_of.keys()

    @classmethod
    def of(cls, source: StorylineDataSource, chosen: frozenset[str]) -> _Picked:
        """The chosen stories and all that are embedded below them."""
        siblings: dict[str, list[tuple[str, Origin]]] = {}
        alone = set(chosen)
        for story, origin in source.origins():
            if origin.document_id is not None:
                siblings.setdefault(origin.document_id, []).append((story, origin))
        head_of: dict[str, str] = {}
        whole: set[str] = set()
        for members in siblings.values():
            if not any(story in chosen for story, _ in members):
                continue
            members.sort(key=lambda member: member[1].index)
            heads = _heads(members, chosen)
            if len(heads) == len(members):
                heads = dict.fromkeys(heads, members[0][0])
                whole.add(members[0][0])
            head_of |= heads
            alone.difference_update(heads)
        whole |= alone
        return cls(head_of | {story: story for story in alone}, frozenset(whole))


def _heads(members: Sequence[tuple[str, Origin]], chosen: frozenset[str]) -> dict[str, str]:
    """Story -> the topmost chosen story above it or itself, of the stories of one document; others are left out."""
    heads: dict[str, str] = {}
    tops: list[tuple[str, str]] = []
    for story, origin in members:
        at = origin.pointer or ""
        above = next((head for pointer, head in tops if at.startswith(f"{pointer}/")), None)
        if above is None and story in chosen:
            tops.append((at, story))
            above = story
        if above is not None:
            heads[story] = above
    return heads


class _Names:
    """File names without their suffix (design 5.3): of documents among all documents, of embedded runs among all runs."""

    def __init__(self, source: StorylineDataSource, picked: _Picked) -> None:
        sessions = dict(_sessions(source))
        firsts: dict[str, tuple[int, str]] = {}
        for story, origin in source.origins():
            key = origin.document_id or story
            firsts[key] = min(firsts.get(key, (origin.index, story)), (origin.index, story))
        roots = {story for _, story in firsts.values()}
        embedded = {story for story in picked.head_of.values() if story not in roots}
        self._names = file_names((story, session) for story, session in sessions.items() if story in roots)
        if embedded:
            every = file_names(sessions.items())
            self._names |= {story: every[story] for story in embedded}

    def of(self, story: str) -> str:
        """The name of the document that begins with this story. It is never hidden, or the next ingest would pass it over."""
        name = self._names[story].removesuffix(SUFFIX)
        return f"_{name[1:]}" if name.startswith(".") else name


def _sessions(source: StorylineDataSource) -> Iterator[tuple[str, str]]:
    """(story id, session id) of all runs."""
    for batch in source.scan("runs", ["document_id", "session_id"]):
        yield from zip(batch["document_id"].to_pylist(), batch["session_id"].to_pylist(), strict=True)


def _first_instants(source: StorylineDataSource) -> dict[str, int]:
    """Story id -> its earliest time stamp in ns since 1970, of runs that have one."""
    first: dict[str, int] = {}
    for batch in source.scan("steps", ["document_id", "timestamp"], filter="timestamp IS NOT NULL"):
        for story, moment in _earliest(batch):
            first[story] = min(first.get(story, moment), moment)
    return first


def _earliest(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    import pyarrow as pa

    table = pa.table({"story": batch["document_id"], "at": batch["timestamp"].cast(pa.int64())})
    found = table.group_by("story").aggregate([("at", "min")])
    return zip(found["story"].to_pylist(), found["at_min"].to_pylist(), strict=True)
