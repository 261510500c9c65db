"""Stories as AgenticMD (formats/agenticmd.md 6)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chronicle.formats.story import Agent, Parent, StorylineDocument, ToolCall, Turn
from chronicle.projection.jsonview import pretty
from chronicle.projection.markdown import render
from tests.formats.test_agenticmd import blocks_of


def story(*turns: Turn, **fields: Any) -> StorylineDocument:
    return StorylineDocument(
        **{"story_id": "ab" * 16, "session": "s-9", "agent": Agent(id="wrench"), "turns": list(turns)} | fields
    )


def js(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def rendered(*turns: Turn, reasoning: bool = False, **fields: Any) -> list[tuple[str, dict[str, Any], str]]:
    data = render(story(*turns, **fields), reasoning=reasoning)
    return [(who, header, body.decode()) for who, header, body in blocks_of(data.split(b"\n---\n\n", 1)[1])]


def body_of(turn: Turn, *, reasoning: bool = False) -> str:
    return rendered(turn, reasoning=reasoning)[0][2]


def shown(part: Any) -> str:
    return body_of(Turn(id=1, src="user", msg=js([part])))


def test_frontmatter_sums_up_the_story() -> None:
    data = render(
        story(
            Turn(id=1, src="user", msg=js("hi"), ts="2026-02-03T04:05:06Z"),
            Turn(id=2, src="agent", msg=js("ho")),
            session="0123",
            agent=Agent(id="wrench", model="m-large"),
            child_stories=["cd" * 16],
            parent=Parent(psid="p-1"),
            final_metrics=b'{"total_prompt_tokens":10,"total_completion_tokens":2,"total_cost_usd":0.0100}',
        ),
        reasoning=False,
    )
    assert yaml.safe_load(data.split(b"---\n")[1]) == {
        "format": "persisting",
        "block": "speaker+json+markdown",
        "session_id": "0123",
        "story_id": "ab" * 16,
        "parent_session_id": "p-1",
        "agent_id": "wrench",
        "model_name": "m-large",
        "started_at": "2026-02-03T04:05:06Z",
        "turn_count": 1,
        "total_tokens": 12,
        "estimated_cost_usd": 0.01,
        "subagents": ["cd" * 16],
    }


def test_zero_and_unknown_values_are_left_out() -> None:
    data = render(story(final_metrics=b'{"total_prompt_tokens":0,"total_cost_usd":null}'), reasoning=False)
    front = yaml.safe_load(data.split(b"---\n")[1])
    assert set(front) == {"format", "block", "session_id", "story_id", "agent_id"}


def test_headers_say_what_is_known() -> None:
    turn = Turn(
        id=2, src="agent", msg=js("x"), ts="t", model="m", copied=True, latency_ms=5, extra=js({"call_id": "c-->1"}),
        metrics=b'{"prompt_tokens":3}',
    )  # fmt: skip
    [(speaker, header, _)] = rendered(turn)
    assert speaker == "agent"
    assert header == {
        "type": "text", "length": 1, "call_id": "c-->1", "copied": True, "latency_ms": 5, "model": "m",
        "prompt_tokens": 3, "source": "agent", "step_id": 2, "ts": "t",
    }  # fmt: skip


def test_calls_come_after_the_text_and_results_after_the_calls() -> None:
    turn = Turn(
        id=2,
        src="agent",
        msg=js("Look."),
        tool_calls=[
            ToolCall(tcid="t1", fn="ls", args=b'{"path":".","n":1.10,"n":[],"e":{}}'),
            ToolCall(tcid="t2", fn="cat", args=b"{}"),
        ],
        observation=js(
            {"results": [{"source_call_id": "t1", "content": "hinge.stl"}, {"source_call_id": "t2", "content": None}]}
        ),
    )
    assert body_of(turn) == (
        'Look.\n\n```tool:ls\n{\n  "path": ".",\n  "n": 1.10,\n  "n": [],\n  "e": {}\n}\n```\n\n```tool:cat\n{}\n```\n\n'
        "```tool_result:t1\nhinge.stl\n```\n\n```tool_result:t2\n```"
    )


def test_a_fence_is_longer_than_any_run_of_backticks_inside() -> None:
    turn = Turn(id=1, src="agent", msg=b'""', tool_calls=[ToolCall(tcid="a", fn="w`r\nite", args=js({"text": "````\n```"}))])
    lines = body_of(turn).split("\n")
    assert lines[0] == "`````tool:w r ite"
    assert lines[-1] == "`````"


def test_arguments_that_are_json_in_a_string_are_shown_as_json() -> None:
    turn = Turn(id=1, src="agent", msg=b'""', tool_calls=[ToolCall(tcid="a", fn="f", args=js('{"a": 2.50}'))])
    assert body_of(turn) == '```tool:f\n{\n  "a": 2.50\n}\n```'


def test_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    turn = Turn(
        id=1,
        src="agent",
        msg=b'""',
        tool_calls=[ToolCall(tcid="a", fn="f", args=js('{"a": ')), ToolCall(tcid="b", fn="g", args=b"nope")],
    )
    assert body_of(turn) == '```tool:f\n{"a": \n```\n\n```tool:g\nnope\n```'


def test_reasoning_only_when_asked_for_and_collapsed() -> None:
    turn = Turn(id=1, src="agent", msg=js("x"), reason="look first </details>")
    assert body_of(turn) == "x"
    assert body_of(turn, reasoning=True) == (
        "<details>\n<summary>reasoning</summary>\n\nlook first &lt;/details>\n\n</details>\n\nx"
    )
    parts = Turn(id=1, src="agent", msg=js([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}]))
    assert body_of(parts) == "x"
    assert "hm" in body_of(parts, reasoning=True)


PNG = "iVBORw0KGgo=" * 5000


HASH = "hash=[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x/y.png"}}, r"image: url:https://x/y\.png"),
        ({"type": "image_url", "image_url": "https://x/y.png"}, r"image: url:https://x/y\.png"),
        ({"type": "image", "source": {"media_type": "image/png", "path": "i/s3.png"}}, r"image: path:i/s3\.png image/png"),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}, f"image: base64:43KB image/png {HASH}"),
        ({"type": "image", "source": {"media_type": "image/png", "data": PNG}}, f"image: base64:43KB image/png {HASH}"),
        ({"type": "image", "source": {"path": "sha256:" + "ab" * 32}}, "image: hash=abababababab"),
        ({"type": "audio", "source": {"path": "a.wav", "duration_sec": 2.5}}, r"audio: path:a\.wav 2\.5s"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, f"audio: base64:3B audio/wav {HASH}"),
        ({"type": "file", "file": {"filename": "n.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
         rf"file: n\.pdf application/pdf {HASH}"),
        ({"type": "file", "file": {"file_id": "f-1"}}, "file: id:f-1"),
        ({"type": "image"}, f"image: {HASH}"),
        ({"type": "hologram", "x": 1}, f"part: hologram {HASH}"),
        ({"type": "text"}, f"part: text {HASH}"),
    ],
)  # fmt: skip
def test_placeholders(part: Any, expected: str) -> None:
    assert re.fullmatch(rf"\[{expected}\]", shown(part))
    assert shown(part) == shown(part)


@pytest.mark.parametrize("part", [{"type": "output_text", "text": "as it is"}, {"type": "refusal", "refusal": "as it is"}])
def test_parts_that_are_text(part: Any) -> None:
    assert shown(part) == "as it is"


def test_base64_never_stands_in_a_body() -> None:
    url = f"data:image/png;base64,{PNG}"
    turn = Turn(
        id=1, src="agent", msg=js(f"![shot]({url})"),
        tool_calls=[ToolCall(tcid="a", fn="show", args=js({"url": url}).replace(b"/", b"\\/"))],
        observation=js({"results": [{"content": url}]}),
    )  # fmt: skip
    assert PNG[:100] not in body_of(turn)
    assert len(set(re.findall(r"\[image: base64:43KB image/png hash=[0-9a-f]{12}\]", body_of(turn)))) == 1


@pytest.mark.parametrize(
    ("message", "body", "kind"),
    [
        (b'"a\\nb"', "a\nb", "text"),
        (b"null", "", "text"),
        (b'{"a":1.10}', '{\n  "a": 1.10\n}', "json"),
        (b"12.50", "12.50", "json"),
        (b'["a"]', '[\n  "a"\n]', "json"),
        (b'[{"type":"text","text":"a"},{"type":"text","text":"b"}]', "a\n\nb", "markdown"),
        (b'"\\ud800x"', "\ufffdx", "text"),
        (b'{"a":', '{"a":', "json"),
    ],
)
def test_messages(message: bytes, body: str, kind: str) -> None:
    [(_, header, text)] = rendered(Turn(id=1, src="user", msg=message))
    assert (text, header["type"]) == (body, kind)


@pytest.mark.parametrize(
    ("observation", "body"),
    [
        (b'"free text"', '```tool_result\n"free text"\n```'),
        (b'{"stdout":"x"}', '```tool_result\n{\n  "stdout": "x"\n}\n```'),
        (b'{"results":null}', '```tool_result\n{\n  "results": null\n}\n```'),
        (b'{"results":["a",5]}', "```tool_result\na\n```\n\n```tool_result\n5\n```"),
        (b'{"results":[],"exit":0}', '```observation\n{\n  "exit": 0\n}\n```'),
        (b'{"results":[{"content":[{"type":"text","text":"t"}]}]}', "```tool_result\nt\n```"),
        (b'{"results":[{"source_call_id":"k","subagent_trajectory_ref":[{"trajectory_id":"bird"}]}]}',
         "```tool_result:k\n[subagent: bird]\n```"),
        (b"null", ""),
    ],
)  # fmt: skip
def test_observations(observation: bytes, body: str) -> None:
    assert body_of(Turn(id=1, src="agent", msg=b'""', observation=observation)) == body


def test_pretty_keeps_spelling_repeated_keys_and_order() -> None:
    text = b'{"b":1.10,"a":-0,"b":1e400,"c":[NaN,123456789012345678901234567890],"d":"\\u4f60\\/"}'
    assert re.sub(r"\n *", "", pretty(text)).replace('": ', '":') == (
        '{"b":1.10,"a":-0,"b":1e400,"c":[NaN,123456789012345678901234567890],"d":"你/"}'
    )
    deep = b"[" * 900 + b"]" * 900
    assert pretty(deep) == deep.decode()


KEYS = st.sampled_from(["type", "text", "source", "results", "content", "url"])
JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20)
STRINGS = st.text(st.characters(), max_size=8)


@given(JSON_TEXT, JSON_TEXT, JSON_TEXT, STRINGS, st.booleans())
def test_every_story_can_be_rendered(message: bytes, args: bytes, observation: bytes, text: str, reasoning: bool) -> None:
    turn = Turn(
        id=1, src=text, msg=message, ts=text, model=text, reason=text, extra=args, metrics=args, observation=observation,
        tool_calls=[ToolCall(tcid=text, fn=text, args=args)],
    )  # fmt: skip
    odd = story(turn, session=text or "s", agent=Agent(id=text, model=text), final_metrics=args, children=[text])
    data = render(odd, reasoning=reasoning)
    assert len(blocks_of(data.split(b"\n---\n\n", 1)[1])) == 1
    assert data == render(odd, reasoning=reasoning)
