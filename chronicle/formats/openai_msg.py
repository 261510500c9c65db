"""OpenAI messages data and Storyline, both ways (openai_msg.md).

Forms B1 to B10 are conversations: one document is one story. Form A (rows) is in `openai_rows`; recognition is in
`openai_shapes`, one message in `openai_message`.

The residual of a document has, beside what `residual.diff` says, marks for the writer. A mark stands at `#` + the
pointer of a place that holds no object in what the writer makes, so none is ever taken for an order of members:

    #<list>                       slots of the messages of that list (`openai_story`), where they are not the
                                  canonical ones: turn by turn, each followed by its tool results
    #<message>/content            )
    #<message>/reasoning_content  ) shape of one message (`openai_message`)
    #<message>/tool_calls         )
    #/tools                       the member in which the tools stood (`functions`, `tool_definitions`)
    #<rows>, #<row>/messages      rows of form A (`openai_rows`)

What concerns one message is in the residual of its turn, the rest in that of the first story; pointers are always
relative to the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chronicle.errors import InputError, ProjectionError, UsageError
from chronicle.formats import jsontext, openai_rows, residual
from chronicle.formats.document import Document
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.openai_identity import identity, row_sessions
from chronicle.formats.openai_message import read, result_marks, role_of, usage_metrics
from chronicle.formats.openai_shapes import Form, lists_of, recognise, unsupported
from chronicle.formats.openai_story import Builder, Slot, Slots, marks_at
from chronicle.formats.story import Agent, Origin, Residual, StorylineDocument, Turn

__all__ = ["Form", "dump", "identity", "into", "recognise", "row_sessions", "unsupported"]

FORMAT = "openai_msg"
DEFAULT_AGENT = "openai-import"

_TOOLS = ("functions", "tool_definitions")
_STATED = (
    "session_id", "conversation_id", "thread_id", "id", "metadata", "custom_id", "agent_id", "model", "agent_model",
    "llm_model", "run_id", "run_bucket", "job_id",
)  # fmt: skip


# -- into Storyline -----------------------------------------------------------------------------------------------


def into(document: Document) -> list[StorylineDocument]:
    """The stories of one document: one for a conversation, one for each session of form A. Takes the parts out of it.

    Raises InputError (kind of `jsontext.parse`, or `unsupported:<shape>`) where the text is no document of these
    forms, ProjectionError where stories and residual do not give the document back.
    """
    text = document.take_text()
    if document.form.startswith("A") and text.lstrip()[:1] == b"{" and document.form != "A:session_steps":
        found = openai_rows.values(text)
        return _rows(document, found, "A:row" if len(found) == 1 else "A:lines")
    source = jsontext.parse(text)
    form = _form(document.form, source, text)
    del text  # of a large document the values are enough to hold
    if form.startswith("A"):
        return _rows(document, [source] if form == "A:row" else source, form)
    return _checked([_conversation(document, source, form)], source)


def _rows(document: Document, source: Json, form: str) -> list[StorylineDocument]:
    at = lists_of(form)
    found = openai_rows.into(document.id, openai_rows.rows_of(source, form), at[0])
    for story in found.stories:
        several = len(found.stories) > 1
        story.origin = origin(document, form, story.session if several and story.story_id != document.id else None)
    made = openai_rows.made(found.stories, form, found.marks)
    _share(found.stories[0], {**found.marks, **residual.diff(source, made)}, at, found.owners)
    return _checked(found.stories, source)


def _form(stated: str, source: Json, text: bytes) -> str:
    """The form of a document: what the cutter found, where the value bears it out; else found again."""
    pointers = lists_of(stated)
    if pointers and all(_at(source, pointer) is not None for pointer in pointers):
        return stated
    form, what = openai_rows.look(text, recognise), openai_rows.look(text, unsupported)
    if not isinstance(form, Form):
        raise InputError(
            "the document holds no OpenAI messages",
            hint="see the forms that are taken in openai_msg.md",
            kind=f"unsupported:{what or 'openai_msg'}",
        )
    return form.name


def _at(value: Json, pointer: str) -> list[Json] | None:
    """The array at a pointer of member names; None where there is none."""
    for key in jsontext.split(pointer):
        value = value.get(key) if isinstance(value, Object) else None
    return value if isinstance(value, list) and not isinstance(value, Object) else None


def _conversation(document: Document, source: Json, form: str) -> StorylineDocument:
    builder = Builder()
    marks: dict[str, list[str]] = {}
    owners: dict[str, int] = {}
    slots: dict[str, list[Slot]] = {}
    for pointer in lists_of(form):
        slots[pointer] = []
        for i, message in enumerate(_at(source, pointer) or ()):
            slot, shape = _take(builder, message)
            slots[pointer].append(slot)
            owners[f"{pointer}/{i}"] = slot[0]
            marks.update((f"#{pointer}/{i}/{key}", words) for key, words in shape.items())
    story = _story(document, source, form, builder)
    tools = _set_tools(story, source, form)
    if tools != "tools":
        marks["#/tools"] = [tools]
    all_slots = Slots(story)
    if len(slots) > 1 or next(iter(slots.values())) != all_slots.default():
        marks.update((f"#{pointer}", all_slots.encode(found)) for pointer, found in slots.items())
    made = _made(story, form, marks, all_slots)
    turns = {key: story.turns[turn] for key, turn in owners.items()}
    _share(story, {**marks, **residual.diff(source, made)}, lists_of(form), turns)
    return story


def _take(builder: Builder, message: Json) -> tuple[Slot, dict[str, list[str]]]:
    if isinstance(message, Object) and role_of(message) in ("tool", "function"):
        return builder.answer(message), result_marks(message)
    reading = read(message)
    index = builder.add(reading)
    if reading.src == "agent":
        builder.turns[index].nllm = 1
    return (index, 0), reading.marks


def _story(document: Document, source: Json, form: str, builder: Builder) -> StorylineDocument:
    stated = dict(source) if isinstance(source, Object) else {}
    session, agent, run = identity({key: jsontext.dump(stated[key]) for key in _STATED if key in stated})
    model = stated.get("model")
    name = jsontext.plain(model) if isinstance(model, str) and model else None
    turns = builder.finish()
    agents = [turn for turn in turns if turn.src == "agent"]
    for turn in agents:
        turn.model = turn.model or name
    if agents and agents[-1].metrics is None:
        agents[-1].metrics = usage_metrics(stated.get("usage"))
    return StorylineDocument(
        story_id=document.id,
        session=session or document.id or DEFAULT_AGENT,
        agent=Agent(id=agent or DEFAULT_AGENT, model=name),
        turns=turns,
        run=run,
        origin=origin(document, form),
        lints=dict(builder.lints),
    )


def origin(document: Document, form: str, pointer: str | None = None) -> Origin:
    """Where a story of a document came from."""
    return Origin(
        format=FORMAT,
        form=form,
        container=document.container,
        document_id=document.id,
        source_id=document.source_id,
        locator=document.locator,
        pointer=pointer,
    )


def _set_tools(story: StorylineDocument, source: Json, form: str) -> str:
    """Set the agent's tools; returns the name of the member that holds them."""
    holder = source.get("input") if form == "B9" and isinstance(source, Object) else source
    member = dict(holder) if isinstance(holder, Object) else {}
    if member.get("tools") is not None or form == "B9":
        key = "tools"
    else:
        key = next((name for name in _TOOLS if isinstance(member.get(name), list)), "tools")
    if member.get(key) is not None:
        story.agent.tools = jsontext.dump(member[key])
    return key


