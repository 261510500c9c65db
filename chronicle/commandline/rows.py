"""Rows of a query on stdout: a table for people, JSON lines, CSV or Parquet for the rest (design 8)."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import msgspec

from chronicle.commandline.console import Console, Lines, write
from chronicle.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ROWS = 1_000
"""A table is laid out as a whole, so it is not for more rows than anybody reads."""

Batches = Iterable["pa.RecordBatch"]


def check_place(format: str) -> None:
    """Raise UsageError where standard output is no place for a format."""
    if format == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet is not for a terminal", hint="write it to a file: … --format parquet > rows.parquet")


def write_rows(format: str, schema: pa.Schema, batches: Batches, console: Console) -> None:
    """Write record batches of a schema in one of FORMATS. Raises UsageError as `check_place` does."""
    check_place(format)
    _WRITERS[format](schema, batches, console)


def _values(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = zip(batch.schema.names, batch.columns, strict=True)
        yield from zip(*(_cells(name, column) for name, column in columns), strict=True)


def _cells(name: str, column: pa.Array) -> list[Any]:
    """Values of a column. Instants and dates as RFC 3339 text, which holds what Python's own do not; intervals as ISO 8601
    durations, bytes as base64. Raises UsageError where a value inside another one is none that can be written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(column.type):
        return cast(list[Any], column.cast(pa.string()).to_pylist())
    if not pa.types.is_timestamp(column.type):
        try:
            cells = cast(list[Any], column.to_pylist())
        except (OverflowError, ValueError) as error:
            raise UsageError(
                f"column {name!r} holds a value that cannot be written: {error}", hint="write CAST(… AS VARCHAR)", kind="sql"
            ) from error
        plain = _base64 if pa.types.is_binary(column.type) else _duration if pa.types.is_interval(column.type) else None
        return cells if plain is None else [cell if cell is None else plain(cell) for cell in cells]
    text = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    text = pc.replace_substring_regex(text, r"(\.\d*?)0+(Z?)$", r"\1\2")
    return cast(list[Any], pc.replace_substring_regex(text, r"\.(Z?)$", r"\1").to_pylist())


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _duration(value: pa.MonthDayNano) -> str:
    """`P1DT3540S`: months, days and seconds, each with its own sign."""
    months, days = f"{value.months}M" if value.months else "", f"{value.days}D" if value.days else ""
    seconds = f"{Decimal(value.nanoseconds).scaleb(-9):f}".rstrip("0").rstrip(".")
    return f"P{months}{days}" + (f"T{seconds}S" if value.nanoseconds else "" if months or days else "T0S")


def _table(schema: pa.Schema, batches: Batches, console: Console) -> None:
    rows = _values(batches)
    console.table(schema.names, itertools.islice(rows, TABLE_ROWS))
    if next(rows, None) is not None:
        console.note(f"the first {TABLE_ROWS} rows are shown; --format jsonl, csv or parquet gives all of them")


def _jsonl(schema: pa.Schema, batches: Batches, console: Console) -> None:
    encode = msgspec.json.Encoder(enc_hook=str, decimal_format="number").encode
    names = _distinct(schema.names)
    with Lines() as lines:
        for row in _values(batches):
            lines.add(encode(dict(zip(names, row, strict=True))))


def _distinct(names: list[str]) -> list[str]:
    """Column names as JSON members: a name that was there already gets `_2`, `_3`."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out


def _csv(schema: pa.Schema, batches: Batches, console: Console) -> None:
    nested = msgspec.json.Encoder(enc_hook=str)
    with Lines() as lines:
        for row in itertools.chain([tuple(schema.names)], _values(batches)):
            line = io.StringIO()
            cells = [nested.encode(cell).decode() if isinstance(cell, dict | list | bool) else cell for cell in row]
            csv.writer(line, lineterminator="").writerow(cells)
            lines.add(line.getvalue().encode("utf-8", "backslashreplace"))


def _parquet(schema: pa.Schema, batches: Batches, console: Console) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        writer = parquet.ParquetWriter(_Pipe(), schema)
    except pa.ArrowNotImplementedError as error:  # an interval, a union
        text = str(error).rpartition(": ")[2]
        raise UsageError(
            f"Parquet has no type for a column: {text}", hint="write CAST(… AS VARCHAR), or epoch(…) of an interval", kind="sql"
        ) from error
    with writer:
        for batch in batches:
            writer.write_batch(batch)


class _Pipe(io.RawIOBase):
    """Standard output as Arrow wants a file: it knows how far it is and cannot go back."""

    def __init__(self) -> None:
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        piece = bytes(data)
        write(piece)
        self._at += len(piece)
        return len(piece)


_WRITERS: dict[str, Callable[[pa.Schema, Batches, Console], None]] = {
    "table": _table,
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
}
FORMATS = tuple(_WRITERS)
"""Names of the formats."""
