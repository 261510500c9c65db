"""maintain: merge, index and tidy up a dataset, without changing what it says (design 6)."""

from __future__ import annotations

import time
from collections import Counter

import msgspec

from chronicle import facts
from chronicle.cursor import Cursor
from chronicle.events.log import RawEventLanceStore
from chronicle.events.maintenance import LogMaintenance
from chronicle.events.vacuum import directories, vacuum_log
from chronicle.intake.receipts import are_in_pieces, compact_receipts, receipts_lock
from chronicle.layout import TABLES, DatasetPaths, generation_path, segment_path
from chronicle.leftovers import remove_leftovers
from chronicle.options import MaintainOptions
from chronicle.reports import MaintainReport, Stock
from chronicle.retired import Record, Retired
from chronicle.storage import files, lanceio, versions
from chronicle.storyline.current import Snapshot
from chronicle.storyline.maintenance import TableMaintenance, generations
from chronicle.storyline.store import StorylineLanceStore
from chronicle.vacuum import Vacuum

_LOCK = ".maintain.lock"
_RECEIPTS = "ops/receipts"
_SPARE_RECEIPTS = 8
_GAVE_UP = "without retention, readers of older snapshots and ingests at work may lose what they were at: run those again"


def maintain(options: MaintainOptions) -> MaintainReport:
    """Compact, index and vacuum facts, tables and receipts of a dataset; one maintenance at a time.

    Facts keep their rows, order and `fact_version`. Raises NotFoundError (no facts), CurrentConflict (another writer holds
    the tables), IntegrityError (stored bytes disagree: nothing was replaced), StorageError.
    """
    began = time.monotonic()
    facts.pin(options.paths)
    report = MaintainReport(dataset=options.paths.dataset, dry_run=options.dry_run)
    work = _Maintain(options, report, Retired(options.paths.retired))
    if options.dry_run:
        work.carry_out()
    else:
        files.make_dirs(options.paths.ops)
        with files.locked(f"{options.paths.ops}/{_LOCK}"):
            work.carry_out()
    report.seconds = round(time.monotonic() - began, 3)
    return report


class _Maintain(msgspec.Struct):
    """One maintenance at work."""

    options: MaintainOptions
    report: MaintainReport
    retired: Retired

    def carry_out(self) -> None:
        """Layer by layer: facts, tables, receipts; then what lies beside them."""
        options, report = self.options, self.report
        report.before = stock(options.paths)
        steps = (self._facts, self._tables, self._receipts, self._leftovers)
        for done, step in enumerate(steps):
            options.progress(done, len(steps))
            step()
        options.progress(len(steps), len(steps))
        report.after = report.before if options.dry_run else stock(options.paths)
        if options.vacuum and not options.dry_run and options.retention_seconds <= 0 and report.removed:
            report.warnings.append(_GAVE_UP)

    def _facts(self) -> None:
        options = self.options
        store = RawEventLanceStore(options.paths.events)
        work = LogMaintenance(store, self.retired, self.report, options.group, options.index_rows)
        work.tend(compact=options.compact, index=options.index, full=options.full)
        if options.vacuum:
            vacuum_log(store, self._vacuum())

    def _tables(self) -> None:
        options = self.options
        store = StorylineLanceStore(options.paths.storyline)
        work = TableMaintenance(store, self.retired, self.report, self._follow, options.lease_seconds)
        work.tend(compact=options.compact, index=options.index, full=options.full)
        if options.vacuum:
            work.vacuum(options.retention_seconds)

    def _follow(self, snapshot: Snapshot) -> None:
        """Let the cursor of the tables follow them to another commit. A crash before this makes the next rebuild a full one."""
        path = self.options.paths.projection
        data = files.read(path)
        if data is None:
            return
        try:
            cursor = msgspec.json.decode(data, type=Cursor)
        except msgspec.MsgspecError:
            return
        if cursor.generation == snapshot.parent_generation:
            cursor.generation = snapshot.generation
            files.write_atomic(path, msgspec.json.encode(cursor))

    def _receipts(self) -> None:
        options = self.options
        if options.compact and are_in_pieces(options.paths, 1 if options.full else _SPARE_RECEIPTS):
            self.report.rewritten.append("receipts")
            if not options.dry_run:
                compact_receipts(options.paths, self._superseded)
        if options.vacuum and options.dry_run:
            self._vacuum_receipts()
        elif options.vacuum:
            with receipts_lock(options.paths):
                self._vacuum_receipts()

    def _vacuum_receipts(self) -> None:
        path = self.options.paths.receipts
        vacuum = self._vacuum()
        vacuum.versions(_RECEIPTS, path, versions.versions_of(path)[-1:])
        vacuum.finish(lambda name: name == _RECEIPTS)

    def _leftovers(self) -> None:
        if self.options.vacuum:
            remove_leftovers(self.options.paths, self._vacuum)

    def _superseded(self, version: int) -> None:
        self.retired.note([Record(kind="versions", name=_RECEIPTS, versions=(version,), was_visible=True)])
        self.report.retired.append(f"version {version} of the receipts")

    def _vacuum(self) -> Vacuum:
        return Vacuum.begin(self.retired, self.options.retention_seconds, self.report)


def stock(paths: DatasetPaths) -> Stock:
    """What lies in the store for a dataset. Reads manifests and metadata. Raises NotFoundError where there are no facts."""
    manifest = RawEventLanceStore(paths.events).manifest()
    levels = Counter(segment.level for segment in manifest.segments)
    datasets = _tables_of(paths)
    if there := versions.versions_of(paths.receipts):
        datasets["receipts"] = (paths.receipts, there[-1])
    layers = {"events": paths.events, "storyline": paths.storyline, "receipts": paths.receipts}
    in_log = sum(len(versions.versions_of(segment_path(paths.events, each.id))) for each in manifest.segments)
    return Stock(
        segments={str(level): levels[level] for level in sorted(levels)},
        segment_directories=len(directories(paths.events)),
        rows=manifest.fact_rows,
        fact_version=manifest.fact_version,
        bytes={layer: files.tree_bytes(path) for layer, path in layers.items()},
        versions={"segments": in_log, **{name: len(versions.versions_of(uri)) for name, (uri, _) in datasets.items()}},
        fragments={name: len(lanceio.open_version(*place).get_fragments()) for name, place in datasets.items()},
        generations=len(generations(paths.storyline)),
    )


def _tables_of(paths: DatasetPaths) -> dict[str, tuple[str, int]]:
    """Where each table of the visible generation lies, and its version."""
    current = StorylineLanceStore(paths.storyline).current()
    if current is None:
        return {}
    visible = current.committed
    return {t: (generation_path(paths.storyline, visible.table_generation, t), visible.versions[t]) for t in TABLES}
