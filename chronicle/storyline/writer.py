"""What a holder of the lease may do to the tables (design 5.2, physical.md 2.8).

Tables are written in step, each on a thread of its own. Nothing is visible before the commit; before it every version since
the pinned one is checked to be the writer's own, because Lance puts a stranger's commit silently below ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pyarrow as pa

from chronicle.errors import ChronicleError, CommitStateUnknown, CurrentConflict, IntegrityError
from chronicle.layout import TABLES, generation_path, last_state_path
from chronicle.projection.schemas import ENCODE, SCHEMAS
from chronicle.storage import files, lanceio
from chronicle.storage.feed import Feed
from chronicle.storyline.current import Projection, Snapshot, encode_state
from chronicle.storyline.objects import Filing

Batches = Mapping[str, pa.RecordBatch]
"""One record batch a table. The rows of a story may lie in several that follow each other; stories come in any order."""

IDS_PER_DELETE = 500
_SCAN_ROWS = 1024


class StorylineWriter:
    """Rebuilds or replaces stories and commits; may be used for several commits, each on the one before.

    `StorylineLanceStore.writer` makes it, with the lease held.
    """

    def __init__(
        self,
        root: str,
        pinned: Snapshot | None,
        took_over: bool,
        commit: Callable[[Snapshot], None],
        new_name: Callable[[], str],
    ) -> None:
        self.root = root
        self.pinned = pinned
        """The visible state this writer goes on from; None before the first commit."""
        self.took_over = took_over
        """Whether a dead writer held the lease: the next commit makes a new generation."""
        self._commit = commit
        self._new_name = new_name
        self._states: dict[str, files.FileStates] = {}
        self._filing = Filing(root, None if pinned is None else pinned.objects_version)

    def rebuild(self, batches: Iterable[Batches], projection: Projection | None, *, from_tables: bool = False) -> Snapshot:
        """Write a new generation of all tables, commit it and return it; `from_tables`: with the rows of the visible one.

        Raises CurrentConflict when the lease was lost, StorageError and ConfigError from the store, and whatever
        `batches` raises; then the unfinished generation is removed.
        """
        self._filing.begin_anew(repair=not from_tables)
        return self._rebuilt(self._filing.of(batches), projection)

    def _rebuilt(self, batches: Iterable[Batches], projection: Projection | None) -> Snapshot:
        generation = self._new_name()
        folder = os.path.dirname(generation_path(self.root, generation, TABLES[0]))
        files.make_dirs(os.path.dirname(folder))
        try:
            versions = self._write(generation, dict.fromkeys(TABLES, 0), batches)
            snapshot = self._snapshot(generation, versions, projection)
            files.sync_tree(folder)
        except BaseException:
            with suppress(ChronicleError):  # what stays is for vacuum; why it failed is what the caller must hear
                files.remove_tree(folder)
            raise
        try:
            self._publish(snapshot)
        except CommitStateUnknown:
            raise
        except ChronicleError:  # it did not land; after an interruption nobody knows, and vacuum finds out
            files.remove_tree(folder)
            raise
        return snapshot

    def replace(self, remove_ids: Sequence[str], batches: Iterable[Batches], projection: Projection | None) -> Snapshot:
        """Remove the rows of some document ids, append others, commit and return the new state.

        In place (new versions of the same tables), or as a new generation where there is nothing yet or a dead writer
        held the lease. Raises as `rebuild`, and IntegrityError where the tables are not ours to append to.
        """
        if self.pinned is None:
            return self.rebuild(batches, projection)
        self._check_schemas(self.pinned)
        if self.took_over:
            kept = self._kept(self.pinned, frozenset(remove_ids))  # its cells stay as they are
            return self._rebuilt(_chained(kept, self._filing.of(batches)), projection)
        generation = self.pinned.table_generation
        versions = {
            table: _deleted(generation_path(self.root, generation, table), version, remove_ids)
            for table, version in self.restored().items()
        }
        versions = self._write(generation, versions, self._filing.of(batches))
        return self.advance(versions, projection)

    def restored(self) -> dict[str, int]:
        """Versions of the tables with the visible rows that are the latest: what a dead writer left above them is put away."""
        if self.pinned is None:
            raise ValueError("nothing is committed yet")
        places = {table: generation_path(self.root, self.pinned.table_generation, table) for table in TABLES}
        self._states = {uri: files.file_states(uri) for uri in places.values()}
        return {table: _restored(places[table], version) for table, version in self.pinned.versions.items()}

    def advance(self, versions: Mapping[str, int], projection: Projection | None) -> Snapshot:
        """Commit other versions of the tables of the visible generation, written under this lease (also by maintenance)."""
        if self.pinned is None:
            raise ValueError("nothing is committed yet")
        generation = self.pinned.table_generation
        snapshot = self._snapshot(generation, versions, projection)
        for table, version in self.pinned.versions.items():
            if versions[table] != version:
                uri = generation_path(self.root, generation, table)
                files.sync_tree(uri, self._states.get(uri))
        self._publish(snapshot)
        return snapshot

    def _publish(self, snapshot: Snapshot) -> None:
        places = [generation_path(self.root, snapshot.table_generation, table) for table in snapshot.versions]
        with ThreadPoolExecutor(len(places), thread_name_prefix="chronicle-check") as pool:  # a store may be far away
            list(pool.map(_check_last, places, snapshot.versions.values()))
        self._remember_last(snapshot)
        self._commit(snapshot)
        self.pinned = snapshot
        self.took_over = False

    def _remember_last(self, snapshot: Snapshot) -> None:
        """Keep beside a generation what was visible last of it, for readers who name it."""
        if self.pinned is None or self.pinned.table_generation == snapshot.table_generation:
            return
        path = last_state_path(self.root, self.pinned.table_generation)
        if files.exists(generation_path(self.root, self.pinned.table_generation, TABLES[0])):  # else somebody removed it
            files.write_atomic(path, encode_state(self.pinned))

    def _snapshot(self, generation: str, versions: Mapping[str, int], projection: Projection | None) -> Snapshot:
        return Snapshot(
            schema_version=1,
            generation=self._new_name(),
            parent_generation=None if self.pinned is None else self.pinned.generation,
            table_generation=generation,
            runs_version=versions["runs"],
            steps_version=versions["steps"],
            tool_calls_version=versions["tool_calls"],
            objects_version=self._filing.version(),
            projection=projection,
        )

    def _write(self, generation: str, versions: Mapping[str, int], batches: Iterable[Batches]) -> dict[str, int]:
        """Append to versions of the tables (0: create them) and return the new ones."""
        with ExitStack() as stack:
            tables = {
                name: stack.enter_context(_Table(generation_path(self.root, generation, name), name, versions[name]))
                for name in TABLES
            }
            for parts in batches:
                for name, part in parts.items():
                    tables[name].put(part)
            for table in tables.values():
                table.end()  # all of them write what they still hold side by side,
            self._filing.version()  # and the texts beside them
            return {name: table.finish() for name, table in tables.items()}

    def _kept(self, pinned: Snapshot, removed: frozenset[str]) -> Iterator[Batches]:
        """The visible rows but for those of some documents."""
        gone = pa.array(sorted(removed), pa.string())
        for table, version in pinned.versions.items():
            dataset = lanceio.open_version(generation_path(self.root, pinned.table_generation, table), version)
            for batch in dataset.scanner(batch_size=_SCAN_ROWS, scan_in_order=True).to_batches():
                yield {table: _without(batch, gone)}

    def _check_schemas(self, pinned: Snapshot) -> None:
        for table, version in pinned.versions.items():
            uri = generation_path(self.root, pinned.table_generation, table)
            if not lanceio.open_version(uri, version).schema.equals(SCHEMAS[table]):
                raise IntegrityError(f"{uri} has other columns than ours", hint="run `chronicle rebuild --full`", path=uri)


class _Table:
    """One table being written on its own thread; the thread starts with the first row."""

    def __init__(self, uri: str, name: str, version: int) -> None:
        self._uri = uri
        self._name = name
        self._version = version
        self._feed: Feed[pa.RecordBatch, int] | None = None

    def put(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            if self._feed is None:
                self._feed = Feed(self._consume)
            self._feed.put(batch)

    def end(self) -> None:
        """No more rows come."""
        if self._feed is not None:
            self._feed.end()

    def finish(self) -> int:
        """The version that holds all rows."""
        if self._feed is not None:
            return self._feed.finish()
        return self._version or self._consume(())

    def _consume(self, batches: Iterable[pa.RecordBatch]) -> int:
        schema, encode = SCHEMAS[self._name], ENCODE[self._name]
        if self._version:
            return lanceio.append(self._uri, self._version, schema, batches, encode)
        return lanceio.create(self._uri, schema, batches, encode)

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None and self._feed is not None:
            self._feed.abort()


def _check_last(uri: str, version: int) -> None:
    """Raise CurrentConflict where a version is not the last one: a stranger's commit lies below it or above."""
    latest = int(lanceio.open_version(uri, version).latest_version)
    if latest != version:
        raise CurrentConflict(f"{uri}: somebody wrote version {latest} meanwhile", hint="run again", path=uri)


