"""Where the pieces of a JSON text lie: two readers that agree on every strict text (design 4.2).

`FastReader` decodes to `msgspec.Raw`, which is a view into the source, and gets offsets from addresses;
it searches for nothing. It refuses what is not strict JSON (NaN, unpaired surrogates, control characters)
and what is nested too deep for it. `SlowReader` goes over the same text with the scanner of `jsontext`
and takes whatever a lenient reader takes, at any depth.

Of repeated members the last one counts, in both.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from chronicle.errors import InputError
from chronicle.formats import jsontext

OBJECT, ARRAY, STRING = ord("{"), ord("["), ord('"')
SPACE = b" \t\r\n"
MAX_EMBEDDING_DEPTH = 1000
"""JSON nesting from which on a document is not projected; its embedded trajectories are not cut then."""

REFUSED = (msgspec.DecodeError, RecursionError)
"""What `FastReader` raises on a text that is not for it."""

_BOM = codecs.BOM_UTF8
EMPTY_ARRAY = re.compile(rb"\[[ \t\r\n]*+\]")
_SPACES = re.compile(rb"[ \t\r\n]*+")
_LINE = re.compile(rb"[^ \t\r\n][^\n]*")
_CHUNK = 1 << 22


class Slice(NamedTuple):
    """A range of bytes of the source: `source[start:end]`."""

    start: int
    end: int


class Trajectory(NamedTuple):
    """What the cut needs of one ATIF trajectory object; a member that is absent is None."""

    steps: Sequence[tuple[int, int]]
    """Start and end of each: slices, or what is as good and costs less where there are many."""
    stamps: list[str | None]
    """`timestamp` of each step, where it is an object and the member a string."""
    session_id: str | None
    trajectory_id: str | None
    agent_name: str | None
    embedded: list[Slice]
    """Elements of `subagent_trajectories`, where that is an array of objects only; else nothing."""
    version: str | None
    """`schema_version`, where it says ATIF and nothing else in the object speaks against it."""


class Reader(Protocol):
    """Both readers. Slices that go in are exactly one value; they and those that come out are absolute."""

    source: bytes
    strict: bool

    def members(self, at: Slice) -> dict[str, Slice]:
        """Members of the object at `at`."""

    def elements(self, at: Slice) -> list[Slice]:
        """Elements of the array at `at`."""

    def string(self, at: Slice | None) -> str | None:
        """The text of a JSON string, U+FFFD for unpaired surrogates; None for any other value."""

    def trajectory(self, at: Slice) -> Trajectory:
        """The object at `at` as an ATIF trajectory."""

    def stamp(self, at: Slice) -> str | None:
        """`timestamp` of the part at `at`, where it is an object and the member a string."""


class _Head(msgspec.Struct, gc=False):
    steps: list[Raw]
    schema_version: Raw = Raw(b"")
    spec: Raw = Raw(b"")
    attempts: Raw = Raw(b"")
    session_id: Raw = Raw(b"")
    trajectory_id: Raw = Raw(b"")
    agent: Raw = Raw(b"")
    subagent_trajectories: Raw = Raw(b"")


class _Agent(msgspec.Struct, gc=False):
    name: Raw = Raw(b"")


class _Stamped(msgspec.Struct, gc=False):
    timestamp: str | None = None


class _StampedSteps(msgspec.Struct, gc=False):
    steps: list[_Stamped]


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_decode_value = msgspec.json.Decoder(Raw).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_agent = msgspec.json.Decoder(_Agent).decode
_decode_stamped = msgspec.json.Decoder(_Stamped).decode
_decode_stamped_steps = msgspec.json.Decoder(_StampedSteps).decode
_decode_string = msgspec.json.Decoder(str).decode


@cache
def _buffer() -> Callable[[object], Any]:
    # The cheapest way to an address that there is without C of our own; imported late because the
    # formats must not cost a process that only shows its help.
    from pyarrow import py_buffer

    reader: Callable[[object], Any] = py_buffer
    return reader


def _is(raw: Raw, kind: int) -> bool:
    view = memoryview(raw)
    return len(view) > 0 and view[0] == kind


def _text(raw: Raw) -> str | None:
    return _decode_string(raw) if _is(raw, STRING) else None


class FastReader:
    """Offsets by address. Raises `REFUSED` on anything that is not strict JSON; the source must be UTF-8."""

    strict = True

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._view = memoryview(source)
        self._buffer = _buffer()
        self._base: int = self._buffer(source).address

    def _place(self, raw: Raw) -> Slice:
        found = self._buffer(raw)
        start = found.address - self._base
        return Slice(start, start + found.size)

    def _places(self, raws: list[Raw]) -> list[Slice]:
        return list(map(Slice._make, self._spans(raws)))

    def _spans(self, raws: list[Raw]) -> list[tuple[int, int]]:
        buffer, base = self._buffer, self._base
        return [(start := (each := buffer(raw)).address - base, start + each.size) for raw in raws]

    def value(self, at: Slice) -> None:
        """Check that `at` is one strict value and no more."""
        _decode_value(self._view[at.start : at.end])

    def members(self, at: Slice) -> dict[str, Slice]:
        """Members of the object at `at`."""
        found = _decode_members(self._view[at.start : at.end])
        return dict(zip(found, self._places(list(found.values())), strict=True))

    def elements(self, at: Slice) -> list[Slice]:
        """Elements of the array at `at`."""
        return self._places(_decode_elements(self._view[at.start : at.end]))

    def string(self, at: Slice | None) -> str | None:
        """The text of a JSON string."""
        if at is None or self.source[at.start] != STRING:
            return None
        return _decode_string(self._view[at.start : at.end])

    def trajectory(self, at: Slice) -> Trajectory:
        """One decode of the object gives the places of its steps, another their time stamps."""
        text = self._view[at.start : at.end]
        try:
            head = _decode_head(text)
        except msgspec.ValidationError:
            return trajectory_of(self, self.members(at))
        embedded = self._embedded(head.subagent_trajectories)
        foreign = bool(memoryview(head.spec).nbytes or memoryview(head.attempts).nbytes)
        steps = self._spans(head.steps)
        try:
            stamps = [step.timestamp for step in _decode_stamped_steps(text).steps]
        except msgspec.ValidationError:
            stamps = [self.stamp(Slice(*step)) for step in steps]
        return Trajectory(
            steps=steps,
            stamps=stamps,
            session_id=_text(head.session_id),
            trajectory_id=_text(head.trajectory_id),
            agent_name=_text(_decode_agent(head.agent).name) if _is(head.agent, OBJECT) else None,
            embedded=embedded,
            version=None if foreign else _atif_version(_text(head.schema_version)),
        )

    def _embedded(self, raw: Raw) -> list[Slice]:
        if not _is(raw, ARRAY):
            return []
        found = _decode_elements(raw)
        return self._places(found) if all(_is(each, OBJECT) for each in found) else []

    def stamp(self, at: Slice) -> str | None:
        """`timestamp` of the part at `at`."""
        try:
            return _decode_stamped(self._view[at.start : at.end]).timestamp
        except msgspec.ValidationError:
            # Not an object, or a timestamp that is no string: perhaps one of several.
            if self.source[at.start] != OBJECT:
                return None
            return self.string(self.members(at).get("timestamp"))


class SlowReader:
    """Offsets by scanning `source[at.start:at.end]`, which must be one value. Raises `InputError` if it is not."""

    strict = False

    def __init__(self, source: bytes, at: Slice) -> None:
        self.source = source
        # A copy, so that a broken value is not read on into the next one.
        self._text = source if (at.start, at.end) == (0, len(source)) else source[at.start : at.end]
        self._base = at.start
        self._deep: bool | None = None
        # What `value` has found at the top, so that it is not scanned for again.
        self._members: tuple[Slice | None, dict[str, Slice]] = (None, {})
        self._elements: tuple[Slice | None, list[Slice]] = (None, [])

    def value(self, at: Slice) -> None:
        """Check that `at` is one value and no more, for a lenient reader."""
        kind, last = self.source[at.start], None
        if kind == OBJECT:
            self._members = (at, self.members(at))
            last = max((each.end for each in self._members[1].values()), default=None)
        elif kind == ARRAY:
            self._elements = (at, self.elements(at))
            last = self._elements[1][-1].end if self._elements[1] else None
        if last is None or self._text[last - self._base : at.end - self._base].strip(SPACE) not in (b"}", b"]"):
            # Also where repeated members hide the last one.
            self._check(at)

    def _check(self, at: Slice) -> None:
        end = jsontext.end_of_value(self._text, at.start - self._base) + self._base
        if end != at.end:
            raise InputError("more text follows the value", kind="unreadable", offset=end - self._base, more=True)

    def members(self, at: Slice) -> dict[str, Slice]:
        """Members of the object at `at`."""
        if self._members[0] == at:
            return self._members[1]
        base = self._base
        found = jsontext.members(self._text, at.start - base)
        return {key: Slice(start + base, end + base) for key, start, end in found}

    def elements(self, at: Slice) -> list[Slice]:
        """Elements of the array at `at`."""
        if self._elements[0] == at:
            return self._elements[1]
        base = self._base
        return [Slice(start + base, end + base) for start, end in jsontext.elements(self._text, at.start - base)]

    def string(self, at: Slice | None) -> str | None:
        """The text of a JSON string, U+FFFD for unpaired surrogates."""
        if at is None or self.source[at.start] != STRING:
            return None
        return string_of(self.source[at.start : at.end])

    def trajectory(self, at: Slice) -> Trajectory:
        """The object at `at` as an ATIF trajectory."""
        found = trajectory_of(self, self.members(at))
        if found.embedded:
            if self._deep is None:
                self._deep = jsontext.depth(self._text) > MAX_EMBEDDING_DEPTH
            if self._deep:
                # Every level of embedding is scanned once more: quadratic for nothing, as nobody projects it.
                return found._replace(embedded=[])
        return found

    def stamp(self, at: Slice) -> str | None:
        """`timestamp` of the part at `at`."""
        if self.source[at.start] != OBJECT:
            return None
        return self.string(self.members(at).get("timestamp"))


def trajectory_of(reader: Reader, members: dict[str, Slice]) -> Trajectory:
    """The trajectory in an object whose members are known, without the decode that assumes a steps array."""

    def opens(name: str, kind: int) -> Slice | None:
        at = members.get(name)
        return at if at is not None and reader.source[at.start] == kind else None

    steps, agent, nested = opens("steps", ARRAY), opens("agent", OBJECT), opens("subagent_trajectories", ARRAY)
    embedded = reader.elements(nested) if nested else []
    if any(reader.source[each.start] != OBJECT for each in embedded):
        embedded = []
    foreign = "spec" in members or "attempts" in members
    places = reader.elements(steps) if steps else []
    return Trajectory(
        steps=places,
        stamps=[reader.stamp(place) for place in places],
        session_id=reader.string(members.get("session_id")),
        trajectory_id=reader.string(members.get("trajectory_id")),
        agent_name=reader.string(reader.members(agent).get("name")) if agent else None,
        embedded=embedded,
        version=None if foreign else _atif_version(reader.string(members.get("schema_version"))),
    )


def _atif_version(text: str | None) -> str | None:
    return text if text is not None and text[:4].upper() == "ATIF" else None


def string_of(text: bytes | None) -> str | None:
    """The string in a JSON text, U+FFFD for unpaired surrogates; None when the text is another value or absent."""
    if not text or text[0] != STRING:
        return None
    try:
        return _decode_string(text)
    except REFUSED:
        parsed = jsontext.parse(text)
        return jsontext.plain(parsed) if isinstance(parsed, str) else None


def top_of(text: bytes | None) -> dict[str, bytes] | list[bytes] | None:
    """The top level of a JSON text: texts of the members or elements; None for a scalar or nothing.

    Raises `InputError` when the text is not JSON even to a lenient reader.
    """
    if not text or text[0] not in (OBJECT, ARRAY):
        return None
    try:
        if text[0] == OBJECT:
            return {key: bytes(raw) for key, raw in _decode_members(text).items()}
        return [bytes(raw) for raw in _decode_elements(text)]
    except REFUSED:
        if text[0] == OBJECT:
            return {key: text[start:end] for key, start, end in jsontext.members(text, 0)}
        return [text[start:end] for start, end in jsontext.elements(text, 0)]


def members_of(text: bytes | None) -> dict[str, bytes]:
    """Members of the object in a JSON text; empty for anything else."""
    top = top_of(text)
    return top if isinstance(top, dict) else {}


def elements_of(text: bytes | None) -> list[bytes]:
    """Elements of the array in a JSON text; empty for anything else."""
    top = top_of(text)
    return top if isinstance(top, list) else []


def trim(source: bytes, at: Slice) -> Slice:
    """`at` without white space and byte order marks at its start, and white space at its end."""
    start, end = at
    while True:
        start = _SPACES.match(source, start, end).end()  # type: ignore[union-attr]  # it matches nothing, too
        if not source.startswith(_BOM, start, end):
            break
        start += len(_BOM)
    while start < end and source[end - 1] in SPACE:
        tail = source[max(start, end - 4096) : end]
        end -= len(tail) - len(tail.rstrip(SPACE))
    return Slice(start, end)


def lines(source: bytes, whole: Slice) -> list[Slice]:
    """Lines that hold something, without the white space around it."""
    found = (trim(source, Slice(*match.span())) for match in _LINE.finditer(source, whole.start, whole.end))
    return [line for line in found if line.start < line.end]


def values(source: bytes, start: int, end: int) -> tuple[list[Slice], InputError | None]:
    """Consecutive values from `start` on, and what is wrong behind the last of them, if it is not the end."""
    found: list[Slice] = []
    while (at := trim(source, Slice(start, end))).start < at.end:
        try:
            start = jsontext.end_of_value(source, at.start)
        except InputError as fault:
            return found, fault
        found.append(Slice(at.start, start))
    return found, None


def bad_utf8(source: bytes) -> int:
    """Offset of the first byte that is not UTF-8, -1 when all are; in pieces, so that no second copy is made."""
    if source.isascii():
        return -1
    view, at = memoryview(source), 0
    while at < len(source):
        chunk = view[at : at + _CHUNK]
        try:
            _, used = codecs.utf_8_decode(chunk, "strict", at + _CHUNK >= len(source))
        except UnicodeDecodeError as error:
            return at + error.start
        at += used
    return -1


def wide(source: bytes) -> str:
    """`UTF-16` or `UTF-32` when the text is in it, by its mark or by the zero bytes of its first character."""
    if source.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    head = source[:4]
    if source.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    if len(head) == 4 and head.count(0) == 3 and (head[0] or head[3]):
        return "UTF-32"
    zeros = (head[0] == 0, head[1] == 0) if len(head) > 1 else (False, False)
    return "UTF-16" if zeros in ((True, False), (False, True)) else ""
