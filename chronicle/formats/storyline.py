"""Storyline files, `storyline/v1` (seed RFC-0001, formats/storyline.md): read and written.

The reader takes short and long names and both profiles. The writer has two: `seed` (short names, `spec`), and
`peer` (`schema_version`, no member that `pchronicle` does not know).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any, Literal

from chronicle.errors import InputError, UsageError
from chronicle.formats import carrier, jsontext, residual, turns
from chronicle.formats.document import Document
from chronicle.formats.finish import filled, finished, nested
from chronicle.formats.jsontext import Json, Number, Object
from chronicle.formats.kinds import INT64, Field, Kind, Reading
from chronicle.formats.shape import Shape
from chronicle.formats.story import Agent, Origin, Parent, Residual, StorylineDocument
from chronicle.formats.turns import Lints, count

SPEC = "storyline/v1"
Profile = Literal["seed", "peer"]

CALL = Shape(
    Field("tcid", "tcid", required=True, aliases=("tool_call_id",)),
    Field("fn", "fn", required=True, aliases=("function_name",)),
    Field("args", "args", Kind.JSON, required=True, empty=b"{}", aliases=("arguments",)),
    Field("duration_ms", "duration_ms", Kind.INT),
    Field("extra", "extra", Kind.JSON),
)
TURN = Shape(
    Field("id", "id", Kind.INT, required=True, empty=b"0"),
    Field("src", "src", required=True, aliases=("source",)),
    Field("msg", "msg", Kind.JSON, required=True, aliases=("message",)),
    Field("ts", "ts", Kind.STAMP, aliases=("timestamp",)),
    Field("model", "model", aliases=("model_name",)),
    Field("effort", "effort", Kind.JSON, aliases=("reasoning_effort",)),
    Field("reason", "reason", aliases=("reasoning_content",)),
    Field("tool_calls", "tool_calls", Kind.OBJECTS, shape=CALL),
    Field("observation", "observation", Kind.JSON),
    Field("metrics", "metrics", Kind.JSON),
    Field("nllm", "nllm", Kind.INT, aliases=("llm_call_count",)),
    Field("copied", "copied", Kind.BOOL, aliases=("is_copied_context",)),
    Field("extra", "extra", Kind.JSON),
    Field("kind", "kind"),
    Field("latency_ms", "latency_ms", Kind.INT),
    Field("ttft_ms", "ttft_ms", Kind.INT),
)
AGENT = Shape(
    Field("id", "id", required=True),
    Field("name", "name"),
    Field("ver", "ver", aliases=("version",)),
    Field("model", "model", aliases=("model_name",)),
    Field("tools", "tools", Kind.JSON, aliases=("tool_definitions",)),
    Field("extra", "extra", Kind.JSON),
)
PARENT = Shape(
    Field("psid", "psid", required=True, aliases=("parent_session_id", "parent_story_id")),
    Field("scid", "scid", aliases=("spawn_call_id",)),
    Field("ptid", "ptid", Kind.INT, aliases=("spawn_id",)),
    Field("rel", "rel", aliases=("relation",)),
)


def _root(spec: Field) -> Shape:
    return Shape(
        spec,
        Field("run", "run", aliases=("run_id", "trajectory_id")),
        Field("session", "session", required=True, aliases=("session_id", "story_id")),
        Field("agent", "agent", Kind.OBJECT, required=True, empty=b"{}", shape=AGENT),
        Field("parent", "parent", Kind.OBJECT, shape=PARENT),
        Field("children", "children", Kind.NAMES, aliases=("child_session_ids", "child_story_ids")),
        Field("notes", "notes"),
        Field("final_metrics", "final_metrics", Kind.JSON),
        Field("continued_trajectory_ref", "continued_trajectory_ref"),
        Field("extra", "extra", Kind.JSON),
        Field("turns", "turns", Kind.PARTS, required=True, empty=b"[]"),
    )


ROOT = _root(Field("spec", "spec", required=True, empty=b'"storyline/v1"', aliases=("schema_version",)))
PEER_ROOT = _root(Field("spec", "schema_version", required=True, empty=b'"storyline/v1"'))


# --- what must be rejected ----------------------------------------------------------------------------------


def violation(value: Json, more: Iterable[Json] = ()) -> str | None:
    """Name of the first rule that a document breaks so that it MUST be rejected (storyline.md 5); None for none.

    `more`: turns that follow those in `value`.
    """
    if not isinstance(value, Object):
        return "not-an-object"
    spec = _get(value, ROOT, "spec")
    if isinstance(spec, str) and spec.lower().startswith("storyline/") and spec != SPEC:
        return "unknown-version"
    session, agent, listed = _get(value, ROOT, "session"), value.get("agent"), value.get("turns")
    if not isinstance(session, str) or not session:
        return "empty-session"
    if not isinstance(agent, Object):
        return "missing-agent"
    identity = agent.get("id")
    if not isinstance(identity, str) or not identity:
        return "empty-agent-id"
    if isinstance(listed, Object) or not isinstance(listed, list):
        return "turns-not-array"
    ids: set[int] = set()
    repeated = False
    for turn in chain[Any](listed, more):
        broken = _turn_violation(turn)
        if broken is not None:
            return broken
        number = int(turn.get("id").text)
        repeated = repeated or number in ids
        ids.add(number)
    return "repeated-turn-id" if repeated else None


def _turn_violation(turn: Json) -> str | None:
    if not isinstance(turn, Object) or not _is_id(turn.get("id")):
        return "turn-without-id"
    names = dict(turn)
    if not isinstance(_get(turn, TURN, "src"), str):
        return "turn-without-src"
    if not any(name in names for name in ("msg", "message")):
        return "turn-without-msg"
    calls = turn.get("tool_calls")
    if isinstance(calls, list) and not isinstance(calls, Object):
        return next((rule for call in calls if (rule := _call_violation(call))), None)
    return None


def _call_violation(call: Json) -> str | None:
    if not isinstance(call, Object) or not isinstance(_get(call, CALL, "tcid"), str):
        return "call-without-tcid"
    if not isinstance(_get(call, CALL, "fn"), str):
        return "call-without-fn"
    return None if any(name in ("args", "arguments") for name, _ in call) else "call-without-args"


def _is_id(value: Json) -> bool:
    digits = value.text.removeprefix("-") if isinstance(value, Number) else ""
    return digits.isdecimal() and len(digits) <= 19 and isinstance(value, Number) and int(value.text) in INT64


def _get(value: Object, shape: Shape, attr: str) -> Json:
    """The member that the reader takes for a field."""
    field = next(field for field in shape.fields if field.attr == attr)
    name = shape.chosen(field, dict(value))
    return None if name is None else value.get(name)


# --- into ---------------------------------------------------------------------------------------------------


def into(document: Document) -> list[StorylineDocument]:
    """The one story of a document. Takes the parts out of the document.

    Raises InputError (`invalid:<rule>`) for what must be rejected, ProjectionError as `atif.into` does.
    """
    rule = _violation(document)
    if rule is not None:
        raise InputError(
            f"Storyline document {document.locator} breaks the rule {rule}",
            hint="see the rules of storyline/v1 on what must be rejected",
            kind=f"invalid:{rule}",
        )
    lints: Lints = {}
    reading = ROOT.read(document.skeleton)
    story = _story(document, reading, lints)
    for text in document.drain():
        turn = turns.turn_of(TURN.read(text), lints)
        turns.look_at_types(turn, lints, arguments=b"")
        if turn.ts is not None:
            turns.look_at_time(turn.ts, lints)
        story.turns.append(turn)
    if any(after.id < before.id for before, after in zip(story.turns, story.turns[1:], strict=False)):
        count(lints, "ids-not-ascending")
    turns.settle_ids(story, TURN, turn_id=None, call_id="tcid")
    return [story]


def _violation(document: Document) -> str | None:
    """The rule that a document breaks, looked for part by part: each may be nested 1,000 deep, and all are large together."""
    return violation(jsontext.parse(document.skeleton), (jsontext.parse(part.text) for part in document.parts))


def _story(document: Document, reading: Reading, lints: Lints) -> StorylineDocument:
    values = reading.values
    rest = dict(reading.residual)
    for code in reading.lints:
        count(lints, code)
    agent: Reading = values["agent"]
    parent: Reading | None = values.get("parent")
    for name, inside in (("agent", agent), ("parent", parent)):
        if inside is not None:
            rest.update(residual.prefixed(inside.residual, f"/{name}"))
            for code in inside.lints:
                count(lints, f"{name}-{code}")
    link = {"psid": "", **parent.values} if parent is not None else None
    return StorylineDocument(
        story_id=document.id,
        session=values["session"],
        agent=Agent(**agent.values),
        turns=[],
        run=values.get("run"),
        children=values.get("children"),
        parent=Parent(**link) if link is not None else None,
        notes=values.get("notes"),
        final_metrics=values.get("final_metrics"),
        continued_trajectory_ref=values.get("continued_trajectory_ref"),
        extra=values.get("extra"),
        origin=Origin(
            format="storyline",
            schema_version=values.get("spec"),
            container=document.container,
            document_id=document.id,
            source_id=document.source_id or None,
            locator=document.locator,
        ),
        residual=rest or None,
        lints=lints,
    )


# --- dump ---------------------------------------------------------------------------------------------------


def dump(
    stories: Sequence[StorylineDocument], *, profile: Profile = "seed", residual: Literal["carry", "drop"] = "carry"
) -> bytes:
    """Text of a Storyline file: an object for one story, an array for several. Raises UsageError for none.

    Stories of other formats carry their origin and residual in `extra.chronicle`, unless `residual` is `drop`.
    """
    texts = documents(stories, profile=profile, residual=residual)
    return texts[0] if len(texts) == 1 else b"[%b]" % b",".join(texts)


def documents(
    stories: Sequence[StorylineDocument], *, profile: Profile = "seed", residual: Literal["carry", "drop"] = "carry"
) -> list[bytes]:
    """Text of each story."""
    if not stories:
        raise UsageError("there is no story to write")
    out = []
    for _, group in groupby(stories, key=_document_of):
        members = list(group)
        for i, story in enumerate(members):
            load = carrier.gathered(members) if i == 0 and residual == "carry" else {}
            out.append(_text(story, profile, residual == "carry", load))
    return out


def _document_of(story: StorylineDocument) -> str:
    return (story.origin.document_id if story.origin is not None else None) or story.story_id


def _text(story: StorylineDocument, profile: Profile, keep: bool, load: Residual) -> bytes:
    origin = story.origin
    ours = origin is not None and origin.format == "storyline"
    exact = ours and keep and profile == "seed"
    rest = story.residual or {} if exact else {}
    agent_rest, rest = nested(rest, "/agent")
    parent_rest, rest = nested(rest, "/parent")
    values: dict[str, Any] = {
        **turns.fields_of(story),
        "spec": origin.schema_version if ours and origin is not None else SPEC,
        "turns": True,
        "agent": Reading(turns.fields_of(story.agent), agent_rest, ()),
    }
    if story.parent is not None:
        values["parent"] = Reading(turns.fields_of(story.parent), parent_rest, ())
    if origin is not None and not ours and keep:
        values["extra"] = carrier.packed(story.extra, origin, load)
    text = finished(PEER_ROOT if profile == "peer" else ROOT, Reading(values, rest, ()))
    if profile == "peer":
        text = _for_peer(text, story, load)
    return filled(text, "turns", (turns.turn_text(TURN, turn, exact) for turn in story.turns))


def _for_peer(text: bytes, story: StorylineDocument, load: Residual) -> bytes:
    """What `pchronicle` has members for: the trajectory id, the origin, and what it calls unknown fields (2.4)."""
    origin = story.origin
    value = jsontext.parse(text)
    if origin is None or not isinstance(value, Object):
        return text
    added = Object()
    if origin.format == "atif" and story.run:
        added.append(("trajectory", story.run))
    says = [("format", origin.format), ("schema_version", origin.schema_version)]
    added.append(("origin", Object([(name, said) for name, said in says if said is not None])))
    fields = Object([(at, jsontext.parse(said)) for at, said in sorted(load.items()) if isinstance(said, str)])
    if fields:
        source = Object([("fields", fields), ("source_document_id", origin.document_id or story.story_id)])
        added.append(("unknown_fields", Object([("sources", Object([(origin.format, source)]))])))
        counts = Object([(at, Number("1")) for at, _ in fields])
        added.append(("unknown_key_counts", Object([(origin.format, counts)])))
    return jsontext.dump(Object([*value, *added]))
