"""ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8 (formats/atif.md).

`into` takes whatever is JSON; what a story's fields cannot hold stands in residuals, and is counted as lints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chronicle.errors import UsageError
from chronicle.formats import jsontext, residual, turns
from chronicle.formats.document import Document, drained
from chronicle.formats.finish import filled, finished, nested, settled
from chronicle.formats.kinds import Field, Kind, Reading
from chronicle.formats.shape import Shape
from chronicle.formats.story import Agent, Origin, Parent, Residual, StorylineDocument, ToolCall, Turn
from chronicle.formats.turns import Lints, count
from chronicle.identity import story_id

VERSION = "ATIF-v1.7"
"""What a document that did not come as ATIF says it is."""
AUDIO_VERSION = "ATIF-v1.8"
"""... where it holds an audio part."""
UNKNOWN = "unknown"
"""Name and version of an agent of which nothing is known."""

CALL = Shape(
    Field("tcid", "tool_call_id", required=True),
    Field("fn", "function_name", required=True),
    Field("args", "arguments", Kind.JSON, required=True, empty=b"{}"),
    Field("extra", "extra", Kind.JSON),
)
STEP = Shape(
    Field("id", "step_id", Kind.INT, required=True, empty=b"0"),
    Field("ts", "timestamp", Kind.STAMP),
    Field("src", "source", required=True),
    Field("msg", "message", Kind.JSON, required=True),
    Field("model", "model_name"),
    Field("effort", "reasoning_effort", Kind.JSON),
    Field("reason", "reasoning_content"),
    Field("tool_calls", "tool_calls", Kind.OBJECTS, shape=CALL),
    Field("observation", "observation", Kind.JSON),
    Field("metrics", "metrics", Kind.JSON),
    Field("extra", "extra", Kind.JSON),
    Field("nllm", "llm_call_count", Kind.INT),
    Field("copied", "is_copied_context", Kind.BOOL),
)
AGENT = Shape(
    Field("name", "name", required=True, empty=b'"unknown"'),
    Field("ver", "version", required=True, empty=b'"unknown"'),
    Field("model", "model_name"),
    Field("tools", "tool_definitions", Kind.JSON),
    Field("extra", "extra", Kind.JSON),
)
ROOT = Shape(
    Field("schema_version", "schema_version", required=True, empty=b'"ATIF-v1.7"'),
    Field("session", "session_id", required=True),
    Field("run", "trajectory_id"),
    Field("agent", "agent", Kind.OBJECT, required=True, empty=b'{"name":"unknown","version":"unknown"}', shape=AGENT),
    Field("steps", "steps", Kind.PARTS, required=True, empty=b"[]"),
    Field("notes", "notes"),
    Field("final_metrics", "final_metrics", Kind.JSON),
    Field("continued_trajectory_ref", "continued_trajectory_ref"),
    Field("extra", "extra", Kind.JSON),
    Field("embedded", "subagent_trajectories", Kind.EMBEDDED),
)
LATENCY = ("latency_ms", "elapsed_ms", "duration_ms")
EMBEDDED = "subagent_trajectories"


# --- into ---------------------------------------------------------------------------------------------------


def into(document: Document) -> list[StorylineDocument]:
    """The stories of a document: the root, then embedded trajectories in pre-order. Takes the parts out of the document.

    Turns keep the order of their steps. Raises ProjectionError: `too-deep` for nesting beyond 1,000, else where
    fields and residuals would not give the source's value back.
    """
    stories = _read_trajectories(document)
    if len(stories) == 1:
        _read_steps(stories[""], document.drain())
    else:
        texts: dict[str, list[bytes]] = {pointer: [] for pointer in stories}
        for part in drained(document.parts):
            texts[part.pointer[: part.pointer.rindex("/steps/")]].append(part.text)
        for pointer, story in stories.items():
            _read_steps(story, drained(texts[pointer]))
    for pointer, story in stories.items():
        children = [stories[at] for at in _children(pointer, stories)]
        story.child_stories = [child.story_id for child in children]
        _link(story, children)
    return list(stories.values())


def _read_trajectories(document: Document) -> dict[str, StorylineDocument]:
    """Stories without turns, by the pointer of their trajectory, in pre-order."""
    stories: dict[str, StorylineDocument] = {}
    todo: list[tuple[bytes, str, StorylineDocument | None]] = [(document.skeleton, "", None)]
    while todo:
        text, pointer, parent = todo.pop()
        story, embedded = _read_trajectory(document, text, pointer, parent)
        stories[pointer] = story
        inside = [(child, f"{pointer}/{EMBEDDED}/{i}", story) for i, child in enumerate(embedded)]
        todo += reversed(inside)
    return stories


def _read_trajectory(
    document: Document, text: bytes, pointer: str, parent: StorylineDocument | None
) -> tuple[StorylineDocument, list[bytes]]:
    """A story without turns, and the texts of the trajectories embedded in it."""
    reading = ROOT.read(text)
    values = reading.values
    lints: Lints = {}
    for code in reading.lints:
        if code not in ("missing-session-id", "missing-agent"):  # legal since 1.7; counted as agent-missing
            count(lints, code)
    identity = story_id(document.id, pointer)
    run = values.get("run")
    said = values.get("session", "")
    session = said or (parent.session if parent is not None else "") or run or identity
    rest = reading.residual if said == session else settled(reading.residual, "session_id", jsontext.string(said))
    agent, agent_residual = _agent(values.get("agent"), lints)
    if session == identity:
        count(lints, "missing-ids")
    turns.look_at_objects(lints, values.get("final_metrics"), values.get("extra"), agent.extra)
    embedded = values.get("embedded")
    story = StorylineDocument(
        story_id=identity,
        session=session,
        agent=agent,
        turns=[],
        run=run,
        children=None if embedded is None else [],
        parent=None if parent is None else Parent(psid=parent.run or parent.session),
        notes=values.get("notes"),
        final_metrics=values.get("final_metrics"),
        continued_trajectory_ref=values.get("continued_trajectory_ref"),
        extra=values.get("extra"),
        origin=Origin(
            format="atif",
            schema_version=values.get("schema_version"),
            container=document.container,
            document_id=document.id,
            source_id=document.source_id or None,
            locator=document.locator,
            pointer=pointer or None,
        ),
        residual={**rest, **residual.prefixed(agent_residual, "/agent")} or None,
        lints=lints,
    )
    return story, embedded or []


def _agent(reading: Reading | None, lints: Lints) -> tuple[Agent, Residual]:
    if reading is None:
        count(lints, "agent-missing")
        return Agent(id=UNKNOWN), {}
    for code in reading.lints:
        count(lints, f"agent-{code}")
    return Agent(id=reading.values.get("name") or UNKNOWN, **reading.values), reading.residual


def _children(pointer: str, stories: dict[str, StorylineDocument]) -> list[str]:
    head = f"{pointer}/{EMBEDDED}/"
    return [at for at in stories if at.startswith(head) and "/" not in at[len(head) :]]


def _read_steps(story: StorylineDocument, texts: Iterable[bytes]) -> None:
    lints = story.lints
    quick, slow, add = STEP.quick, STEP.slow, story.turns.append
    integers = True
    for text in texts:
        reading = quick(text) or slow(text)
        integers = integers and "id" in reading.values
        turn = turns.turn_of(reading, lints)
        turns.look_at_types(turn, lints, arguments=b"{")
        _copy_durations(turn)
        _look_at(turn, lints)
        add(turn)
    turns.settle_ids(story, STEP, turn_id="step_id", call_id="tool_call_id", are_integers=integers)


def _copy_durations(turn: Turn) -> None:
    metrics, calls = turn.metrics, turn.tool_calls
    if metrics is not None and turns.may_time(metrics):
        turn.latency_ms = turns.duration(metrics, *LATENCY)
        turn.ttft_ms = turns.duration(metrics, "ttft_ms")
    if calls:
        for call in calls:
            if call.extra is not None:
                call.duration_ms = turns.duration(call.extra, "duration_ms", integer=True)


# --- what is odd --------------------------------------------------------------------------------------------


class _Result(msgspec.Struct, gc=False):
    source_call_id: str | None = None


class _Observation(msgspec.Struct, gc=False):
    results: list[_Result]


_observation = msgspec.json.Decoder(_Observation).decode


def _look_at(turn: Turn, lints: Lints) -> None:
    if turn.ts is not None:
        turns.look_at_time(turn.ts, lints)
    if turn.src != "agent":
        if turn.src not in ("user", "system"):
            count(lints, "unknown-source")
        elif turn.model or turn.effort or turn.reason or turn.tool_calls is not None or turn.metrics:
            count(lints, "agent-only-field")
    elif turn.nllm == 0 and (turn.metrics is not None or turn.reason is not None):
        count(lints, "metrics-without-llm")
    if turn.observation is not None:
        names = _named_calls(turn.observation, lints)
        if turn.tool_calls is None:
            return
        for call in turn.tool_calls:
            names.discard(call.tcid)
        if names:
            count(lints, "dangling-source-call-id", len(names))


def _named_calls(observation: bytes, lints: Lints) -> set[str]:
    """Every `source_call_id` of the results that is a string. Lints what is no list of results."""
    try:
        names = {one.source_call_id for one in _observation(observation).results}
    except (msgspec.DecodeError, RecursionError):
        _look_at_results(jsontext.parse(observation), lints)
        return {name for one in _results(observation) if isinstance(name := one.get("source_call_id"), str)}
    names.discard(None)
    return names  # type: ignore[return-value]


def _look_at_results(observation: jsontext.Json, lints: Lints) -> None:
    if not isinstance(observation, jsontext.Object):
        return  # of a wrong type, which is counted already
    results = observation.get("results")
    if isinstance(results, jsontext.Object) or not isinstance(results, list):
        count(lints, "observation-without-results")
        return
    others = sum(not isinstance(one, jsontext.Object) for one in results)
    if others:
        count(lints, "result-not-an-object", others)


def _results(observation: bytes) -> list[jsontext.Object]:
    value = jsontext.parse(observation)
    results = value.get("results") if isinstance(value, jsontext.Object) else None
    return [one for one in results if isinstance(one, jsontext.Object)] if isinstance(results, list) else []


def _link(story: StorylineDocument, children: Sequence[StorylineDocument]) -> None:
    """Names of the children, and the step and call that started each (atif.md 5, 10)."""
    names = [child.run for child in children]
    if story.children is not None:
        story.children = [name for name in names if name is not None]
    count_if = [("subagent-without-id", names.count(None)), ("repeated-subagent-id", len(names) - len(set(names)))]
    for code, times in count_if:
        if times:
            count(story.lints, code, times)
    waiting: dict[str, list[StorylineDocument]] = {}
    for child in children:
        waiting.setdefault(child.run or "", []).append(child)
    for turn in story.turns:
        if turn.observation is None or turn.observation.find(b"subagent_trajectory_ref") < 0:
            continue
        for result in _results(turn.observation):
            _resolve(turn, result, waiting, story.lints)


def _resolve(turn: Turn, result: jsontext.Object, waiting: dict[str, list[StorylineDocument]], lints: Lints) -> None:
    refs = result.get("subagent_trajectory_ref")
    call = result.get("source_call_id")
    for ref in refs if isinstance(refs, list) and not isinstance(refs, jsontext.Object) else [refs]:
        named = ref.get("trajectory_id") if isinstance(ref, jsontext.Object) else None
        if isinstance(named, str) and named in waiting:
            for child in waiting[named]:
                if child.parent is not None and child.parent.ptid is None:
                    child.parent.ptid = turn.id
                    child.parent.scid = jsontext.plain(call) if isinstance(call, str) else None
        elif ref is not None and not (isinstance(ref, jsontext.Object) and isinstance(ref.get("trajectory_path"), str)):
            count(lints, "unresolved-subagent-ref")


# --- dump ---------------------------------------------------------------------------------------------------


def dump(stories: Sequence[StorylineDocument], *, residual: bool = True) -> bytes:
    """Text of one document from its stories, the root first; others are embedded under the story that names them.

    Residuals are applied to what came as ATIF, unless `residual` is False. Raises UsageError for no story.
    """
    if not stories:
        raise UsageError("there is no story to write")
    below: dict[str, list[StorylineDocument]] = {story.story_id: [] for story in stories}
    for place, story in enumerate(stories[1:], 1):
        below[_above(story, stories[:place]).story_id].append(story)
    texts: dict[str, bytes] = {}
    for story in reversed(stories):
        texts[story.story_id] = _trajectory(story, [texts[child.story_id] for child in below[story.story_id]], residual)
    return texts[stories[0].story_id]


def _above(story: StorylineDocument, earlier: Sequence[StorylineDocument]) -> StorylineDocument:
    """The story under which one is embedded, by pointer, link or name; else the root."""
    pointer = story.origin.pointer if _is_ours(story) and story.origin else None
    if pointer is not None:
        above = pointer.rsplit("/", 2)[0]
        for other in earlier:
            if other.origin is not None and (other.origin.pointer or "") == above:
                return other
    for other in earlier:
        if story.story_id in other.child_stories:
            return other
    psid = story.parent.psid if story.parent is not None else None
    return next((other for other in earlier if psid in (other.run, other.session)), earlier[0])


def _is_ours(story: StorylineDocument) -> bool:
    return story.origin is not None and story.origin.format == "atif"


def _trajectory(story: StorylineDocument, children: list[bytes], keep: bool) -> bytes:
    ours = _is_ours(story)
    rest = (story.residual or {}) if ours and keep else {}
    agent_rest, rest = nested(rest, "/agent")
    values: dict[str, Any] = {
        **turns.fields_of(story),
        "schema_version": story.origin.schema_version if ours and story.origin else _version(story),
        "agent": Reading(_agent_values(story.agent), agent_rest, ()),
        "steps": True,
        "embedded": children if children or (ours and story.children is not None) else None,
    }
    if not ours and story.parent is not None and story.run is None:
        values["run"] = story.session
    text = finished(ROOT, Reading(values, rest, ()))
    text = filled(text, "steps", (_step(turn, ours and keep) for turn in story.turns))
    return filled(text, EMBEDDED, children)


def _agent_values(agent: Agent) -> dict[str, Any]:
    values = turns.fields_of(agent)
    if agent.name is None:
        values["name"] = agent.id
    return values


def _version(story: StorylineDocument) -> str:
    texts = (text for turn in story.turns for text in (turn.msg, turn.observation or b""))
    return AUDIO_VERSION if any(b'"audio"' in text and _has_audio(jsontext.parse(text)) for text in texts) else VERSION


def _has_audio(value: jsontext.Json) -> bool:
    work: list[Any] = [value]
    while work:
        found = work.pop()
        if isinstance(found, jsontext.Object):
            if found.get("type") == "audio":
                return True
            work += [inside for _, inside in found]
        elif isinstance(found, list):
            work += found
    return False


def _step(turn: Turn, keep: bool) -> bytes:
    """A turn as a step. Durations are written only where the members that they are copies of do not say them."""
    reading = turns.turn_reading(turn, keep)
    values = reading.values
    if turn.latency_ms not in (None, turns.duration(turn.metrics, *LATENCY)):
        values["metrics"] = turns.with_member(values["metrics"], "latency_ms", turn.latency_ms)
    if turn.ttft_ms not in (None, turns.duration(turn.metrics, "ttft_ms")):
        values["metrics"] = turns.with_member(values["metrics"], "ttft_ms", turn.ttft_ms)
    for call, made in zip(turn.tool_calls or (), values["tool_calls"] or (), strict=True):
        _set_duration(call, made.values)
    return finished(STEP, reading)


def _set_duration(call: ToolCall, values: dict[str, Any]) -> None:
    if call.duration_ms not in (None, turns.duration(call.extra, "duration_ms", integer=True)):
        values["extra"] = turns.with_member(values["extra"], "duration_ms", call.duration_ms)
