"""Objects whose members are known by a table: read with a residual, written in canonical order.

ATIF and Storyline describe each of their objects by one `Shape`. `read` takes any JSON value: what the members
of the table cannot hold (unknown and repeated members, nulls, wrong types, another order) goes to the residual,
so that `apply(parse(write(values)), residual)` is the source again (design 5.2).

Two readers give the same answer. The quick one takes an object apart into `msgspec.Raw` slices, puts it together
again from its member names and one kind of spacing, and compares the bytes. Where they are equal nothing was
repeated or spelled in a strange way, and the residual depends on the member names alone, so it is made once for
each combination of names. Everything else is parsed, compared and checked by the slow one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec

from chronicle.errors import ProjectionError
from chronicle.formats import jsontext, residual
from chronicle.formats.jsontext import Json, Number, Object
from chronicle.formats.story import Residual

INT64 = range(-(1 << 63), 1 << 63)
"""The integers that a hub field and a table column can hold."""

_MAX_PLANS = 2048
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

_map = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_str = msgspec.json.Decoder(str).decode
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


class Reading(NamedTuple):
    """An object as it was read."""

    values: dict[str, Any]
    """By `attr`; a member that is absent, null (if optional) or of another type is not in it."""
    residual: Residual
    """Without that of nested readings. Shared between readings: never change it in place."""
    lints: tuple[str, ...]
    """Codes, one for each time; without those of nested readings."""


class _Plan(NamedTuple):
    """How to read objects of one combination of member names."""

    names: tuple[bytes, ...]
    texts: tuple[tuple[int, str], ...]
    """Place and attr of members whose value is their text."""
    typed: tuple[tuple[int, Field], ...]
    residual: Residual
    copied: tuple[tuple[str, int], ...]
    """Pointer and place of values whose text stands in the residual."""
    lints: tuple[str, ...]
    gaps: dict[tuple[bytes, bytes, bytes, bytes], list[bytes]]
    """What stands between the values, by spacing."""


class _NotQuick(Exception):
    """The quick reader leaves this object to the slow one."""


class Shape:
    """The members that an object may have, in canonical order."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._by_name = {name: field for field in fields for name in field.names}
        self._plans: dict[tuple[tuple[str, ...], tuple[bool, ...]], _Plan | None] = {}

    def read(self, text: bytes) -> Reading:
        """Any JSON value as this shape. Raises ProjectionError (`too-deep`) for nesting beyond 1,000."""
        return self.quick(text) or self.slow(text)

    def quick(self, text: bytes) -> Reading | None:
        """The reading of an object without much oddity; None where `slow` has to look."""
        try:
            raw = _map(text)
        except _REFUSED:
            return None
        values = list(map(bytes, raw.values()))
        nulls = tuple([value == b"null" for value in values]) if b"null" in values else ()
        key = (tuple(raw), nulls)
        plan = self._plans[key] if key in self._plans else self._remember(key)
        if plan is None or not _is_spelled(text, plan, values):
            return None
        out: dict[str, Any] = {attr: values[place] for place, attr in plan.texts}
        try:
            for place, field in plan.typed:
                out[field.attr] = _QUICK[field.kind](values[place], field)
        except (_NotQuick, *_REFUSED):
            return None
        if not plan.copied:
            return Reading(out, plan.residual, plan.lints)
        copied = {at: jsontext.dump(jsontext.parse(values[place])).decode() for at, place in plan.copied}
        return Reading(out, {**plan.residual, **copied}, plan.lints)

    def slow(self, text: bytes) -> Reading:
        """The reading of any JSON value: parsed, compared, and checked to give the value back."""
        check_depth(text)
        source = jsontext.parse(text)
        out: dict[str, Any] = {}
        lints: list[str] = []
        if isinstance(source, Object):
            texts = {key: text[start:end] for key, start, end in jsontext.members(text, 0)}
            lints += ["repeated-key"] * (len(source) - len(texts))
            self._take(texts, out, lints)
        else:
            lints.append("not-an-object")
        made = jsontext.parse(self.write(out))
        wanted = self._outlined(source, out)
        rest = residual.diff(wanted, made)
        if residual.diff(wanted, residual.apply(made, rest)):
            raise ProjectionError("fields and residual do not give back the source's value", hint="report this document")
        for field in self.fields:
            if field.attr in out and field.kind is Kind.OBJECT:
                out[field.attr], rest = _with_residual(out[field.attr], f"/{field.name}", rest)
            elif field.attr in out and field.kind is Kind.OBJECTS:
                for i, reading in enumerate(out[field.attr]):
                    out[field.attr][i], rest = _with_residual(reading, f"/{field.name}/{i}", rest)
        return Reading(out, rest, tuple(lints))

    def members(self, values: Mapping[str, Any]) -> list[tuple[str, bytes]]:
        """(name, text) in canonical order. Nested values may be readings or texts."""
        out = []
        for field in self.fields:
            value = values.get(field.attr)
            if value is not None:
                out.append((field.name, text_of(value, field)))
            elif field.required:
                out.append((field.name, field.empty))
        return out

    def write(self, values: Mapping[str, Any]) -> bytes:
        """Compact text of an object in canonical order."""
        return joined(self.members(values))

    def chosen(self, field: Field, there: Mapping[str, Any]) -> str | None:
        """The name under which the reader finds a field among members."""
        return next((name for name in field.names if name in there), None)

    def _take(self, texts: dict[str, bytes], out: dict[str, Any], lints: list[str]) -> None:
        lints += ["unknown-key"] * sum(name not in self._by_name for name in texts)
        for field in self.fields:
            name = self.chosen(field, texts)
            if name is None:
                if field.required:
                    lints.append(_missing(field))
                continue
            value = _SLOW[field.kind](texts[name], field)
            if texts[name] == b"null" and not (field.required and field.kind is Kind.JSON):
                lints.append("null-member")
            elif value is None:
                lints.append("wrong-type")
            else:
                out[field.attr] = value
            others = [other for other in field.aliases if other in texts and other != name]
            if any(jsontext.parse(texts[other]) != jsontext.parse(texts[name]) for other in others):
                lints.append("alias-conflict")

    def _outlined(self, source: Json, out: dict[str, Any]) -> Json:
        """The source without the insides of embedded objects."""
        if not isinstance(source, Object):
            return source
        wanted = Object(source)
        for field in self.fields:
            if field.kind is Kind.EMBEDDED and field.attr in out:
                place = max(i for i, (key, _) in enumerate(wanted) if key == field.name)
                wanted[place] = (field.name, [Object() for _ in out[field.attr]])
        return wanted

    def _remember(self, key: tuple[tuple[str, ...], tuple[bool, ...]]) -> _Plan | None:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        plan = self._plans[key] = self._plan(*key)
        return plan

    def _plan(self, names: tuple[str, ...], nulls: tuple[bool, ...]) -> _Plan | None:
        """What `diff` says about objects with these names, each value standing for itself."""
        fields: dict[int, Field] = {}
        source, lints, outline = Object(), [], {}
        for place, name in enumerate(names):
            field = self._by_name.get(name)
            null = bool(nulls) and nulls[place]
            source.append((name, None if null else str(place)))
            if field is None:
                lints.append("unknown-key")
            elif null and not (field.required and field.kind is Kind.JSON):
                if field.required:
                    return None
                lints.append("null-member")
            elif field in fields.values():
                return None
            else:
                fields[place] = field
                outline[field.attr] = source[place][1]
        made = Object()
        for field in self.fields:
            if field.attr in outline:
                made.append((field.name, outline[field.attr]))
            elif field.required:
                made.append((field.name, "-"))
                lints.append(_missing(field))
        fixed = residual.diff(source, made)
        copied = tuple((at, int(text[1:-1])) for at, text in fixed.items() if isinstance(text, str) and text[0] == '"')
        return _Plan(
            names=tuple(jsontext.string(name) for name in names),
            texts=tuple((place, field.attr) for place, field in fields.items() if field.kind is Kind.JSON),
            typed=tuple((place, field) for place, field in fields.items() if field.kind is not Kind.JSON),
            residual=fixed,
            copied=copied,
            lints=tuple(lints),
            gaps={},
        )


