"""Rows of the three tables back to hub stories (pure). See `tables` for the way there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from chronicle.errors import InputError, IntegrityError
from chronicle.formats import jsontext
from chronicle.formats import residual as residuals
from chronicle.formats.jsontext import Object
from chronicle.formats.story import Agent, Origin, Parent, Residual, StorylineDocument, ToolCall, Turn
from chronicle.projection.columns import raw, rendered
from chronicle.projection.unknown import take_back

Row = TypeVar("Row")

Cells = dict[str, list[Any]]

OWN_KEYS = ("origin", "children", "ts")
"""Keys of `residual` columns that are no JSON Pointer: ours, not a source's (see `tables`)."""

_residual = msgspec.json.Decoder(dict[str, str | list[str] | None]).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_parent = msgspec.json.Decoder(Parent).decode
_names = msgspec.json.Decoder(list[str]).decode
_string = msgspec.json.Decoder(str).decode


class _Meta(msgspec.Struct):
    lints: dict[str, int] = {}


_meta = msgspec.json.Decoder(_Meta).decode


def stories(
    runs: Iterable[pa.RecordBatch], steps: Iterable[pa.RecordBatch], tool_calls: Iterable[pa.RecordBatch]
) -> Iterator[StorylineDocument]:
    """Stories from record batches of the three tables, one at a time; holds a batch of each and one story.

    The rows of `steps` and `tool_calls` must come story by story in the order of `runs`, inside a story by `turn_ordinal`
    and `call_index`. Gives back what was added to the builder; only an empty residual comes back as None. Raises
    IntegrityError where rows are missing, out of order or not as they were written.
    """
    turns = _Grouped(_each(steps, _turns))
    calls = _Grouped(_each(tool_calls, _calls))
    for story, foreign in _each(runs, _runs):
        rows = turns.of(story.story_id)
        if [ordinal for ordinal, _ in rows] != list(range(len(rows))):
            raise _disorder("steps", story.story_id)
        story.turns = [turn for _, turn in rows]
        _attach(story, calls.of(story.story_id))
        if foreign is not None:
            take_back(story, foreign.unknown_fields, is_explicit=foreign.is_explicit)
        yield story
    for table, rest in (("steps", turns), ("tool_calls", calls)):
        if rest.ahead is not None:
            raise _disorder(table, rest.ahead[0])


def text_of(cell: str) -> str | None:
    """The time stamp text that a `/timestamp` of a residual stands for; None where it is no plain JSON string."""
    try:
        return _string(cell)
    except (msgspec.DecodeError, UnicodeError):
        return None


class _Grouped(Generic[Row]):
    """Rows with their document id, taken document by document."""

    def __init__(self, rows: Iterator[tuple[str, Row]]) -> None:
        self._rows = rows
        self.ahead = next(rows, None)

    def of(self, document_id: str) -> list[Row]:
        """The next rows as long as they are of this document."""
        found = []
        while self.ahead is not None and self.ahead[0] == document_id:
            found.append(self.ahead[1])
            self.ahead = next(self._rows, None)
        return found


def _attach(story: StorylineDocument, calls: list[tuple[int, int, ToolCall]]) -> None:
    """Put the calls into the turns that had some; both are in order."""
    at = 0
    for turn in story.turns:
        if turn.tool_calls is None:
            continue
        while at < len(calls) and calls[at][0] == turn.id:
            if calls[at][1] != len(turn.tool_calls):
                raise _disorder("tool_calls", story.story_id)
            turn.tool_calls.append(calls[at][2])
            at += 1
    if at < len(calls):
        raise _disorder("tool_calls", story.story_id)


def _disorder(table: str, document_id: str) -> IntegrityError:
    return IntegrityError(
        f"{table}: rows of story {document_id} are missing, out of order or without their run",
        hint="run `chronicle rebuild --full`",
        story=document_id,
    )


def _each(batches: Iterable[pa.RecordBatch], rows: Callable[[pa.RecordBatch], Iterator[Row]]) -> Iterator[Row]:
    for batch in batches:
        try:
            yield from rows(batch)
        except (InputError, msgspec.MsgspecError) as exc:
            raise IntegrityError(
                f"a JSON column of the tables does not read: {exc}", hint="run `chronicle rebuild --full`"
            ) from exc


