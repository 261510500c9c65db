"""Hub stories as rows of `runs`, `steps` and `tool_calls` (design 5.2, physical.md 2.4), and back (pure).

Beside the columns, `residual` keeps what they do not give back: the residuals of the story, its turns and calls, and
under keys that are no JSON Pointer what the hub knows and no column holds: `origin` (what the peer would not take in the
column), `children` (what the source calls the children, where it is not the list of `child_session_ids`) and `ts` (the time
stamp text, or None for no text, where `/timestamp` of the same row is the source's own). `/timestamp` itself holds the text
of a time stamp that its instant does not give back.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from chronicle.formats import jsontext
from chronicle.formats import residual as residuals
from chronicle.formats.story import JsonText, Origin, Parent, Residual, StorylineDocument, ToolCall, Turn
from chronicle.projection.columns import instants, is_canonical, ordinals, repeated, strings, texts
from chronicle.projection.pieces import Limits, Piece, pieces
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
from chronicle.projection.unknown import Kept, kept

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


class _Run(NamedTuple):
    """What a row of `runs` is made from."""

    story: StorylineDocument
    storage_ordinal: int
    unknown: Kept


class TableBuilder:
    """Collects stories and makes record batches of each table from them, column by column."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._runs: deque[_Run] = deque()
        """Of the stories that begin in `_pieces`."""
        self._memo: tuple[Residual, bytes | None] = ({}, None)
        self.rows = 0
        """Rows collected, of all three tables."""
        self.bytes = 0
        """About how many bytes of text the batches will hold."""

    def add(self, stories: Sequence[StorylineDocument], storage_ordinal: int) -> None:
        """Take the stories of one document, the root first, which must not change before the last batch. Takes their turns out.

        Raises ProjectionError, and takes nothing, where a number does not fit 64 bits or a string is not Unicode.
        """
        limits = Limits(_FULL_ROWS, _FULL_BYTES)
        taken = [piece for story in stories for piece in pieces(story, limits)]
        unknown = kept(stories)
        for story in stories:
            self._runs.append(_Run(story, storage_ordinal, unknown))
            unknown = Kept()
            story.turns = []
        self._pieces += taken
        self.rows += sum(piece.rows for piece in taken)
        self.bytes += sum(piece.bytes for piece in taken)

    @property
    def is_full(self) -> bool:
        """Whether this is enough for one batch of each table: whoever goes on collecting pays with memory."""
        return self.bytes >= _FULL_BYTES or self.rows >= _FULL_ROWS

    def batches(self) -> dict[str, pa.RecordBatch]:
        """The next rows by table name, in the order in which they came: what fills a batch of each table, or all that is left.

        A story may go on in the next batches; its row of `runs` is in the first of them.
        """
        taken = self._taken()
        turns = [turn for piece in taken for turn in piece.turns]
        counts = [len(piece.turns) for piece in taken]
        calls = [len(turn.tool_calls) if turn.tool_calls else 0 for turn in turns]
        step_keys = _repeated(_keys([piece.story for piece in taken]), counts)
        places = {"turn_ordinal": ordinals(counts, [piece.first for piece in taken])}
        return {
            "runs": _batch(RUNS, self._run_rows([self._runs.popleft() for piece in taken if piece.first == 0])),
            "steps": _batch(STEPS, step_keys | places | self._steps(turns)),
            "tool_calls": _batch(TOOL_CALLS, _repeated(step_keys, calls) | {"call_index": ordinals(calls)} | self._calls(turns)),
        }

    def _taken(self) -> list[Piece]:
        taken: list[Piece] = []
        rows = size = 0
        while self._pieces and rows < _FULL_ROWS and size < _FULL_BYTES:
            piece = self._pieces.popleft()
            taken.append(piece)
            rows += piece.rows
            size += piece.bytes
        self.rows -= rows
        self.bytes -= size
        return taken

    def _run_rows(self, runs: list[_Run]) -> dict[str, pa.Array]:
        size = len(runs)
        stories = [run.story for run in runs]
        agents = [story.agent for story in stories]
        return _keys(stories) | {
            "schema_version": texts([STORYLINE_VERSION.encode()] * size),
            "origin": texts([_origin(story) for story in stories]),
            "storage_ordinal": pa.array([run.storage_ordinal for run in runs], pa.int64()),
            # True, or the peer takes the session id for the document id and refuses to load the row.
            "trajectory_id_explicit": pa.array([True] * size, pa.bool_()),
            "agent_id": strings([agent.id for agent in agents]),
            "agent_name": strings([agent.name for agent in agents]),
            "agent_version": strings([agent.ver for agent in agents]),
            "agent_model_name": strings([agent.model for agent in agents]),
            "agent_tool_definitions": texts([agent.tools for agent in agents]),
            "agent_extra": texts([agent.extra for agent in agents]),
            "parent": texts([_parent(story) for story in stories]),
            "child_session_ids": texts([_children(story) for story in stories]),
            "notes": strings([story.notes for story in stories]),
            "final_metrics": texts([story.final_metrics for story in stories]),
            "continued_trajectory_ref": strings([story.continued_trajectory_ref for story in stories]),
            "extra": texts([story.extra for story in stories]),
            "meta": texts([msgspec.json.encode({"lints": story.lints}) if story.lints else None for story in stories]),
            "unknown_fields": texts([run.unknown.fields for run in runs]),
            "unknown_key_counts": texts([run.unknown.counts for run in runs]),
            "residual": texts([self._run_residual(story) for story in stories]),
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


def _reads_as_text(cell: str | list[str] | None) -> bool:
    return isinstance(cell, str) and text_of(cell) is not None
