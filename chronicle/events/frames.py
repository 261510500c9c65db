"""The bytes of a spool's journal: each record behind its kind, length and checksum. Pure.

A frame is `r 0000001f 9a8b7c6d <record>\\n`: `r` an EventRecord, `x` something set aside; length of the text and CRC-32 of
kind and text in hex. So a record keeps its bytes, line breaks too, and what a crash or a bad disk left is told from what was
written whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

RECORD = b"r"
ASIDE = b"x"
MAX_TEXT = 0xFFFFFFFF
"""Bytes of one text: its length has eight hex digits."""

_HEADER = re.compile(rb"([rx]) ([0-9a-f]{8}) ([0-9a-f]{8}) ")
_LINE = re.compile(rb"(?<=\n)" + _HEADER.pattern)
"""A frame begins a line, and no JSON text holds a line that looks like one: so data cannot pose as frames."""
_ANY_HEADER = b"r 00000000 00000000 "
_HEADER_LENGTH = len(_ANY_HEADER)
OVERHEAD = _HEADER_LENGTH + 1
"""Bytes of a frame besides its text."""


class Piece(NamedTuple):
    """One stretch of a journal: a whole frame, or bytes that are none (`kind` is empty and `text` all of them)."""

    start: int
    end: int
    kind: bytes
    text: bytes


def frame(kind: bytes, text: bytes) -> bytes:
    """The bytes of one frame."""
    return b"%s %08x %08x %s\n" % (kind, len(text), _checksum(kind, text), text)


def pieces(data: bytes) -> Iterator[Piece]:
    """All of a journal's bytes in order. What stands between two whole frames, or behind the last one, is one piece."""
    at = 0
    while at < len(data):
        found = _whole(data, at)
        if found is None:
            end = _next_whole(data, at + 1)
            found = Piece(at, end, b"", data[at:end])
        yield found
        at = found.end


def is_torn(piece: Piece, size: int) -> bool:
    """Whether a piece is the end of a journal of `size` bytes, and no whole frame: nothing may be written behind it."""
    return not piece.kind and piece.end == size


def is_cut_short(text: bytes) -> bool:
    """Whether bytes are the beginning of one frame, as a writer that died leaves it: it never said that they were stored."""
    header = _HEADER.match(text + _ANY_HEADER[len(text) :])
    return header is not None and (len(text) < _HEADER_LENGTH or len(text) < int(header[2], 16) + OVERHEAD)


def _checksum(kind: bytes, text: bytes) -> int:
    return zlib.crc32(text, zlib.crc32(kind))


def _whole(data: bytes, at: int) -> Piece | None:
    header = _HEADER.match(data, at)
    if header is None:
        return None
    start = at + _HEADER_LENGTH
    end = start + int(header[2], 16)
    if data[end : end + 1] != b"\n":
        return None
    text = data[start:end]
    return Piece(at, end + 1, header[1], text) if _checksum(header[1], text) == int(header[3], 16) else None


def _next_whole(data: bytes, at: int) -> int:
    """Where the next whole frame begins; the end where there is none."""
    for header in _LINE.finditer(data, at):
        if _whole(data, header.start()) is not None:
            return header.start()
    return len(data)
