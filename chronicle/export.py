"""export: facts or tables -> files (design 8, 11).

`--exact` gives back the bytes that came in, from facts. `--format` goes through the hub, from tables: a file for each source, in
the container form in which it came. A file appears whole, by rename, or not at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from chronicle import facts, identity
from chronicle.errors import IntegrityError, UsageError
from chronicle.formats import hub
from chronicle.formats.story import StorylineDocument
from chronicle.options import ExportOptions
from chronicle.projection.fold import DocumentFold, FactDocument
from chronicle.projection.sources import JOURNAL, KnownSource, SourceFold, wanted_documents
from chronicle.reports import ExportReport
from chronicle.storage import files
from chronicle.storyline.source import StorylineDataSource
from chronicle.targets import converted, distinct, fitting, output_container, relative_targets

if TYPE_CHECKING:
    from chronicle.events.log import LogSnapshot


def export(options: ExportOptions) -> ExportReport:
    """Write files below `options.to`.

    Raises UsageError (`to` inside the lake, or not empty without `overwrite`), NotFoundError (no such dataset, no tables),
    IntegrityError (a source key that would leave `to`, bytes that do not verify).
    """
    began = time.monotonic()
    check_target(options)
    report = ExportReport(dataset=options.paths.dataset, to=options.to, dry_run=options.dry_run)
    if options.exact:
        _export_exact(options, report)
    elif options.format is not None:
        _export_format(options, report, options.format)
    else:
        raise UsageError("nothing to export is named", hint="add --exact, or --format with one of " + ", ".join(hub.FORMATS))
    report.seconds = round(time.monotonic() - began, 3)
    return report


def check_target(options: ExportOptions) -> None:
    """Refuse a target inside the lake, one that is no directory, or one that is not empty. Raises UsageError."""
    to, lake = os.path.realpath(options.to), os.path.realpath(options.paths.lake)
    if to == lake or to.startswith(lake + os.sep):
        raise UsageError(f"--to {options.to} is inside the lake", hint="choose a directory outside of it")
    if os.path.lexists(to) and not os.path.isdir(to):
        raise UsageError(f"--to {options.to} is not a directory", hint="choose another path")
    if os.path.isdir(to) and os.listdir(to) and not options.overwrite:
        raise UsageError(f"--to {options.to} is not empty", hint="choose an empty directory, or add --overwrite")


def exact_sources(
    snapshot: LogSnapshot, fold: SourceFold, sources: Mapping[str, KnownSource]
) -> Iterator[tuple[str, list[bytes] | None]]:
    """(source id, its bytes in pieces) of the given sources; None where the facts do not give them back byte for byte."""
    assemblies = {source_id: _Assembly(source.documents) for source_id, source in sources.items()}
    parts_of = _links(fold, sources.values())
    wanted = wanted_documents(fold, fold.coverage(sources.values()))
    documents = DocumentFold(wanted, keep_opaque=True)
    for document in chain(documents.feed(facts.document_rows(snapshot)), documents.finish()):
        for source_id, end in parts_of[document.source_id]:
            if document.locator < end and assemblies[source_id].take(document):
                whole = assemblies.pop(source_id).pieces
                yield source_id, whole if identity.digest_of(whole).startswith(source_id) else None
    yield from ((source_id, None) for source_id in sorted(assemblies))


@dataclass(slots=True)
class _Assembly:
    """Documents of one source on their way to its bytes, in order of their locators."""

    documents: int
    pieces: list[bytes] = field(default_factory=list)
    _next: int = 0
    _waiting: dict[int, list[bytes]] = field(default_factory=dict)

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


def _export_exact(options: ExportOptions, report: ExportReport) -> None:
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
        data = b"".join(pieces)
        for target in targets[source_id]:
            _write(options, report, target, data)
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


def _export_format(options: ExportOptions, report: ExportReport, format: str) -> None:
    hub.check_format(format)
    source = StorylineDataSource.open(options.paths.storyline)
    fold = facts.source_fold(facts.pin(options.paths))
    projection = source.snapshot.projection
    report.fact_version = (projection.source.fact_version or 0) if projection else 0
    targets = _converted_targets(fold, format)
    for source_id, documents in _stories_by_source(source, fold):
        stories = [story for _, found in sorted(documents.items()) for story in sorted(found, key=_index)]
        container = output_container(format, fold.known[source_id].container)
        data = hub.from_storyline(format, stories, profile=options.profile, container=container)
        report.documents += len(documents)
        for target in targets[source_id]:
            _write(options, report, target, data)


def _index(story: StorylineDocument) -> int:
    return story.origin.index if story.origin else 0


def _stories_by_source(
    source: StorylineDataSource, fold: SourceFold
) -> Iterator[tuple[str, dict[int, list[StorylineDocument]]]]:
    """(source id, locator -> stories of that document) of every live source, as soon as all of it was read."""
    live = fold.live()
    links = _links(fold, live.values())
    missing: dict[str, int] = dict.fromkeys(live, 0)
    owners = {}
    for story_id, origin in source.origins():
        owners[story_id] = [
            source_id for source_id, end in links.get(origin.source_id or "", ()) if (origin.locator or 0) < end
        ]
        for source_id in owners[story_id]:
            missing[source_id] += 1
    found: dict[str, dict[int, list[StorylineDocument]]] = {source_id: {} for source_id in live}
    for story in source.stories():
        locator = (story.origin.locator if story.origin else None) or 0
        for source_id in owners.get(story.story_id, ()):
            found[source_id].setdefault(locator, []).append(story)
            missing[source_id] -= 1
            if not missing[source_id]:
                yield source_id, found.pop(source_id)


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


def _write(options: ExportOptions, report: ExportReport, target: str, data: bytes) -> None:
    report.files += 1
    report.bytes += len(data)
    if not options.dry_run:
        path = f"{options.to}/{target}"
        files.make_dirs(os.path.dirname(path), durable=False)
        files.write_atomic(path, data, durable=False)
