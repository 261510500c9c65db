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

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from chronicle.errors import ProjectionError
from chronicle.formats import jsontext, residual
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.kinds import QUICK, SLOW, STRINGS, Field, Kind, NotQuick, Reading, text_of
from chronicle.formats.story import Residual

_MAX_PLANS = 2048
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

_map = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_str = msgspec.json.Decoder(str).decode


class _Plan(NamedTuple):
    """How to read objects of one combination of member names."""

    names: tuple[bytes, ...]
    texts: tuple[tuple[int, str, bool], ...]
    """Place and attr of members whose value is their text, and whether that may be `null`."""
    strings: tuple[tuple[int, str], ...]
    """... is a str."""
    typed: tuple[tuple[int, str, Callable[[bytes, Field], Any], Field], ...]
    """... is something else, with its reader."""
    residual: Residual
    copied: tuple[tuple[str, int], ...]
    """Pointer and place of values whose text stands in the residual."""
    lints: tuple[str, ...]
    gaps: list[list[bytes]]
    """What stood between the values of the last object, with room for them between; empty before the first."""
    met_nulls: list[bool]
    """Not empty after an object of these names held a null: then nulls are looked for first."""


_NO_PLAN = _Plan((), (), (), (), {}, (), (), [], [])
"""For combinations of names that only `slow` can read: it never fits."""


class Shape:
    """The members that an object may have, in canonical order."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._by_name = {name: field for field in fields for name in field.names}
        self._plans: dict[tuple[str, ...] | tuple[tuple[str, ...], tuple[bool, ...]], _Plan] = {}

    @property
    def names(self) -> Collection[str]:
        """Names of the members that it knows, other spellings too."""
        return self._by_name.keys()

    def read(self, text: bytes) -> Reading:
        """Any JSON value as this shape. Raises ProjectionError (`too-deep`) for nesting beyond 1,000."""
        return self.quick(text) or self.slow(text)

    def quick(self, text: bytes) -> Reading | None:
        """The reading of an object without much oddity; None where `slow` has to look."""
        try:
            raw = _map(text)
        except _REFUSED:
            return None
        names = tuple(raw)
        values = list(raw.values())
        plan = self._plans.get(names) or self._remember(names, ())
        if not plan.met_nulls:
            reading = _by_plan(plan, text, values)
            if reading is not None:
                return reading
        nulls = tuple([bytes(value) == b"null" for value in values])
        if True not in nulls:
            return _by_plan(plan, text, values) if plan.met_nulls else None
        plan.met_nulls[:] = [True]
        return _by_plan(self._plans.get((names, nulls)) or self._remember(names, nulls), text, values)

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
            value = SLOW[field.kind](texts[name], field)
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

    def _remember(self, names: tuple[str, ...], nulls: tuple[bool, ...]) -> _Plan:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        plan = self._plans[(names, nulls) if nulls else names] = self._plan(names, nulls)
        return plan

    def _plan(self, names: tuple[str, ...], nulls: tuple[bool, ...]) -> _Plan:
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
                    return _NO_PLAN
                lints.append("null-member")
            elif field in fields.values():
                return _NO_PLAN
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
            texts=tuple((place, field.attr, field.required) for place, field in fields.items() if field.kind is Kind.JSON),
            strings=tuple((place, field.attr) for place, field in fields.items() if field.kind in STRINGS),
            typed=tuple((place, field.attr, QUICK[field.kind], field) for place, field in fields.items() if field.kind in QUICK),
            residual=fixed,
            copied=copied,
            lints=tuple(lints),
            gaps=[],
            met_nulls=[],
        )


def joined(members: list[tuple[str, bytes]]) -> bytes:
    """Compact text of an object."""
    return b"{" + b",".join([b'"%b":%b' % (name.encode(), text) for name, text in members]) + b"}"


def check_depth(text: bytes) -> None:
    """Raise ProjectionError (`too-deep`) for nesting beyond 1,000 (design 4.2)."""
    if jsontext.is_deeper(text, jsontext.MAX_DEPTH):
        raise ProjectionError(
            f"JSON nesting is deeper than {jsontext.MAX_DEPTH} levels",
            hint="the document is stored and can be given back, but not projected",
            kind="too-deep",
        )


def _missing(field: Field) -> str:
    return f"missing-{field.name}".replace("_", "-")


def _with_residual(reading: Reading, at: str, rest: Residual) -> tuple[Reading, Residual]:
    inside, rest = residual.under(rest, at)
    return msgspec.structs.replace(reading, residual=inside), rest


def _by_plan(plan: _Plan, text: bytes, values: list[msgspec.Raw]) -> Reading | None:
    """The reading of an object that has the names and nulls of the plan; None where `slow` has to look."""
    _, texts, strings, typed, fixed, copied, lints, gaps, _ = plan
    pieces: list[Any] = gaps[0].copy() if gaps else [b""] * (2 * len(values) + 1)
    pieces[1::2] = values
    if b"".join(pieces) != text and not _is_spelled(text, plan, values):
        return None
    out: dict[str, Any] = {}
    try:
        for place, attr in strings:
            out[attr] = _str(values[place])
        for place, attr, read, field in typed:
            out[attr] = read(bytes(values[place]), field)
    except (NotQuick, *_REFUSED):
        return None
    for place, attr, may_be_null in texts:
        value = out[attr] = bytes(values[place])
        if value == b"null" and not may_be_null:
            return None
    if not copied:
        return Reading(out, fixed, lints)
    kept = {at: jsontext.dump(jsontext.parse(bytes(values[place]))).decode() for at, place in copied}
    return Reading(out, {**fixed, **kept}, lints)


def _is_spelled(text: bytes, plan: _Plan, values: list[msgspec.Raw]) -> bool:
    """Whether the object is exactly its names and values with one kind of spacing between them, which is kept then."""
    if len(plan.names) != len(values):
        return False
    if not values:
        return True
    spacing = _gaps(text, plan, values)
    pieces: list[Any] = spacing.copy()
    pieces[1::2] = values
    if b"".join(pieces) != text:
        return False
    plan.gaps[:] = [spacing]
    return True


def _gaps(text: bytes, plan: _Plan, values: list[msgspec.Raw]) -> list[bytes]:
    """What stands between the values if the first two members and the end tell the spacing, with room for values."""
    name = plan.names[0]
    head = text[: text.index(b'"')]
    colon_at = len(head) + len(name)
    colon = b": " if text[colon_at + 1 : colon_at + 2] == b" " else b":"
    comma_at = colon_at + len(colon) + len(bytes(values[0]))
    comma = text[comma_at : text.find(b'"', comma_at)] if len(values) > 1 else b""
    tail = text[text.rindex(b"\n") :] if b"\n" in head else b"}"
    if head.strip() != b"{" or comma.strip() not in (b",", b"") or tail.strip() != b"}":
        return [b""] * (2 * len(values) + 1)
    gaps: list[bytes] = []
    for i, name in enumerate(plan.names):
        gaps += ((comma if i else head) + name + colon, b"")
    return [*gaps, tail]
