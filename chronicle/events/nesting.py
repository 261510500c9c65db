"""Which parts nest too deep to stand in a row as values: their text stands there then (events.md 6)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub

import numpy as np

from chronicle.formats import jsontext
from chronicle.formats.document import CutPart

MAX_VALUE_DEPTH = 100
_WORTH_ONE_LOOK = 8 << 10
_MOST_AT_ONE_LOOK = 4 << 20
"""Bytes."""


def are_shallow(source: bytes, parts: Sequence[CutPart]) -> bool:
    """Whether no part can nest too deep, by one look at all of them; False where that look would not pay, too."""
    begin, end = (parts[0].start, parts[-1].end) if parts else (0, 0)
    if not _WORTH_ONE_LOOK <= end - begin <= _MOST_AT_ONE_LOOK:
        return False
    # `[` is `{` without the bit 0x20.
    (opening,) = ((np.frombuffer(source, np.uint8, end - begin, begin) | 0x20) == ord("{")).nonzero()
    before: list[int] = opening.searchsorted([part.start - begin for part in parts]).tolist()
    most: int = max(map(sub, [*before[1:], len(opening)], before))
    return most <= MAX_VALUE_DEPTH


def is_shallow(text: bytes) -> bool:
    """Whether a part does not nest too deep."""
    return not jsontext.is_deeper(text, MAX_VALUE_DEPTH)
