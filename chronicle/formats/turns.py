"""Turns and tool calls between readings and the hub, for the formats whose parts are objects (ATIF, Storyline)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from chronicle.errors import ProjectionError
from chronicle.formats import jsontext, residual
from chronicle.formats.finish import finished, settled
from chronicle.formats.kinds import INT64, Reading
from chronicle.formats.shape import Shape
from chronicle.formats.story import JsonText, Residual, ToolCall, Turn

Lints = dict[str, int]


def count(lints: Lints, code: str, times: int = 1) -> None:
    """Add to a lint's count."""
    lints[code] = lints.get(code, 0) + times


# --- read ---------------------------------------------------------------------------------------------------


def turn_of(reading: Reading, lints: Lints) -> Turn:
    """A turn as it was read; `id` is 0 where there is none yet. Takes over the values of the reading."""
    values = reading.values
    calls = values.get("tool_calls")
    if calls:
        values["tool_calls"] = [_call_of(call, lints) for call in calls]
    if reading.lints:  # a required member is missing or odd only where a lint says so
        for code in reading.lints:
            count(lints, code)
        values = {"id": 0, "src": "", "msg": b'""', **values}
    turn = Turn(**values)
    if reading.residual:
        turn.residual = reading.residual
    return turn


def _call_of(reading: Reading, lints: Lints) -> ToolCall:
    values = reading.values
    if reading.lints:
        for code in reading.lints:
            count(lints, code)
        values = {"tcid": "", "fn": "", "args": b"{}", **values}
    call = ToolCall(**values)
    if reading.residual:
        call.residual = reading.residual
    return call


def number_turns(turns: Sequence[Turn], are_integers: bool, name: str, lints: Lints) -> list[Turn]:
    """Give ordinals for ids where these are not distinct integers; `name` is the member that held the id.

    Returns the turns that were changed.
    """
    if are_integers and len({turn.id for turn in turns}) == len(turns):
        if any(turn.id != i for i, turn in enumerate(turns, 1)):
            count(lints, f"{name}s-not-sequential".replace("_", "-"))
        return []
    count(lints, f"{name}s-not-distinct".replace("_", "-"))
    changed = []
    for i, turn in enumerate(turns, 1):
        if turn.id != i:
            turn.residual = settled(turn.residual or {}, name, b"%d" % turn.id)
            turn.id = i
            changed.append(turn)
    return changed


def name_calls(turns: Iterable[Turn], name: str, lints: Lints) -> list[Turn]:
    """Make the call ids distinct in the story: `c`, `c#2`; `call-{turn id}-{i}` for none. Returns changed turns."""
    calls = [(turn, i, call) for turn in turns if turn.tool_calls for i, call in enumerate(turn.tool_calls, 1)]
    taken = {call.tcid for _, _, call in calls}
    if len(taken) == len(calls) and "" not in taken:
        return []
    seen: set[str] = set()
    changed = {}
    for turn, i, call in calls:
        if call.tcid and call.tcid not in seen:
            seen.add(call.tcid)
            continue
        count(lints, "repeated-tool-call-id" if call.tcid else "no-tool-call-id")
        new = _free(call.tcid or f"call-{turn.id}-{i}", taken, first=2 if call.tcid else 1)
        call.residual = settled(call.residual or {}, name, jsontext.string(call.tcid))
        call.tcid = new
        taken.add(new)
        seen.add(new)
        changed[id(turn)] = turn
    return list(changed.values())


def _free(base: str, taken: set[str], first: int) -> str:
    n = first
    while True:
        name = base if n == 1 else f"{base}#{n}"
        if name not in taken:
            return name
        n += 1


def check(made: bytes, source: bytes, what: str) -> None:
    """Raise ProjectionError where two texts are not one JSON value."""
    if residual.diff(jsontext.parse(source), jsontext.parse(made)):
        raise ProjectionError(f"fields and residual do not give back {what}", hint="report this document")


def look_at_time(ts: str, lints: Lints) -> None:
    """Lint a time stamp that is no ISO 8601 instant, or that names no zone."""
    try:
        if datetime.fromisoformat(ts).tzinfo is None:
            count(lints, "timestamp-naive")
    except ValueError:
        if ts.upper() != ts:  # RFC 3339 takes `t` and `z`
            look_at_time(ts.upper(), lints)
        else:
            count(lints, "timestamp-unparsable")


# --- copies of durations ------------------------------------------------------------------------------------


def may_time(text: JsonText) -> bool:
    """Whether a text can have members that `duration` looks for: a cheap test for the many that have none."""
    return b"_ms" in text or b"\\" in text


def duration(text: JsonText | None, *names: str, integer: bool = False) -> int | None:
    """The first of the named members that is a number, truncated; None where it is not finite or not in int64.

    With `integer` a number counts only when it is spelled as an integer (atif.md 10).
    """
    if text is None or not may_time(text):
        return None
    value = jsontext.parse(text)
    if not isinstance(value, jsontext.Object):
        return None
    for name in names:
        number = value.get(name)
        if isinstance(number, jsontext.Number):
            return _whole(number.text, integer)
    return None


def _whole(text: str, integer: bool) -> int | None:
    digits = text.removeprefix("-")
    if digits.isdecimal():
        number = int(text) if len(digits) <= 19 else INT64.stop
    elif integer or len(text) > 400:
        return None
    else:
        exact = float(text)
        if exact != exact or abs(exact) >= INT64.stop:
            return None
        number = int(exact)
    return number if number in INT64 else None


def with_member(text: JsonText | None, name: str, number: int | None) -> JsonText | None:
    """A JSON object with one integer member set; what is no object stays as it is."""
    value = jsontext.Object() if text is None else jsontext.parse(text)
    if not isinstance(value, jsontext.Object):
        return text
    kept = [member for member in value if member[0] != name]
    return jsontext.dump(jsontext.Object([*kept, (name, jsontext.Number(str(number)))]))


# --- write --------------------------------------------------------------------------------------------------

Values = Callable[[Any], dict[str, Any]]


def fields_of(struct: msgspec.Struct) -> dict[str, Any]:
    """Fields of a hub object by attr."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def turn_reading(turn: Turn, rest: bool) -> Reading:
    """A turn as if it had just been read; with `rest` its residuals too."""
    values = fields_of(turn)
    if turn.tool_calls is not None:
        values["tool_calls"] = [Reading(fields_of(call), _kept(call.residual, rest), ()) for call in turn.tool_calls]
    return Reading(values, _kept(turn.residual, rest), ())


def _kept(given: Residual | None, rest: bool) -> Residual:
    return given or {} if rest else {}


def turn_text(shape: Shape, turn: Turn, rest: bool = True) -> bytes:
    """Text of a turn by a format's shape."""
    return finished(shape, turn_reading(turn, rest))
