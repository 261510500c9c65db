"""Receipts: the fold of the `source.*` facts, kept beside them so that a source is ingested once (design 4.4).

The Lance dataset only grows: a copy of each `source.closed` and `source.bound`, and a note (`seen`) each time the same bytes were
met under another stat. Everything but `seen` can be rebuilt from facts. Marks in it say which log they are of: receipts of
another one (restored from an older backup, or begun anew) would have sources passed over that its facts do not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from chronicle.errors import ConflictError, IntegrityError, NotFoundError
from chronicle.events import mark as marks
from chronicle.events.imported import SourceRef, Stat
from chronicle.events.mark import LogMark
from chronicle.intake.stored import COLUMNS, MARK, Row, StoredReceipts, latest
from chronicle.layout import DatasetPaths
from chronicle.projection.sources import SEEN, KnownSource, Receipt, SourceFold

if TYPE_CHECKING:
    import pyarrow as pa

    from chronicle.events.snapshot import LogSnapshot

_ENCODE = ("source",)
_LOCK = ".receipts.lock"


class Receipts:
    """The receipts of one dataset: loaded once, looked up in memory, appended to after a publish.

    Only what is asked for is decoded and folded, so that one more source costs little however many there are.
    """

    def __init__(self, paths: DatasetPaths, stored: StoredReceipts | None = None) -> None:
        """Load them (or take them as loaded); none where there are none. Raises IntegrityError where they are damaged, as
        each question may."""
        self._paths = paths
        self._stored = stored or StoredReceipts(paths)
        self._of_keys = _Part(self._stored, "source_key", unasked=("known", "begun"))
        self._of_ids = _Part(self._stored, "source_id", unasked=("current", "begun"))
        self._applied: list[Row] = []
        """What is not stored yet."""
        self._grown = False
        self.warnings: list[str] = []
        """What people should know about them."""

    @property
    def exist(self) -> bool:
        """Whether there were any when they were loaded."""
        return self._stored.exist

    def are_of(self, log: LogSnapshot | None) -> bool:
        """Whether they were folded out of this log, as it is or as it was (None: there is no log)."""
        mark = self._stored.mark()
        if mark is None:
            return not self._stored.count and (log is None or not log.fact_rows)
        return log is not None and marks.is_of(mark, log)

    def get(self, key: str) -> Receipt | None:
        """What a key holds, as far as receipts know."""
        return self._of_keys.fold(key).current.get(key)

    def known(self, source_id: str) -> KnownSource | None:
        """Whole content with this identity."""
        return self._of_ids.fold(source_id).known.get(source_id)

    def coverage(self, source_id: str) -> dict[str, int]:
        """Where the documents of a known source lie, its prefixes' too: source id -> end locator."""
        known = link = self.known(source_id)
        seen = set()
        while link is not None and link.source_id not in seen:  # facts of strangers may go in a circle
            seen.add(link.source_id)
            link = self.known(link.prefix.source_id) if link.prefix else None
        return {} if known is None else dict(self._of_ids.fold(source_id).chain(known))

    def all(self) -> list[Receipt]:
        """All receipts in order of their keys."""
        stored = StoredReceipts(self._paths) if self._grown else self._stored
        fold = _folded([*stored.rows(), *self._applied])
        return [receipt for _, receipt in sorted(fold.current.items())]

    def apply(self, kind: str, ref: SourceRef) -> None:
        """Take in one `source.*` fact that was written: it counts in this process at once and is stored by `flush`."""
        self._of_keys.apply(ref.source_key, kind, ref)
        self._of_ids.apply(ref.source_id, kind, ref)
        self._applied.append((kind, ref))

    def saw(self, receipt: Receipt, stat: Stat) -> None:
        """Note that a key still holds the same bytes, under another stat."""
        self.apply(SEEN, SourceRef(source_id=receipt.source_id, source_key=receipt.source_key, stat=stat))

    @property
    def pending(self) -> int:
        """How many were applied and are not stored yet."""
        return len(self._applied)

    def flush(self, mark: LogMark | None = None) -> None:
        """Store what was applied, with the end of what was published. Call it only when the facts behind it are."""
        if pending := self._applied:
            self._applied, self._grown = [], True
            _write(self._paths, pending, mark)


