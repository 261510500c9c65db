"""Objects written back: canonical members, then the residual, then what was edited since.

A residual was made for the fields as they were read. Where a field has been changed in the meantime, the field
wins: its member is set after the residual was applied (edge case: a story with an edited turn).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chronicle.errors import ProjectionError
from chronicle.formats import jsontext, residual
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.kinds import Field, Kind, Reading, text_of
from chronicle.formats.shape import Shape, joined
from chronicle.formats.story import Residual

SETTLED = frozenset({"id", "tcid", "session"})
"""Attrs that a reader may have had to change; what the residual says about them is never taken for an edit."""


def finished(shape: Shape, made: Reading, *, edited: bool = True) -> bytes:
    """Text of an object: its values in canonical order with its residual applied, nested readings first.

    Fields that were changed since the residual was made count; not `edited`: nobody changed any.
    """
    members = shape.members({**made.values, **_nested(shape, made.values, edited)})
    rest = made.residual
    if not rest:
        return joined(members)
    if len(rest) == 1 and isinstance(order := rest.get("#"), list):
        rank = {name: i for i, name in enumerate(order)}
        return joined(sorted(members, key=lambda member: rank.get(member[0], len(rank))))
    value = applied(jsontext.parse(joined(members)), rest)
    return jsontext.dump(_with_edits(shape, value, made) if edited else value)


def applied(made: Json, rest: Residual) -> Json:
    """`residual.apply`, but entries for places that are not there any more are left out."""
    try:
        return residual.apply(made, rest)
    except ProjectionError:
        pass
    for key in sorted(rest, key=lambda key: (key.startswith("#"), key)):
        try:
            made = residual.apply(made, {key: rest[key]})
        except ProjectionError:
            continue
    return made


def settled(rest: Residual, name: str, text: bytes) -> Residual:
    """The residual of an object whose member `name` was `text` and now has another value."""
    if "" in rest or f"/{name}" in rest:
        return rest
    return {**rest, f"/{name}": text.decode()}


def nested(rest: Residual, at: str) -> tuple[Residual, Residual]:
    """The entries below `at`, relative to it, and the rest; one for the value at `at` itself is in the rest."""
    inside, rest = residual.under(rest, at)
    if "" in inside:
        rest[at] = inside.pop("")
    return inside, rest


def filled(text: bytes, name: str, insides: Iterable[bytes]) -> bytes:
    """The text of an object with the elements of its (last) member `name` set; added where there is none.

    Nothing is done for no elements.
    """
    array = b",".join(insides)
    if not array:
        return text
    places = [(start, end) for key, start, end in jsontext.members(text, 0) if key == name]
    if places:
        start, end = places[-1]
        return b"%b[%b]%b" % (text[:start], array, text[end:])
    comma = b"," if text[1:-1].strip() else b""
    return b'%b%b"%b":[%b]}' % (text[: text.rindex(b"}")], comma, name.encode(), array)


def _nested(shape: Shape, values: Mapping[str, Any], edited: bool = True) -> dict[str, bytes]:
    out = {}
    for field in shape.fields:
        value = values.get(field.attr)
        if field.shape is None or value is None:
            continue
        if field.kind is Kind.OBJECT:
            out[field.attr] = finished(field.shape, value, edited=edited)
        elif field.kind is Kind.OBJECTS:
            out[field.attr] = b"[" + b",".join([finished(field.shape, item, edited=edited) for item in value]) + b"]"
    return out


def _with_edits(shape: Shape, value: Json, made: Reading) -> Json:
    """`value`, with every member set whose field says something else than is read from it.

    Where the residual changed something inside a JSON member (ids of results), the rest of it comes from the field already.
    """
    values, reading = made.values, shape.read(jsontext.dump(value))
    inside = {key.removeprefix("#").split("/")[1] for key in made.residual if key.count("/") > 1}
    changed = [
        field
        for field in shape.fields
        if not (field.kind is Kind.JSON and field.name in inside) and not _agrees(field, reading.values, values)
    ]
    if not changed:
        return value
    members = dict(shape.members({**values, **_nested(shape, values)}))
    if not isinstance(value, Object):
        return jsontext.parse(joined(list(members.items())))
    out = Object(value)
    for field in changed:
        name = shape.chosen(field, dict(out)) or field.name
        new = members.get(field.name)
        if new is None:
            out[:] = [member for member in out if member[0] not in field.names]
            continue
        places = [i for i, (key, _) in enumerate(out) if key == name]
        if places:
            out[places[-1]] = (name, jsontext.parse(new))
        else:
            out.append((name, jsontext.parse(new)))
    return out


def _agrees(field: Field, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a field that is read has the wanted value; ids and parts are not compared."""
    if field.attr in SETTLED or field.kind in (Kind.PARTS, Kind.EMBEDDED):
        return True
    old, new = _comparable(field, there), _comparable(field, wanted)
    return old == new or (old is not None and new is not None and not residual.diff(old, new))


def _comparable(field: Field, values: Mapping[str, Any]) -> Json:
    """Canonical value of a field, without the settled ids of nested objects; of what is missing None."""
    value = values.get(field.attr)
    if value is None:
        return jsontext.parse(field.empty) if field.required else None
    if isinstance(value, Reading):
        value = _without_ids(value)
    elif field.kind is Kind.OBJECTS:
        value = [_without_ids(item) for item in value]
    return jsontext.parse(text_of(value, field))


def _without_ids(reading: Reading) -> Reading:
    return Reading({attr: value for attr, value in reading.values.items() if attr not in SETTLED}, {}, ())
