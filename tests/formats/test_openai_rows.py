"""Rows of OpenAI messages (form A) to Storyline and back (edge case 99)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chronicle.formats import openai_msg
from chronicle.formats.story import StorylineDocument
from chronicle.identity import story_id
from tests.formats.openai_samples import DOCUMENT_ID, assistant, call, document, row, stories, text_of, tool, user

SYSTEM = {"role": "system", "content": "sys"}


def brief(made: StorylineDocument) -> list[tuple[int, str, Any, bool]]:
    """(id, source, message, whether it is copied) of each turn."""
    return [(turn.id, turn.src, json.loads(turn.msg), bool(turn.copied)) for turn in made.turns]


def test_one_row_has_context_request_and_response() -> None:
    (made,) = stories([row("s", 1, SYSTEM, user("1"), assistant("2"), user("3"), response=assistant("4"))])
    assert brief(made) == [
        (1, "system", "sys", True),
        (2, "user", "1", True),
        (3, "agent", "2", True),
        (4, "user", "3", False),
        (5, "agent", "4", False),
    ]
    assert [turn.nllm for turn in made.turns] == [None, None, None, None, 1]


def test_history_of_later_rows_is_not_told_again() -> None:
    first = row("s", 1, SYSTEM, user("1"), response=assistant("2"))
    second = row("s", 2, SYSTEM, user("1"), assistant("2"), user("3"), response=assistant("4"))
    (made,) = stories([first, second])
    assert brief(made) == [
        (1, "system", "sys", True),
        (2, "user", "1", False),
        (3, "agent", "2", False),
        (4, "user", "3", False),
        (5, "agent", "4", False),
    ]
    assert made.turns[4].residual is not None
    assert made.turns[4].residual["#/1/messages"] == ["1-4"]


def test_rows_unsorted_interleaved_and_with_gaps() -> None:
    rows = [
        row("t", 1, user("t1"), response=assistant("t2")),
        row("s", 5, user("s1"), assistant("s2"), user("s5"), response=assistant("s6")),
        row("t", 2, user("t3"), response=assistant("t4")),
        row("s", 1, user("s1"), response=assistant("s2")),
    ]
    made = stories(rows)
    assert [each.session for each in made] == ["t", "s"]
    assert [each.story_id for each in made] == [story_id(DOCUMENT_ID, "t"), story_id(DOCUMENT_ID, "s")]
    assert [(turn.id, turn.msg) for turn in made[1].turns] == [(1, b'"s1"'), (2, b'"s2"'), (9, b'"s5"'), (10, b'"s6"')]
    assert [each.origin.pointer for each in made if each.origin] == ["t", "s"]


def test_a_single_session_is_the_story_of_the_document() -> None:
    (made,) = stories([row("s", 1, user(), response=assistant())])
    assert (made.story_id, made.session) == (DOCUMENT_ID, "s")


def test_tool_loop_over_rows() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": [call("c")]}
    rows = [
        row("s", 1, user("q"), response=asked),
        row("s", 2, user("q"), asked, tool("c", "r"), response=assistant("done")),
        row("s", 3, user("q"), asked, tool("c", "r"), assistant("done"), user("next"), response=assistant("a")),
    ]
    (made,) = stories(rows)
    assert [json.loads(turn.observation)["results"] for turn in made.turns if turn.observation] == [
        [{"source_call_id": "c", "content": "r"}]
    ]
    assert brief(made) == [
        (1, "user", "q", False),
        (2, "agent", "", False),
        (3, "user", "q", True),
        (4, "agent", "done", False),
        (5, "user", "next", False),
        (6, "agent", "a", False),
    ]
    assert "context_reset" not in str(made.turns)


@pytest.mark.parametrize(
    ("messages", "told", "reset"),
    [
        ([{"role": "system", "content": "new"}, user("1"), assistant("2"), user("3")], [("system", "new"), ("user", "3")], True),
        ([SYSTEM, user("summary"), user("3")], [("user", "summary"), ("user", "3")], True),
        ([SYSTEM, user("1"), assistant("2"), user("middle"), user("3")], [("user", "middle"), ("user", "3")], False),
        ([SYSTEM, user("3")], [("user", "3")], True),
    ],
)
def test_changed_history_is_told(messages: list[Any], told: list[tuple[str, str]], reset: bool) -> None:
    first = row("s", 1, SYSTEM, user("1"), response=assistant("2"))
    (made,) = stories([first, row("s", 2, *messages, response=assistant("4"))])
    new = made.turns[3:]
    assert [(turn.src, json.loads(turn.msg)) for turn in new] == [*told, ("agent", "4")]
    assert [turn.extra == b'{"context_reset":true}' for turn in new] == [reset, *([False] * len(told))]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"response": assistant("r")}, ["q", "r"]),
        ({"response": assistant(None, refusal="no")}, ["q", "no"]),
        ({"response": {"content": "r"}}, ["q", "r"]),
        ({"response": None}, ["q"]),
        ({}, ["q"]),
        ({"response": assistant("")}, ["q", ""]),
    ],
)
def test_output(members: dict[str, Any], said: list[str]) -> None:
    (made,) = stories([row("s", 1, user(), **members)])
    assert [json.loads(turn.msg) for turn in made.turns] == said
    assert [turn.src for turn in made.turns] == ["user", "agent"][: len(said)]


def test_output_in_the_messages() -> None:
    (made,) = stories([row("s", 1, user(), assistant("m"), response=assistant(""))])
    assert brief(made) == [(1, "user", "q", False), (2, "agent", "m", False)]
    (made,) = stories([row("s", 1, user(), assistant("same"), response=assistant("same"))])
    assert brief(made) == [(1, "user", "q", False), (2, "agent", "same", False)]


def test_a_loop_inside_the_messages_keeps_its_calls() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": [call("c")]}
    (made,) = stories([row("s", 1, user(), asked, tool("c"), assistant("end"))])
    assert [turn.src for turn in made.turns] == ["user", "agent", "agent"]
    assert made.turns[1].tool_calls
    assert made.turns[1].observation


def test_same_tool_message_twice_and_same_call_id_in_two_rows() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": [call("c")]}
    rows = [
        row("s", 1, user("1"), response=asked),
        row("s", 2, user("1"), asked, tool("c"), tool("c"), user("2"), response={**asked, "content": "again"}),
    ]
    (made,) = stories(rows)
    assert [each.tcid for turn in made.turns for each in turn.tool_calls or ()] == ["c", "c#2"]
    assert json.loads(made.turns[1].observation or b"")["results"] == [{"source_call_id": "c", "content": "r"}]
    assert made.lints == {"repeated-tool-call-id": 1}


def test_legacy_functions_in_rows() -> None:
    asked = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answer = {"role": "function", "name": "f", "content": "r"}
    (made,) = stories([row("s", 1, user(), response=asked), row("s", 2, user(), asked, answer, response=assistant("a"))])
    assert json.loads(made.turns[1].observation or b"")["results"] == [{"source_call_id": "call-2-1", "content": "r"}]
    assert made.lints == {}


def test_text_call_is_derived_and_never_written() -> None:
    (made,) = stories([row("s", 4, user(), response=assistant("<tool_call>ls -l"))])
    assert [(each.tcid, each.fn, each.extra) for each in made.turns[1].tool_calls or ()] == [
        ("embedded-4-ls", "ls", b'{"derived":"text"}')
    ]
    assert b"tool_calls" not in openai_msg.dump([made], exact=False)


def test_what_a_row_states() -> None:
    state = '{"total_latency_ms":7,"ttft_ms":3,"total_tokens":12,"x":1}'
    meta = json.dumps({"source": "src", "env_state": state})
    one = row(
        "s", 1, user(), response=assistant(), created_at=1785329601.25, llm_model="m", job_id="j", reward=1.50, meta_json=meta
    )
    (made,) = stories([one])
    assert (made.agent.id, made.agent.model, made.run) == ("src", "m", "j")
    turn = made.turns[1]
    assert (turn.model, turn.latency_ms, turn.ttft_ms, turn.ts) == ("m", 7, 3, "2026-07-29T12:53:21.25Z")
    assert json.loads(turn.metrics or b"") == {"reward": 1.5, "latency_ms": 7, "ttft_ms": 3, "total_tokens": 12}


@pytest.mark.parametrize(
    ("stated", "ts"),
    [
        ("2026-01-01 00:00:00", "2026-01-01 00:00:00"),
        (1785329600, "2026-07-29T12:53:20Z"),
        (1785329600123, "2026-07-29T12:53:20.123Z"),
        (-1, None),
        (None, None),
        ("", None),
        (1e300, None),
    ],
)
def test_created_at(stated: Any, ts: str | None) -> None:
    (made,) = stories([row("s", 1, user(), response=assistant(), created_at=stated)])
    assert [turn.ts for turn in made.turns] == [ts, ts]


def test_odd_ids() -> None:
    rows = [
        row("s", 1, user("1")),
        row("s", 1, user("2")),
        row("s", 0, user("3")),
        {"messages": [user("4")]},
        row(5, 1, user("5")),
    ]
    made = stories(rows)
    assert [each.session for each in made] == ["s", DOCUMENT_ID, "5"]
    assert [turn.id for turn in made[0].turns] == [1, 2, 3]
    assert made[0].lints == {"repeated-step-id": 1, "invalid-step-id": 1}
    assert made[1].lints == {"invalid-step-id": 1, "missing-session-id": 1}
    assert made[1].story_id == DOCUMENT_ID


def test_containers_of_rows() -> None:
    rows = [row("s", 1, user("1"), response=assistant()), row("t", 1, user("2"), response=assistant())]
    texts = [text_of(each) for each in rows]
    assert len(stories(b"\r\n\n".join(texts), "A:row", "jsonl")) == 2
    assert len(stories({"task": "x", "session_steps": rows})) == 2
    assert len(stories(rows[0])) == 1
    lines = openai_msg.dump(openai_msg.into(document(b"\n".join(texts), "A:row", "jsonl")))
    assert [json.loads(line) for line in lines.split(b"\n")] == rows
    neighbours = openai_msg.dump(openai_msg.into(document(b" , ".join(texts), "A:row", "array")))
    assert json.loads(b"[" + neighbours + b"]") == rows
    assert stories([], "A")[0].turns == []


def test_rows_without_marks_are_written_from_the_turns() -> None:
    (made,) = stories([row("s", 1, SYSTEM, user("1"), response=assistant("2")), row("s", 2, user("3"), response=assistant("4"))])
    written = json.loads(openai_msg.dump([made], exact=False))
    said = [(len(each["messages"]), each["response"]["content"]) for each in written]
    assert said == [(2, "2"), (4, "4")]
