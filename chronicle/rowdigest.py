"""A digest of rows: every value of every column, in order, whatever batches the rows come in and however they are stored."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3


class RowDigest:
    """Takes record batches of one schema; `hexdigest` then tells two sequences of rows apart."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [_Column(field.type) for field in schema]
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of a batch."""
        for column, values in zip(self._columns, batch.columns, strict=True):
            column.add(values)
        self.rows += batch.num_rows

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand batches on and take them in."""
        for batch in batches:
            self.add(batch)
            yield batch

    def hexdigest(self) -> str:
        """The digest of all rows so far."""
        whole = blake3(struct.pack("<q", self.rows))
        for column in self._columns:
            whole.update(column.digest())
        return whole.hexdigest()


class _Column:
    """Values of one column: which are there, how long they are, and their bytes, each hashed for itself."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
        self._present, self._lengths, self._bytes = blake3(), blake3(), blake3()

    def add(self, values: pa.Array) -> None:
        self._present.update(pc.is_valid(values).cast(pa.uint8()).to_numpy().tobytes())
        if self._is_text:
            self._add_texts(values)
            return
        if values.null_count:
            values = pc.if_else(pc.is_valid(values), values, pa.scalar(0, pa.int64()).cast(self._kind))
        wide = pa.uint8() if pa.types.is_boolean(self._kind) else pa.int64()
        self._bytes.update(values.cast(wide).to_numpy().tobytes())

    def _add_texts(self, values: pa.Array) -> None:
        if values.null_count:
            values = pc.fill_null(values, "")
        self._lengths.update(pc.binary_length(values).to_numpy().tobytes())
        _, offsets, data = values.buffers()
        if data is not None and len(values):
            ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
            self._bytes.update(memoryview(data)[int(ends[0]) : int(ends[-1])])

    def digest(self) -> bytes:
        return b"".join(part.digest() for part in (self._present, self._lengths, self._bytes))
