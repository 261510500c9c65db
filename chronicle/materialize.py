"""materialize: facts -> one AgenticMD file a story (design 5.3).

The index `.index.json` says which files are ours, by the digest of what was written. A file with another digest was
edited by hand: it is left alone. Texts wait in one spool until all names are known, for a name depends on all live
sessions; so memory holds a few words a story. Files are not brought to the disk one by one: they can be made again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING

import msgspec

from chronicle import facts, identity
from chronicle.events import mark as marks
from chronicle.events.mark import LogMark
from chronicle.formats.agenticmd import file_names
from chronicle.formats.story import StorylineDocument
from chronicle.layout import DatasetPaths
from chronicle.options import MaterializeOptions
from chronicle.projection.markdown import RENDERER, render
from chronicle.reports import MaterializeReport
from chronicle.storage import files

if TYPE_CHECKING:
    from chronicle.events.log import LogSnapshot
    from chronicle.project import Projector

INDEX = ".index.json"
LOCK = ".index.lock"
_SPOOL_IN_MEMORY = 16 << 20


class File(msgspec.Struct, omit_defaults=True):
    """A file that we wrote."""

    story_id: str
    digest: str
    """Of the bytes that are due."""
    before: list[str] = []
    """Digests of what we wrote earlier and may still be there: a run did not end, or the file was edited since."""

    def wrote(self, digest: str) -> bool:
        """Whether bytes with this digest are ours."""
        return digest == self.digest or digest in self.before

    def others(self, digest: str) -> list[str]:
        """All digests of what we wrote, but for this one."""
        return [mine for mine in dict.fromkeys([self.digest, *self.before]) if mine != digest]


class Index(msgspec.Struct, kw_only=True):
    """What the directory holds, and from what it was made."""

    fact_version: int
    log: LogMark | None = None
    """The end of the log that it was made from: another log may have the same version."""
    renderer: str
    reasoning: bool
    complete: bool = True
    """False while a run is at work, and after one that did not end."""
    files: dict[str, File] = {}
    """By name; files that were edited by hand stay, with the digest of what we wrote."""

    def is_of(self, snapshot: LogSnapshot) -> bool:
        """Whether all files were written, from exactly these facts and as they are written now."""
        made_from = (self.complete, self.fact_version, self.renderer)
        is_same_log = not snapshot.fact_rows if self.log is None else marks.is_of(self.log, snapshot)
        return made_from == (True, snapshot.fact_version, RENDERER) and is_same_log


def materialize(options: MaterializeOptions) -> MaterializeReport:
    """Bring the AgenticMD files of a dataset up to date with its facts.

    Reads no fact when the files were made from these facts with these options and are all there. Raises NotFoundError
    where the dataset does not exist, StorageError or ConfigError where its directory cannot be written.
    """
    from chronicle.project import Projector

    snapshot = facts.pin(options.paths)
    projector = Projector()
    report = write_stories(snapshot.fact_version, _stories(snapshot, projector), options, snapshot)
    report.warnings += (f"not projected, without a file: {document}" for document in projector.failed)
    return report


def _stories(snapshot: LogSnapshot, projector: Projector) -> Iterator[tuple[int, StorylineDocument]]:
    """All live stories; nothing is read before the first is asked for."""
    for ordinal, found in projector.stories(facts.live_documents(snapshot, facts.source_fold(snapshot))):
        for story in found:
            yield ordinal, story


def write_stories(
    fact_version: int,
    stories: Iterable[tuple[int, StorylineDocument]],
    options: MaterializeOptions,
    snapshot: LogSnapshot | None = None,
) -> MaterializeReport:
    """Write the files of all live stories, given as (storage ordinal, story) at `fact_version` of a log; see `materialize`."""
    began = time.monotonic()
    report = MaterializeReport(dataset=options.paths.dataset, dry_run=options.dry_run, fact_version=fact_version)
    folder = options.paths.agenticmd
    if not _is_current(read_index(options.paths), options, report, snapshot):
        with _alone(folder, options.dry_run):
            index = read_index(options.paths)
            if not _is_current(index, options, report, snapshot):
                with SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY) as spool:
                    run = _Run(index or _nothing_known(folder, report), options, report, spool, snapshot)
                    run.collect(stories)
                    run.write()
    report.seconds = round(time.monotonic() - began, 3)
    return report


def read_index(paths: DatasetPaths) -> Index | None:
    """The index of a dataset's AgenticMD directory; None where there is none that reads."""
    data = files.read(f"{paths.agenticmd}/{INDEX}")
    try:
        return None if data is None else msgspec.json.decode(data, type=Index)
    except msgspec.MsgspecError:
        return None


def _is_current(
    index: Index | None, options: MaterializeOptions, report: MaterializeReport, snapshot: LogSnapshot | None
) -> bool:
    """Whether the files are what is due, as far as the index and one listing tell; counts them in the report then."""
    if index is None or not index.complete:
        return False
    if (index.fact_version, index.renderer, index.reasoning) != (report.fact_version, RENDERER, options.reasoning):
        return False
    if snapshot is not None and not index.is_of(snapshot):
        return False
    folder = options.paths.agenticmd
    if not index.files.keys() <= set(files.list_dir(folder)) or _are_empty(folder, index.files):
        return False
    report.stories = report.unchanged = len(index.files)
    return True


def _are_empty(folder: str, names: Iterable[str]) -> bool:
    """Whether any of the files has no bytes: so a power cut leaves those that were not brought to the disk."""
    sizes = {path: size for path, (_, size, _) in files.file_states(folder).items()}
    return any(sizes.get(f"{folder}/{name}") == 0 for name in names)


