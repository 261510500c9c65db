"""Maintenance of the tables: many small pieces become few in storage order, indices are built, old states removed (design 6).

Everything happens under the lease. Rows are written by our own writer into a new generation: Lance's compaction would follow the
dataset's schema and lose the dense encoding (measured: a fifth larger).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from chronicle.errors import IntegrityError
from chronicle.layout import TABLES, generation_path, objects_path
from chronicle.projection.schemas import SCHEMAS
from chronicle.reports import MaintainReport
from chronicle.retired import Record, Retired
from chronicle.storage import files, lanceio, versions
from chronicle.storyline.current import Snapshot
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from chronicle.storyline.writer import Batches, StorylineWriter
from chronicle.vacuum import Vacuum

SPARE_FRAGMENTS = 8
"""A table is written anew when it has so many fragments more than it needs."""
SPARE_ROWS = 0.1
"""Or when so large a part of its rows is deleted."""
BUILDS_AT_A_TIME = 2

_TABLES = "tables/"
_GENERATION = re.compile(r"gen-[0-9]+-[0-9]+-[0-9]+\Z")
_TEXT = {"stem": False, "remove_stop_words": False, "ascii_folding": False, "with_position": False}
"""Stemming costs most of the time and harms code and identifiers."""


class Index(NamedTuple):
    """One index of a table; named as the peer names it (physical.md 2.7)."""

    table: str
    column: str
    kind: str

    @property
    def name(self) -> str:
        """Its name in the dataset."""
        return f"pchronicle_{'fts_' if self.kind == 'INVERTED' else ''}{self.column}_idx"


_COLUMNS = {
    ("runs", "BTREE"): "document_id session_id run_id",
    ("steps", "BTREE"): "document_id session_id timestamp",
    ("tool_calls", "BTREE"): "document_id session_id tool_call_id",
    ("steps", "BITMAP"): "effective_kind source",
    ("tool_calls", "BITMAP"): "function_name",
    ("steps", "INVERTED"): "message_value reasoning_content observation",
    ("tool_calls", "INVERTED"): "arguments",
}
INDICES = tuple(Index(table, column, kind) for (table, kind), columns in _COLUMNS.items() for column in columns.split())
"""`results` has no full-text index: it repeats the text of `observation`."""


class TableMaintenance(msgspec.Struct):
    """One maintenance of one set of tables; what it does is told to `report`."""

    store: StorylineLanceStore
    retired: Retired
    report: MaintainReport
    moved: Callable[[Snapshot], None]
    """Called after each commit: whoever remembers the visible state follows it."""
    lease_seconds: float = 60.0

    def tend(self, *, compact: bool, index: bool, full: bool) -> None:
        """Write the tables anew where they are in pieces, and build the indices that are missing or behind.

        Takes the lease only when there is something to do. Raises CurrentConflict when another writer holds it for long.
        """
        current = self.store.current()
        if current is None or not self._are_ours(current.committed):
            return
        plan = self._plan(current.committed, compact=compact, index=index, full=full)
        if self.report.dry_run:
            self.report.rewritten += TABLES if plan.rewrite else ()
            self.report.indexed += (f"{each.table}.{each.name}" for each in plan.build)
            return
        if not plan.rewrite and not plan.build:
            return
        with self.store.writer(lease_seconds=self.lease_seconds) as writer:
            if writer.pinned is None or not self._are_ours(writer.pinned):
                return
            plan = self._plan(writer.pinned, compact=compact, index=index, full=full)
            self._carry_out(writer, plan)

    def _carry_out(self, writer: StorylineWriter, plan: _Plan) -> None:
        if plan.rewrite or writer.took_over:
            self._rewrite(writer)
        if plan.build:
            self._build(writer, plan.build)

    def _are_ours(self, snapshot: Snapshot) -> bool:
        for table, version in snapshot.versions.items():
            uri = generation_path(self.store.root, snapshot.table_generation, table)
            if not lanceio.open_version(uri, version).schema.equals(SCHEMAS[table]):
                self.report.skipped.append(f"tables: {table} has other columns than ours")
                return False
        return True

    def _plan(self, snapshot: Snapshot, *, compact: bool, index: bool, full: bool) -> _Plan:
        datasets = {
            table: lanceio.open_version(generation_path(self.store.root, snapshot.table_generation, table), version)
            for table, version in snapshot.versions.items()
        }
        rewrite = compact and any(_is_in_pieces(dataset, full=full) for dataset in datasets.values())
        present = {table: _indices(dataset, self.store.root) for table, dataset in datasets.items()}
        build = []
        for each in INDICES:
            if not datasets[each.table].count_rows():
                continue
            behind = present[each.table].get(each.name)
            is_wanted = index or (rewrite and behind is not None)
            if is_wanted and (rewrite or behind is None or behind):
                build.append(each)
        return _Plan(rewrite, tuple(build))

    def _rewrite(self, writer: StorylineWriter) -> None:
        """Write a new generation with the rows of the visible one."""
        source = StorylineDataSource.open(self.store.root)
        assert writer.pinned is not None
        old = writer.pinned.table_generation
        self.retired.note([Record(kind="generation", name=old, was_visible=True)])
        self.moved(writer.rebuild(_rows(source), writer.pinned.projection, from_tables=True))
        self.report.rewritten += TABLES
        self.report.retired.append(f"generation {old}")

    def _build(self, writer: StorylineWriter, wanted: tuple[Index, ...]) -> None:
        """Build indices, several at a time, and make the versions that have them the visible ones."""
        assert writer.pinned is not None
        generation, before = writer.pinned.table_generation, writer.restored()
        tasks = [_Task(generation_path(self.store.root, generation, each.table), before[each.table], each) for each in wanted]
        with ThreadPoolExecutor(BUILDS_AT_A_TIME if lanceio.commits_may_meet(self.store.root) else 1) as pool:
            commits = list(pool.map(_Task.carry_out, tasks))
        after = dict(before)
        for each, count in zip(wanted, commits, strict=True):
            after[each.table] += count
        self._note_versions(generation, writer.pinned.versions, after)
        self.moved(writer.advance(after, writer.pinned.projection))
        self.report.indexed += (f"{each.table}.{each.name}" for each in wanted)

    def _note_versions(self, generation: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        self.retired.note(
            Record(
                kind="versions",
                name=_versions_name(generation, table),
                versions=tuple(range(version, after[table])),
                was_visible=True,
            )
            for table, version in before.items()
            if after[table] > version
        )

    def vacuum(self, retention_seconds: float) -> None:
        """Remove generations and versions that are due. Raises CurrentConflict as `tend` does."""
        current = self.store.current()
        if not self._loose(current.committed if current else None):
            return
        if self.report.dry_run:
            self._vacuum(current.committed if current else None, retention_seconds)
            return
        with self.store.writer(lease_seconds=self.lease_seconds) as writer:
            if writer.took_over and writer.pinned is not None and self._are_ours(writer.pinned):
                self._rewrite(writer)
            self._vacuum(writer.pinned, retention_seconds)

    def _loose(self, visible: Snapshot | None) -> bool:
        """Whether anything lies there that is not visible, or is spoken of in a record."""
        if self.report.dry_run and self.report.rewritten:
            return True
        noted = self.retired.noted("generation", "versions")
        if any(each.record.kind == "generation" or each.record.name.startswith(_TABLES) for each in noted):
            return True
        named = visible.table_generation if visible else None
        if any(generation != named for generation in generations(self.store.root)):
            return True
        return visible is not None and not all(map(versions.has_one_version, _datasets(self.store.root, visible).values()))

    def _vacuum(self, visible: Snapshot | None, retention_seconds: float) -> None:
        vacuum = Vacuum.begin(self.retired, retention_seconds, self.report)
        would_go = self.report.dry_run and self.report.rewritten
        named = () if visible is None or would_go else (visible.table_generation,)
        for noted in vacuum.due("generation", generations(self.store.root), named):
            vacuum.remove_directory(noted, f"{self.store.root}/generations/{noted.record.name}")
        if visible is not None and not would_go:
            pinned = {**visible.versions, "objects": visible.objects_version}
            for table, uri in _datasets(self.store.root, visible).items():
                vacuum.versions(_versions_name(visible.table_generation, table), uri, (pinned[table],))
        vacuum.finish(lambda name: name.startswith(_TABLES))


class _Plan(NamedTuple):
    rewrite: bool
    build: tuple[Index, ...]


class _Task(NamedTuple):
    """One index to build, on one version of a table."""

    uri: str
    version: int
    wanted: Index

    def carry_out(self) -> int:
        """Build it, or bring it up to date; returns how many versions that made."""
        dataset = lanceio.open_version(self.uri, self.version)
        if self.wanted.name in _indices(dataset, self.uri):
            # One whose files are damaged cannot be brought up to date: it is built anew.
            with suppress(IntegrityError), lanceio.translated(self.uri, reading=False, changing=True):
                dataset.optimize.optimize_indices(index_names=[self.wanted.name])
                return 1
        options: dict[str, Any] = _TEXT if self.wanted.kind == "INVERTED" else {}
        with lanceio.translated(self.uri, reading=False, changing=True):
            dataset.create_scalar_index(self.wanted.column, self.wanted.kind, name=self.wanted.name, replace=True, **options)
        return 1


def generations(root: str) -> list[str]:
    """Names of the generations that lie in a store, visible or not."""
    return [name for name in files.list_dir(f"{root}/generations") if _GENERATION.match(name)]


def _datasets(root: str, visible: Snapshot) -> dict[str, str]:
    found = {table: generation_path(root, visible.table_generation, table) for table in TABLES}
    return {**found, "objects": objects_path(root)}


def _versions_name(generation: str, table: str) -> str:
    return f"{_TABLES}objects" if table == "objects" else f"{_TABLES}{generation}/{table}"


def fewest_fragments(rows: int) -> int:
    """Fragments that so many rows need."""
    return max(1, -(-rows // lanceio.MAX_ROWS_PER_FILE))


def _is_in_pieces(dataset: Any, *, full: bool) -> bool:
    fragments = dataset.get_fragments()
    rows = sum(fragment.physical_rows for fragment in fragments)
    deleted = sum(fragment.num_deletions for fragment in fragments)
    spare = len(fragments) - fewest_fragments(rows - deleted)
    if full:
        return spare > 0 or deleted > 0
    return spare >= SPARE_FRAGMENTS or deleted > SPARE_ROWS * rows


def _indices(dataset: Any, where: str) -> dict[str, bool]:
    """Index names with whether they are behind: rows were added since, or they do not read."""
    with lanceio.translated(where, reading=True):
        names = [str(index.name) for index in dataset.describe_indices()]
    return {name: _is_behind(dataset, name, where) for name in names}


def _is_behind(dataset: Any, name: str, where: str) -> bool:
    try:
        with lanceio.translated(where, reading=True):
            return bool(dataset.stats.index_stats(name)["num_unindexed_rows"])
    except IntegrityError:
        return True


def _rows(source: StorylineDataSource) -> Iterator[Batches]:
    for table, rows in source.counts().items():
        for batch in source.ordered(table):
            rows -= batch.num_rows
            yield {table: batch}
        if rows:
            raise IntegrityError(
                f"{source.root}: {rows} rows of {table} belong to no run", hint="run `chronicle rebuild --full`", path=source.root
            )
