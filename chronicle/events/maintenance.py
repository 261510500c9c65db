"""Maintenance of a log: many small segments become few large ones, and large ones get indices (design 6, physical.md 1.5).

A new segment, or a new version with an index, is built without the fence; the fence is taken for the one swap that shows it.
No row, no order, no `fact_version` changes. What a swap drops is noted as retired before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from chronicle.errors import ChronicleError, CommitStateUnknown, ConflictError, IntegrityError, PublicationChanged
from chronicle.events import manifest as transitions
from chronicle.events.manifest import MAX_LEVEL, EventWriterFence, Manifest, Segment
from chronicle.events.row import COLUMNS, ENCODE, SCHEMA
from chronicle.events.snapshot import LogSnapshot
from chronicle.events.unseen import UnseenSegment
from chronicle.layout import segment_path
from chronicle.reports import MaintainReport, Merged
from chronicle.retired import Record, Retired
from chronicle.rowdigest import RowDigest
from chronicle.storage import files, lanceio

if TYPE_CHECKING:
    from chronicle.events.log import RawEventLanceStore

GROUP = 8
INDEX_ROWS = 8192
INDEXED = ("session_id", "trace_id")
SWAP_ATTEMPTS = 20

Change = Callable[[Manifest, EventWriterFence], Manifest]


def index_name(column: str) -> str:
    """The name that the peer gives to an index of a column."""
    return f"pchronicle_{column}_idx"


def next_group(segments: Sequence[Segment], group: int, excluded: Collection[str] = ()) -> tuple[Segment, ...]:
    """The first `group` neighbouring sealed segments of one level, of the lowest level that has so many; empty where none has."""
    runs: list[list[Segment]] = []
    for segment in segments:
        is_free = segment.sealed and segment.level < MAX_LEVEL and segment.id not in excluded
        if is_free and runs and runs[-1] and runs[-1][-1].level == segment.level and len(runs[-1]) < group:
            runs[-1].append(segment)
        else:
            runs.append([segment] if is_free else [])
    full = [tuple(run) for run in runs if len(run) == group]
    return min(full, key=lambda run: run[0].level, default=())


def level_of(group: Sequence[Segment], size: int) -> int:
    """The level of a merge: the next one for equal levels, else that of a log of so many small segments."""
    total = sum(size**segment.level for segment in group)
    level = 0
    while size ** (level + 1) <= total:
        level += 1
    return min(level, MAX_LEVEL)


def plan(segments: Sequence[Segment], group: int, *, full: bool) -> tuple[list[tuple[Segment, ...]], list[Segment]]:
    """The groups that compaction would merge one after the other, and the segments in the end; made ones are `merge-<n>`."""
    left = list(segments)
    groups: list[tuple[Segment, ...]] = []
    while found := _group(left, group, (), full=full):
        groups.append(found)
        at = left.index(found[0])
        left[at : at + len(found)] = [_merge_of(found, f"merge-{len(groups)}", group)]
    return groups, left


def _group(segments: Sequence[Segment], group: int, excluded: Collection[str], *, full: bool) -> tuple[Segment, ...]:
    if full:
        return tuple(segments) if len(segments) > 1 else ()
    return next_group(segments, group, excluded)


def _merge_of(group: Sequence[Segment], segment_id: str, size: int) -> Segment:
    return Segment(segment_id, 1, sum(each.rows for each in group), level_of(group, size), True)


class LogMaintenance(msgspec.Struct):
    """One maintenance of one log; what it does is told to `report`."""

    store: RawEventLanceStore
    retired: Retired
    report: MaintainReport
    group: int = GROUP
    index_rows: int = INDEX_ROWS

    def tend(self, *, compact: bool, index: bool, full: bool) -> None:
        """Compact and index; in a dry run say what would be done, and write nothing."""
        if self.report.dry_run:
            self._would(compact=compact, index=index, full=full)
            return
        if compact:
            self.compact(full=full)
        if index:
            self.index()

    def _would(self, *, compact: bool, index: bool, full: bool) -> None:
        segments = self.store.manifest().segments
        groups, after = plan(segments, self.group, full=full) if compact else ([], list(segments))
        sizes: dict[str, int] = {}
        indexed: set[str] = set()
        for number, found in enumerate(groups, 1):
            merged = _merge_of(found, f"merge-{number}", self.group)
            there = [each for each in found if each.id not in sizes]
            if self._is_large(merged) and (self._inherits(there, merged) or not indexed.isdisjoint(each.id for each in found)):
                indexed.add(merged.id)
                self.report.indexed.append(f"segment {merged.id}")
            stored = sum(sizes.get(each.id) or files.tree_bytes(self._path(each.id)) for each in found)
            sizes[f"merge-{number}"] = stored
            self.report.merged.append(_merged(merged, found, stored))
        for segment in (each for each in after if index and each.id not in indexed):
            if self._is_large(segment) and (segment.id in sizes or self._lacks_index(segment)):
                self.report.indexed.append(f"segment {segment.id}")

    def compact(self, *, full: bool) -> None:
        """Merge group by group until no group is left, or with `full` everything into one segment.

        A group that changed meanwhile is skipped and reported. Raises IntegrityError where the merged rows are not those
        that were read; then nothing is replaced.
        """
        excluded: set[str] = set()
        while found := _group(self.store.manifest().segments, self.group, excluded, full=full):
            try:
                self._merge(found)
            except PublicationChanged as error:
                self.report.skipped.append(f"segments {found[0].id} … {found[-1].id}: {error.message}")
            if full:
                return
            excluded.update(each.id for each in found)

    def _merge(self, group: tuple[Segment, ...]) -> None:
        merged = _merge_of(group, f"compact-{self.store.ambient.new_id()}", self.group)
        path = self._path(merged.id)
        files.make_dirs(path.rpartition("/")[0])
        try:
            self._write(group, merged)
            merged = self._still_indexed(group, merged)
            size = sum(files.tree_bytes(self._path(each.id)) for each in group)
            self.retired.note(Record(kind="segment", name=each.id, was_visible=True) for each in group)
        except BaseException:
            files.remove_tree(path)
            raise
        sealed = [transitions.sealed(each) for each in group]
        unseen = UnseenSegment(self.store.events, merged)
        try:
            swap(self.store, lambda m, fence: _replaced(m, fence, sealed, unseen))
        except CommitStateUnknown:
            raise
        except ChronicleError:  # it did not land; after an interruption nobody knows, and vacuum finds out
            files.remove_tree(path)
            raise
        done = _merged(merged, group, size)
        done.bytes_after = files.tree_bytes(path)
        self.report.merged.append(done)
        self.report.retired += (f"segment {each.id}" for each in group)

    def _write(self, group: tuple[Segment, ...], merged: Segment) -> None:
        """Stream the rows of a group into a new segment, and compare what it holds then with what was read."""
        read, written = RowDigest(SCHEMA), RowDigest(SCHEMA)
        lanceio.create(self._path(merged.id), SCHEMA, read.passing(self._rows(group)), ENCODE)
        files.sync_tree(self._path(merged.id))
        for batch in self._rows((merged,)):
            written.add(batch)
        if written.hexdigest() != read.hexdigest():
            raise IntegrityError(
                f"segment {merged.id} does not give back the rows it was made from: nothing was replaced",
                hint="check the disk and the memory of this machine, then run again",
                id=merged.id,
            )

    def _still_indexed(self, group: tuple[Segment, ...], merged: Segment) -> Segment:
        """A merge of parts of which one had its indices, with its own: nobody ever sees it without them."""
        if not self._inherits(group, merged):
            return merged
        version = _indexed(self._path(merged.id), merged.version)
        files.sync_tree(self._path(merged.id))
        self.report.indexed.append(f"segment {merged.id}")
        return Segment(merged.id, version, merged.rows, merged.level, merged.sealed)

    def _inherits(self, group: Sequence[Segment], merged: Segment) -> bool:
        return self._is_large(merged) and any(self._is_large(each) and not self._lacks_index(each) for each in group)

    def _rows(self, segments: tuple[Segment, ...]) -> Iterator[pa.RecordBatch]:
        rows = sum(segment.rows for segment in segments)
        part = Manifest(1, 1, rows, transitions.ActiveWriter(1, "reader"), segments)
        for _, batch in LogSnapshot(self.store.events, part).scan(COLUMNS):
            yield batch

    def index(self) -> None:
        """Give every sealed segment of some size its indices. One that somebody else wrote to is skipped and reported."""
        for segment in self.store.manifest().segments:
            if self._is_large(segment) and self._lacks_index(segment):
                try:
                    self._index(segment)
                except ConflictError as error:
                    self.report.skipped.append(f"segment {segment.id}: {error.message}")

    def _is_large(self, segment: Segment) -> bool:
        return segment.sealed and segment.rows >= self.index_rows

    def _lacks_index(self, segment: Segment) -> bool:
        dataset = lanceio.open_version(self._path(segment.id), segment.version)
        return not _names(dataset, self._path(segment.id)) >= set(map(index_name, INDEXED))

    def _index(self, segment: Segment) -> None:
        path = self._path(segment.id)
        version = _indexed(path, segment.version)
        files.sync_tree(path)
        newer = Segment(segment.id, version, segment.rows, segment.level, True)
        superseded = tuple(range(segment.version, version))
        self.retired.note([Record(kind="versions", name=segment.id, versions=superseded, was_visible=True)])

        def change(manifest: Manifest, fence: EventWriterFence) -> Manifest:
            if newer not in manifest.segments and segment not in manifest.segments:
                raise PublicationChanged("it was replaced meanwhile", hint="run again")
            return transitions.publish(manifest, fence, newer)

        swap(self.store, change)
        self.report.indexed.append(f"segment {segment.id}")
        self.report.retired.append(f"versions {_span(superseded)} of segment {segment.id}")

    def _path(self, segment_id: str) -> str:
        return segment_path(self.store.events, segment_id)


def swap(store: RawEventLanceStore, change: Change) -> Manifest:
    """Take the fence and apply a change, in one swap. When the answer is lost, doing it again finds what landed."""
    writer_id = f"maintenance-{store.ambient.new_id()}"

    def changed(manifest: Manifest | None) -> Manifest:
        if manifest is None:
            raise PublicationChanged("the event log is gone", hint="run again")
        return transitions.maintained(manifest, writer_id, change)

    for attempt in range(SWAP_ATTEMPTS):
        try:
            return store.change(changed)
        except CommitStateUnknown:
            if attempt == SWAP_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _replaced(manifest: Manifest, fence: EventWriterFence, group: Sequence[Segment], unseen: UnseenSegment) -> Manifest:
    merged = unseen.segment
    if merged not in manifest.segments and not unseen.is_whole():
        raise PublicationChanged(f"another maintenance is removing segment {merged.id}", hint="run again")
    return transitions.replace_group(manifest, fence, group, merged)


def _merged(into: Segment, group: Sequence[Segment], stored: int) -> Merged:
    return Merged(into=into.id, level=into.level, segments=[each.id for each in group], rows=into.rows, bytes=stored)


def _indexed(path: str, version: int) -> int:
    """A version of a segment with the same rows and all indices: one that a killed maintenance made, or a new one."""
    pinned = lanceio.open_version(path, version)
    latest = lanceio.open_latest(path)
    if _files(latest) != _files(pinned) or latest.schema != pinned.schema:
        raise ConflictError(f"somebody wrote version {latest.version} after {version}", hint="compact it with --full")
    with lanceio.translated(path, reading=False):
        for column in INDEXED:
            if index_name(column) not in _names(latest, path):
                latest.create_scalar_index(column, "BTREE", name=index_name(column))
    newest = lanceio.open_latest(path)
    if int(newest.version) != int(latest.version) or _files(newest) != _files(pinned):
        raise ConflictError(f"somebody wrote to it while it was indexed (version {newest.version})", hint="run again")
    return int(newest.version)


def _files(dataset: Any) -> list[tuple[int, int, list[str]]]:
    """What a version's rows lie in: fragments, their deletions and files."""
    return [(f.fragment_id, f.num_deletions, [file.path for file in f.data_files()]) for f in dataset.get_fragments()]


def _names(dataset: Any, path: str) -> set[str]:
    with lanceio.translated(path, reading=True):
        return {str(index.name) for index in dataset.describe_indices()}


def _span(versions: Sequence[int]) -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
