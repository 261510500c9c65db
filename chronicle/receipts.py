"""Receipts: the fold of the `source.*` facts, kept beside them so that a source is ingested once (design 4.4).

The Lance dataset only grows: a row for each `source.closed` and `source.bound`, and one for each time the same bytes were met
under another stat (`seen`). The last row of a key says what the key holds. Everything but `seen` can be rebuilt from facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from chronicle.layout import DatasetPaths
from chronicle.projection.sources import KnownSource, Receipt, SourceFold, receipts_of

if TYPE_CHECKING:
    import pyarrow as pa

_Row = tuple[Receipt | None, KnownSource | None]


class Receipts:
    """The receipts of one dataset: loaded once, looked up in memory, appended to after a publish."""

    def __init__(self, paths: DatasetPaths) -> None:
        self._path = paths.receipts
        self._version = 0
        self._fold = SourceFold()
        self._pending: list[_Row] = []
        self._load()

    def get(self, key: str) -> Receipt | None:
        """What a key holds, as far as receipts know."""
        return self._fold.current.get(key)

    def known(self, source_id: str) -> KnownSource | None:
        """Complete content with this identity."""
        return self._fold.complete(source_id)

    def all(self) -> list[Receipt]:
        """All receipts in order of their keys."""
        return list(receipts_of(self._fold))

    def add(self, receipt: Receipt | None, source: KnownSource | None = None) -> None:
        """Note what a key holds, or what is known: it counts in this process at once and is stored by `flush`."""
        self._note(receipt, source)
        self._pending.append((receipt, source))

    def flush(self) -> None:
        """Store what was added. Call it only when the facts behind it are published."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._write(pending)

    def replace(self, fold: SourceFold) -> None:
        """Hold exactly what a fold of the facts says."""
        from chronicle.storage import files

        files.remove_tree(self._path)
        self._version, self._fold = 0, fold
        rows: list[_Row] = [(None, source) for source in fold.known.values()]
        rows += [(receipt, None) for receipt in receipts_of(fold)]
        if rows:
            self._write(rows)

    def _note(self, receipt: Receipt | None, source: KnownSource | None) -> None:
        if source is not None:
            self._fold.known[source.source_id] = source
        if receipt is not None:
            self._fold.current[receipt.source_key] = receipt

    def _load(self) -> None:
        from chronicle.storage import files, lanceio

        if not files.exists(self._path):
            return
        dataset = lanceio.open_latest(self._path)
        self._version = dataset.version
        receipt_of = msgspec.json.Decoder(Receipt).decode
        source_of = msgspec.json.Decoder(KnownSource).decode
        for batch in dataset.to_batches():
            for receipt, source in zip(batch["receipt"].to_pylist(), batch["source"].to_pylist(), strict=True):
                self._note(receipt_of(receipt) if receipt else None, source_of(source) if source else None)

    def _write(self, rows: Iterable[_Row]) -> None:
        from chronicle.storage import files, lanceio

        batch = _batch(rows)
        if self._version:
            self._version = lanceio.append(self._path, self._version, batch.schema, [batch], ())
        else:
            self._version = lanceio.create(self._path, batch.schema, [batch], ())
        files.sync_tree(self._path)


def _batch(rows: Iterable[_Row]) -> pa.RecordBatch:
    import pyarrow as pa

    encode = msgspec.json.Encoder().encode
    keys, receipts, sources = [], [], []
    for receipt, source in rows:
        keys.append(receipt.source_key if receipt else None)
        receipts.append(encode(receipt).decode() if receipt else None)
        sources.append(encode(source).decode() if source else None)
    schema = pa.schema([pa.field(name, pa.string()) for name in ("source_key", "receipt", "source")])
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in (keys, receipts, sources)], schema=schema)


def list_receipts(paths: DatasetPaths) -> list[Receipt]:
    """Receipts of a dataset in order of their keys. Raises NotFoundError where the dataset has no facts."""
    from chronicle.facts import pin

    pin(paths)
    return Receipts(paths).all()


def rebuild_receipts(paths: DatasetPaths, *, dry_run: bool = False) -> list[Receipt]:
    """Write the receipts anew from the facts alone; returns them in order of their keys.

    Raises NotFoundError where the dataset has no facts.
    """
    from chronicle.facts import pin, source_fold

    fold = source_fold(pin(paths))
    if not dry_run:
        Receipts(paths).replace(fold)
    return list(receipts_of(fold))
