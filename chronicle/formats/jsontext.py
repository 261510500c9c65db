"""JSON as text: nothing that a source wrote is lost (design 4.2, 5.2).

`parse` keeps the spelling of numbers, the order of members and repeated keys; `dump` writes them again.
The scanner (`end_of_value`, `members`, `elements`) finds byte ranges without building values, at any depth.
Both take what lenient readers take: NaN and the infinities, control characters inside strings, unpaired
surrogate escapes. Neither takes a fault of structure: comments, single quotes, missing or trailing commas.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from json.encoder import encode_basestring
from typing import TypeAlias

import msgspec

from chronicle.errors import InputError
from chronicle.formats.jsonfault import (
    COMMA,
    CUT_NUMBER,
    FLAT,
    KEY,
    OPEN,
    PLAIN,
    SPACE,
    STRING,
    container_fault,
    fault,
    separator_fault,
    skip_space,
    value_fault,
)

MAX_DEPTH = 1000
"""Deepest nesting that `parse` takes; deeper documents are stored but not projected (design 4.2)."""

STRICT_DEPTH = 100
"""Deepest nesting that any JSON reader can be expected to take (events.md 6)."""


class Number(msgspec.Struct, frozen=True, gc=False):
    """A number as it was spelled, NaN and the infinities too; equal only to the same spelling."""

    text: str


class Object(list[tuple[str, "Json"]]):
    """Members in source order, repeated keys kept. Never equal to a plain list, not even when empty."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Object) and list.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return f"Object({list.__repr__(self)})"

    def get(self, name: str, default: Json = None) -> Json:
        """Value of the member `name`; of the last one where the key is repeated, as JSON readers do."""
        for key, value in reversed(self):
            if key == name:
                return value
        return default


Json: TypeAlias = "Object | list[Json] | str | Number | bool | None"
"""One JSON value."""


_STRING_OR_BREAK = re.compile(STRING + rb"|[\r\n][ \t\r\n]*")
_AFTER_MEMBER = re.compile(SPACE + rb"(?:,|(\}))")
_AFTER_ELEMENT = re.compile(SPACE + rb"(?:,|(\]))")
_VALUE = re.compile(SPACE + rb"(?:" + FLAT + rb"|" + OPEN + rb")")
_MEMBER = re.compile(SPACE + rb"(" + STRING + rb")" + SPACE + rb":" + SPACE)
_BEGIN_OBJECT = re.compile(SPACE + rb"\{" + SPACE + rb"(\})?")
_BEGIN_ARRAY = re.compile(SPACE + rb"\[" + SPACE + rb"(\])?")
_TOKEN = re.compile(SPACE + rb"(?:(" + STRING + rb")|(" + PLAIN + rb")|([{}\[\]]))")
_SURROGATE = re.compile("[\ud800-\udfff]")

_WORDS: dict[bytes, Json] = {b"true": True, b"false": False, b"null": None}
_BRACE = ord("{")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"{}[]'))
_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")

_DECODER = json.JSONDecoder(object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=Number, strict=False)


# --- values -------------------------------------------------------------------------------------------------


def parse(text: bytes | str) -> Json:
    """The one JSON value that `text` holds, exact and lenient.

    Raises InputError with `offset` (bytes) and `line` (from 1): kind `truncated` where the text ends inside the
    value, `empty` where there is none, `encoding` where it is not UTF-8, else `unreadable` (also for nesting
    beyond MAX_DEPTH and for a byte order mark).
    """
    decoded, raw = _both(text)
    if is_deeper(raw, MAX_DEPTH):
        raise InputError(
            f"JSON nesting is deeper than {MAX_DEPTH} levels",
            hint="such a document can be stored and given back, not projected",
            kind="unreadable",
            offset=0,
            line=1,
        )
    try:
        value: Json = _DECODER.decode(decoded)
    except RecursionError:
        _check(raw)
        return _build(raw)
    except json.JSONDecodeError as error:
        _check(raw)
        raise fault(raw, error.pos, error.msg) from error  # not reached: both take the same texts
    return value


