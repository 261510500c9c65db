"""A Storyline as AgenticMD (formats/agenticmd.md 6). Pure, and total: every story can be rendered.

A view for people: visible text as it is, calls and their results as fenced JSON, other media as placeholders.
JSON values are read as text, so that numbers keep their spelling and odd values still show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from chronicle.formats import agenticmd, jsontext
from chronicle.formats.story import StorylineDocument, ToolCall, Turn
from chronicle.projection import media
from chronicle.projection.jsonview import elements_of, first_string, members_of, number_of, pretty, string_of

RENDERER = "1"
"""Moves when equal stories come out in other bytes; files of an older one are written again."""

_TEXTS = frozenset({"text", "input_text", "output_text"})
_THOUGHTS = frozenset({"thinking", "reasoning", "redacted_thinking"})
_BACKTICKS = re.compile("`{3,}")
_NOT_INFO = re.compile(r"[\s`\x00-\x1f\x7f]+")
_SMALL = 4096


def render(story: StorylineDocument, *, reasoning: bool) -> bytes:
    """The AgenticMD file of a story; with `reasoning` what was thought too, in collapsed blocks."""
    return agenticmd.document(_frontmatter(story), [_block(turn, reasoning) for turn in story.turns])


def _frontmatter(story: StorylineDocument) -> dict[str, Any]:
    metrics = members_of(story.final_metrics) or {}
    tokens = [number_of(metrics.get(name)) for name in ("total_prompt_tokens", "total_completion_tokens")]
    return {
        "format": "persisting",
        "block": "speaker+json+markdown",
        "session_id": story.session,
        "story_id": story.story_id,
        "parent_session_id": story.parent.psid if story.parent else None,
        "agent_id": story.agent.id,
        "model_name": story.agent.model or None,
        "started_at": next((turn.ts for turn in story.turns if turn.ts), None),
        # What the seed's sample counts as one: a user and the agent's answer.
        "turn_count": sum(turn.src == "agent" for turn in story.turns) or None,
        "total_tokens": sum(n for n in tokens if n is not None) or None,
        "estimated_cost_usd": number_of(metrics.get("total_cost_usd")) or None,
        "subagents": story.child_stories or story.children or None,
    }


def _block(turn: Turn, reasoning: bool) -> agenticmd.Block:
    text, kind = _message(turn.msg, reasoning)
    rest = [_call(call) for call in turn.tool_calls or ()]
    rest += _results(turn.observation, reasoning)
    before = [_thought(turn.reason)] if reasoning and turn.reason else []
    if kind == "json" and (before or rest):
        text, kind = _fence("json", text), "markdown"
    pieces = [*before, text, *rest] if text else [*before, *rest]
    if before or rest:
        kind = "markdown"
    body = media.without_data_urls("\n\n".join(pieces))
    return agenticmd.Block(turn.src, {"type": kind, "source": turn.src, "step_id": turn.id, **_extensions(turn)}, body)


def _extensions(turn: Turn) -> dict[str, Any]:
    header: dict[str, Any] = {
        "ts": turn.ts,
        "model": turn.model,
        "kind": turn.kind,
        "copied": turn.copied or None,
        "latency_ms": turn.latency_ms,
        "ttft_ms": turn.ttft_ms,
    }
    if turn.extra is not None and b'"call_id"' in turn.extra:
        header["call_id"] = string_of((members_of(turn.extra) or {}).get("call_id"))
    if turn.metrics is not None and len(turn.metrics) < _SMALL:  # token id lists are no header
        metrics = members_of(turn.metrics) or {}
        for name in ("prompt_tokens", "completion_tokens"):
            header[name] = number_of(metrics.get(name))
    return header


def _message(text: bytes, reasoning: bool) -> tuple[str, str]:
    """Body and type of a message: a string as it is, parts one after the other, anything else as JSON."""
    text = text.strip()
    if text in {b"null", b""}:
        return "", "text"
    if text[:1] == b'"':
        return string_of(text) or "", "text"
    parts = _parts(text, reasoning)
    return (parts, "markdown") if parts is not None else (pretty(text), "json")


def _parts(text: bytes, reasoning: bool) -> str | None:
    """The content parts of an array, or None when it is not one of parts."""
    elements = elements_of(text)
    if elements is None:
        return None
    shown = [_part(element, reasoning) for element in elements]
    return None if None in shown else "\n\n".join(filter(None, shown))


def _part(text: bytes, reasoning: bool) -> str | None:
    members = members_of(text)
    kind = string_of(members.get("type")) if members is not None else None
    if members is None or kind is None:
        return None
    if kind in _TEXTS:
        said = first_string(members, "text", "value")
        return said if said is not None else media.unknown_part(kind, text)
    if kind == "refusal":
        return first_string(members, "refusal") or ""
    if kind in _THOUGHTS:
        thought = first_string(members, "thinking", "text", "reasoning")
        return _thought(thought) if reasoning and thought else ""
    word = media.media_word(kind)
    return media.placeholder(word, text) if word else media.unknown_part(kind, text)


def _call(call: ToolCall) -> str:
    inner = string_of(call.args)
    # Chat formats hold arguments as JSON inside a string.
    text = inner.encode("utf-8", "surrogatepass") if inner is not None and inner.lstrip()[:1] in {"{", "["} else call.args
    return _fence(f"tool:{call.fn}", pretty(text))


def _results(observation: bytes | None, reasoning: bool) -> Iterator[str]:
    if observation is None or observation.strip() == b"null":
        return
    members = members_of(observation) or {}
    results = elements_of(members.pop("results", None))
    if results is None:
        yield _fence("tool_result", pretty(observation.strip()))
        return
    for result in results:
        yield _result(result, reasoning)
    if members:
        others = b",".join(jsontext.string(key) + b":" + value for key, value in members.items())
        yield _fence("observation", pretty(b"{" + others + b"}"))


def _result(text: bytes, reasoning: bool) -> str:
    members = members_of(text)
    if members is None or not ({"content", "subagent_trajectory_ref"} & members.keys()):
        return _fence("tool_result", string_of(text) or pretty(text))
    call = first_string(members, "source_call_id", "tool_call_id")
    shown = [_message(members["content"], reasoning)[0]] if "content" in members else []
    shown += [f"[subagent: {name}]" for name in _subagents(members.get("subagent_trajectory_ref"))]
    return _fence(f"tool_result:{call}" if call else "tool_result", "\n\n".join(filter(None, shown)))


def _subagents(refs: bytes | None) -> list[str]:
    each = elements_of(refs) or ([] if refs is None else [refs])
    names = (first_string(members_of(ref) or {}, "trajectory_id", "session_id", "trajectory_path") for ref in each)
    return [name for name in names if name]


def _thought(text: str) -> str:
    inner = re.sub(r"<(/?details)", r"&lt;\1", text, flags=re.IGNORECASE)
    return f"<details>\n<summary>reasoning</summary>\n\n{inner}\n\n</details>"


def _fence(info: str, text: str) -> str:
    longest = max(map(len, _BACKTICKS.findall(text))) if "```" in text else 2
    ticks = "`" * (longest + 1)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{ticks}{_NOT_INFO.sub(' ', info).strip()}\n{text}{end}{ticks}"
