"""Rows of OpenAI messages (form A) and Storyline, both ways (openai_msg.md, "A. Row corpus").

A row is one call of a model: what it was given (`messages`) and what it said (`response`). Rows of one session make
one story. Most of a row's messages have been in the rows before; a row keeps slots for them (`openai_story`):

    #<rows>          one word for each row: `<story>` or `<story>:<slot of the response>`; `` for what is no row
    #<row>/messages  slots of the row's messages, where it has a list of them

`<rows>` is `` for an array of rows and `/session_steps` for an object; a single row and JSON lines of rows count as
an array, so their pointers begin with `/0`, `/1`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from chronicle import identity as ids
from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Number, Object
from chronicle.formats.openai_identity import identity, name_of
from chronicle.formats.openai_message import (
    answered_id,
    embedded_call,
    read,
    role_of,
    with_extra,
)
from chronicle.formats.openai_row import Row, instant, key_of, model_of, place_of, row_turn
from chronicle.formats.openai_shapes import Top, lists_of, members_of
from chronicle.formats.openai_story import NOWHERE, Builder, Slot, Slots, marks_at
from chronicle.formats.story import Agent, StorylineDocument, Turn

_Answer = TypeVar("_Answer")
_STATED = ("session_id", "step_id", "agent_id", "meta_json", "agent_model", "llm_model", "run_id", "run_bucket", "job_id")
_CONTEXT = ("system", "developer", "user", "assistant")
_BETWEEN = b" \t\r\n,"


class Rows(NamedTuple):
    """A document of rows in stories."""

    stories: list[StorylineDocument]
    marks: dict[str, list[str]]
    owners: dict[str, Turn]
    """The turn that keeps the residual of a row, by the pointer of the row."""


# -- texts --------------------------------------------------------------------------------------------------------


def look(text: bytes, ask: Callable[[Top], _Answer]) -> _Answer:
    """Ask about the top level of a JSON text."""
    text = text.strip()
    if text.startswith(b"["):
        return ask([text[a:b] for a, b in jsontext.elements(text, 0)])
    return ask(members_of(text))


def values(text: bytes) -> list[Json]:
    """The JSON values that stand one after the other in a text, whatever separates them."""
    found: list[Json] = []
    at, end = 0, len(text)
    while True:
        while at < end and text[at] in _BETWEEN:
            at += 1
        if at >= end:
            return found
        stop = jsontext.end_of_value(text, at)
        found.append(jsontext.parse(text[at:stop]))
        at = stop


def rows_of(source: Json, form: str) -> list[Json]:
    """The rows of a document value."""
    value = source.get("session_steps") if form == "A:session_steps" and isinstance(source, Object) else source
    return list(value) if isinstance(value, list) and not isinstance(value, Object) else []


# -- into Storyline -----------------------------------------------------------------------------------------------


def into(document_id: str, rows: Sequence[Json], at: str) -> Rows:
    """Stories of the rows, one a session in order of first appearance. `at` is the pointer of the array of rows."""
    sessions: dict[str | None, list[tuple[int, Object]]] = {}
    for i, row in enumerate(rows):
        if isinstance(row, Object):
            stated = dict(row).get("session_id")
            sessions.setdefault(None if stated is None else name_of(jsontext.dump(stated)), []).append((i, row))
    made = Rows([], {}, {})
    words = [""] * len(rows)
    for session, members in (sessions or {None: []}).items():
        discriminator = session or "" if len(sessions) > 1 else ""
        fold = _Fold()
        for i, row in _in_order(members):
            fold.row(row, i)
        story = fold.story(ids.story_id(document_id, discriminator), session, members[0][1] if members else Object())
        slots = Slots(story)
        for i, done in fold.done.items():
            answer = slots.encode([done.response]) if done.response else []
            words[i] = ":".join([str(len(made.stories)), *answer])
            if done.messages is not None:
                made.marks[f"#{at}/{i}/messages"] = slots.encode(done.messages)
            made.marks.update((f"#{at}/{i}/{key}", shape) for key, shape in done.shapes.items())
            if done.owner is not None:
                made.owners[f"{at}/{i}"] = story.turns[done.owner]
        made.stories.append(story)
    made.marks[f"#{at}"] = words
    return made


def _in_order(numbered: Sequence[tuple[int, Object]]) -> list[tuple[int, Object]]:
    """Rows by their steps, also where these count from 0; a row that states none follows the one before it."""
    steps: list[int] = []
    for _, row in numbered:
        stated = place_of(row)
        steps.append(stated if stated is not None else steps[-1] if steps else 0)
    return [numbered[i] for i in sorted(range(len(steps)), key=steps.__getitem__)]


class _Done(NamedTuple):
    """What became of one row."""

    messages: list[Slot] | None
    """None where the row has no list of messages."""
    response: Slot | None
    """None where the row has no response that became a turn."""
    shapes: dict[str, list[str]]
    owner: int | None


class _Fold:
    """The fold of the rows of one session, in the order of their steps."""

    def __init__(self) -> None:
        self.done: dict[int, _Done] = {}
        self._builder = Builder()
        self._known: list[tuple[bytes, Slot]] = []
        self._given = 0
        self._context = 0
        self._extra = False
        self._steps: list[int | None] = []
        self._ids: dict[int, int] = {}

    def row(self, row: Object, index: int) -> None:
        """Add one row, the `index`-th of the document."""
        one = Row(row, self._known, first=not self.done)
        self._steps.append(one.step)
        # The model was given less than the row before had: its history was cut, changed or left out.
        one.reset = one.prefix < self._given and not one.first
        for i, message in enumerate(one.messages):
            if i == one.request_at:
                one.request = self._turn(message, one, f"messages/{i}")
                one.slots[i] = (one.request, 0)
                if one.is_history(i):
                    self._builder.turns[one.request].copied = True
            elif i == one.output_at:
                one.response = self._turn(message, one, f"messages/{i}")
                one.slots[i] = (one.response, 0)
            elif one.slots[i] == NOWHERE:
                one.slots[i] = self._new(message, i, one)
            else:
                one.note(message, f"messages/{i}")
        self._finish(one, index)

    def _new(self, message: Json, i: int, one: Row) -> Slot:
        """A message that no row before had: a turn of its own, or a result."""
        role = role_of(message)
        if role in ("tool", "function") and isinstance(message, Object):
            one.note(message, f"messages/{i}", result=True)
            return self._result(message, i, one)
        if role not in _CONTEXT:
            self._builder.lints["skipped-message"] += 1
            return NOWHERE
        if i > one.boundary and one.is_response(i):
            one.same_as_response.append(i)
            one.note(message, f"messages/{i}")
            return NOWHERE
        turn = self._turn(message, one, f"messages/{i}")
        made = self._builder.turns[turn]
        if one.first and i < one.boundary:
            made.copied, made.nllm = True, None
            self._context += 1
        else:
            self._extra = True
            made.nllm = 1 if made.src == "agent" and i > one.boundary else None
        return turn, 0

    def _result(self, message: Object, i: int, one: Row) -> Slot:
        """The latest turn that holds the call, else this row's response, which comes later."""
        holder = self._builder.latest_call(message)
        if holder is None:
            one.waiting.append((i, message))
            return NOWHERE
        return self._builder.result(holder[0], holder[1], message, collapse=True)

    def _finish(self, one: Row, index: int) -> None:
        builder = self._builder
        answer: Slot | None = None
        if one.answer is not None and one.output_at is None:
            one.response = self._turn(one.answer, one, "response")
            answer = (one.response, 0)
        for i in one.same_as_response:
            one.slots[i] = answer or NOWHERE
        for i, message in one.waiting:
            one.slots[i] = self._late_result(message, one)
        if one.response is not None:
            self._output(builder.turns[one.response], one)
        owner = one.response if one.response is not None else one.request
        if owner is not None:
            row_turn(builder.turns[owner], one.row)
        for turn, offset in ((one.request, 1), (one.response, 0)):
            if turn is not None and one.step is not None:
                self._ids[turn] = 2 * one.step - offset
            if turn is not None:
                builder.turns[turn].ts = instant(one.row.get("created_at")) or builder.turns[turn].ts
        self._known = list(zip(one.keys, one.slots, strict=True))
        if answer is not None and not one.same_as_response:
            self._known.append((key_of(one.answer), answer))
        self._given = len(one.messages)
        has_list = one.has_messages
        self.done[index] = _Done(one.slots if has_list else None, answer, one.shapes, owner)

    def _late_result(self, message: Object, one: Row) -> Slot:
        holder = self._builder.latest_call(message)
        if holder is not None:
            return self._builder.result(holder[0], holder[1], message, collapse=True)
        self._builder.lints["orphan-tool-message"] += 1
        turn = one.response if one.response is not None else one.request
        if turn is None:
            self._extra = True
            turn = self._builder.add(read(Object([("role", "system"), ("content", "")])))
        return self._builder.result(turn, answered_id(message), message, collapse=True)

    def _turn(self, message: Json, one: Row, where: str) -> int:
        reading = read(message)
        one.shapes.update((f"{where}/{key}", words) for key, words in reading.marks.items())
        turn = self._builder.add(reading)
        if reading.src == "agent":
            self._builder.turns[turn].model = reading.model or one.model
        if one.reset:
            with_extra(self._builder.turns[turn], "context_reset", True)
            one.reset = False
        return turn

    def _output(self, turn: Turn, one: Row) -> None:
        turn.src, turn.nllm, turn.model = "agent", 1, turn.model or one.model
        name = None if turn.tool_calls else embedded_call(turn.msg)
        if name is not None:
            step = one.row.get("step_id")
            word = step.text if isinstance(step, Number) else str(len(self._steps))
            self._builder.derive(turn, f"embedded-{word}-{name}", name)

    def story(self, story_id: str, session: str | None, first: Object) -> StorylineDocument:
        """The story of all rows so far."""
        stated = dict(first)
        _, agent, run = identity({key: jsontext.dump(stated[key]) for key in _STATED if key in stated})
        turns, lints = self._builder.finish(), self._builder.lints
        steps = [step for step in self._steps if step is not None]
        if len(set(steps)) < len(steps):
            lints["repeated-step-id"] += len(steps) - len(set(steps))
        if len(steps) < len(self._steps):
            lints["invalid-step-id"] += len(self._steps) - len(steps)
        if session is None:
            lints["missing-session-id"] += len(self._steps)
        if not self._extra and len(set(steps)) == len(self._steps):
            for i, turn in enumerate(turns):
                turn.id = self._context + self._ids[i] if i in self._ids else i + 1
        tools = jsontext.dump(stated["tools"]) if stated.get("tools") is not None else None
        return StorylineDocument(
            story_id=story_id,
            session=session or story_id or "openai-import",
            agent=Agent(id=agent or "openai-import", model=model_of(stated), tools=tools),
            turns=turns,
            run=run,
            lints=dict(lints),
        )