def dump(value: Json) -> bytes:
    """Compact UTF-8 text of `value`: numbers as spelled, unpaired surrogates as `\\udxxx`. Any depth."""
    out: list[str] = []
    add = out.append
    frames: list[tuple[Iterator[tuple[str | None, Json]], str]] = []
    items: Iterator[tuple[str | None, Json]] = iter(((None, value),))
    closer = comma = ""
    while True:
        for key, item in items:
            add(comma if key is None else f"{comma}{encode_basestring(key)}:")
            comma = ","
            if not isinstance(item, list):
                add(_scalar_text(item))
                continue
            frames.append((items, closer))
            comma = ""
            if isinstance(item, Object):
                add("{")
                items, closer = iter(item), "}"
            else:
                add("[")
                items, closer = ((None, element) for element in item), "]"
            break
        else:
            add(closer)
            if not frames:
                return _utf8("".join(out))
            items, closer = frames.pop()
            comma = ","


def one_line(text: bytes) -> bytes:
    """The same JSON value, as spelled, without a line break; one inside a string is written as an escape."""
    if b"\n" not in text and b"\r" not in text:
        return text
    return _STRING_OR_BREAK.sub(_unbroken, text)


def _unbroken(match: re.Match[bytes]) -> bytes:
    token = match[0]
    return token.replace(b"\n", b"\\n").replace(b"\r", b"\\r") if token.startswith(b'"') else b""


def equal(a: Json, b: Json) -> bool:
    """Whether two trees are exactly equal, at any depth (`==` alone may run out of stack beyond some 200 levels)."""
    try:
        return a == b
    except RecursionError:
        return dump(a) == dump(b)


def string(text: str) -> bytes:
    """JSON text of a string; unpaired surrogates are escaped."""
    return _utf8(encode_basestring(text))


def plain(value: str) -> str:
    """`value` with U+FFFD for every unpaired surrogate: text that any UTF-8 column or file takes."""
    return value if value.isascii() else _SURROGATE.sub("\ufffd", value)


def depth(text: bytes | str) -> int:
    """Nesting of a JSON text: 0 for a scalar, 1 for `[]`. Brackets in strings do not count; checks nothing."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    # Escaped backslashes go first, so that each `\"` left over is a quote inside a string.
    raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    brackets = b"".join(raw.split(b'"')[::2])
    return max(accumulate(array("b", brackets.translate(_STEPS))), default=0)


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether a JSON text nests deeper than so many levels; how deep a decoder goes depends on the version of Python."""
    return text.count(b"[") + text.count(b"{") > levels and depth(text) > levels


def is_strict(text: bytes) -> bool:
    """Whether any JSON reader takes `text` as one value.

    That is UTF-8 without NaN, unpaired surrogate escapes, control characters in strings or a byte order mark,
    nested at most STRICT_DEPTH deep.
    """
    if is_deeper(text, STRICT_DEPTH):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        if not text.isascii():
            text.decode()  # what it skips, the reader above does not check
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _both(text: bytes | str) -> tuple[str, bytes]:
    try:
        return (text, text.encode()) if isinstance(text, str) else (text.decode(), text)
    except UnicodeDecodeError as error:
        raise fault(error.object, error.start, "bytes are not UTF-8", kind="encoding") from error
    except UnicodeEncodeError as error:
        before = error.object[: error.start].encode()
        raise fault(before, len(before), "an unpaired surrogate is no JSON text", kind="encoding") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def _scalar_text(value: Json) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, Number):
        return value.text
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def _check(raw: bytes) -> None:
    """Raise what is wrong with `raw`, if the scanner finds it."""
    end = end_of_value(raw, 0)
    after = skip_space(raw, end)
    if after < len(raw):
        begin = skip_space(raw, 0)
        if CUT_NUMBER.match(raw, begin):
            raise fault(raw, len(raw), "the input ends inside a number", kind="truncated")
        raise fault(raw, after, "more text follows the value")


def _build(raw: bytes) -> Json:
    """The value of a text that the scanner has taken, for nesting that the C parser does not reach."""
    root: list[Json] = []
    stack: list[list[Json] | Object] = [root]
    keys: list[str | None] = [None]
    for match in _TOKEN.finditer(raw):
        token = match[match.lastindex or 0]
        if token in (b"}", b"]"):
            stack.pop()
            keys.pop()
            continue
        value: Json
        if match.lastindex == 1:
            value = _text(token)
        elif match.lastindex == 2:
            value = _WORDS[token] if token in _WORDS else Number(token.decode())
        else:
            value = Object() if token == b"{" else []
        parent = stack[-1]
        if not isinstance(parent, Object):
            parent.append(value)
        elif keys[-1] is None:
            keys[-1] = _text(token)
            continue
        else:
            parent.append((keys[-1], value))
            keys[-1] = None
        if isinstance(value, list):
            stack.append(value)
            keys.append(None)
    return root[0]