# -- residual -----------------------------------------------------------------------------------------------------


def _share(first: StorylineDocument, entries: Residual, lists: Sequence[str], owners: Mapping[str, Turn]) -> None:
    """Give each entry to the turn of its message, all others to the first story."""
    root: Residual = {}
    for key, value in entries.items():
        turn = owners.get(_message_of(key.removeprefix("#"), lists))
        if turn is None:
            root[key] = value
        elif turn.residual is None:
            turn.residual = {key: value}
        else:
            turn.residual[key] = value
    first.residual = root or None


def _message_of(pointer: str, lists: Sequence[str]) -> str:
    """The pointer of the message that a pointer leads into; empty where it leads into none."""
    for at in lists:
        if pointer.startswith(f"{at}/"):
            return f"{at}/{pointer[len(at) + 1 :].partition('/')[0]}"
    return ""


def _gathered(stories: Sequence[StorylineDocument]) -> tuple[dict[str, list[str]], Residual]:
    """(marks, residual of the document) from all places of its stories."""
    marks: dict[str, list[str]] = {}
    rest: Residual = {}
    form = _form_of(stories[0])
    for story in stories:
        for part in (story.residual, *(turn.residual for turn in story.turns)):
            for key, value in (part or {}).items():
                if isinstance(value, list) and _is_mark(key, form):
                    marks[key] = value
                else:
                    rest[key] = value
    return marks, rest


def _is_mark(key: str, form: str) -> bool:
    at = key.removeprefix("#")
    if at in lists_of(form) or at.endswith(("/content", "/reasoning_content", "/tool_calls")):
        return True
    return at.endswith("/messages") if form.startswith("A") else at == "/tools" and form != "B9"


