"""Arrow columns from Python values, and time stamps between text and nanoseconds (pure).

Text columns are joined, not built value by value: one `bytes.join` and one offsets buffer a column
is several times faster than `pa.array` of strings.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import repeat

import numpy as np
import pyarrow as pa

from chronicle.errors import ProjectionError

TIMESTAMP = pa.timestamp("ns", tz="UTC")

_DIGITS = "[0-9]"
_CANONICAL = re.compile(
    rf"{_DIGITS}{{4}}-{_DIGITS}{{2}}-{_DIGITS}{{2}}T{_DIGITS}{{2}}:{_DIGITS}{{2}}:{_DIGITS}{{2}}"
    rf"(?:\.(?:{_DIGITS}{{3}}){{0,2}}(?!000){_DIGITS}{{3}})?Z"
)
# What Arrow's cast takes, apart from dates that do not exist and instants out of range.
_ZONED = re.compile(
    rf"{_DIGITS}{{4}}-{_DIGITS}{{2}}-{_DIGITS}{{2}}[T ]{_DIGITS}{{2}}(?::?{_DIGITS}{{2}}){{0,2}}"
    rf"(?:\.{_DIGITS}{{1,9}})?(?:Z|[+-]{_DIGITS}{{2}}(?::?{_DIGITS}{{2}})?)"
)
_NANOSECONDS = re.compile(rf"[^.,]*{_DIGITS}{{2}}[.,]{_DIGITS}{{6}}({_DIGITS}{{1,3}})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000
_LARGEST = (1 << 31) - 1
_INT64 = range(-(1 << 63), 1 << 63)


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """A utf8 column of UTF-8 texts and nulls; raises ProjectionError where it would exceed 2 GiB."""
    size = len(values)
    missing = values.count(None)
    if missing == size:
        return pa.nulls(size, pa.string())
    filled = [value or b"" for value in values] if missing else values
    ends = np.zeros(size + 1, np.int64)
    np.cumsum(np.fromiter(map(len, filled), np.int64, size), out=ends[1:])  # type: ignore[arg-type]
    if ends[-1] > _LARGEST:
        raise ProjectionError("a text column would exceed 2 GiB", hint="project fewer stories at a time")
    valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1] if missing else None
    data = pa.py_buffer(b"".join(filled))  # type: ignore[arg-type]
    return pa.StringArray.from_buffers(size, pa.py_buffer(ends.astype(np.int32)), data, valid)


def strings(values: Sequence[str | None]) -> pa.Array:
    """A utf8 column of strings and nulls. No string may hold an unpaired surrogate."""
    if None in values:
        return texts([None if value is None else value.encode() for value in values])
    return texts(list(map(str.encode, values)))  # type: ignore[arg-type]


def repeated(column: pa.Array, counts: Sequence[int]) -> pa.Array:
    """The value at i of a column `counts[i]` times, for all i."""
    places = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    # Not `pa.array`: given numpy values it first looks for pandas.
    return column.take(pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)]))


def ordinals(counts: Sequence[int], firsts: Iterable[int] = repeat(0)) -> pa.Array:
    """For each count so many numbers that follow each other, from its first one on."""
    return pa.array([n for first, count in zip(firsts, counts, strict=False) for n in range(first, first + count)], pa.int64())


def instants(values: Sequence[str | None]) -> pa.Array:
    """A column of instants (ns since 1970, UTC) from time stamp texts; null where a text names none.

    A value depends on its own text only: what Arrow's cast takes, else what `datetime.fromisoformat`
    takes (without a zone: UTC), inside the range of 64-bit nanoseconds.
    """
    column = pa.array(values, pa.string())
    try:
        return column.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        pass
    # The cast fails as a whole on its first odd value: set apart what it will not take, and try again.
    likely = [value if value is not None and _ZONED.fullmatch(value) else None for value in values]
    try:
        found = pa.array(likely, pa.string()).cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        found = [_cast(value) for value in likely]
    for at, value in enumerate(values):
        if found[at] is None and value is not None:
            found[at] = _cast(value)
            if found[at] is None:
                found[at] = _lenient(value)
    return pa.array(found, pa.int64()).cast(TIMESTAMP)


def _cast(value: str | None) -> int | None:
    if value is None:
        return None
    try:
        number: int | None = pa.array([value], pa.string()).cast(TIMESTAMP).cast(pa.int64())[0].as_py()
    except pa.ArrowInvalid:
        return None
    return number


def _lenient(value: str) -> int | None:
    try:
        # RFC 3339 takes `t` and `z` too.
        moment = datetime.fromisoformat(f"{value[:-1]}Z" if value.endswith("z") else value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        passed = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    number = ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000
    # `datetime` cuts fractions to microseconds.
    if finer := _NANOSECONDS.match(value):
        number += int(finer[1].ljust(3, "0"))
    return number if number in _INT64 else None


def is_canonical(text: str) -> bool:
    """Whether an instant's text, if it has one, is what `rendered` gives back for it."""
    return _CANONICAL.fullmatch(text) is not None


def rendered(column: pa.Array) -> list[str | None]:
    """The canonical texts of a column of instants: RFC 3339 with `Z` and 0, 3, 6 or 9 digits, as few as hold it."""
    if column.null_count == len(column):
        return [None] * len(column)
    known = column.cast(pa.int64())
    numbers = np.asarray(known.fill_null(0))
    seconds, rest = np.divmod(numbers, _SECOND)
    heads = np.datetime_as_string(seconds.astype("datetime64[s]")).tolist()
    made: list[str | None] = [head + _fraction(part) for head, part in zip(heads, rest.tolist(), strict=True)]
    if column.null_count:
        for at, valid in enumerate(known.is_valid().to_pylist()):
            if not valid:
                made[at] = None
    return made


def _fraction(nanoseconds: int) -> str:
    if not nanoseconds:
        return "Z"
    if nanoseconds % 1_000_000 == 0:
        return f".{nanoseconds // 1_000_000:03}Z"
    if nanoseconds % 1000 == 0:
        return f".{nanoseconds // 1000:06}Z"
    return f".{nanoseconds:09}Z"


def raw(column: pa.Array) -> list[bytes | None]:
    """The cells of a utf8 column as UTF-8 bytes."""
    cells: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return cells


def fits(numbers: Iterable[int | None]) -> bool:
    """Whether every number fits a 64-bit column."""
    try:
        array("q", [number or 0 for number in numbers])
    except OverflowError:
        return False
    return True