def _text(raw: bytes) -> str:
    """The string whose JSON text, quotes included, is `raw`."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise fault(raw, error.start, "bytes of a member name are not UTF-8", kind="encoding") from error
    value: str = _DECODER.decode(text) if "\\" in text else text[1:-1]
    return value


# --- scanner ------------------------------------------------------------------------------------------------


@cache
def _inside(in_object: bool) -> re.Pattern[bytes]:
    """What may follow the bracket that opens a container. Group 1: the container ends here. Group 2: another one begins.

    Compiled when a text is scanned: it takes longer than others, and most sources are read without the scanner.
    """
    key, close = (KEY, rb"\}") if in_object else (b"", rb"\]")
    return re.compile(
        SPACE + rb"(?>" + key + FLAT + COMMA + rb")*+" + key + rb"(?:" + FLAT + SPACE + rb"(" + close + rb")|" + OPEN + rb")"
    )


def end_of_value(text: bytes, at: int) -> int:
    """Offset just behind the value that begins at `at` (white space may stand before it).

    Raises InputError as `parse` does. Bytes that are not ASCII are not checked; the nesting has no limit.
    """
    match = _VALUE.match(text, at)
    if match is None:
        raise value_fault(text, at)
    if match.lastindex is None:
        return match.end()
    pos = match.end()
    in_object = text[pos - 1] == _BRACE
    outer: list[bool] = []
    while True:
        match = _inside(in_object).match(text, pos)
        if match is None:
            raise container_fault(text, pos, in_object)
        pos = match.end()
        if match.lastindex == 2:
            outer.append(in_object)
            in_object = text[pos - 1] == _BRACE
            continue
        while True:
            if not outer:
                return pos
            in_object = outer.pop()
            match = (_AFTER_MEMBER if in_object else _AFTER_ELEMENT).match(text, pos)
            if match is None:
                raise separator_fault(text, pos, in_object)
            pos = match.end()
            if match.lastindex is None:
                break


def members(text: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """(key, start, end of the value) for each member of the object that begins at `at`, in order.

    Keys are decoded, repeated ones come again. Raises InputError, when it gets there, for what is no object.
    """
    match = _BEGIN_OBJECT.match(text, at)
    if match is None:
        raise fault(text, skip_space(text, at), "this value is not an object")
    pos = match.end()
    closed = match.lastindex
    while not closed:
        match = _MEMBER.match(text, pos)
        if match is None:
            raise container_fault(text, pos, True)
        start = match.end()
        end = end_of_value(text, start)
        yield _text(match[1]), start, end
        match = _AFTER_MEMBER.match(text, end)
        if match is None:
            raise separator_fault(text, end, True)
        pos = match.end()
        closed = match.lastindex


def elements(text: bytes, at: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each element of the array that begins at `at`, in order; raises as `members` does."""
    match = _BEGIN_ARRAY.match(text, at)
    if match is None:
        raise fault(text, skip_space(text, at), "this value is not an array")
    pos = match.end()
    closed = match.lastindex
    while not closed:
        start = skip_space(text, pos)
        end = end_of_value(text, start)
        yield start, end
        match = _AFTER_ELEMENT.match(text, end)
        if match is None:
            raise separator_fault(text, end, False)
        pos = match.end()
        closed = match.lastindex


# --- JSON Pointer (RFC 6901) --------------------------------------------------------------------------------


def escape(key: str) -> str:
    """`key` as one reference token: `~` and `/` escaped."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def pointer(*keys: str | int) -> str:
    """JSON Pointer through member names and array indexes; `` for none (the whole value)."""
    return "".join(f"/{escape(key) if isinstance(key, str) else key}" for key in keys)


def split(pointer: str) -> list[str]:
    """Member names (array indexes as text) of a JSON Pointer. Raises InputError where it is none."""
    if not pointer:
        return []
    if pointer[0] != "/":
        raise InputError(f"not a JSON Pointer: {pointer!r}", hint="it is empty or begins with `/`")
    tokens = pointer[1:].split("/")
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens] if "~" in pointer else tokens
