"""What a canonical form does not give back verbatim, and how it comes back (design 5.2).

A residual maps JSON Pointers to what stood in the source: its text (replaces or adds the value there) or None
(the member was absent). `#` + pointer holds the member names of that object in source order, where adding and
removing members does not already give it. Members that are added are appended in the order of their names, so
the order of a residual's entries means nothing. Objects with repeated keys, and arrays of another length, are
replaced whole.
"""

from __future__ import annotations

from typing import TypeGuard, cast

import msgspec

from chronicle.errors import InputError, ProjectionError
from chronicle.formats.jsontext import Json, Object, dump, escape, parse, split
from chronicle.formats.story import Residual

_Pair = tuple[str, Json, Json]

_Work = tuple[str, "_Node", "list[Json] | Object"]

_DECODER = msgspec.json.Decoder(dict[str, str | list[str] | None])


def diff(source: Json, made: Json) -> Residual:
    """What has to be done to `made` to get `source`: `apply(made, diff(source, made)) == source`.

    Empty where both are exactly equal: spelling of numbers, order of members, repeated keys, types.
    """
    out: Residual = {}
    if _same(source, made):
        return out
    work: list[_Pair] = [("", source, made)]
    while work:
        at, old, new = work.pop()
        if isinstance(old, Object) and isinstance(new, Object) and _diff_members(at, old, new, work, out):
            continue
        if _is_array(old) and _is_array(new) and len(old) == len(new):
            work += ((f"{at}/{i}", *pair) for i, pair in enumerate(zip(old, new, strict=True)) if not _same(*pair))
        elif isinstance(old, list) or isinstance(new, list) or old != new:
            out[at] = dump(old).decode()
    return out


def apply(made: Json, residual: Residual) -> Json:
    """`made` as the source had it. `made` is not changed; what the residual does not touch is shared with it.

    Raises ProjectionError where the residual names a place that `made` does not have, InputError where it holds
    text that is not JSON.
    """
    if not residual:
        return made
    root = _tree(residual)
    if root.text is not None:
        return parse(root.text)
    if root.set:
        raise ProjectionError("residual: the whole value cannot be absent")
    result = _copy(made, "")
    work: list[_Work] = [("", root, result)]
    while work:
        at, node, value = work.pop()
        if isinstance(value, Object):
            _apply_object(at, node, value, work)
        else:
            _apply_array(at, node, value, work)
    return result


def prefixed(residual: Residual, prefix: str) -> Residual:
    """The residual of a part as seen from above: every pointer gets `prefix` (a JSON Pointer) before it."""
    return {_add_prefix(key, prefix): value for key, value in residual.items()}


def under(residual: Residual, prefix: str) -> tuple[Residual, Residual]:
    """The entries at or below `prefix` with it taken off, and the rest."""
    inside: Residual = {}
    rest: Residual = {}
    below = f"{prefix}/"
    for key, value in residual.items():
        mark, at = ("#", key[1:]) if key.startswith("#") else ("", key)
        if at == prefix or at.startswith(below):
            inside[mark + at[len(prefix) :]] = value
        else:
            rest[key] = value
    return inside, rest


def encode(residual: Residual) -> bytes | None:
    """JSON text of a residual; None for an empty one."""
    if not residual:
        return None
    try:
        return msgspec.json.encode(residual)
    except UnicodeEncodeError:  # a pointer or name with an unpaired surrogate
        return dump(Object(cast("list[tuple[str, Json]]", list(residual.items()))))


def decode(text: bytes | str | None) -> Residual:
    """The residual that `encode` wrote; None is an empty one. Raises InputError where `text` is no residual."""
    if text is None:
        return {}
    try:
        residual: Residual = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        residual = _lenient(parse(text))
    for key, value in residual.items():
        _check(key, value)
    return residual


# --- diff ---------------------------------------------------------------------------------------------------


def _same(a: Json, b: Json) -> bool:
    """Whether the trees are equal; False also where they are too deep to tell at once."""
    try:
        return a == b
    except RecursionError:
        return False


def _is_array(value: Json) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and not isinstance(value, Object)


