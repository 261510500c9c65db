"""What the peer keeps of a source where we have the residual (pure; physical.md 2.4).

`unknown_fields` is `{"sources": {format: {"fields": {JSON Pointer into the source: value}}}}`; `trajectory_id_explicit` says
that the document id stood in the source.
"""

from __future__ import annotations

from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.story import StorylineDocument, ToolCall, Turn

_LISTS = ("steps", "turns")


def take_back(story: StorylineDocument, cell: bytes | None, *, is_explicit: bool) -> None:
    """Put the fields of an `unknown_fields` cell into the residuals of what they belong to, and an explicit id into `run`."""
    if is_explicit and story.run is None:
        story.run = story.story_id
    for pointer, value in _fields(jsontext.parse(cell or b"{}")):
        owner, rest = _owner(story, jsontext.split(pointer))
        if owner.residual is None:
            owner.residual = {}
        owner.residual[jsontext.pointer(*rest)] = jsontext.dump(value).decode()


def _fields(value: Json) -> list[tuple[str, Json]]:
    sources = [member for key, member in value if key == "sources"] if isinstance(value, Object) else []
    formats = [member for each in sources if isinstance(each, Object) for _, member in each]
    found = [member for each in formats if isinstance(each, Object) for key, member in each if key == "fields"]
    return [field for fields in found if isinstance(fields, Object) for field in fields]


def _owner(story: StorylineDocument, keys: list[str]) -> tuple[StorylineDocument | Turn | ToolCall, list[str]]:
    """Whose residual a pointer belongs to, and the keys below it."""
    match keys:
        case [list_, ordinal, *rest] if list_ in _LISTS and rest and _is_place(ordinal, story.turns):
            turn = story.turns[int(ordinal)]
            match rest:
                case ["tool_calls", index, *inner] if inner and turn.tool_calls and _is_place(index, turn.tool_calls):
                    return turn.tool_calls[int(index)], inner
            return turn, rest
    return story, keys


def _is_place(key: str, members: list[Turn] | list[ToolCall]) -> bool:
    return key.isascii() and key.isdigit() and int(key) < len(members)