# -- out of Storyline ---------------------------------------------------------------------------------------------


def made(stories: Sequence[StorylineDocument], form: str, marks: Mapping[str, list[str]]) -> Json:
    """The canonical document of rows: as marked, else one row for each answer with all that came before it."""
    at = lists_of(form)[0]
    slots = [Slots(story) for story in stories]
    words = marks.get(f"#{at}")
    rows: list[Json] = []
    if words is None:
        for story, its in zip(stories, slots, strict=True):
            rows += _default_rows(story, its)
    for i, word in enumerate(words or ()):
        head, _, answer = word.partition(":")
        n = int(head) if head.isdecimal() else len(stories)
        if n >= len(stories):
            rows.append(None)
            continue
        row = Object([("session_id", stories[n].session)])
        given = marks.get(f"#{at}/{i}/messages")
        if given is not None:
            found = enumerate(slots[n].decode(given))
            row.append(("messages", [slots[n].message(s, marks_at(marks, f"{at}/{i}/messages/{j}")) for j, s in found]))
        if answer:
            row.append(("response", slots[n].message(slots[n].decode([answer])[0], marks_at(marks, f"{at}/{i}/response"))))
        rows.append(row)
    return Object([("session_steps", rows)]) if form == "A:session_steps" else rows


def _default_rows(story: StorylineDocument, slots: Slots) -> list[Json]:
    rows: list[Json] = []
    given: list[Json] = []
    for slot in slots.default():
        message = slots.message(slot, {})
        turn = story.turns[slot[0]]
        if slot[1] == 0 and turn.src == "agent" and not turn.copied:
            step = Number(str(len(rows) + 1))
            row = Object([("session_id", story.session), ("step_id", step), ("messages", list(given))])
            rows.append(Object([*row, ("response", message)]))
        given.append(message)
    return rows