class _Part:
    """The fold of the rows of one column's values, as far as they were asked for: what it says of those is what all rows say.

    `unasked`: members of the fold that nobody asks it for. They are not kept: of very many sources they would weigh.
    """

    def __init__(self, stored: StoredReceipts, column: str, unasked: Sequence[str]) -> None:
        self._stored, self._column = stored, column
        self._fold = SourceFold()
        self._unasked: list[dict[str, Any]] = [getattr(self._fold, member) for member in unasked]
        self._asked: set[str] = set()

    def fold(self, value: str) -> SourceFold:
        """The fold, with the rows of this value in it."""
        if value not in self._asked:
            self._asked.add(value)
            for kind, ref in self._stored.of(self._column, value):
                self._take(kind, ref)
        return self._fold

    def apply(self, value: str, kind: str, ref: SourceRef) -> None:
        """Take in one more row of this value."""
        self.fold(value)
        self._take(kind, ref)

    def _take(self, kind: str, ref: SourceRef) -> None:
        self._fold.apply(kind, ref)
        for members in self._unasked:
            members.clear()


def open_receipts(paths: DatasetPaths, *, dry_run: bool = False) -> Receipts:
    """The receipts of a dataset, folded out of its facts again where they are missing or of another log.

    A dry run folds them in memory. Raises IntegrityError where they are damaged.
    """
    found = Receipts(paths)
    log = _log(paths)
    if found.are_of(log):
        return found
    if dry_run:
        made = Receipts(paths, StoredReceipts(paths, _of_facts(log)))
    else:
        _make_anew(paths, only_other=True)
        made = Receipts(paths)
    if found.exist:
        made.warnings.append(
            "the receipts are of another log (was this one restored, or begun anew?): they are made from its facts again"
        )
    return made


def _log(paths: DatasetPaths) -> LogSnapshot | None:
    from chronicle.events.log import RawEventLanceStore

    try:
        return RawEventLanceStore(paths.events).snapshot()
    except NotFoundError:
        return None


def _of_facts(log: LogSnapshot | None) -> pa.RecordBatch:
    """The receipts that a log gives, with its end."""
    from chronicle.facts import source_facts

    if log is None:
        return _batch([])
    return _batch([(kind, ref) for kind, ref in source_facts(log) if kind != "source.opened"], marks.mark_of(log))


def _write(paths: DatasetPaths, rows: Sequence[Row], mark: LogMark | None = None) -> None:
    """Put rows behind those of everybody else. One process at a time: others wait.

    Pieces at the end that hold no more rows than are written behind them are written again with those: there are never many
    pieces, and a row is written again no oftener than the logarithm of their number says. Raises ConflictError where another
    writer did the same, which it can only where the lock was lost; rows of nobody are lost then.
    """
    from chronicle.storage import files

    batch = _batch(rows, mark)
    files.make_dirs(paths.ops)
    with receipts_lock(paths):
        states = files.file_states(paths.receipts)
        known = latest(paths.receipts)
        if known is None:
            _create(paths, batch)
        else:
            _append(paths.receipts, known, batch)
        files.sync_tree(paths.receipts, states)  # else each ingest would cost more than the one before


def _create(paths: DatasetPaths, batch: pa.RecordBatch) -> None:
    from chronicle.storage import files, lanceio

    files.remove_tree(paths.receipts)
    lanceio.create(paths.receipts, batch.schema, [batch], _ENCODE)


def _append(path: str, known: Any, batch: pa.RecordBatch) -> None:
    from chronicle.storage import lanceio

    small = _small_pieces(known, batch.num_rows)
    with lanceio.translated(path, reading=True):
        before = known.scanner(fragments=small).to_table().to_batches() if small else []
    gone = [piece.fragment_id for piece in small]
    try:
        lanceio.append(path, int(known.version), batch.schema, [*before, batch], _ENCODE, replacing=gone)
    except ConflictError as error:
        if error.kind != "version-moved":  # then the rows lie behind those of another writer
            raise


