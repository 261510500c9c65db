"""Receipts: the fold of the `source.*` facts, kept beside them so that a source is ingested once (design 4.4).

The Lance dataset only grows: a copy of each `source.closed` and `source.bound`, and a note (`seen`) each time the same bytes were
met under another stat. Everything but `seen` can be rebuilt from facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from chronicle.errors import IntegrityError, NotFoundError
from chronicle.events.imported import SourceRef, Stat
from chronicle.layout import DatasetPaths
from chronicle.projection.sources import SEEN, KnownSource, Receipt, SourceFold

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("kind", "source")
_LOCK = ".receipts.lock"
_Row = tuple[str, SourceRef]


class Receipts:
    """The receipts of one dataset: loaded once, looked up in memory, appended to after a publish."""

    def __init__(self, paths: DatasetPaths) -> None:
        """Load them; none where there are none. Raises IntegrityError where they are damaged."""
        self._paths = paths
        self._path = paths.receipts
        self._fold = SourceFold()
        self._pending: list[_Row] = []
        self._load()

    def get(self, key: str) -> Receipt | None:
        """What a key holds, as far as receipts know."""
        return self._fold.current.get(key)

    def known(self, source_id: str) -> KnownSource | None:
        """Whole content with this identity."""
        return self._fold.known.get(source_id)

    def coverage(self, source_id: str) -> dict[str, int]:
        """Where the documents of a known source lie, its prefixes' too: source id -> end locator."""
        known = self._fold.known.get(source_id)
        return {} if known is None else dict(self._fold.chain(known))

    def all(self) -> list[Receipt]:
        """All receipts in order of their keys."""
        return [receipt for _, receipt in sorted(self._fold.current.items())]

    def apply(self, kind: str, ref: SourceRef) -> None:
        """Take in one `source.*` fact that was written: it counts in this process at once and is stored by `flush`."""
        self._fold.apply(kind, ref)
        self._pending.append((kind, ref))

    def saw(self, receipt: Receipt, stat: Stat) -> None:
        """Note that a key still holds the same bytes, under another stat."""
        self.apply(SEEN, SourceRef(source_id=receipt.source_id, source_key=receipt.source_key, stat=stat))

    def flush(self) -> None:
        """Store what was applied. Call it only when the facts behind it are published."""
        if self._pending:
            pending, self._pending = self._pending, []
            _write(self._paths, pending)

    def _load(self) -> None:
        try:
            dataset = _latest(self._path)
            for kind, ref in _stored(self._path, dataset) if dataset is not None else ():
                self._fold.apply(kind, ref)
        except (IntegrityError, msgspec.MsgspecError, KeyError) as error:
            raise IntegrityError(
                f"the receipts at {self._path} are damaged: {error}",
                hint="make them anew from facts with `chronicle receipts rebuild`",
                path=self._path,
            ) from error


def _stored(path: str, dataset: Any) -> Iterator[_Row]:
    from chronicle.storage import lanceio

    decode = msgspec.json.Decoder(SourceRef).decode
    with lanceio.translated(path, reading=True):
        for batch in dataset.to_batches():
            for kind, ref in zip(batch["kind"].to_pylist(), batch["source"].to_pylist(), strict=True):
                yield kind, decode(ref)


def _latest(path: str) -> Any:
    """The receipts' Lance dataset as it is now; None where there is none, or only what a killed first writer left."""
    from chronicle.storage import files, lanceio

    if not files.exists(path):
        return None
    try:
        return lanceio.open_latest(path)
    except NotFoundError:
        return None


def _write(paths: DatasetPaths, rows: Sequence[_Row], *, anew: bool = False) -> None:
    """Put rows behind those of everybody else, or in their place. One process at a time: others wait."""
    from chronicle.storage import files, lanceio

    batch = _batch(rows)
    schema = batch.schema
    files.make_dirs(paths.ops)
    with receipts_lock(paths):
        states = files.file_states(paths.receipts)
        known = None if anew else _latest(paths.receipts)
        if known is None:
            files.remove_tree(paths.receipts)
            lanceio.create(paths.receipts, schema, [batch], ())
        else:
            lanceio.append(paths.receipts, known.version, schema, [batch], ())
        files.sync_tree(paths.receipts, states)  # else each ingest would cost more than the one before


def _batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    import pyarrow as pa

    encode = msgspec.json.Encoder().encode
    schema = pa.schema([pa.field(name, pa.string()) for name in _COLUMNS])
    kinds = pa.array([kind for kind, _ in rows], pa.string())
    refs = pa.array([encode(ref).decode() for _, ref in rows], pa.string())
    return pa.RecordBatch.from_arrays([kinds, refs], schema=schema)


def receipts_lock(paths: DatasetPaths) -> AbstractContextManager[None]:
    """Lets one process at a time write receipts, or take old versions of them away."""
    from chronicle.storage import files

    return files.locked(f"{paths.ops}/{_LOCK}")


def are_in_pieces(paths: DatasetPaths, most: int) -> bool:
    """Whether the receipts lie in more than `most` pieces."""
    from chronicle.storage import lanceio

    dataset = _latest(paths.receipts)
    with lanceio.translated(paths.receipts, reading=True):
        return dataset is not None and len(dataset.get_fragments()) > most


def compact_receipts(paths: DatasetPaths, superseded: Callable[[int], None]) -> None:
    """Write the receipts anew in one piece, each `seen` only as far as it still counts.

    `superseded` is told the version that the new one is going to replace. Raises IntegrityError where the receipts do not
    read, or would not be the same afterwards.
    """
    from chronicle.storage import files, lanceio

    with receipts_lock(paths):
        known = _latest(paths.receipts)
        if known is None:
            return
        rows = list(_stored(paths.receipts, known))
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
        batch = _batch(kept)
        superseded(int(known.version))
        lanceio.rewrite(paths.receipts, int(known.version), batch.schema, [batch], ())
        files.sync_tree(paths.receipts)


def _folded(rows: Iterable[_Row]) -> SourceFold:
    fold = SourceFold()
    for kind, ref in rows:
        fold.apply(kind, ref)
    return fold


def list_receipts(paths: DatasetPaths) -> list[Receipt]:
    """Receipts of a dataset in order of their keys. Raises NotFoundError where the dataset has no facts."""
    from chronicle.facts import pin

    pin(paths)
    return Receipts(paths).all()


def rebuild_receipts(paths: DatasetPaths, *, dry_run: bool = False) -> list[Receipt]:
    """Write the receipts anew from the facts alone; returns them in order of their keys.

    Raises NotFoundError where the dataset has no facts.
    """
    from chronicle.facts import pin, source_facts

    rows = [(kind, ref) for kind, ref in source_facts(pin(paths)) if kind != "source.opened"]
    if dry_run:
        return [receipt for _, receipt in sorted(_folded(rows).current.items())]
    _write(paths, rows, anew=True)
    return Receipts(paths).all()