class _Columns:
    """A record batch as Python lists, column by column when asked."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def values(self, name: str) -> list[Any]:
        """Strings, numbers and booleans."""
        found: list[Any] = self._batch.column(name).to_pylist()
        return found

    def json(self, name: str) -> list[Any]:
        """JSON text as bytes."""
        return raw(self._batch.column(name))

    def instants(self, name: str) -> list[str | None]:
        """Canonical time stamp texts."""
        return rendered(self._batch.column(name))

    def residuals(self) -> Iterable[tuple[Residual | None, Residual]]:
        """For each row the residual proper and our own entries."""
        if "residual" not in self._batch.schema.names:
            return repeat((None, {}))
        return map(_split, self.json("residual"))

    def foreign(self) -> Iterable[_Foreign | None]:
        """For each row of `runs` what a foreign writer keeps instead of a residual."""
        if "residual" in self._batch.schema.names:
            return repeat(None)
        return map(_Foreign, self.json("unknown_fields"), self.values("trajectory_id_explicit"))


def _split(text: bytes | None) -> tuple[Residual | None, Residual]:
    if text is None:
        return None, {}
    try:
        residual: Residual = _residual(text)
    except msgspec.DecodeError:  # unpaired surrogates in a key
        members = jsontext.parse(text)
        proper = Object((key, value) for key, value in members if key not in OWN_KEYS) if isinstance(members, Object) else members
        residual = residuals.decode(jsontext.dump(proper))
        if isinstance(members, Object):
            residual |= {key: value for key, value in members if key in OWN_KEYS}  # type: ignore[misc]
    own: Residual = {}
    for key in OWN_KEYS:
        if key in residual:
            own[key] = residual.pop(key)
    return residual or None, own


class _Foreign(NamedTuple):
    """Of a row without `residual`: what stands for it."""

    unknown_fields: bytes | None
    is_explicit: bool


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[StorylineDocument, _Foreign | None]]:
    """Stories without their turns."""
    at = _Columns(batch)
    agents = zip(
        at.values("agent_id"),
        at.values("agent_name"),
        at.values("agent_version"),
        at.values("agent_model_name"),
        at.json("agent_tool_definitions"),
        at.json("agent_extra"),
        strict=True,
    )
    rows = zip(
        at.values("document_id"),
        at.values("session_id"),
        at.values("run_id"),
        at.json("origin"),
        at.json("parent"),
        at.json("child_session_ids"),
        at.values("notes"),
        at.json("final_metrics"),
        at.values("continued_trajectory_ref"),
        at.json("extra"),
        at.json("meta"),
        agents,
        at.foreign(),
        at.residuals(),
        strict=False,
    )
    for document, session, run, origin, parent, children, notes, final, ref, extra, meta, agent, foreign, residue in rows:
        residual, own = residue
        named = None if children is None else _names(children)
        story = StorylineDocument(
            story_id=document,
            session=session,
            run=run,
            agent=_agent(*agent),
            turns=[],
            children=_children(own["children"]) if "children" in own else named,
            child_stories=named or [],
            parent=None if parent is None else _parent(parent),
            notes=notes,
            final_metrics=final,
            continued_trajectory_ref=ref,
            extra=extra,
            origin=None if origin is None else _origin(origin, own.get("origin")),
            residual=residual,
            lints={} if meta is None else _meta(meta).lints,
        )
        yield story, foreign


def origins(batch: pa.RecordBatch) -> Iterator[tuple[str, Origin]]:
    """(document id, where it came from) of rows of `runs` that have an origin; needs document_id, origin and residual."""
    yield from _each([batch], _origins)


def _origins(batch: pa.RecordBatch) -> Iterator[tuple[str, Origin]]:
    at = _Columns(batch)
    for document, origin, (_, own) in zip(at.values("document_id"), at.json("origin"), at.residuals(), strict=True):
        if origin is not None:
            yield document, _origin(origin, own.get("origin"))


def _origin(cell: bytes, more: str | list[str] | None) -> Origin:
    rest = _object(more) if isinstance(more, str) else {}
    return msgspec.convert({**_object(cell), **rest}, Origin)


def _agent(*cells: Any) -> Agent:
    identity, name, version, model, tools, extra = cells
    return Agent(id=identity, name=name, ver=version, model=model, tools=tools, extra=extra)


def _children(cell: str | list[str] | None) -> list[str] | None:
    return _names(cell) if isinstance(cell, str) else cell


def _turns(batch: pa.RecordBatch) -> Iterator[tuple[str, tuple[int, Turn]]]:
    at = _Columns(batch)
    columns = (
        at.values("document_id"),
        at.values("turn_ordinal"),
        at.values("step_id"),
        at.values("source"),
        at.json("message_value"),
        at.instants("timestamp"),
        at.values("model_name"),
        at.json("reasoning_effort_value"),
        at.values("reasoning_content"),
        at.values("had_tool_calls"),
        at.json("observation"),
        at.json("metrics"),
        at.values("llm_call_count"),
        at.values("is_copied_context"),
        at.json("extra"),
        at.values("kind"),
        at.values("latency"),
        at.values("ttft"),
        at.residuals(),
    )
    for document, ordinal, *cells in zip(*columns, strict=False):
        yield document, (ordinal, _turn(*cells))


def _turn(*cells: Any) -> Turn:
    number, src, msg, ts, model, effort, reason, had_calls, seen, metrics, nllm, copied, extra, kind, *rest = cells
    latency, ttft, (proper, own) = rest
    if "ts" in own:
        ts = None if own["ts"] is None else text_of(str(own["ts"]))
    elif proper and isinstance(given := proper.get("/timestamp"), str) and (text := text_of(given)) is not None:
        ts = text
        del proper["/timestamp"]
    return Turn(
        id=number,
        src=src,
        msg=msg,
        ts=ts,
        model=model,
        effort=effort,
        reason=reason,
        tool_calls=[] if had_calls else None,
        observation=seen,
        metrics=metrics,
        nllm=nllm,
        copied=copied,
        extra=extra,
        kind=kind,
        latency_ms=latency,
        ttft_ms=ttft,
        residual=proper or None,
    )


def _calls(batch: pa.RecordBatch) -> Iterator[tuple[str, tuple[int, int, ToolCall]]]:
    at = _Columns(batch)
    columns = (
        at.values("document_id"),
        at.values("step_id"),
        at.values("call_index"),
        at.values("tool_call_id"),
        at.values("function_name"),
        at.json("arguments"),
        at.values("duration"),
        at.json("extra"),
        at.json("result"),
        at.residuals(),
    )
    for document, step, index, tcid, fn, args, duration, extra, result, (residual, _) in zip(*columns, strict=False):
        if result is not None:  # the peer's; ours stands in the residual
            residual = {**(residual or {}), "/result": result.decode()}
        call = ToolCall(tcid=tcid, fn=fn, args=args, duration_ms=duration, extra=extra, residual=residual)
        yield document, (step, index, call)