def _diff_members(at: str, old: Object, new: Object, work: list[_Pair], out: Residual) -> bool:
    """Compare two objects by member; False where a key is repeated, so that they cannot be."""
    wanted, there = dict(old), dict(new)
    if len(wanted) != len(old) or len(there) != len(new):
        return False
    added = []
    for key, value in old:
        place = f"{at}/{escape(key)}"
        if key not in there:
            added.append(key)
            out[place] = dump(value).decode()
        elif not _same(value, there[key]):
            work.append((place, value, there[key]))
    for key in there:
        if key not in wanted:
            out[f"{at}/{escape(key)}"] = None
    if list(wanted) != [key for key in there if key in wanted] + sorted(added):
        out[f"#{at}"] = list(wanted)
    return True


# --- apply --------------------------------------------------------------------------------------------------


class _Node:
    """What a residual says about one place, and below it."""

    __slots__ = ("below", "names", "set", "text")

    def __init__(self) -> None:
        self.set = False
        self.text: str | None = None
        self.names: list[str] | None = None
        self.below: dict[str, _Node] = {}


def _tree(residual: Residual) -> _Node:
    root = _Node()
    for key, value in residual.items():
        _check(key, value)
        node = root
        for token in split(key[1:] if isinstance(value, list) else key):
            node = node.below.setdefault(token, _Node())
        if isinstance(value, list):
            node.names = value
        else:
            node.set, node.text = True, value
    return root


def _check(key: str, value: str | list[str] | None) -> None:
    at = key[1:] if isinstance(value, list) and key.startswith("#") else key
    if (at and at[0] != "/") or (isinstance(value, list) and at is key):
        raise InputError(f"residual: {key!r} cannot go with {type(value).__name__}")


def _copy(value: Json, at: str) -> list[Json] | Object:
    if isinstance(value, Object):
        return Object(value)
    if _is_array(value):
        return list(value)
    raise ProjectionError(f"residual: nothing can lie below {at!r}, the value there has no members")


def _apply_object(at: str, node: _Node, value: Object, work: list[_Work]) -> None:
    places = {key: i for i, (key, _) in enumerate(value)}
    removed = set()
    added: list[tuple[str, Json]] = []
    for key, below in node.below.items():
        place = places.get(key)
        if below.set and below.text is None:
            removed.add(key)
        elif below.set and place is None:
            added.append((key, parse(below.text or "")))
        elif below.set and place is not None:
            value[place] = (key, parse(below.text or ""))
        elif place is None:
            raise ProjectionError(f"residual: there is no member {key!r} at {at!r}")
        else:
            path = f"{at}/{escape(key)}"
            copy = _copy(value[place][1], path)
            value[place] = (key, copy)
            work.append((path, below, copy))
    if removed:
        value[:] = [member for member in value if member[0] not in removed]
    value += sorted(added, key=lambda member: member[0])
    if node.names is not None:
        rank = {name: i for i, name in enumerate(node.names)}
        value.sort(key=lambda member: rank.get(member[0], len(rank)))


def _apply_array(at: str, node: _Node, value: list[Json], work: list[_Work]) -> None:
    if node.names is not None:
        raise ProjectionError(f"residual: an order of members for the array at {at!r}")
    for key, below in node.below.items():
        index = int(key) if key.isascii() and key.isdigit() else len(value)
        if index >= len(value) or (below.set and below.text is None):
            raise ProjectionError(f"residual: there is no element {key!r} at {at!r}, or it cannot be taken out")
        if below.text is not None:
            value[index] = parse(below.text)
            continue
        path = f"{at}/{index}"
        copy = _copy(value[index], path)
        value[index] = copy
        work.append((path, below, copy))


# --- pointers and text --------------------------------------------------------------------------------------


def _add_prefix(key: str, prefix: str) -> str:
    return f"#{prefix}{key[1:]}" if key.startswith("#") else prefix + key


def _lenient(value: Json) -> Residual:
    """A residual from a text that holds unpaired surrogates."""
    residual: Residual = {}
    for key, item in value if isinstance(value, Object) else [("", value)]:
        if item is None or isinstance(item, str):
            residual[key] = item
        elif _is_array(item) and all(isinstance(name, str) for name in item):
            residual[key] = cast("list[str]", item)
        else:
            raise InputError(f"not a residual: {key!r} holds neither text, names nor null")
    return residual
