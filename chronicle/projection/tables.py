"""Hub stories as rows of `runs`, `steps` and `tool_calls` (design 5.2, physical.md 2.4), and back (pure).

Beside the columns, `residual` keeps what they do not give back: the residuals of the story, its turns and calls, and
under keys that are no JSON Pointer what the hub knows and no column holds: `origin` (what the peer would not take in the
column), `children` (what the source calls the children, where it is not the list of `child_session_ids`) and `ts` (the time
stamp text, or None for no text, where `/timestamp` of the same row is the source's own). `/timestamp` itself holds the text
of a time stamp that its instant does not give back.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from chronicle.errors import ProjectionError
from chronicle.formats import jsontext
from chronicle.formats import residual as residuals
from chronicle.formats.story import JsonText, Origin, Parent, Residual, StorylineDocument, ToolCall, Turn
from chronicle.projection.columns import fits, instants, is_canonical, ordinals, repeated, strings, texts
from chronicle.projection.results import results_of
from chronicle.projection.schemas import (
    ENCODE,
    ENCODE_RUNS,
    ENCODE_STEPS,
    ENCODE_TOOL_CALLS,
    RUNS,
    SCHEMAS,
    STEPS,
    STORYLINE_VERSION,
    TOOL_CALLS,
)
from chronicle.projection.stories import stories, text_of
from chronicle.projection.unknown import kept

__all__ = [
    "ENCODE",
    "ENCODE_RUNS",
    "ENCODE_STEPS",
    "ENCODE_TOOL_CALLS",
    "RUNS",
    "SCHEMAS",
    "STEPS",
    "TOOL_CALLS",
    "TableBuilder",
    "stories",
]

_PEER_ORIGIN = frozenset({"format", "schema_version"})
"""Keys of `origin` that the peer takes from others; with any other key it refuses to load the document."""

_FULL_BYTES = 8 << 20
_FULL_ROWS = 16384
"""Short steps take more memory than their text says."""
_MESSAGE_KINDS = {b'"': b"text", b"[": b"parts", b"n": b"null"}
_EFFORT_KINDS = {b'"': b"text"} | {bytes([digit]): b"number" for digit in b"-0123456789"}
_TURN_KINDS = {"user": b"dialogue", "system": b"internal"}
# A text that stands in a JSON string, and in a JSON string of that, as it is.
_PLAIN = re.compile(r"[0-9A-Za-z:.+ -]*")


class TableBuilder:
    """Collects stories and makes one record batch of each table from them, column by column."""

    def __init__(self) -> None:
        self._stories: list[StorylineDocument] = []
        self._ordinals: list[int] = []
        self._memo: tuple[Residual, bytes | None] = ({}, None)
        self.rows = 0
        """Rows collected, of all three tables."""
        self.bytes = 0
        """About how many bytes of text the batches will hold."""

    def add(self, story: StorylineDocument, storage_ordinal: int) -> None:
        """Take a story, which must not change before `batches`.

        Raises ProjectionError, and takes nothing, where a number does not fit 64 bits or a string is not Unicode.
        """
        size = _checked(story)
        self._stories.append(story)
        self._ordinals.append(storage_ordinal)
        self.rows += 1 + len(story.turns) + sum(len(turn.tool_calls) for turn in story.turns if turn.tool_calls)
        self.bytes += size

    @property
    def is_full(self) -> bool:
        """Whether this is enough for one batch of each table: whoever goes on collecting pays with memory."""
        return self.bytes >= _FULL_BYTES or self.rows >= _FULL_ROWS

    def batches(self) -> dict[str, pa.RecordBatch]:
        """The collected rows by table name, in the order in which they came; the builder is empty afterwards.

        To be asked between documents: the row of a root says what is unknown in all stories of its document.
        """
        taken, places = self._stories, self._ordinals
        self._stories, self._ordinals, self.rows, self.bytes = [], [], 0, 0
        turns = [turn for story in taken for turn in story.turns]
        counts = [len(story.turns) for story in taken]
        calls = [len(turn.tool_calls) if turn.tool_calls else 0 for turn in turns]
        keys = _keys(taken)
        step_keys = _repeated(keys, counts)
        return {
            "runs": _batch(RUNS, keys | self._runs(taken, places)),
            "steps": _batch(STEPS, step_keys | {"turn_ordinal": ordinals(counts)} | self._steps(turns)),
            "tool_calls": _batch(TOOL_CALLS, _repeated(step_keys, calls) | {"call_index": ordinals(calls)} | self._calls(turns)),
        }

    def _runs(self, taken: list[StorylineDocument], places: list[int]) -> dict[str, pa.Array]:
        size = len(taken)
        agents = [story.agent for story in taken]
        unknown = kept(taken)
        return {
            "schema_version": texts([STORYLINE_VERSION.encode()] * size),
            "origin": texts([_origin(story) for story in taken]),
            "storage_ordinal": pa.array(places, pa.int64()),
            # True, or the peer takes the session id for the document id and refuses to load the row.
            "trajectory_id_explicit": pa.array([True] * size, pa.bool_()),
            "agent_id": strings([agent.id for agent in agents]),
            "agent_name": strings([agent.name for agent in agents]),
            "agent_version": strings([agent.ver for agent in agents]),
            "agent_model_name": strings([agent.model for agent in agents]),
            "agent_tool_definitions": texts([agent.tools for agent in agents]),
            "agent_extra": texts([agent.extra for agent in agents]),
            "parent": texts([_parent(story) for story in taken]),
            "child_session_ids": texts([_children(story) for story in taken]),
            "notes": strings([story.notes for story in taken]),
            "final_metrics": texts([story.final_metrics for story in taken]),
            "continued_trajectory_ref": strings([story.continued_trajectory_ref for story in taken]),
            "extra": texts([story.extra for story in taken]),
            "meta": texts([msgspec.json.encode({"lints": story.lints}) if story.lints else None for story in taken]),
            "unknown_fields": texts([each.fields for each in unknown]),
            "unknown_key_counts": texts([each.counts for each in unknown]),
            "residual": texts([self._run_residual(story) for story in taken]),
        }

    def _steps(self, turns: list[Turn]) -> dict[str, pa.Array]:
        stamps = [turn.ts for turn in turns]
        moments = instants(stamps)
        return {
            "step_id": pa.array([turn.id for turn in turns], pa.int64()),
            "kind": strings([turn.kind for turn in turns]),
            "effective_kind": texts([_effective_kind(turn) for turn in turns]),
            "timestamp": moments,
            "source": strings([turn.src for turn in turns]),
            "message_kind": texts([_MESSAGE_KINDS.get(turn.msg[:1], b"json") for turn in turns]),
            "message_value": texts([turn.msg for turn in turns]),
            "reasoning_content": strings([turn.reason for turn in turns]),
            "reasoning_effort_kind": texts([_effort_kind(turn.effort) for turn in turns]),
            "reasoning_effort_value": texts([turn.effort for turn in turns]),
            "metrics": texts([turn.metrics for turn in turns]),
            "model_name": strings([turn.model for turn in turns]),
            "llm_call_count": pa.array([turn.nllm for turn in turns], pa.int64()),
            "is_copied_context": pa.array([turn.copied for turn in turns], pa.bool_()),
            "latency": pa.array([turn.latency_ms for turn in turns], pa.int64()),
            "ttft": pa.array([turn.ttft_ms for turn in turns], pa.int64()),
            "had_tool_calls": pa.array([turn.tool_calls is not None for turn in turns], pa.bool_()),
            "had_observation": pa.array([turn.observation is not None for turn in turns], pa.bool_()),
            "observation": texts([turn.observation for turn in turns]),
            "extra": texts([turn.extra for turn in turns]),
            "residual": texts(list(map(self._step_residual, turns, moments.is_valid().to_pylist()))),
        }

    def _calls(self, turns: list[Turn]) -> dict[str, pa.Array]:
        flat: list[ToolCall] = list(chain.from_iterable(turn.tool_calls or () for turn in turns))
        return {
            "step_id": pa.array([turn.id for turn in turns for _ in turn.tool_calls or ()], pa.int64()),
            "tool_call_id": strings([call.tcid for call in flat]),
            "function_name": strings([call.fn for call in flat]),
            "arguments": texts([call.args for call in flat]),
            "results": texts([text for turn in turns if turn.tool_calls for text in results_of(turn)]),
            "duration": pa.array([call.duration_ms for call in flat], pa.int64()),
            "extra": texts([call.extra for call in flat]),
            "residual": texts([self._encoded(call.residual) for call in flat]),
        }

    def _encoded(self, residual: Residual | None) -> bytes | None:
        if not residual:
            return None
        # The same small residual (an order of members, say) comes again with every step.
        known, text = self._memo
        if residual != known:
            text = residuals.encode(residual)
            self._memo = (residual, text)
        return text

    def _run_residual(self, story: StorylineDocument) -> bytes | None:
        own: Residual = {}
        if more := {k: v for k, v in _members(story.origin).items() if k not in _PEER_ORIGIN}:
            own["origin"] = msgspec.json.encode(more).decode()
        if story.children != (story.child_stories or (None if story.children is None else [])):
            own["children"] = None if story.children is None else msgspec.json.encode(story.children).decode()
        return residuals.encode({**(story.residual or {}), **own}) if own else self._encoded(story.residual)

    def _step_residual(self, turn: Turn, has_instant: bool) -> bytes | None:
        text = turn.ts
        taken = turn.residual is not None and "/timestamp" in turn.residual
        if text is None:
            if taken and _reads_as_text((turn.residual or {})["/timestamp"]):
                return residuals.encode({**(turn.residual or {}), "ts": None})
            return self._encoded(turn.residual)
        if has_instant and is_canonical(text) and not taken:
            return self._encoded(turn.residual)
        key = "ts" if taken else "/timestamp"
        if not _PLAIN.fullmatch(text):
            return residuals.encode({**(turn.residual or {}), key: jsontext.string(text).decode()})
        rest = self._encoded(turn.residual)
        member = f'"{key}":"\\"{text}\\""}}'.encode()
        return b"{" + member if rest is None else rest[:-1] + b"," + member


def _keys(taken: list[StorylineDocument]) -> dict[str, pa.Array]:
    """What every row of a story repeats."""
    return {
        "document_id": strings([story.story_id for story in taken]),
        "run_id": strings([story.run for story in taken]),
        "session_id": strings([story.session for story in taken]),
    }


def _repeated(columns: dict[str, pa.Array], counts: list[int]) -> dict[str, pa.Array]:
    return {name: repeated(column, counts) for name, column in columns.items()}


def _batch(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    size = len(columns["document_id"])
    arrays = [columns[field.name] if field.name in columns else pa.nulls(size, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _members(value: Origin | Parent | None) -> dict[str, Any]:
    """Fields that say something."""
    return {} if value is None else {k: v for k, v in msgspec.to_builtins(value).items() if v is not None}


def _origin(story: StorylineDocument) -> bytes | None:
    if story.origin is None:
        return None
    return msgspec.json.encode({k: v for k, v in _members(story.origin).items() if k in _PEER_ORIGIN})


def _parent(story: StorylineDocument) -> bytes | None:
    return None if story.parent is None else msgspec.json.encode(_members(story.parent))


def _children(story: StorylineDocument) -> bytes | None:
    if story.children is None and not story.child_stories:
        return None
    return msgspec.json.encode(story.child_stories)


def _effective_kind(turn: Turn) -> bytes:
    if turn.kind is not None:
        return turn.kind.encode()
    if turn.src == "agent" and turn.tool_calls:
        return b"autonomous"
    return _TURN_KINDS.get(turn.src, b"dialogue")


def _effort_kind(effort: JsonText | None) -> bytes | None:
    return None if effort is None else _EFFORT_KINDS.get(effort[:1], b"json")


def _checked(story: StorylineDocument) -> int:
    """About how many bytes the story's texts have in the tables; raises ProjectionError where a column cannot hold a value."""
    turns = story.turns
    calls = [call for turn in turns for call in turn.tool_calls or ()]
    whole = (
        fits([turn.id for turn in turns])
        and fits([turn.nllm for turn in turns])
        and fits([turn.latency_ms for turn in turns])
        and fits([turn.ttft_ms for turn in turns])
        and fits([call.duration_ms for call in calls])
    )
    if not whole:
        raise ProjectionError(
            f"story {story.story_id} of session {story.session!r} holds a number beyond 64 bits",
            hint="such numbers belong into the residual",
            story=story.story_id,
        )
    try:
        size = len("".join(_strings(story, calls)).encode())
    except UnicodeEncodeError as exc:
        raise ProjectionError(
            f"story {story.story_id} holds an unpaired surrogate in a text column",
            hint="such texts belong into the residual",
            story=story.story_id,
        ) from exc
    # An observation is stored twice, in pieces the second time (`results`).
    observations = [turn.observation for turn in turns if turn.observation]
    for json in (observations, observations, [turn.msg for turn in turns], [call.args for call in calls]):
        size += sum(map(len, json))
    for other in ([turn.metrics for turn in turns], [turn.extra for turn in turns], [call.extra for call in calls]):
        size += sum(map(len, filter(None, other)))
    return size


def _strings(story: StorylineDocument, calls: list[ToolCall]) -> list[str]:
    """Every string of the story that becomes a cell or a part of one."""
    agent, turns = story.agent, story.turns
    found: list[str | None] = [story.story_id, story.run, story.session, story.notes, story.continued_trajectory_ref]
    found += [agent.id, agent.name, agent.ver, agent.model, *(story.children or ()), *story.child_stories, *story.lints]
    if story.parent is not None:
        found += [story.parent.psid, story.parent.scid, story.parent.rel]
    for names in (
        [turn.src for turn in turns],
        [turn.ts for turn in turns],
        [turn.model for turn in turns],
        [turn.reason for turn in turns],
        [turn.kind for turn in turns],
        [call.tcid for call in calls],
        [call.fn for call in calls],
    ):
        found += names
    return [text for text in found if text]


def _reads_as_text(cell: str | list[str] | None) -> bool:
    return isinstance(cell, str) and text_of(cell) is not None
