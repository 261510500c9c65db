"""Members of a shape: what they hold, and how each kind is read and written."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from chronicle.formats import jsontext
from chronicle.formats.jsontext import Number, Object
from chronicle.formats.story import Residual

if TYPE_CHECKING:
    from chronicle.formats.shape import Shape

INT64 = range(-(1 << 63), 1 << 63)
"""The integers that a hub field and a table column can hold."""

_ZERO = ord("0")

_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_strings = msgspec.json.Decoder(list[str]).decode


class Kind(Enum):
    """What a member holds, and what stands for it among the values of a reading."""

    TEXT = auto()
    """str; U+FFFD for unpaired surrogates."""
    STAMP = auto()
    """str; a string with unpaired surrogates is none."""
    JSON = auto()
    """bytes: the source's own text of any value."""
    INT = auto()
    """int that fits int64."""
    BOOL = auto()
    """bool."""
    NAMES = auto()
    """list of str."""
    OBJECT = auto()
    """Reading by the field's shape."""
    OBJECTS = auto()
    """list of Readings by the field's shape."""
    PARTS = auto()
    """True: an array that the cut has emptied."""
    EMBEDDED = auto()
    """list of bytes: texts of objects that are stories of their own; `{}` for each in the residual's view."""


class Field(NamedTuple):
    """One member of a shape."""

    attr: str
    """Key among the values."""
    name: str
    """Name that the writer writes."""
    kind: Kind = Kind.TEXT
    required: bool = False
    """Written always; a lint where it is missing."""
    empty: bytes = b'""'
    """What the writer writes for a required member without a value."""
    aliases: tuple[str, ...] = ()
    shape: Shape | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that the reader takes, the strongest first."""
        return (self.name, *self.aliases)


class Reading(msgspec.Struct, gc=False):
    """An object as it was read."""

    values: dict[str, Any]
    """By `attr`; a member that is absent, null (if optional) or of another type is not in it."""
    residual: Residual
    """Without that of nested readings. Shared between readings: never change it in place."""
    lints: tuple[str, ...]
    """Codes, one for each time; without those of nested readings."""


class NotQuick(Exception):
    """The quick reader leaves this object to the slow one."""


def _quick_int(text: bytes, field: Field) -> int:
    if text.isdigit() and len(text) < 19 and text[0] != _ZERO:
        return int(text)
    try:
        number = int(text)
    except ValueError:
        raise NotQuick from None
    if number not in INT64 or b"%d" % number != text:
        raise NotQuick
    return number


def _quick_bool(text: bytes, field: Field) -> bool:
    if text not in (b"true", b"false"):
        raise NotQuick
    return text == b"true"


def _quick_names(text: bytes, field: Field) -> list[str]:
    return _strings(text)


def _quick_object(text: bytes, field: Field) -> Reading:
    if text[:1] != b"{" or field.shape is None:
        raise NotQuick
    return field.shape.read(text)


def _quick_objects(text: bytes, field: Field) -> list[Reading]:
    if field.shape is None:
        raise NotQuick
    quick, slow = field.shape.quick, field.shape.slow
    return [quick(text := bytes(item)) or slow(text) for item in _list(text)]


def _quick_parts(text: bytes, field: Field) -> bool:
    if text[:1] != b"[" or text[1:-1].strip():
        raise NotQuick
    return True


def _quick_embedded(text: bytes, field: Field) -> list[bytes]:
    items = [bytes(item) for item in _list(text)]
    if not all(item[:1] == b"{" for item in items):
        raise NotQuick
    return items


def _slow_text(text: bytes, field: Field) -> str | None:
    value = jsontext.parse(text)
    return jsontext.plain(value) if isinstance(value, str) else None


def _slow_stamp(text: bytes, field: Field) -> str | None:
    value = jsontext.parse(text)
    return value if isinstance(value, str) and jsontext.plain(value) == value else None


def _slow_json(text: bytes, field: Field) -> bytes | None:
    return text if field.required or text != b"null" else None


def _slow_int(text: bytes, field: Field) -> int | None:
    value = jsontext.parse(text)
    digits = value.text.removeprefix("-") if isinstance(value, Number) else ""
    if not digits.isdecimal() or len(digits) > 19 or not isinstance(value, Number):
        return None
    return int(value.text) if int(value.text) in INT64 else None


def _slow_bool(text: bytes, field: Field) -> bool | None:
    return {b"true": True, b"false": False}.get(text)


def _slow_names(text: bytes, field: Field) -> list[str] | None:
    value = jsontext.parse(text)
    if isinstance(value, Object) or not isinstance(value, list):
        return None
    names = [jsontext.plain(item) for item in value if isinstance(item, str)]
    return names if len(names) == len(value) else None


def _slow_object(text: bytes, field: Field) -> Reading | None:
    return field.shape.read(text) if field.shape is not None and text[:1] == b"{" else None


def _slow_objects(text: bytes, field: Field) -> list[Reading] | None:
    if field.shape is None or text[:1] != b"[":
        return None
    return [field.shape.read(text[start:end]) for start, end in jsontext.elements(text, 0)]


def _slow_parts(text: bytes, field: Field) -> bool | None:
    return True if text[:1] == b"[" and not text[1:-1].strip() else None


def _slow_embedded(text: bytes, field: Field) -> list[bytes] | None:
    if text[:1] != b"[":
        return None
    items = [text[start:end] for start, end in jsontext.elements(text, 0)]
    return items if all(item[:1] == b"{" for item in items) else None


STRINGS = (Kind.TEXT, Kind.STAMP)
"""Kinds whose quick reader is the decoder of strings."""

QUICK: dict[Kind, Callable[[bytes, Field], Any]] = {
    Kind.INT: _quick_int,
    Kind.BOOL: _quick_bool,
    Kind.NAMES: _quick_names,
    Kind.OBJECT: _quick_object,
    Kind.OBJECTS: _quick_objects,
    Kind.PARTS: _quick_parts,
    Kind.EMBEDDED: _quick_embedded,
}
"""Readers of plain texts, by kind; they raise NotQuick or what msgspec raises."""

SLOW: dict[Kind, Callable[[bytes, Field], Any]] = {
    Kind.TEXT: _slow_text,
    Kind.STAMP: _slow_stamp,
    Kind.JSON: _slow_json,
    Kind.INT: _slow_int,
    Kind.BOOL: _slow_bool,
    Kind.NAMES: _slow_names,
    Kind.OBJECT: _slow_object,
    Kind.OBJECTS: _slow_objects,
    Kind.PARTS: _slow_parts,
    Kind.EMBEDDED: _slow_embedded,
}
"""Readers of any JSON text, by kind; None is no value of that kind."""


def text_of(value: Any, field: Field) -> bytes:
    """JSON text of a field's value; nested readings by the field's shape."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return jsontext.string(value)
    if value is True:
        return b"[]" if field.kind is Kind.PARTS else b"true"
    if value is False:
        return b"false"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, Reading):
        return field.shape.write(value.values) if field.shape is not None else b"{}"
    if field.kind is Kind.EMBEDDED:
        return b"[" + b",".join([b"{}"] * len(value)) + b"]"
    return b"[" + b",".join([text_of(item, field) for item in value]) + b"]"
