"""Recognition of OpenAI messages data."""

from __future__ import annotations

from typing import Any

import pytest

from chronicle.formats import openai_msg
from chronicle.formats.openai_shapes import lists_of
from tests.formats.openai_samples import assistant, row, text_of, top, user

MESSAGES = [user(), assistant()]


@pytest.mark.parametrize(
    ("value", "form", "lists"),
    [
        ({"messages": MESSAGES, "tools": []}, "B1", ("/messages",)),
        ({"messages": []}, "B1", ("/messages",)),
        ({"messages": [None, user()]}, "B1", ("/messages",)),
        (b'{"messages":[{"role":"user","content":"\\ud800"},{"role":"user","x":NaN}]}', "B1", ("/messages",)),
        ({"conversations": MESSAGES}, "B1:conversations", ("/conversations",)),
        ({"task_id": 1, "traj": MESSAGES}, "B1:traj", ("/traj",)),
        ({"history": MESSAGES}, "B1:history", ("/history",)),
        ({"trajectory": [{"action": "ls", "observation": ""}], "history": MESSAGES}, "B1:swe-agent", ("/history",)),
        ({"trajectory": MESSAGES}, "B1:trajectory", ("/trajectory",)),
        (MESSAGES, "B3", ("",)),
        (
            {"input": {"messages": [user()]}, "preferred_output": [assistant()], "non_preferred_output": []},
            "B9",
            ("/input/messages", "/preferred_output"),
        ),
        ({"rejected": MESSAGES, "chosen": [assistant()], "prompt": [user()]}, "B9:prompt", ("/prompt", "/chosen")),
        ({"prompt": "q", "chosen": MESSAGES, "rejected": MESSAGES}, "B9:chosen", ("/chosen",)),
        ({"chosen_messages": MESSAGES, "rejected_messages": MESSAGES}, "B9:chosen_messages", ("/chosen_messages",)),
        ({"completion": [assistant()], "prompt": [user()]}, "B10", ("/prompt", "/completion")),
        ([row("s", 1, user())], "A", ("",)),
        ([{"messages": []}, row("s", 1)], "A", ("",)),
        ({"session_steps": [row("s", 1)], "x": 1}, "A:session_steps", ("/session_steps",)),
        (row("s", 1, user()), "A:row", ()),
        ({"session_id": "s", "step_id": 1, "response": assistant()}, "A:row", ()),
    ],
)
def test_forms(value: Any, form: str, lists: tuple[str, ...]) -> None:
    assert openai_msg.recognise(top(text_of(value))) == openai_msg.Form(form, lists)
    assert lists_of(form) == (lists or ("",))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"conversations": [{"from": "human", "value": "q"}]}, "sharegpt"),
        ({"messages": [{"from": "human", "value": "q"}]}, "sharegpt"),
        ({"object": "chat.completion", "choices": [{"message": assistant()}]}, "openai-completion"),
        ({"object": "chat.completion.chunk", "choices": [{"delta": {}}]}, "openai-stream"),
        ({"object": "response", "output": []}, "openai-response"),
        ({"output": [{"type": "function_call", "name": "f"}]}, "openai-response"),
        ([{"type": "message", "role": "user", "content": "q"}, {"type": "function_call", "name": "f"}], "openai-items"),
        ({"request": {"messages": MESSAGES}, "response": {}}, "openai-exchange"),
        ({"body": {"messages": MESSAGES}, "response": {}}, "openai-exchange"),
        ({"custom_id": "c", "method": "POST", "url": "/v1", "body": {}}, "openai-batch"),
        ({"id": "b", "custom_id": "c", "response": None, "error": {"code": "x"}}, "openai-batch"),
        ({"messages": [user(), assistant([{"type": "tool_use", "id": "t", "name": "f", "input": {}}])]}, "anthropic"),
        ({"type": "message", "role": "assistant", "content": []}, "anthropic-response"),
        ({"type": "user", "sessionId": "s", "message": user()}, "claude-code"),
        ({"timestamp": "t", "type": "response_item", "payload": {}}, "codex"),
        ({"contents": [{"role": "user", "parts": [{"text": "q"}]}]}, "gemini"),
        ([{"role": "user", "parts": [{"text": "q"}]}], "gemini"),
        ({"messages": [{"role": "user", "parts": [{"type": "text", "text": "q"}]}]}, "ui-messages"),
        ({"sessionId": "s", "messages": [{"type": "user", "content": "q"}]}, "gemini-cli"),
        ({"mapping": {}, "title": "t"}, "chatgpt-export"),
        ({"messages": [{"type": "human", "content": "q"}]}, "langchain"),
        ({"instruction": "i", "input": "", "output": "o"}, "alpaca"),
        ({"prompt": "p", "completion": "c"}, "prompt-completion"),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, "preference-text"),
        ({"text": "t"}, "text"),
        ({"trajectory": [{"action": "ls", "observation": "a"}]}, "swe-agent-trajectory"),
    ],
)
def test_known_shapes_that_are_not_taken(value: Any, what: str) -> None:
    assert openai_msg.recognise(top(text_of(value))) is None
    assert openai_msg.unsupported(top(text_of(value))) == what


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"messages": 5},
        {"messages": [1, 2]},
        [1],
        [[user()]],
        [{"messages": MESSAGES}],
        {"steps": []},
        {"session_id": "s"},
    ],
)
def test_what_is_nothing_of_this(value: Any) -> None:
    assert openai_msg.recognise(top(text_of(value))) is None
    assert openai_msg.unsupported(top(text_of(value))) is None


def test_words_in_a_text_make_no_other_format() -> None:
    talk = {"messages": [user('send {"type":"tool_use"} and "tool_result"'), assistant([{"type": "text", "text": "tool_use"}])]}
    assert openai_msg.recognise(top(text_of(talk))) == openai_msg.Form("B1", ("/messages",))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"session_id": "s", "id": "i", "agent_id": "a", "model": "m", "run_id": "r"}, ("s", "a", "r")),
        ({"session_id": "", "conversation_id": None, "id": 1, "model": "m"}, ("1", "m", None)),
        ({"metadata": {"session_id": "s"}, "job_id": 7}, ("s", None, "7")),
        ({"session_id": {"x": 1}, "custom_id": "c"}, ("c", None, None)),
        ({"thread_id": "\ud800"}, ("\ufffd", None, None)),
        (row("s", 1, meta_json='{"source":"src"}', agent_model="m", run_bucket="b"), ("s", "src", "b")),
        ([row("s", 1, llm_model="m"), row("t", 1)], ("s", "m", None)),
        ({"session_steps": [row("s", 1, meta_json={"source": "o"})]}, ("s", "o", None)),
        ({"session_steps": []}, (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_identity(value: Any, expected: tuple[str | None, ...]) -> None:
    assert openai_msg.identity(top(text_of(value))) == expected


def test_sessions_of_rows() -> None:
    rows = [row("s", 1), row(5, 1), row("", 1), {"step_id": 1}, b"null", b'{"session_id":"\\ud800","x":NaN}']
    assert openai_msg.row_sessions([text_of(each) for each in rows]) == ["s", "5", None, None, None, "\ufffd"]
