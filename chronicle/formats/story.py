"""The hub's types: a Storyline document in memory (seed RFC-0001, formats/storyline.md).

JSON values are kept as their source text (`JsonText`), so numbers keep their spelling and nothing is
parsed that nobody asks for. `None` means that the member is absent; a member that was present in another
way than the canonical form writes it (an explicit null, another type, another order) stands in `residual`.
"""

from __future__ import annotations

import msgspec

JsonText = bytes
"""UTF-8 text of one JSON value, as the source wrote it."""

Residual = dict[str, "str | list[str] | None"]
"""What the canonical form does not give back verbatim, by JSON Pointer: source text, or None for `absent here`.

A key `#<pointer>` holds the member names of that object in source order, where the order is not canonical.
"""


class Origin(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Where a story came from: enough to write it back in the form in which it came."""

    format: str
    schema_version: str | None = None
    form: str | None = None
    """Form id of the format (OpenAI messages: `A`, `B1`, ...); None where the format has one form."""
    container: str | None = None
    """`object`, `array`, `jsonl` or `concatenated`: what held the document in its source."""
    document_id: str | None = None
    source_id: str | None = None
    locator: int | None = None
    index: int = 0
    """Place of the story among those of its document, the root first: tables are not kept in that order."""
    pointer: str | None = None
    """JSON Pointer of an embedded story inside its document; None for the root. A session id for row form A."""


class ToolCall(msgspec.Struct, kw_only=True):
    """One tool call of a turn. `tcid` is distinct inside the story (`#2`, `#3` are added to repeated ids)."""

    tcid: str
    fn: str
    args: JsonText
    duration_ms: int | None = None
    extra: JsonText | None = None
    residual: Residual | None = None


class Turn(msgspec.Struct, kw_only=True):
    """One turn (ATIF step). `id` is distinct inside the story."""

    id: int
    src: str
    msg: JsonText
    ts: str | None = None
    """Timestamp text exactly as it came, where it was a JSON string without unpaired surrogates."""
    model: str | None = None
    effort: JsonText | None = None
    reason: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: JsonText | None = None
    metrics: JsonText | None = None
    nllm: int | None = None
    copied: bool | None = None
    extra: JsonText | None = None
    kind: str | None = None
    """Only where the source states one; else derived from `src` and `tool_calls`."""
    latency_ms: int | None = None
    ttft_ms: int | None = None
    residual: Residual | None = None
    """Pointers relative to the part (ATIF step, Storyline turn); for OpenAI messages relative to the document."""


class Agent(msgspec.Struct, kw_only=True):
    """Who acted. `id` is never empty."""

    id: str
    name: str | None = None
    ver: str | None = None
    model: str | None = None
    tools: JsonText | None = None
    extra: JsonText | None = None


class Parent(msgspec.Struct, kw_only=True):
    """Link of a child story to the turn that started it."""

    psid: str
    scid: str | None = None
    ptid: int | None = None
    rel: str | None = None


class StorylineDocument(msgspec.Struct, kw_only=True):
    """One story: a trajectory, a conversation, a session."""

    story_id: str
    """Identity of the story (design 4.2); `runs.document_id`."""
    session: str
    """Effective session id, never empty."""
    agent: Agent
    turns: list[Turn]
    run: str | None = None
    children: list[str] | None = None
    """What the source calls its children (trajectory or session ids), in spawn order."""
    child_stories: list[str] = []
    """Story ids of the children that exist, in the order of their documents."""
    parent: Parent | None = None
    notes: str | None = None
    final_metrics: JsonText | None = None
    continued_trajectory_ref: str | None = None
    extra: JsonText | None = None
    origin: Origin | None = None
    residual: Residual | None = None
    """Pointers relative to the story's own object."""
    lints: dict[str, int] = {}
    """What is odd about the story, counted by code."""
