"""Whether two JSON files hold the same values in the same order, and where they first differ if not.

What counts: the form (one object, one array, JSON lines or values one after the other), the order of members,
repeated keys, explicit nulls, strings by value, integers of any size exactly. Floats count as numbers: 1.10 is
1.1, and what a reader of doubles cannot tell apart is equal; NaN is NaN. White space and escapes do not count.

    python -m tests.jsoncompare A_DIR B_DIR

compares the files of equal relative path, prints how many are equal, different and missing, and exits 1 where one
that both directories hold is different.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from decimal import Decimal
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import NamedTuple, Union, cast

from chronicle.errors import InputError
from chronicle.formats.jsontext import Json, Number, Object, dump, end_of_value, parse, pointer

_INTEGER = re.compile(r"-?[0-9]+")
_BLANKS = b" \t\n\r"


class _Absent(NamedTuple):
    """Stands where one side has no value."""

    instead: str


_Side = Union["Json", _Absent]
_Step = tuple[tuple[str | int, ...], _Side, _Side]


def same_json(a: bytes, b: bytes) -> str | None:
    """None where both hold the same values; else the first difference: JSON Pointer and both texts.

    In a file of several values the pointer begins with the ordinal of the value, from 0. A text that is not JSON
    is equal only to the same bytes.
    """
    try:
        one, other = read(a), read(b)
    except InputError as fault:
        return None if a == b else f": not both are JSON ({fault})"
    if one[0] != other[0]:
        return f": {one[0]} != {other[0]}"
    several = one[0] in ("jsonl", "concatenated")
    return _difference(one[1], other[1]) if several or not one[1] else _difference(one[1][0], other[1][0])


def read(text: bytes) -> tuple[str, list[Json]]:
    """The form of a file and the values in it. Raises InputError.

    Forms: `empty`, `object`, `array`, `scalar`, `jsonl` (each value on its own line) and `concatenated`.
    """
    text = text.removeprefix(b"\xef\xbb\xbf")
    found: list[Json] = []
    lines = True
    at, end = 0, len(text.rstrip(_BLANKS))
    while at < end:
        after = end_of_value(text, at)
        value = text[at:after]
        start = at + len(value) - len(value.lstrip(_BLANKS))
        lines = lines and b"\n" not in text[start:after] and (not found or b"\n" in text[at:start])
        found.append(parse(value))
        at = after
    if len(found) > 1:
        return ("jsonl" if lines else "concatenated"), found
    if not found:
        return "empty", found
    if isinstance(found[0], list):
        return ("object" if isinstance(found[0], Object) else "array"), found
    return "scalar", found


def same_number(a: str, b: str) -> bool:
    """Whether two spellings are the same number: exactly, or, where neither is an integer, the same finite double."""
    if a == b:
        return True
    try:
        if Decimal(a) == Decimal(b):
            return True
    except ArithmeticError:  # an exponent beyond what Decimal holds
        return False
    if _INTEGER.fullmatch(a) or _INTEGER.fullmatch(b):
        return False
    return float(a) == float(b) and isfinite(float(a)) and float(a) != 0


def _difference(a: Json, b: Json) -> str | None:
    work: list[_Step] = [((), a, b)]
    while work:
        path, one, other = work.pop()
        if isinstance(one, Object) and isinstance(other, Object):
            work += reversed(_members(path, one, other))
        elif isinstance(one, list) and type(one) is type(other):
            sides = cast("tuple[list[_Side], list[_Side]]", (one, other))
            pairs = zip_longest(*sides, fillvalue=_Absent("no element"))
            work += reversed([((*path, i), left, right) for i, (left, right) in enumerate(pairs)])
        elif isinstance(one, Number) and isinstance(other, Number) and same_number(one.text, other.text):
            continue
        elif type(one) is not type(other) or one != other:
            return f"{pointer(*path)}: {_short(one)} != {_short(other)}"
    return None


def _members(path: tuple[str | int, ...], one: Object, other: Object) -> list[_Step]:
    """Pairs to compare, up to the first member that does not have its twin at its place."""
    steps: list[_Step] = []
    for left, right in zip_longest(one, other):
        if left is None:
            return [*steps, ((*path, right[0]), _Absent("no member"), right[1])]
        if right is None or right[0] != left[0]:
            instead = "no member" if right is None else f"member {_short(right[0])}"
            return [*steps, ((*path, left[0]), left[1], _Absent(instead))]
        steps.append(((*path, left[0]), left[1], right[1]))
    return steps


def _short(value: _Side) -> str:
    if isinstance(value, _Absent):
        return value.instead
    text = dump(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."


def compare(a: Path, b: Path) -> Counter[str]:
    """Compare two directories; prints every difference. Counts `equal`, `different`, `missing`."""
    counts: Counter[str] = Counter(equal=0, different=0, missing=0)
    trees = [{path.relative_to(root) for path in root.rglob("*") if path.is_file()} for root in (a, b)]
    for name in sorted(trees[0] | trees[1]):
        absent = [str(root) for root, tree in zip((a, b), trees, strict=True) if name not in tree]
        if absent:
            counts["missing"] += 1
            print(f"missing    {name} in {absent[0]}")
            continue
        difference = same_json((a / name).read_bytes(), (b / name).read_bytes())
        counts["equal" if difference is None else "different"] += 1
        if difference is not None:
            print(f"different  {name} at {difference}")
    return counts


def main() -> int:
    """Command line; 1 where a file that both directories hold is different."""
    parser = argparse.ArgumentParser(prog="python -m tests.jsoncompare", description=__doc__.split("\n\n")[0])
    parser.add_argument("a", type=Path, metavar="A_DIR")
    parser.add_argument("b", type=Path, metavar="B_DIR")
    arguments = parser.parse_args()
    counts = compare(arguments.a, arguments.b)
    print(" ".join(f"{what} {count}" for what, count in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
