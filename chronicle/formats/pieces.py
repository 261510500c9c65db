"""Parts and stories of one document whose format is known (design 4.2, formats/atif.md, storyline.md, openai_msg.md)."""

from __future__ import annotations

from collections.abc import Sequence

from chronicle.errors import InputError
from chronicle.formats import jsontext, openai_msg
from chronicle.formats import storyline as rules
from chronicle.formats.detect import Top, Verdict
from chronicle.formats.document import CutPart, CutStory
from chronicle.formats.slices import ARRAY, OBJECT, Reader, Slice, Trajectory, top_of

Pieces = tuple[list[CutPart], list[CutStory]]

_SESSION_KEYS = ("session", "session_id", "story_id")
_RUN_KEYS = ("run", "run_id", "trajectory_id")


def atif(reader: Reader, at: Slice, root: Trajectory | None = None) -> Pieces:
    """Steps of the trajectory at `at` and of every one embedded in it, in byte order; stories in pre-order.

    `root` is what the reader has already found at `at`, if it has.
    """
    parts: list[CutPart] = []
    stories: list[CutStory] = []
    todo: list[tuple[Slice, str, str | None]] = [(at, "", None)]
    while todo:
        here, pointer, inherited = todo.pop()
        found = root if root is not None and not stories else reader.trajectory(here)
        session = found.session_id or inherited or found.trajectory_id or None
        story = len(stories)
        stories.append(CutStory(pointer, session, found.agent_name, found.trajectory_id))
        steps = enumerate(zip(found.steps, found.stamps, strict=True))
        parts += [CutPart(start, end, f"{pointer}/steps/{i}", story, stamp) for i, ((start, end), stamp) in steps]
        for i in reversed(range(len(found.embedded))):
            todo.append((found.embedded[i], f"{pointer}/subagent_trajectories/{i}", session))
    if len(stories) > 1:
        parts.sort()
    return parts, stories


def storyline(reader: Reader, members: dict[str, Slice]) -> Pieces:
    """Turns of a Storyline document, given where its members lie."""

    def text(*names: str) -> str | None:
        found = (reader.string(members.get(name)) for name in names)
        return next((name for name in found if name), None)

    agent = members.get("agent")
    agent_id = None
    if agent is not None and reader.source[agent.start] == OBJECT:
        agent_id = reader.string(reader.members(agent).get("id"))
    parts = []
    for i, turn in enumerate(_array(reader, members.get("turns"))):
        stamp = None
        if reader.source[turn.start] == OBJECT:
            own = reader.members(turn)
            stamp = reader.string(own.get("ts", own.get("timestamp")))
        parts.append(CutPart(turn.start, turn.end, f"/turns/{i}", 0, stamp))
    return parts, [CutStory("", text(*_SESSION_KEYS), agent_id, text(*_RUN_KEYS))]


def violation(source: bytes, at: Slice, parts: Sequence[CutPart]) -> str:
    """`invalid:<rule>` for a Storyline document that must be rejected (storyline.md 5), else ``; `parts`: its turns."""
    first, last = (parts[0].start, parts[-1].end) if parts else (at.end, at.end)
    turns = (jsontext.parse(source[part.start : part.end]) for part in parts)
    try:
        rule = rules.violation(jsontext.parse(source[at.start : first] + source[last : at.end]), turns)
        for _ in turns:  # one that is too deep may follow
            pass
    except InputError:
        return ""  # nested too deep for anybody to project it
    return f"invalid:{rule.removeprefix('invalid:')}" if rule else ""


def openai(reader: Reader, at: Slice, verdict: Verdict, top: Top, places: dict[str, Slice]) -> Pieces:
    """Messages of a conversation, or rows of form A.

    `top` is the top level of the document, `places` where its members lie (nothing for a list).
    """
    if verdict.form.startswith("A"):
        rows = [(at, "/0")] if not verdict.lists else _listed(reader, at, verdict.lists, places)
        return row_pieces(reader.source, rows)
    found = _listed(reader, at, verdict.lists, places)
    parts = [CutPart(each.start, each.end, pointer, 0) for each, pointer in found]
    if len(verdict.lists) > 1:
        parts.sort()
    return parts, [CutStory("", *openai_msg.identity(top))]


def row_pieces(source: bytes, rows: list[tuple[Slice, str]]) -> Pieces:
    """Rows of form A: where they state several sessions, each is a story, in order of first appearance."""
    texts = [source[row.start : row.end] for row, _ in rows]
    sessions = openai_msg.row_sessions(texts)
    index: dict[str | None, int] = {}
    stories: list[CutStory] = []
    for text, session in zip(texts, sessions, strict=True):
        if session not in index:
            index[session] = len(stories)
            _, agent, run = openai_msg.identity(top_of(text) or {})
            stories.append(CutStory("", session, agent, run))
    if len(stories) > 1:
        # A row that states no session belongs to the story of the document itself, whose discriminator is empty.
        stories = [CutStory(each.session_id or "", each.session_id, each.agent_id, each.run_id) for each in stories]
    parts = [CutPart(row.start, row.end, pointer, index[session]) for (row, pointer), session in zip(rows, sessions, strict=True)]
    return parts, stories or [CutStory()]


def _listed(reader: Reader, at: Slice, lists: tuple[str, ...], places: dict[str, Slice]) -> list[tuple[Slice, str]]:
    found = []
    for pointer in lists:
        here: Slice | None = at
        members: dict[str, Slice] | None = places
        for key in jsontext.split(pointer):
            if members is None:
                inside = here is not None and reader.source[here.start] == OBJECT
                members = reader.members(here) if here is not None and inside else {}
            here, members = members.get(key), None
        found += [(each, f"{pointer}/{i}") for i, each in enumerate(_array(reader, here))]
    return found


def _array(reader: Reader, at: Slice | None) -> list[Slice]:
    return reader.elements(at) if at is not None and reader.source[at.start] == ARRAY else []