def joined(members: list[tuple[str, bytes]]) -> bytes:
    """Compact text of an object."""
    return b"{" + b",".join([b'"%b":%b' % (name.encode(), text) for name, text in members]) + b"}"


def check_depth(text: bytes) -> None:
    """Raise ProjectionError (`too-deep`) for nesting beyond 1,000 (design 4.2)."""
    if text.count(b"[") + text.count(b"{") > jsontext.MAX_DEPTH and jsontext.depth(text) > jsontext.MAX_DEPTH:
        raise ProjectionError(
            f"JSON nesting is deeper than {jsontext.MAX_DEPTH} levels",
            hint="the document is stored and can be given back, but not projected",
            kind="too-deep",
        )


def _missing(field: Field) -> str:
    return f"missing-{field.name}".replace("_", "-")


def _with_residual(reading: Reading, at: str, rest: Residual) -> tuple[Reading, Residual]:
    inside, rest = residual.under(rest, at)
    return reading._replace(residual=inside), rest


def _is_spelled(text: bytes, plan: _Plan, values: list[bytes]) -> bool:
    """Whether the object is exactly its names and values with one kind of spacing between them."""
    if not values:
        return True
    name = plan.names[0]
    head = text[: text.index(b'"')]
    colon_at = len(head) + len(name)
    colon = b": " if text[colon_at + 1 : colon_at + 2] == b" " else b":"
    comma_at = colon_at + len(colon) + len(values[0])
    comma = text[comma_at : text.index(b'"', comma_at)] if len(values) > 1 else b""
    tail = b"}" if len(head) == 1 else text[text.rindex(b"\n") :] if b"\n" in head else b"}"
    spacing = (head, colon, comma, tail)
    gaps = plan.gaps.get(spacing)
    if gaps is None:
        if len(plan.gaps) > 64 or head.strip() != b"{" or comma.strip() not in (b",", b"") or tail.strip() != b"}":
            return False
        gaps = plan.gaps[spacing] = []
        for i, name in enumerate(plan.names):
            gaps += ((comma if i else head) + name + colon, b"")
        gaps.append(tail)
    pieces = gaps.copy()
    pieces[1::2] = values
    return b"".join(pieces) == text