def _small_pieces(dataset: Any, rows: int) -> list[Any]:
    """The last fragments, each no larger than all that is written behind it together."""
    small: list[Any] = []
    for piece in reversed(dataset.get_fragments()):
        if piece.physical_rows > rows:
            break
        rows += piece.physical_rows
        small.insert(0, piece)
    return small


def _batch(rows: Sequence[Row], mark: LogMark | None = None) -> pa.RecordBatch:
    import pyarrow as pa

    encode = msgspec.json.Encoder().encode
    schema = pa.schema([pa.field(name, pa.string()) for name in COLUMNS])
    cells = [(kind, ref.source_key, ref.source_id, encode(ref).decode()) for kind, ref in rows]
    if mark is not None:
        cells.append((MARK, "", "", encode(mark).decode()))
    columns = [pa.array([cell[at] for cell in cells], pa.string()) for at in range(len(COLUMNS))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def receipts_lock(paths: DatasetPaths) -> AbstractContextManager[None]:
    """Lets one process at a time write receipts, or take old versions of them away."""
    from chronicle.storage import files

    return files.locked(f"{paths.ops}/{_LOCK}")


def are_in_pieces(paths: DatasetPaths, most: int) -> bool:
    """Whether the receipts lie in more than `most` pieces."""
    from chronicle.storage import lanceio

    dataset = latest(paths.receipts)
    with lanceio.translated(paths.receipts, reading=True):
        return dataset is not None and len(dataset.get_fragments()) > most


def compact_receipts(paths: DatasetPaths, superseded: Callable[[int], None]) -> None:
    """Write the receipts anew in one piece, each `seen` only as far as it still counts.

    `superseded` is told the version that the new one is going to replace. Raises IntegrityError where the receipts do not
    read, or would not be the same afterwards.
    """
    from chronicle.storage import files, lanceio

    with receipts_lock(paths):
        known = latest(paths.receipts)
        if known is None:
            return
        stored = StoredReceipts(paths)
        rows = list(stored.rows())
        before = _folded(rows)
        kept = [(kind, ref) for kind, ref in rows if kind != SEEN]
        kept += (
            (SEEN, SourceRef(source_id=held.source_id, source_key=held.source_key, stat=held.seen))
            for held in before.current.values()
            if held.seen is not None
        )
        if _folded(kept) != before:
            raise IntegrityError(
                f"the receipts at {paths.receipts} would change", hint="run `chronicle receipts rebuild`", path=paths.receipts
            )
        batch = _batch(kept, stored.mark())
        superseded(int(known.version))
        everything = [piece.fragment_id for piece in known.get_fragments()]
        lanceio.append(paths.receipts, int(known.version), batch.schema, [batch], _ENCODE, replacing=everything)
        files.sync_tree(paths.receipts)


def _folded(rows: Iterable[Row]) -> SourceFold:
    fold = SourceFold()
    for kind, ref in rows:
        fold.apply(kind, ref)
    return fold


def list_receipts(paths: DatasetPaths) -> list[Receipt]:
    """Receipts of a dataset in order of their keys. Raises NotFoundError where the dataset has no facts."""
    from chronicle.facts import pin

    pin(paths)
    return open_receipts(paths, dry_run=True).all()


def rebuild_receipts(paths: DatasetPaths, *, dry_run: bool = False) -> list[Receipt]:
    """Write the receipts anew from the facts alone; returns them in order of their keys.

    Raises NotFoundError where the dataset has no facts.
    """
    from chronicle.facts import pin, source_fold

    snapshot = pin(paths)
    if dry_run:
        return [receipt for _, receipt in sorted(source_fold(snapshot).current.items())]
    _make_anew(paths)
    return Receipts(paths).all()


def _make_anew(paths: DatasetPaths, *, only_other: bool = False) -> None:
    """Fold the receipts out of the facts as they are once nobody else writes receipts; or only those of another log."""
    from chronicle.storage import files

    files.make_dirs(paths.ops)
    with receipts_lock(paths):
        if only_other and Receipts(paths).are_of(_log(paths)):
            return  # somebody was faster
        log = _log(paths)
        if log is None:
            files.remove_tree(paths.receipts)
            return
        _create(paths, _of_facts(log))
        files.sync_tree(paths.receipts)
