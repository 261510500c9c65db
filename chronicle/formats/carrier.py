"""What travels in `extra.chronicle` of a Storyline file, for a story of another format (storyline.md 9).

The first story of a document carries `{"origin": {...}, "residual": {pointer: text}}`, with the residuals of the
whole document by pointers relative to the document; the other stories carry their origin.
`restored` takes them out again, so that format x -> Storyline file -> format x is equal as JSON values.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chronicle.formats import jsontext, residual
from chronicle.formats.jsontext import Object
from chronicle.formats.story import JsonText, Origin, Residual, StorylineDocument, Turn

KEY = "chronicle"
FORMATS_BY_PART = {"atif": "steps", "storyline": "turns"}
"""Formats whose turns are parts with residuals of their own, and the array that holds them."""


# --- pack ---------------------------------------------------------------------------------------------------


def gathered(stories: Sequence[StorylineDocument]) -> Residual:
    """All residuals of the stories of one document, by pointers relative to the document."""
    out: Residual = {}
    for story in stories:
        origin = story.origin
        array = FORMATS_BY_PART.get(origin.format) if origin is not None else None
        if array is None:
            out.update(story.residual or {})
            for turn in story.turns:
                out.update(turn.residual or {})
            continue
        at = origin.pointer or "" if origin is not None else ""
        out.update(residual.prefixed(story.residual or {}, at))
        for i, turn in enumerate(story.turns):
            out.update(residual.prefixed(turn.residual or {}, f"{at}/{array}/{i}"))
            for j, call in enumerate(turn.tool_calls or ()):
                out.update(residual.prefixed(call.residual or {}, f"{at}/{array}/{i}/tool_calls/{j}"))
    return out


def packed(extra: JsonText | None, origin: Origin, rest: Residual) -> JsonText:
    """`extra` with the member `chronicle` added."""
    load = Object([("origin", jsontext.parse(msgspec.json.encode(origin)))])
    text = residual.encode(rest)
    if text is not None:
        load.append(("residual", jsontext.parse(text)))
    value = jsontext.parse(extra) if extra is not None else Object()
    if extra is not None and not (isinstance(value, Object) and value):
        load.append(("extra", value))
    kept = value if isinstance(value, Object) else Object()
    return jsontext.dump(Object([*kept, (KEY, load)]))


# --- unpack -------------------------------------------------------------------------------------------------


def carried(story: StorylineDocument) -> Origin | None:
    """The origin that a story's `extra.chronicle` states; None where there is none."""
    if story.extra is None or b'"origin"' not in story.extra:
        return None
    load = _load(story.extra)
    return None if load is None else _origin(load)


def restored(stories: Sequence[StorylineDocument], format: str) -> list[StorylineDocument]:
    """The stories of one document; those that carry an origin of `format` as they were before they were packed."""
    out = [_unpacked(story, format) for story in stories]
    if not out or out[0][1] is None:
        return list(stories)
    rest = out[0][1]
    array = FORMATS_BY_PART.get(format)
    if array is None:
        first = out[0][0]
        first.residual = rest or None
        return [story for story, _ in out]
    for story, _ in reversed(out):
        at = story.origin.pointer or "" if story.origin is not None else ""
        mine, rest = residual.under(rest, at) if at else (rest, {})
        for i, turn in enumerate(story.turns):
            mine = _give(turn, f"/{array}/{i}", mine)
        story.residual = mine or None
    return [story for story, _ in out]


def _give(turn: Turn, at: str, rest: Residual) -> Residual:
    inside, rest = residual.under(rest, at)
    calls = []
    for i, call in enumerate(turn.tool_calls or ()):
        mine, inside = residual.under(inside, f"/tool_calls/{i}")
        calls.append(msgspec.structs.replace(call, residual=mine or None))
    if turn.tool_calls is not None:
        turn.tool_calls = calls
    turn.residual = inside or None
    return rest


def _unpacked(story: StorylineDocument, format: str) -> tuple[StorylineDocument, Residual | None]:
    """A copy as it was before it was packed, and the residual that it carries; as it is, and None, if not of `format`."""
    load = _load(story.extra) if story.extra is not None else None
    origin = _origin(load) if load is not None else None
    if load is None or origin is None or origin.format != format:
        return story, None
    value = jsontext.parse(story.extra or b"{}")
    kept = _without_last(value) if isinstance(value, Object) else Object()
    extra = jsontext.dump(kept) if kept else None
    if any(key == "extra" for key, _ in load):
        extra = jsontext.dump(load.get("extra"))
    carried_residual = load.get("residual")
    rest = residual.decode(jsontext.dump(carried_residual)) if isinstance(carried_residual, Object) else {}
    copy = msgspec.structs.replace(story, extra=extra, origin=origin, residual=None)
    copy.turns = [msgspec.structs.replace(turn, residual=None) for turn in story.turns]
    return copy, rest


def _load(extra: JsonText) -> Object | None:
    value = jsontext.parse(extra)
    load = value.get(KEY) if isinstance(value, Object) else None
    return load if isinstance(load, Object) else None


def _origin(load: Object) -> Origin | None:
    try:
        return msgspec.json.decode(jsontext.dump(load.get("origin")), type=Origin)
    except msgspec.DecodeError:
        return None


def _without_last(value: Object) -> Object:
    place = max(i for i, (key, _) in enumerate(value) if key == KEY)
    return Object([member for i, member in enumerate(value) if i != place])