# --- values, by kind ----------------------------------------------------------------------------------------


def _quick_text(text: bytes, field: Field) -> str:
    return _str(text)


def _quick_json(text: bytes, field: Field) -> bytes:
    return text


def _quick_int(text: bytes, field: Field) -> int:
    try:
        number = int(text)
    except ValueError:
        raise _NotQuick from None
    if number not in INT64 or b"%d" % number != text:
        raise _NotQuick
    return number


def _quick_bool(text: bytes, field: Field) -> bool:
    if text not in (b"true", b"false"):
        raise _NotQuick
    return text == b"true"


def _quick_names(text: bytes, field: Field) -> list[str]:
    return _strings(text)


def _quick_object(text: bytes, field: Field) -> Reading:
    if text[:1] != b"{" or field.shape is None:
        raise _NotQuick
    return field.shape.read(text)


def _quick_objects(text: bytes, field: Field) -> list[Reading]:
    if field.shape is None:
        raise _NotQuick
    read = field.shape.read
    return [read(bytes(item)) for item in _list(text)]


def _quick_parts(text: bytes, field: Field) -> bool:
    if text[:1] != b"[" or text[1:-1].strip():
        raise _NotQuick
    return True


def _quick_embedded(text: bytes, field: Field) -> list[bytes]:
    items = [bytes(item) for item in _list(text)]
    if not all(item[:1] == b"{" for item in items):
        raise _NotQuick
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


_QUICK: dict[Kind, Callable[[bytes, Field], Any]] = {
    Kind.TEXT: _quick_text,
    Kind.STAMP: _quick_text,
    Kind.JSON: _quick_json,
    Kind.INT: _quick_int,
    Kind.BOOL: _quick_bool,
    Kind.NAMES: _quick_names,
    Kind.OBJECT: _quick_object,
    Kind.OBJECTS: _quick_objects,
    Kind.PARTS: _quick_parts,
    Kind.EMBEDDED: _quick_embedded,
}

_SLOW: dict[Kind, Callable[[bytes, Field], Any]] = {
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