def _restored(uri: str, version: int) -> int:
    """A version with the rows of `version` that is the latest: what a dead writer left behind is put away."""
    dataset = lanceio.open_version(uri, version)
    if int(dataset.latest_version) != version:
        with lanceio.translated(uri, reading=False, changing=True):
            dataset.restore()
    return int(dataset.version)


def _deleted(uri: str, version: int, ids: Sequence[str]) -> int:
    dataset = lanceio.open_version(uri, version)
    for at in range(0, len(ids), IDS_PER_DELETE):
        before = int(dataset.version)
        with lanceio.translated(uri, reading=False, changing=True):
            dataset.delete(f"document_id IN ({quoted(ids[at : at + IDS_PER_DELETE])})")
        if int(dataset.version) not in (before, before + 1):
            raise CurrentConflict(f"{uri}: somebody wrote after version {before}", hint="run again", path=uri)
    return int(dataset.version)


def quoted(ids: Iterable[str]) -> str:
    """Strings as a list of SQL literals."""
    return ",".join("'" + each.replace("'", "''") + "'" for each in ids)


def _without(batch: pa.RecordBatch, gone: pa.Array) -> pa.RecordBatch:
    import pyarrow.compute as compute

    return batch.filter(compute.invert(compute.is_in(batch.column("document_id"), value_set=gone)))


def _chained(*parts: Iterable[Batches]) -> Iterator[Batches]:
    for part in parts:
        yield from part