def _nothing_known(folder: str, report: MaterializeReport) -> Index:
    if files.exists(f"{folder}/{INDEX}"):
        report.warnings.append(
            f"{folder}/{INDEX} does not read and is made anew: files that are not what is due count as edited by hand; "
            "move away those that nobody edited, and run it again"
        )
    return Index(fact_version=-1, renderer="", reasoning=False, complete=False)


@contextmanager
def _alone(folder: str, dry_run: bool) -> Iterator[None]:
    """Let one process at a time change the directory; others wait. A dry run changes nothing and does not wait."""
    if dry_run:
        yield
        return
    files.make_dirs(folder)
    with files.locked(f"{folder}/{LOCK}"):
        yield


class _Due(msgspec.Struct):
    """What a story's file has to hold: bytes of the spool."""

    session: str
    digest: str
    at: int
    length: int


class _Run(msgspec.Struct):
    """One run over all stories. `index` is what the last run left."""

    index: Index
    options: MaterializeOptions
    report: MaterializeReport
    spool: IO[bytes]
    snapshot: LogSnapshot | None = None
    due: dict[str, _Due] = {}
    new: dict[str, File] = {}
    found: dict[str, str | None] = {}
    """Digests of what lies in the directory."""

    @property
    def folder(self) -> str:
        return self.options.paths.agenticmd

    def collect(self, stories: Iterable[tuple[int, StorylineDocument]]) -> None:
        """Render every story into the spool."""
        at, total = 0, len(self.index.files)
        for number, (_, story) in enumerate(stories, 1):
            data = render(story, reasoning=self.options.reasoning)
            with files.translated(gettempdir()):
                self.spool.write(data)
            self.due[story.story_id] = _Due(story.session, identity.digest(data), at, len(data))
            at += len(data)
            self.options.progress(number, max(number, total))
        self.report.stories = len(self.due)

    def write(self) -> None:
        """Make the directory hold exactly what is due, but for files that were edited by hand."""
        names = file_names((story, due.session) for story, due in self.due.items())
        self.new = {names[story]: File(story, due.digest) for story, due in self.due.items()}
        self.found = self._digests([*self.new, *(name for name in self.index.files if name not in self.new)])
        todo = [name for name in self.new if self._is_to_write(name)]
        self.report.unchanged = len(self.new) - len(todo) - len(self.report.edited)
        gone = [name for name in self.index.files if name not in self.new and self._is_to_remove(name)]
        self.report.written, self.report.removed = len(todo), len(gone)
        if self.index.fact_version < 0 and (strays := self._strays()):
            self.report.warnings.append(f"of no run that there is, and left alone: {', '.join(strays)}")
        if self.report.edited:
            self.report.warnings.append(f"edited by hand and left alone: {', '.join(self.report.edited)}")
        if not self.options.dry_run:
            self._change(todo, gone)

    def _strays(self) -> list[str]:
        """Markdown files that are due to nobody: without an index they may be of runs that are gone, or somebody's own."""
        return [name for name in files.list_dir(self.folder) if name.endswith(".md") and name not in self.new]

    def _change(self, todo: list[str], gone: list[str]) -> None:
        gone += [name for name in files.list_dir(self.folder) if files.TEMPORARY.match(name)]
        if todo or gone:
            self._announce(todo)
            for name in gone:
                files.remove(f"{self.folder}/{name}")
            files.replace_all(self.folder, ((name, self._text(name)) for name in todo))
            files.sync_dir(self.folder)
        self._save(self.new, complete=True)

    def _is_to_write(self, name: str) -> bool:
        due, known = self.new[name], self.index.files.get(name)
        digest = self.found[name]
        if not digest or (known is not None and digest != due.digest and known.wrote(digest)):
            return True
        if digest != due.digest:
            self.report.edited.append(name)
            due.before = known.others(due.digest) if known else []
        return False

    def _is_to_remove(self, name: str) -> bool:
        digest = self.found[name]
        if not digest or self.index.files[name].wrote(digest):
            return digest is not None
        self.report.edited.append(name)
        return False

    def _digests(self, names: list[str]) -> dict[str, str | None]:
        """What the files hold now: None where there is none, "" where it is empty (`_are_empty`): nobody edited that."""
        lying = set(files.list_dir(self.folder))
        there = [name for name in names if name in lying]
        data = zip(there, files.read_all(self.folder, there), strict=True)
        found = {name: identity.digest(text) if text else None if text is None else "" for name, text in data}
        return {name: found.get(name) for name in names}

    def _announce(self, todo: Iterable[str]) -> None:
        """Say what is about to be written, so that a run that dies half-way does not leave files that look edited."""
        announced = dict(self.index.files)
        for name in todo:
            due, known = self.new[name], announced.get(name)
            announced[name] = File(due.story_id, due.digest, known.others(due.digest) if known else [])
        self._save(announced, complete=False)

    def _text(self, name: str) -> bytes:
        due = self.due[self.new[name].story_id]
        self.spool.seek(due.at)
        return self.spool.read(due.length)

    def _save(self, entries: dict[str, File], *, complete: bool) -> None:
        index = Index(
            fact_version=self.report.fact_version,
            log=marks.mark_of(self.snapshot) if complete and self.snapshot is not None else None,
            renderer=RENDERER,
            reasoning=self.options.reasoning,
            complete=complete,
            files=dict(sorted(entries.items())),
        )
        data = msgspec.json.format(msgspec.json.encode(index), indent=1)
        files.write_atomic(f"{self.folder}/{INDEX}", data, durable=complete)
