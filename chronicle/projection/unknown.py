"""What the peer keeps of a source where we have the residual (pure; physical.md 2.4).

`unknown_fields` is `{"sources": {format: {"fields": {JSON Pointer into the source: value}, "source_document_id": id}}}`,
`unknown_key_counts` the same pointers with `*` for each place in a list; `trajectory_id_explicit` says that the document id
stood in the source.

Our rows hold unknown members of ATIF documents in these columns too, or the peer's export would lose them. All of a document
stand in the row of its root: the peer refuses an embedded one that has some where its root has none, and one that is
exported by itself. What it would refuse to load is left out; the residual has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from chronicle.formats import atif, jsontext
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.shape import Shape
from chronicle.formats.story import Residual, StorylineDocument, ToolCall, Turn

MARKER = "\x1ePCHRONICLE-CONTENT:"
"""How a cell begins that says where its text lies (physical.md 2.5)."""

_LISTS = ("steps", "turns")
_LINT = "unknown-key"
_REFUSED = frozenset({"_storyline"})
"""Keys that the peer takes for its own."""
_DEEPEST = 64
"""The peer reads nesting of about twice as many levels."""
_INTEGERS = range(-(1 << 63), 1 << 64)


class Kept(NamedTuple):
    """The cells `unknown_fields` and `unknown_key_counts` of one row; None where nothing is unknown."""

    fields: bytes | None = None
    counts: bytes | None = None


def kept(document: Sequence[StorylineDocument]) -> Kept:
    """The cells of the row of a document's root; those of its other stories are empty."""
    root = document[0].origin if document else None
    if root is None or root.format != "atif" or root.pointer is not None:
        return Kept()
    found = [(*named, value) for story in document if _has_unknown(story) for *named, value in _unknown(story)]
    if not found:
        return Kept()
    counts: dict[str, int] = {}
    for _, counted, _ in found:
        counts[counted] = counts.get(counted, 0) + 1
    fields = {at: msgspec.Raw(text.encode()) for at, _, text in found}
    source = {"fields": fields, "source_document_id": root.document_id or document[0].story_id}
    return Kept(
        msgspec.json.encode({"sources": {"atif": source}}),
        msgspec.json.encode({"atif": counts}),
    )


def _has_unknown(story: StorylineDocument) -> bool:
    return any(code.endswith(_LINT) for code in story.lints)


def _unknown(story: StorylineDocument) -> Iterator[tuple[str, str, str]]:
    """(pointer into the document, the same for counting, text) of unknown members that the peer can hold."""
    above = (story.origin.pointer if story.origin is not None else None) or ""
    outer = _starred(above)
    yield from _members(story.residual, atif.ROOT, above, outer)
    yield from _members(story.residual, atif.AGENT, f"{above}/agent", f"{outer}/agent", inside="/agent")
    for place, turn in enumerate(story.turns):
        if turn.residual:
            yield from _members(turn.residual, atif.STEP, f"{above}/steps/{place}", f"{outer}/steps/*")
        for index, call in enumerate(turn.tool_calls or ()):
            if call.residual:
                at = f"/tool_calls/{index}"
                yield from _members(call.residual, atif.CALL, f"{above}/steps/{place}{at}", f"{outer}/steps/*/tool_calls/*")


def _members(residual: Residual | None, shape: Shape, at: str, counted: str, inside: str = "") -> Iterator[tuple[str, str, str]]:
    """Unknown members of the object at `inside` of a residual. None where the object stands there whole."""
    if not residual or inside in residual:
        return
    for pointer, text in residual.items():
        head, _, key = pointer.rpartition("/")
        if head != inside or not pointer.startswith("/") or not isinstance(text, str):
            continue
        name = jsontext.split(f"/{key}")[0]
        if name not in shape.names and name not in _REFUSED and _is_plain(name, text):
            yield f"{at}/{key}", f"{counted}/{key}", text


def _starred(pointer: str) -> str:
    """A pointer to an embedded trajectory with `*` in the place of its ordinals."""
    return "".join(f"/{key}" if key == atif.EMBEDDED else "/*" for key in jsontext.split(pointer))


def _is_plain(name: str, text: str) -> bool:
    """Whether the peer loads a member: strict JSON, integers of 64 bits, not too deep, no text that begins as a descriptor."""
    try:
        name.encode()
        value = msgspec.json.decode(text)
    except (UnicodeEncodeError, msgspec.DecodeError, RecursionError):
        return False
    if isinstance(value, str) and value.startswith(MARKER):
        return False
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        if any(isinstance(each, int) and each not in _INTEGERS for each in level):
            return False
        level = [inside for each in level for inside in _inside(each)]
        if not level:
            return True
    return False


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def take_back(story: StorylineDocument, cell: bytes | None, *, is_explicit: bool) -> None:
    """Put the fields of an `unknown_fields` cell into the residuals of what they belong to, and an explicit id into `run`."""
    if is_explicit and story.run is None:
        story.run = story.story_id
    for pointer, value in _fields(jsontext.parse(cell or b"{}")):
        owner, rest = _owner(story, _inside_of(jsontext.split(pointer)))
        if owner.residual is None:
            owner.residual = {}
        owner.residual[jsontext.pointer(*rest)] = jsontext.dump(value).decode()


def _fields(value: Json) -> list[tuple[str, Json]]:
    sources = [member for key, member in value if key == "sources"] if isinstance(value, Object) else []
    formats = [member for each in sources if isinstance(each, Object) for _, member in each]
    found = [member for each in formats if isinstance(each, Object) for key, member in each if key == "fields"]
    return [field for fields in found if isinstance(fields, Object) for field in fields]


def _inside_of(keys: list[str]) -> list[str]:
    """The keys below the trajectory that a pointer into its document leads to."""
    while len(keys) > 2 and keys[0] == atif.EMBEDDED and keys[1].isdecimal():
        keys = keys[2:]
    return keys


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
