"""Conversations of OpenAI messages to Storyline and back (edge cases 83 to 102)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from chronicle.errors import InputError, UsageError
from chronicle.formats import jsontext, openai_msg, residual
from chronicle.formats.document import Document
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.openai_rows import values
from chronicle.formats.openai_shapes import lists_of
from chronicle.formats.story import Agent, Origin, StorylineDocument, ToolCall, Turn
from tests.formats.openai_samples import (
    DOCUMENT_ID,
    assistant,
    call,
    document,
    odd_documents,
    stories,
    story,
    tool,
    top,
    user,
)

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "openai_msg"

# -- the law ------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(odd_documents)
def test_anything_comes_back(odd: tuple[str, Any]) -> None:
    form, value = odd
    if form == "A:lines":
        text, form, container = b"\n".join(jsontext.dump(row) for row in value), "A:row", "jsonl"
    else:
        text, container = jsontext.dump(value), "object"
    if form != "A:row" and not all(_is_list(value, at) for at in lists_of(form)):
        return
    made = openai_msg.into(Document("openai_msg", form, DOCUMENT_ID, text, [], b"", container=container))
    assert values(openai_msg.dump(made)) == values(text)
    for each in made:
        _check_tables(each)
    assert len({each.story_id for each in made}) == len(made)


def _is_list(value: Json, at: str) -> bool:
    for key in jsontext.split(at):
        value = value.get(key) if isinstance(value, Object) else None
    return isinstance(value, list) and not isinstance(value, Object)


def _check_tables(made: StorylineDocument) -> None:
    """What the tables ask of a story (physical.md 2.4), and that its residuals can be stored."""
    assert made.session
    assert made.agent.id
    assert len({turn.id for turn in made.turns}) == len(made.turns)
    calls = [each for turn in made.turns for each in turn.tool_calls or ()]
    assert len({each.tcid for each in calls}) == len(calls)
    texts = [made.session, made.agent.id, *(text for each in calls for text in (each.tcid, each.fn))]
    texts += [text for turn in made.turns for text in (turn.src, turn.ts, turn.model, turn.reason) if text is not None]
    "".join(texts).encode()
    for part in (made.residual, *(turn.residual for turn in made.turns)):
        assert residual.decode(residual.encode(part or {})) == (part or {})


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(odd_documents)
def test_a_story_without_residual_can_be_written(odd: tuple[str, Json]) -> None:
    form, value = odd
    if form in ("A:lines", "A:row") or not all(_is_list(value, at) for at in lists_of(form)):
        return
    made = openai_msg.into(Document("openai_msg", form, DOCUMENT_ID, jsontext.dump(value), [], b""))
    written = openai_msg.dump(made, exact=False)
    again = openai_msg.into(Document("openai_msg", form, DOCUMENT_ID, written, [], b""))
    assert openai_msg.dump(again) == written


# -- mapping ------------------------------------------------------------------------------------------------------


def results(turn: Turn) -> list[Any]:
    """The observation results of a turn as Python values."""
    return json.loads(turn.observation)["results"] if turn.observation else []


def test_the_example_of_the_format_page() -> None:
    made = story(
        {"role": "developer", "content": "Be brief."},
        user([{"type": "text", "text": "Sum?"}, {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]),
        assistant(None, tool_calls=[call("k1", "sum", '{"xs": [1, 2.50]}')], weight=0),
        tool("k1", "3.50"),
        assistant("3.50", reasoning="tool says so"),
        tools=[{"type": "function", "function": {"name": "sum"}}],
    )
    assert [(turn.id, turn.src, turn.nllm, turn.copied) for turn in made.turns] == [
        (1, "system", None, None),
        (2, "user", None, None),
        (3, "agent", 1, None),
        (4, "agent", 1, None),
    ]
    image = {"type": "image", "source": {"media_type": "image/png", "path": "https://x.test/a.png"}}
    assert json.loads(made.turns[1].msg) == [{"type": "text", "text": "Sum?"}, image]
    asked = made.turns[2]
    assert asked.msg == b'""'
    assert asked.tool_calls == [ToolCall(tcid="k1", fn="sum", args=b'{"xs":[1,2.50]}')]
    assert results(asked) == [{"source_call_id": "k1", "content": "3.50"}]
    assert asked.extra == b'{"weight":0}'
    assert asked.residual == {
        "/messages/2/content": "null",
        "/messages/2/tool_calls/0/function/arguments": json.dumps('{"xs": [1, 2.50]}'),
    }
    assert made.turns[3].reason == "tool says so"
    assert made.turns[0].residual == {"/messages/0/role": '"developer"'}
    assert made.agent.tools == b'[{"type":"function","function":{"name":"sum"}}]'
    assert made.residual is None
    assert made.lints == {}
    assert (made.session, made.agent.id) == (DOCUMENT_ID, "openai-import")


@pytest.mark.parametrize(
    ("stated", "args", "lints"),
    [
        ('{"a":1}', b'{"a":1}', {}),
        ('{"a": 1}', b'{"a":1}', {}),
        ('{"b":1,"a":2}', b'{"b":1,"a":2}', {}),
        ('{"a":1,"a":2}', b'{"a":1,"a":2}', {}),
        ('{"n":1e3,"m":1.10}', b'{"n":1e3,"m":1.10}', {}),
        ("[1,2]", b"[1,2]", {}),
        ("null", b"null", {}),
        ('"s"', b'"s"', {}),
        ('{"a":', b'"{\\"a\\":"', {"invalid-arguments": 1}),
        ("", b'""', {"invalid-arguments": 1}),
        ({"a": 1}, b'{"a":1}', {}),
        (None, b"null", {}),
        (3, b"3", {}),
    ],
)
def test_arguments(stated: Any, args: bytes, lints: dict[str, int]) -> None:
    made = story(user(), assistant(None, tool_calls=[call("c", "f", stated)]))
    assert [each.args for each in made.turns[1].tool_calls or ()] == [args]
    assert made.lints == lints


def test_calls_without_id_or_type_or_of_another_kind() -> None:
    made = story(
        assistant(
            None, tool_calls=[{"function": {"name": "f", "arguments": "{}"}, "index": 0}, {"id": "", "function": {"name": "g"}}]
        ),
        assistant(None, tool_calls=[{"id": "k", "type": "custom", "custom": {"name": "sh", "input": '{"a": 1}'}}]),
        assistant("", tool_calls=[{"id": "n", "function": "go", "arguments": {"url": "u"}}]),
        assistant(None, tool_calls=[]),
    )
    calls = [[(each.tcid, each.fn, each.args) for each in turn.tool_calls or ()] for turn in made.turns]
    assert calls == [
        [("call-1-1", "f", b"{}"), ("call-1-2", "g", b"{}")],
        [("k", "sh", b'"{\\"a\\": 1}"')],
        [("n", "go", b'{"url":"u"}')],
        [],
    ]
    assert made.turns[3].tool_calls == []
    assert made.lints == {"no-tool-call-id": 2, "missing-arguments": 1}
    assert "#/messages/2/tool_calls" in (made.turns[2].residual or {})


def test_repeated_call_ids_are_told_apart() -> None:
    made = story(
        assistant(None, tool_calls=[call("c", "f"), call("c", "g")]),
        tool("c", "1"),
        tool("c", "2"),
        assistant(None, tool_calls=[call("c", "h")]),
        tool("c", "3"),
    )
    assert [each.tcid for turn in made.turns for each in turn.tool_calls or ()] == ["c", "c#2", "c#3"]
    assert [[each["source_call_id"] for each in results(turn)] for turn in made.turns] == [["c", "c#2"], ["c#3"]]
    assert made.lints == {"repeated-tool-call-id": 2}


def test_parallel_calls_answered_out_of_order_not_at_all_and_twice() -> None:
    made = story(
        assistant(None, tool_calls=[call("x"), call("y"), call("z")]),
        tool("y", "1"),
        user("wait"),
        tool("x", "2"),
        tool("y", "3"),
        assistant("done"),
    )
    assert [(each["source_call_id"], each["content"]) for each in results(made.turns[0])] == [("y", "1"), ("x", "2"), ("y", "3")]
    assert [turn.src for turn in made.turns] == ["agent", "user", "agent"]
    assert made.lints == {"repeated-tool-message": 1}
    assert made.residual == {"#/messages": ["1-1.1", "2", "1.2-1.3", "3"]}


def test_orphan_tool_messages() -> None:
    made = story(tool("x", "1"), user(), assistant(), tool("y", "2"), {"role": "tool", "content": "3"})
    assert [(turn.src, results(turn)) for turn in made.turns] == [
        ("system", [{"source_call_id": "x", "content": "1"}]),
        ("user", []),
        ("agent", [{"source_call_id": "y", "content": "2"}, {"content": "3"}]),
    ]
    assert made.lints == {"orphan-tool-message": 3}


def test_legacy_functions() -> None:
    asked = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}
    answer = {"role": "function", "name": "f", "content": "r"}
    made = story(user(), asked, {**answer, "content": "1"}, asked, {**answer, "content": "2"}, functions=[{"name": "f"}])
    assert [[(each.tcid, each.fn) for each in turn.tool_calls or ()] for turn in made.turns[1:]] == [
        [("call-2-1", "f")],
        [("call-3-1", "f")],
    ]
    assert [results(turn) for turn in made.turns[1:]] == [
        [{"source_call_id": "call-2-1", "content": "1"}],
        [{"source_call_id": "call-3-1", "content": "2"}],
    ]
    assert made.agent.tools == b'[{"name":"f"}]'
    assert made.residual == {"#/tools": ["functions"]}


@pytest.mark.parametrize(
    ("message", "src", "msg"),
    [
        (user(""), "user", b'""'),
        (user(None), "user", b'""'),
        ({"role": "user"}, "user", b'""'),
        (user([]), "user", b"[]"),
        (user({"a": 1}), "user", b'{"a":1}'),
        (user(5), "user", b"5"),
        (user("hi", name="bob"), "user", b'"hi"'),
        (assistant(None, refusal="no"), "agent", b'"no"'),
        (assistant("some", refusal="no"), "agent", b'"some"'),
        (assistant([{"type": "refusal", "refusal": "no"}]), "agent", b'[{"type":"refusal","refusal":"no"}]'),
        ({"role": "critic", "content": "c"}, "critic", b'"c"'),
        ({"content": "c"}, "", b'"c"'),
        ("text", "", b'"text"'),
        (None, "", b"null"),
        (user("현\ud99c"), "user", '"현\\ud99c"'.encode()),
    ],
)
def test_content(message: Any, src: str, msg: bytes) -> None:
    made = story(user("first"), message)
    assert (made.turns[1].src, made.turns[1].msg) == (src, msg)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"reasoning_content": "r"}, "r"),
        ({"reasoning": "r"}, "r"),
        ({"reasoning_details": [{"text": "r"}], "thinking": "t"}, "t"),
        ({"reasoning_content": None, "reasoning": "r", "thinking": "t"}, "r"),
        ({"reasoning_content": "", "reasoning": "r"}, "r"),
        ({"reasoning_content": ""}, ""),
        ({"reasoning": ["r"]}, None),
    ],
)
def test_reasoning(members: dict[str, Any], reason: str | None) -> None:
    assert story(user(), assistant("a", **members)).turns[1].reason == reason


def test_long_reasoning_is_not_kept_twice() -> None:
    made = story(user(), assistant("a", reasoning="long " * 1000))
    assert made.turns[1].residual == {"#/messages/1/reasoning_content": ["reasoning"]}


def test_inline_media_stay_out_of_the_story() -> None:
    digest = f"sha256:{hashlib.sha256(b'hi').hexdigest()}"
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
        {"type": "image_url", "value": "img/1.jpg"},
        {"type": "text", "value": "look"},
        {"type": "input_text", "text": "t"},
        {"type": "video", "x": 1},
    ]
    made = story(user(parts), assistant(None, tool_calls=[call("c")]), tool("c", parts[:1]))
    assert b"aGk=" not in made.turns[0].msg
    assert b"aGk=" not in (made.turns[1].observation or b"")
    assert json.loads(made.turns[0].msg) == [
        {"type": "image", "source": {"media_type": "image/png", "path": digest}},
        {"type": "audio", "source": {"media_type": "audio/mpeg", "path": digest}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": digest}},
        {"type": "image", "source": {"media_type": "image/jpeg", "path": "img/1.jpg"}},
        {"type": "text", "text": "look"},
        {"type": "text", "text": "t"},
        {"type": "video", "x": 1},
    ]
    assert made.lints == {"non-text-part": 1}
    assert (made.turns[0].residual or {})["#/messages/0/content"] == ["3", "4"]


@pytest.mark.parametrize("kind", [{}, {"a": 1}, [], [[]], 1, 1.5, True, None])
def test_a_part_whose_type_is_no_text_is_kept_as_it_is(kind: object) -> None:
    parts = [{"type": kind, "text": "hi"}, {"type": "text", "text": "look"}]
    made = story(user(parts), assistant("t"))
    assert (json.loads(made.turns[0].msg), made.lints) == (parts, {"non-text-part": 1})


def test_order_of_roles_is_free() -> None:
    made = story(
        assistant("1"), {"role": "system", "content": "2"}, assistant("3"), {"role": "system", "content": "4"}, user("5")
    )
    assert [turn.src for turn in made.turns] == ["agent", "system", "agent", "system", "user"]
    assert story().turns == []


def test_what_a_document_states() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    usage["completion_tokens_details"] = {"reasoning_tokens": 1}
    made = story(user(), assistant(timestamp="2026-01-02T03:04:05Z"), id=7, model="m", agent_id="a", run_id="r", usage=usage)
    assert (made.session, made.agent, made.run) == ("7", Agent(id="a", model="m"), "r")
    assert (made.turns[1].model, made.turns[0].model, made.turns[1].ts) == ("m", None, "2026-01-02T03:04:05Z")
    metrics = json.loads(made.turns[1].metrics or b"")
    assert metrics == {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4, "extra": {"reasoning_tokens": 1}}


def test_preferences_and_prompt_with_completion() -> None:
    for value in (
        {
            "non_preferred_output": [assistant("no")],
            "preferred_output": [assistant("yes")],
            "input": {"messages": [user()], "tools": []},
        },
        {"prompt": [user()], "chosen": [assistant("yes")], "rejected": [assistant("no")]},
        {"chosen_messages": [user(), assistant("yes")], "rejected_messages": [user(), assistant("no")]},
        {"completion": [assistant("yes")], "prompt": [user()], "label": True},
    ):
        (made,) = stories(value)
        assert [turn.msg for turn in made.turns] == [b'"q"', b'"yes"']


def test_tool_messages_of_swe_agent_name_their_calls_in_a_list() -> None:
    made = story(assistant(tool_calls=[call("c")]), {"role": "tool", "content": "r", "tool_call_ids": ["c"]})
    assert results(made.turns[0]) == [{"source_call_id": "c", "content": "r"}]
    assert made.lints == {}


def test_text_that_looks_like_a_call_makes_none() -> None:
    made = story(user(), assistant("<tool_call>ls"))
    assert made.turns[1].tool_calls is None


# -- writing ------------------------------------------------------------------------------------------------------


def test_foreign_stories_become_conversations() -> None:
    turns = [
        Turn(id=1, src="system", msg=b'"s"'),
        Turn(id=2, src="user", msg=b'[{"type":"image","source":{"path":"a.png"}}]'),
        Turn(
            id=3,
            src="agent",
            msg=b'""',
            tool_calls=[ToolCall(tcid="c", fn="f", args=b'{ "b": 1.0 }')],
            observation=b'{"results":[{"source_call_id":"c","content":"r"},{"content":"nobody asked"}]}',
        ),
        Turn(id=4, src="user", msg=b'"trailing"'),
    ]
    foreign = StorylineDocument(story_id="x", session="s", agent=Agent(id="a"), turns=turns, origin=Origin(format="atif"))
    assert json.loads(openai_msg.dump([foreign])) == {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]},
            {"role": "assistant", "content": "", "tool_calls": [call("c", "f", '{"b":1.0}')]},
            tool("c", "r"),
            {"role": "user", "content": "trailing"},
        ]
    }
    assert openai_msg.dump([foreign, foreign]).count(b"\n") == 1
    with pytest.raises(UsageError):
        openai_msg.dump([])


def test_an_edited_story_is_written() -> None:
    made = story(user(), assistant(None, tool_calls=[call("x"), call("y")]), tool("y"), tool("x"), id="i")
    made.turns[0].msg = b'"other"'
    made.turns.append(Turn(id=9, src="user", msg=b'"more"'))
    written = json.loads(openai_msg.dump([made]))
    assert [message["content"] for message in written["messages"]] == ["other", None, "r", "r", "more"]
    assert written["id"] == "i"


def test_a_document_that_holds_no_messages_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        openai_msg.into(document({"conversations": [{"from": "human", "value": "q"}]}))
    assert refused.value.kind == "unsupported:sharegpt"


# -- real files ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not on this machine")
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json*")) if CORPUS.is_dir() else [], ids=lambda path: path.name)
def test_real_files_come_back(path: Path) -> None:
    text = path.read_bytes()
    parts = [line for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else [text]
    whole = top(text) if path.suffix == ".json" else {}
    if isinstance(whole, list) and openai_msg.recognise(whole) is None:
        parts = whole
    for part in parts:
        if openai_msg.recognise(top(part)) is None:
            assert openai_msg.unsupported(top(part)) == "sharegpt"
            continue
        for made in stories(part):
            assert made.turns
            assert not {"not-a-message", "unknown-role", "orphan-tool-message"} & set(made.lints)
