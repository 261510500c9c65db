"""A story in pieces that fit a record batch, checked to fit its columns (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from chronicle.errors import ProjectionError
from chronicle.formats.story import StorylineDocument, ToolCall, Turn
from chronicle.projection.columns import fits


class Limits(NamedTuple):
    """What is enough for one batch of each table."""

    rows: int
    bytes: int


class Piece(msgspec.Struct, frozen=True):
    """Turns of a story that follow each other; with the first of them goes the row of the story."""

    story: StorylineDocument
    turns: list[Turn]
    first: int
    """`turn_ordinal` of the first turn."""
    rows: int
    """Of all three tables."""
    bytes: int
    """About how many bytes of text are in them."""


def pieces(story: StorylineDocument, limits: Limits) -> Iterator[Piece]:
    """A story, halved until no piece has more than `limits`, or only one turn.

    Raises ProjectionError where a number does not fit 64 bits or a string is not Unicode.
    """
    todo = [(0, story.turns)]
    while todo:
        first, turns = todo.pop()
        piece = _piece(story, turns, first, limits)
        if piece is None:
            half = len(turns) // 2
            todo += [(first + half, turns[half:]), (first, turns[:half])]
        else:
            yield piece


def _piece(story: StorylineDocument, turns: list[Turn], first: int, limits: Limits) -> Piece | None:
    """Some turns as one piece; None where they are too many."""
    may_halve = len(turns) > 1
    if may_halve and len(turns) > limits.rows:
        return None
    calls = [call for turn in turns for call in turn.tool_calls or ()]
    strings = _strings(turns, calls)
    rows, size = len(turns) + len(calls), _json_bytes(turns, calls) + sum(map(len, strings))
    if may_halve and (rows > limits.rows or size > limits.bytes):
        return None
    if first == 0:
        strings += _names(story)
        rows += 1
    _check(story, turns, calls, strings)
    return Piece(story, turns, first, rows, size)


def _json_bytes(turns: list[Turn], calls: list[ToolCall]) -> int:
    size = sum([len(turn.msg) for turn in turns]) + sum([len(call.args) for call in calls])
    # An observation is stored twice, in pieces the second time (`results`).
    size += 2 * _length([turn.observation for turn in turns])
    for texts in ([turn.metrics for turn in turns], [turn.extra for turn in turns], [call.extra for call in calls]):
        size += _length(texts)
    for residual in filter(None, [turn.residual for turn in turns] + [call.residual for call in calls]):
        size += _length(residual.values())
    return size


def _length(texts: Iterable[bytes | str | list[str] | None]) -> int:
    return sum(map(len, filter(None, texts)))


def _strings(turns: list[Turn], calls: list[ToolCall]) -> list[str]:
    """Every string of some turns that becomes a cell or a part of one."""
    found: list[str | None] = []
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


def _names(story: StorylineDocument) -> list[str]:
    """The same of the row of a story."""
    agent = story.agent
    found: list[str | None] = [story.story_id, story.run, story.session, story.notes, story.continued_trajectory_ref]
    found += [agent.id, agent.name, agent.ver, agent.model, *(story.children or ()), *story.child_stories, *story.lints]
    if story.parent is not None:
        found += [story.parent.psid, story.parent.scid, story.parent.rel]
    return [text for text in found if text]


def _check(story: StorylineDocument, turns: list[Turn], calls: list[ToolCall], strings: list[str]) -> None:
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
        "".join([text for text in strings if not text.isascii()]).encode()
    except UnicodeEncodeError as exc:
        raise ProjectionError(
            f"story {story.story_id} holds an unpaired surrogate in a text column",
            hint="such texts belong into the residual",
            story=story.story_id,
        ) from exc
