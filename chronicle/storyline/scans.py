"""A table as DuckDB scans it: the columns and rows that a statement needs, in batches that stay small (design 5.2).

DuckDB asks a dataset for a scanner with the columns it reads and the filters it can hand over. Lance's own default holds two
gigabytes of a table at a time, and decodes eight thousand rows of a batch whether they hold ten bytes or a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from chronicle.storage import lanceio

lanceio.lance()  # the first import of pyarrow.dataset must be this one: it keeps pandas out

from pyarrow.dataset import Dataset  # noqa: E402

_ROWS = 1024
_IO_BYTES = 16 << 20


class Scanned(Dataset):  # type: ignore[misc]
    """What DuckDB's `register` takes: the schema of a Lance dataset, and bounded scanners over it."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._rows = lanceio.batch_rows(dataset, _ROWS)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        return self._dataset.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:
        """A scanner over some columns, and the rows for which an Arrow expression holds."""
        return self._dataset.scanner(columns=columns, filter=filter, batch_size=self._rows, io_buffer_size=_IO_BYTES)
