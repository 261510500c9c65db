"""Turns and tool calls between readings and the hub, for the formats whose parts are objects (ATIF, Storyline)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from chronicle.errors import ProjectionError
from chronicle.formats import jsontext, residual
from chronicle.formats.finish import finished, settled
from chronicle.formats.kinds import INT64, Reading
from chronicle.formats.shape import Shape
from chronicle.formats.story import JsonText, Residual, StorylineDocument, ToolCall, Turn

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


def settle_ids(story: StorylineDocument, shape: Shape, *, turn_id: str | None, call_id: str, are_integers: bool = True) -> None:
    """Make the ids of a story's turns and calls distinct; `turn_id` and `call_id` are the members that hold them.

    Turns get ordinals where their ids are not distinct integers (not where `turn_id` is None). Calls become `c`, `c#2`,
    and `call-{turn id}-{i}` where there is none. Raises ProjectionError where a changed turn does not give its part back.
    """
    by_place = turn_id is not None and _are_numbered_anew(story, turn_id, are_integers)
    names = _names_for(story)
    for i, turn in enumerate(story.turns if by_place or names else (), 1):
        number = i if by_place else turn.id
        said = [call.tcid for call in turn.tool_calls or ()]
        new = names.of(said, number) if names else said
        if number == turn.id and new == said:
            continue
        part = turn_text(shape, turn, edited=False)
        if number != turn.id:
            turn.residual = settled(turn.residual or {}, str(turn_id), b"%d" % turn.id)
            turn.id = number
        if new != said:
            _rename_calls(turn, new, call_id)
        check(turn_text(shape, turn), part, f"turn {turn.id} of story {story.story_id}")


def _are_numbered_anew(story: StorylineDocument, name: str, are_integers: bool) -> bool:
    code = name.replace("_", "-")
    if are_integers and all(turn.id == i for i, turn in enumerate(story.turns, 1)):
        return False
    if are_integers and len({turn.id for turn in story.turns}) == len(story.turns):
        count(story.lints, f"{code}s-not-sequential")
        return False
    count(story.lints, f"{code}s-not-distinct")
    return True


def _names_for(story: StorylineDocument) -> _Names | None:
    said = [call.tcid for turn in story.turns if turn.tool_calls for call in turn.tool_calls]
    taken = set(said)
    return None if len(taken) == len(said) and "" not in taken else _Names(taken, story.lints)


class _Names:
    """Distinct names for the calls of a story, asked for turn by turn."""

    def __init__(self, taken: set[str], lints: Lints) -> None:
        self._taken = taken
        self._lints = lints
        self._seen: set[str] = set()
        self._tried: dict[tuple[str, int], int] = {}

    def of(self, said: list[str], turn: int) -> list[str]:
        """The names of the calls of one turn."""
        return [self._name(tcid, turn, i) for i, tcid in enumerate(said, 1)]

    def _name(self, tcid: str, turn: int, index: int) -> str:
        new = tcid
        if not tcid or tcid in self._seen:
            count(self._lints, "repeated-tool-call-id" if tcid else "no-tool-call-id")
            new = self._free(tcid or f"call-{turn}-{index}", first=2 if tcid else 1)
            self._taken.add(new)
        self._seen.add(new)
        return new

    def _free(self, base: str, first: int) -> str:
        """The first free name; `_tried` remembers where the last search for this base ended: what was taken stays taken."""
        n = self._tried.get((base, first), first)
        while (name := base if n == 1 else f"{base}#{n}") in self._taken:
            n += 1
        self._tried[base, first] = n
        return name


def _rename_calls(turn: Turn, new: list[str], name: str) -> None:
    """Give the calls of a turn new ids, and let its results name them by these; `name` is the member of the id."""
    names: dict[str, list[str]] = {}
    for call, tcid in zip(turn.tool_calls or (), new, strict=True):
        names.setdefault(call.tcid, []).append(tcid)
        if call.tcid != tcid:
            call.residual = settled(call.residual or {}, name, jsontext.string(call.tcid))
            call.tcid = tcid
    names.pop("", None)
    _rename_results(turn, names)


def _rename_results(turn: Turn, names: dict[str, list[str]]) -> None:
    """Let the results of a turn name its calls by their new ids: the first that names an id its first call, and so on."""
    if turn.observation is None or not names:
        return
    observation = jsontext.parse(turn.observation)
    results = observation.get("results") if isinstance(observation, jsontext.Object) else None
    if not isinstance(observation, jsontext.Object) or not isinstance(results, list) or isinstance(results, jsontext.Object):
        return
    renamed: jsontext.Json = [_renamed(result, names) for result in results]
    made = jsontext.Object((key, renamed if value is results else value) for key, value in observation)
    rest = residual.diff(observation, made)
    if rest and "" not in rest:  # an observation that repeats its keys stays as it came
        turn.observation = jsontext.dump(made)
        turn.residual = {**(turn.residual or {}), **residual.prefixed(rest, "/observation")}


def _renamed(result: jsontext.Json, names: dict[str, list[str]]) -> jsontext.Json:
    named = result.get("source_call_id") if isinstance(result, jsontext.Object) else None
    if not isinstance(result, jsontext.Object) or not isinstance(named, str) or named not in names:
        return result
    free = names[named]
    new = free.pop(0) if len(free) > 1 else free[0]
    return jsontext.Object((key, new if key == "source_call_id" else value) for key, value in result)


def check(made: bytes, source: bytes, what: str) -> None:
    """Raise ProjectionError where two texts are not one JSON value."""
    if residual.diff(jsontext.parse(source), jsontext.parse(made)):
        raise ProjectionError(f"fields and residual do not give back {what}", hint="report this document")


def look_at_time(ts: str, lints: Lints) -> None:
    """Lint a time stamp that is no ISO 8601 instant, that names no zone, or that 64-bit nanoseconds do not hold."""
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        if ts.upper() != ts:  # RFC 3339 takes `t` and `z`
            look_at_time(ts.upper(), lints)
        else:
            count(lints, "timestamp-unparsable")
        return
    if moment.tzinfo is None:
        count(lints, "timestamp-naive")
    if not 1678 <= moment.year <= 2261 and not _FIRST <= moment.replace(tzinfo=moment.tzinfo or UTC) <= _LAST:
        count(lints, "timestamp-out-of-range")


_FIRST = datetime(1677, 9, 21, 0, 12, 43, 145225, UTC)
_LAST = datetime(2262, 4, 11, 23, 47, 16, 854775, UTC)

_QUOTE, _ARRAY, _OBJECT = b'"[{'
_EFFORT = b'"-0123456789'


def look_at_objects(lints: Lints, *texts: JsonText | None) -> None:
    """Lint members that should be objects and were kept as something else."""
    odd = sum(text is not None and text[0] != _OBJECT for text in texts)
    if odd:
        count(lints, "wrong-type", odd)


def look_at_types(turn: Turn, lints: Lints, arguments: bytes) -> None:
    """Lint members that are kept as they came and are of another type than the format says.

    `arguments` holds the characters with which arguments of a call may begin; nothing for any value.
    """
    odd = 0
    if turn.msg[0] != _QUOTE and turn.msg[0] != _ARRAY:
        odd += 1
    if turn.effort is not None and turn.effort[0] not in _EFFORT:
        odd += 1
    for text in (turn.observation, turn.metrics, turn.extra):
        if text is not None and text[0] != _OBJECT:
            odd += 1
    if turn.tool_calls:
        for call in turn.tool_calls:
            if arguments and call.args[0] not in arguments:
                odd += 1
            if call.extra is not None and call.extra[0] != _OBJECT:
                odd += 1
    if odd:
        count(lints, "wrong-type", odd)


# --- copies of durations ------------------------------------------------------------------------------------


def may_time(text: JsonText) -> bool:
    """Whether a text can have members that `duration` looks for: a cheap test for the many that have none."""
    # `in` first asks whether the needle is a number, and that takes longer than the search.
    return text.find(b"_ms") >= 0 or text.find(b"\\") >= 0


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


def turn_text(shape: Shape, turn: Turn, rest: bool = True, *, edited: bool = True) -> bytes:
    """Text of a turn by a format's shape; not `edited`: of one that is as it was read."""
    return finished(shape, turn_reading(turn, rest), edited=edited)