def _checked(stories: list[StorylineDocument], source: Json) -> list[StorylineDocument]:
    """The stories, if they give the source back."""
    wrong = residual.diff(source, _given_back(stories))
    if wrong:
        raise ProjectionError(
            f"OpenAI messages: stories and residual do not give back {sorted(wrong)[0] or 'the document'!r}",
            hint="the facts are good; report the document as a fault of the projection",
        )
    if repeats := _repeats(source, 4):
        stories[0].lints["repeated-key"] = repeats
    return stories


def _repeats(value: Json, depth: int) -> int:
    """Objects with a repeated member, down to those of a message and its calls."""
    if not isinstance(value, list) or not depth:
        return 0
    if not isinstance(value, Object):
        return sum(_repeats(each, depth - 1) for each in value)
    here = len({name for name, _ in value}) < len(value)
    return here + sum(_repeats(each, depth - 1) for _, each in value)


def _given_back(stories: Sequence[StorylineDocument], *, exact: bool = True) -> Json:
    marks, rest = _gathered(stories) if exact else ({}, {})
    form = _form_of(stories[0])
    if form.startswith("A"):
        made = openai_rows.made(stories, form, marks)
    else:
        made = _made(stories[0], form, marks, Slots(stories[0]))
    return residual.apply(made, rest)


# -- out of Storyline ---------------------------------------------------------------------------------------------


def dump(stories: Sequence[StorylineDocument], *, exact: bool = True) -> bytes:
    """Text of one document from its stories, in the form from which they came.

    Without `exact` the residuals are left out: the canonical document of that form. Stories of other formats come out
    as one B1 object each, a line for each where there are several. Raises UsageError for no story, ProjectionError
    where a residual does not fit the stories (they were changed since).
    """
    if not stories:
        raise UsageError("no story to write as OpenAI messages", hint="give the stories of one document")
    if not _form_of(stories[0]):
        return b"\n".join(jsontext.dump(_made(story, "B1", {}, Slots(story))) for story in stories)
    value, form = _given_back(stories, exact=exact), _form_of(stories[0])
    if form not in ("A:lines", "A:row"):
        return jsontext.dump(value)
    # Rows that were neighbours in an array stand with commas, lines as lines.
    container = stories[0].origin.container if stories[0].origin else None
    rows = openai_rows.rows_of(value, form)
    return (b"," if container == "array" else b"\n").join(jsontext.dump(row) for row in rows)


def _form_of(story: StorylineDocument) -> str:
    """The form of the document from which a story came; empty for other formats."""
    if story.origin is None or story.origin.format != FORMAT:
        return ""
    return story.origin.form or "B1"


def _made(story: StorylineDocument, form: str, marks: Mapping[str, list[str]], slots: Slots) -> Json:
    """The canonical document of a conversation."""
    pointers = lists_of(form) or lists_of("B1")
    lists = [
        [slots.message(slot, marks_at(marks, f"{pointer}/{i}")) for i, slot in enumerate(found)]
        for pointer, found in zip(pointers, _split(story, pointers, marks, slots), strict=True)
    ]
    if form == "B3":
        return list(lists[0])
    tools: list[tuple[str, Json]] = []
    if story.agent.tools is not None:
        tools.append((marks.get("#/tools", ["tools"])[0], jsontext.parse(story.agent.tools)))
    if form == "B9":
        prompt = Object([("messages", lists[0]), *tools])
        return Object([("input", prompt), ("preferred_output", lists[1])])
    return Object([*((at[1:], found) for at, found in zip(pointers, lists, strict=True)), *tools])


def _split(story: StorylineDocument, pointers: Sequence[str], marks: Mapping[str, list[str]], slots: Slots) -> list[list[Slot]]:
    """The slots of each list: as marked, else in canonical order, the answer to the last user in the second list."""
    marked = [slots.decode(marks.get(f"#{pointer}", ())) for pointer in pointers]
    if any(f"#{pointer}" in marks for pointer in pointers):
        # Turns that somebody added since then follow those that were there.
        known = {turn for found in marked for turn, _ in found}
        last = max(known, default=-1)
        marked[-1] += [slot for slot in slots.default() if slot[0] > last]
        return marked
    found = slots.default()
    if len(pointers) == 1:
        return [found]
    users = [i for i, (turn, k) in enumerate(found) if k == 0 and story.turns[turn].src == "user"]
    cut = users[-1] + 1 if users else 0
    return [found[:cut], found[cut:]]
