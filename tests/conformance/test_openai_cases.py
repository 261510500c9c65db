"""Cases 83 to 102: OpenAI messages and rows (formats/openai_msg.md). Captured traffic (96, 97) is no part of it."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from chronicle.materialize import materialize
from chronicle.options import MaterializeOptions
from tests.conformance.spine import Cases, Laws, columns, lints_of, origin_of, residual_of

case = Cases()


class TestLaws(Laws):
    """All files of this module."""


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def user(content: Any = "how long is the bolt?", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = "30 mm", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def tool(name: str | None, content: Any) -> dict[str, Any]:
    return {"role": "tool", **({} if name is None else {"tool_call_id": name}), "content": content}


def call(arguments: Any = '{"part":"bolt"}', name: str = "k1", **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "measure", "arguments": arguments}, **more}


def calls(*made: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(made), **more}


def chat(*messages: dict[str, Any], **more: Any) -> bytes:
    return text({"messages": list(messages), **more})


# --- forms --------------------------------------------------------------------------------------------------

TALK = [user(), assistant()]
OTHER = [user("and the nut?"), assistant("8 mm")]


@case(
    83,
    {
        "b1-object": (chat(*TALK), ("B1", "object", 1)),
        "b1-tools": (
            chat(*TALK, tools=[{"type": "function", "function": {"name": "measure"}}], parallel_tool_calls=False),
            ("B1", "object", 1),
        ),
        "b2-array": (text([{"messages": TALK}, {"messages": OTHER}]), ("B1", "array", 2)),
        "b2-array-of-one": (text([{"messages": OTHER}]), ("B1", "array", 1)),
        "b3": (text(TALK), ("B3", "object", 1)),
        "b4": (text([TALK, OTHER]), ("B3", "array", 2)),
        "b4-of-one": (text([OTHER]), ("B3", "array", 1)),
        "b9": (
            text({"input": {"messages": TALK[:1], "tools": []}, "preferred_output": TALK[1:], "non_preferred_output": OTHER[1:]}),
            ("B9", "object", 1),
        ),
        "b10": (text({"prompt": TALK[:1], "completion": TALK[1:]}), ("B10", "object", 1)),
    },
)
def test_every_form(seen, expected):
    form, container, count = expected
    assert [(origin_of(run)["form"], origin_of(run)["container"]) for run in seen.runs] == [(form, container)] * count
    for run in seen.runs:
        assert [row["source"] for row in seen.steps_of(run)] == ["user", "agent"]
        assert [row["step_id"] for row in seen.steps_of(run)] == [1, 2]
        assert [row["llm_call_count"] for row in seen.steps_of(run)] == [None, 1]
        assert [row["is_copied_context"] for row in seen.steps_of(run)] == [None, None]
        assert columns(run, ("agent_id", "run_id")) == ("openai-import", None)
        assert run["session_id"] == run["document_id"]
        assert lints_of(run) == {}


@case(
    83,
    {"b1-lines": (chat(*TALK) + b"\n" + chat(*OTHER) + b"\n", 2), "b1-one-line": (chat(*TALK, n=1) + b"\n", 1)},
    suffix=".jsonl",
)
def test_lines(seen, expected):
    assert [(origin_of(run)["form"], origin_of(run)["container"]) for run in seen.runs] == [("B1", "jsonl")] * expected


@case(
    83,
    {
        "conversations": (text({"conversations": TALK, "n": 1}), "B1:conversations"),
        "history": (text({"history": TALK, "n": 2}), "B1:history"),
        "traj": (text({"traj": TALK, "reward": 1.0}), "B1:traj"),
        "swe-agent": (text({"trajectory": [{"action": "ls", "observation": "a"}], "history": TALK}), "B1:swe-agent"),
    },
)
def test_messages_under_other_names(seen, expected):
    assert origin_of(seen.run)["form"] == expected
    assert [row["message_value"] for row in seen.steps] == ['"how long is the bolt?"', '"30 mm"']


@case(
    83,
    {
        "session": (chat(*TALK, session_id="s-4", model="m-large"), ("s-4", "m-large", "m-large")),
        "conversation": (chat(*TALK, conversation_id="c-4", agent_id="wrench"), ("c-4", "wrench", None)),
        "thread": (chat(*TALK, thread_id="t-4"), ("t-4", "openai-import", None)),
        "id": (chat(*TALK, id="i-4"), ("i-4", "openai-import", None)),
        "metadata": (chat(*TALK, metadata={"session_id": "m-4"}), ("m-4", "openai-import", None)),
        "custom-id": (chat(*TALK, custom_id="u-4"), ("u-4", "openai-import", None)),
        "session-before-id": (chat(*TALK, id="i-5", session_id="s-5"), ("s-5", "openai-import", None)),
    },
)
def test_who_and_where(seen, expected):
    assert columns(seen.run, ("session_id", "agent_id", "agent_model_name")) == expected


# --- roles --------------------------------------------------------------------------------------------------


@case(84, {"developer": chat({"role": "developer", "content": "be brief"}, *TALK)})
def test_a_developer_is_a_system(seen, expected):
    assert columns(seen.steps[0], ("source", "effective_kind", "message_value")) == ("system", "internal", '"be brief"')
    assert residual_of(seen.steps[0]) == {"/messages/0/role": '"developer"'}
    assert seen.lints == {}


@case(84, {"unknown": (chat({"role": "critic", "content": "meh"}, *TALK), ("critic", {}))})
def test_unknown_roles_are_kept(seen, expected):
    source, rest = expected
    assert columns(seen.steps[0], ("source", "effective_kind")) == (source, "dialogue")
    assert residual_of(seen.steps[0]) == rest
    assert seen.lints == {"unknown-role": 1}


def legacy(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "function_call": {"name": "measure", "arguments": arguments}}


@case(
    85,
    {
        "twice": chat(
            user(),
            legacy('{"n":1}'),
            {"role": "function", "name": "measure", "content": "30"},
            legacy('{"n":2}'),
            {"role": "function", "name": "measure", "content": "8"},
        )
    },
)
def test_legacy_function_calls(seen, expected):
    assert [columns(row, ("step_id", "tool_call_id", "function_name", "arguments", "results")) for row in seen.calls] == [
        (2, "call-2-1", "measure", '{"n":1}', '[{"source_call_id":"call-2-1","content":"30"}]'),
        (3, "call-3-1", "measure", '{"n":2}', '[{"source_call_id":"call-3-1","content":"8"}]'),
    ]


# --- calls --------------------------------------------------------------------------------------------------

ARGUMENTS = "/messages/1/tool_calls/0/function/arguments"


STRINGS = {
    "compact": ('{"a":1}', '{"a":1}', False, {}),
    "spaces": ('{"a": 1}', '{"a":1}', True, {}),
    "key-order": ('{"b":1,"a":2}', '{"b":1,"a":2}', False, {}),
    "repeated-keys": ('{"a":1,"a":2}', '{"a":1,"a":2}', False, {}),
    "numbers": ('{"a":1e3,"b":1.10,"c":-0}', '{"a":1e3,"b":1.10,"c":-0}', False, {}),
    "escape": (r'{"a":"\u00e9"}', '{"a":"é"}', True, {}),
    "number": ("5", "5", False, {}),
    "list": ("[1,2]", "[1,2]", False, {}),
    "null-text": ("null", "null", False, {}),
    "string-text": ('"str"', '"str"', True, {}),
    "invalid": ('{"format": "%Y', r'"{\"format\": \"%Y"', False, {"invalid-arguments": 1}),
    "empty": ("", '""', False, {"invalid-arguments": 1}),
}


@case(86, {name: (chat(user(), calls(call(given))), tuple(rest)) for name, (given, *rest) in STRINGS.items()})
def test_arguments_that_are_a_string(seen, expected):
    """The column holds what the string says; where that does not give the string back, the residual holds it."""
    made, is_exact_kept, lints = expected
    assert seen.call["arguments"] == made
    said = json.loads(seen.data)["messages"][1]["tool_calls"][0]["function"]["arguments"]
    rest = {at: json.loads(found) for at, found in residual_of(seen.steps[1]).items()}
    assert rest == ({ARGUMENTS: said} if is_exact_kept else {})
    assert seen.lints == lints


@case(
    86,
    {
        "object": (chat(user(), calls(call({"a": 1.50}))), '{"a":1.5}'),
        "null": (chat(user(), calls(call(None))), "null"),
        "value-number": (chat(user(), calls(call(7))), "7"),
    },
)
def test_arguments_that_are_no_string(seen, expected):
    assert seen.call["arguments"] == expected


@case(86, {"missing": chat(user(), calls({"id": "k1", "type": "function", "function": {"name": "measure"}}))})
def test_no_arguments(seen, expected):
    assert seen.call["arguments"] == "{}"
    assert residual_of(seen.steps[1]) == {ARGUMENTS: None}
    assert seen.lints == {"missing-arguments": 1}


def without(made: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in made.items() if name not in names}


CALL = "/messages/1/tool_calls/0"


@case(
    87,
    {
        "no-id": (
            chat(user(), calls(without(call(), "id"))),
            ("call-2-1", "measure", '{"part":"bolt"}', {f"{CALL}/id": None}, {"no-tool-call-id": 1}),
        ),
        "null-id": (
            chat(user(), calls({**call(), "id": None})),
            ("call-2-1", "measure", '{"part":"bolt"}', {f"{CALL}/id": "null"}, {"no-tool-call-id": 1}),
        ),
        "no-type": (
            chat(user(), calls(without(call(), "type"))),
            ("k1", "measure", '{"part":"bolt"}', {f"{CALL}/type": None}, {}),
        ),
        "index": (chat(user(), calls(call(index=0))), ("k1", "measure", '{"part":"bolt"}', {f"{CALL}/index": "0"}, {})),
        "custom": (
            chat(user(), calls({"id": "k1", "type": "custom", "custom": {"name": "run", "input": "ls -l"}})),
            ("k1", "run", '"ls -l"', {}, {}),
        ),
    },
)
def test_calls_of_other_shapes(seen, expected):
    name, function, arguments, rest, lints = expected
    assert columns(seen.call, ("tool_call_id", "function_name", "arguments")) == (name, function, arguments)
    assert residual_of(seen.steps[1]) == rest
    assert seen.lints == lints


@case(
    88,
    {
        "parallel": chat(
            user(),
            calls(call(), call(name="k2"), call(name="k3")),
            tool("k2", "two"),
            tool("k1", "one"),
            tool("k1", "one again"),
            assistant(),
        )
    },
)
def test_parallel_calls_answered_in_another_order(seen, expected):
    """One is not answered, one is answered twice: the second answer stays with its call, and is counted."""
    assert [json.loads(row["results"]) for row in seen.calls] == [
        [{"source_call_id": "k1", "content": "one"}, {"source_call_id": "k1", "content": "one again"}],
        [{"source_call_id": "k2", "content": "two"}],
        [],
    ]
    assert [one["content"] for one in json.loads(seen.steps[1]["observation"])["results"]] == ["two", "one", "one again"]
    assert [row["source"] for row in seen.steps] == ["user", "agent", "agent"]
    assert seen.lints == {"repeated-tool-message": 1}


@case(
    88,
    {
        "same-id-again": chat(
            user(), calls(call()), tool("k1", "30"), calls(call('{"part":"nut"}')), tool("k1", "8"), assistant()
        ),
    },
)
def test_a_call_id_that_comes_again(seen, expected):
    assert [columns(row, ("step_id", "tool_call_id", "arguments", "results")) for row in seen.calls] == [
        (2, "k1", '{"part":"bolt"}', '[{"source_call_id":"k1","content":"30"}]'),
        (3, "k1#2", '{"part":"nut"}', '[{"source_call_id":"k1#2","content":"8"}]'),
    ]
    assert seen.lints == {"repeated-tool-call-id": 1}


@case(
    89,
    {
        "unknown-id": (
            chat(user(), assistant(), tool("k9", "lost")),
            (1, ["user", "agent"], {"source_call_id": "k9", "content": "lost"}),
        ),
        "no-id": (chat(user(), assistant(), tool(None, "lost")), (1, ["user", "agent"], {"content": "lost"})),
        "before-any-assistant": (
            chat(user(), tool("k9", "early"), assistant()),
            (1, ["user", "system", "agent"], {"source_call_id": "k9", "content": "early"}),
        ),
        "first": (chat(tool("k9", "first"), user()), (0, ["system", "user"], {"source_call_id": "k9", "content": "first"})),
    },
)
def test_tool_messages_that_nobody_asked_for(seen, expected):
    """A result on the last agent turn; where there is none yet, on a system turn of its own."""
    place, sources, found = expected
    assert [row["source"] for row in seen.steps] == sources
    assert json.loads(seen.steps[place]["observation"]) == {"results": [found]}
    assert seen.calls == []
    assert seen.lints == {"orphan-tool-message": 1}


# --- content ------------------------------------------------------------------------------------------------

CONTENT = "/messages/1/content"
PNG = "iVBORw0KGgo="
PNG_DIGEST = f"sha256:{hashlib.sha256(bytes.fromhex('89504e470d0a1a0a')).hexdigest()}"
WAV_DIGEST = f"sha256:{hashlib.sha256(b'RIFF').hexdigest()}"


@case(
    90,
    {
        "null": (chat(user(), assistant(None)), ('""', {CONTENT: "null"})),
        "empty": (chat(user(), assistant("")), ('""', {})),
        "missing": (chat(user(), {"role": "assistant"}), ('""', {CONTENT: None})),
        "no-parts": (chat(user(), assistant([])), ("[]", {})),
        "text-parts": (
            chat(user(), assistant([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])),
            ('[{"type":"text","text":"a"},{"type":"text","text":"b"}]', {}),
        ),
        "refusal-part": (
            chat(user(), assistant([{"type": "refusal", "refusal": "no"}])),
            ('[{"type":"refusal","refusal":"no"}]', {}),
        ),
        "number": (chat(user(), assistant(5)), ("5", {})),
        "object": (chat(user(), assistant({"b": 1, "a": 2})), ('{"b":1,"a":2}', {})),
    },
)
def test_content_of_every_type(seen, expected):
    value, rest = expected
    assert seen.steps[1]["message_value"] == value
    assert residual_of(seen.steps[1]) == rest


@case(
    90,
    {
        "image-url": (
            chat(user([{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}])),
            {"type": "image", "source": {"media_type": "image/png", "path": "https://x.test/a.png"}},
        ),
        "image-detail": (
            chat(user([{"type": "image_url", "image_url": {"url": "https://x.test/a.jpg", "detail": "low"}}])),
            {"type": "image", "source": {"media_type": "image/jpeg", "path": "https://x.test/a.jpg"}},
        ),
        "audio": (
            chat(user([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}])),
            {"type": "audio", "source": {"media_type": "audio/wav", "path": WAV_DIGEST}},
        ),
        "file-id": (chat(user([{"type": "file", "file": {"file_id": "f-1"}}])), {"type": "file", "file": {"file_id": "f-1"}}),
        "responses-style": (chat(user([{"type": "input_text", "text": "a"}])), {"type": "text", "text": "a"}),
    },
)
def test_parts_become_parts_of_the_story(seen, expected):
    assert json.loads(seen.step["message_value"]) == [expected]
    assert seen.step["message_kind"] == "parts"
    assert seen.lints == {}


@case(
    91,
    {
        "only": (
            chat(user(), assistant(None, refusal="I will not")),
            ('"I will not"', {"/messages/1/content": "null", "/messages/1/refusal": '"I will not"'}),
        ),
        "with-content": (
            chat(user(), assistant("partly", refusal="not all")),
            ('"partly"', {"/messages/1/refusal": '"not all"'}),
        ),
        "null": (chat(user(), assistant("yes", refusal=None)), ('"yes"', {"/messages/1/refusal": "null"})),
    },
)
def test_refusals(seen, expected):
    value, rest = expected
    assert seen.steps[1]["message_value"] == value
    assert residual_of(seen.steps[1]) == rest


@case(
    92,
    {
        "reasoning_content": (chat(user(), assistant(reasoning_content="hm")), "hm"),
        "reasoning": (chat(user(), assistant(reasoning="hm")), "hm"),
        "thinking": (chat(user(), assistant(thinking="hm")), "hm"),
        "both": (chat(user(), assistant(reasoning_content="first", reasoning="second")), "first"),
        "details": (chat(user(), assistant(reasoning_details=[{"type": "reasoning.text", "text": "hm"}])), None),
        "list": (chat(user(), assistant(reasoning_content=["hm"])), None),
    },
)
def test_reasoning(seen, expected):
    assert seen.steps[1]["reasoning_content"] == expected
    if "second" in seen.data.decode():
        assert residual_of(seen.steps[1]) == {"/messages/1/reasoning": '"second"'}


@case(92, {"details-kept": chat(user(), assistant(reasoning_details=[{"text": "hm", "n": 1}]))})
def test_reasoning_that_is_no_text_is_kept(seen, expected):
    assert residual_of(seen.steps[1]) == {"/messages/1/reasoning_details": '[{"text":"hm","n":1}]'}


@case(
    93, {"zero": (chat(user(), assistant(weight=0)), '{"weight":0}'), "one": (chat(user(), assistant(weight=1)), '{"weight":1}')}
)
def test_weight(seen, expected):
    assert seen.steps[1]["extra"] == expected
    assert residual_of(seen.steps[1]) == {}


@case(94, {"name": chat(user(name="kim"), assistant())})
def test_the_name_of_a_user(seen, expected):
    assert residual_of(seen.steps[0]) == {"/messages/0/name": '"kim"'}


def system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


@case(
    95,
    {
        "system-in-the-middle": (chat(user(), system("be brief"), assistant()), ["user", "system", "agent"]),
        "two-systems": (chat(system("a"), system("b"), user()), ["system", "system", "user"]),
        "only-a-system": (chat(system("a")), ["system"]),
        "trailing-user": (chat(user(), assistant(), user("and?")), ["user", "agent", "user"]),
        "assistant-first": (chat(assistant("hello"), user()), ["agent", "user"]),
        "consecutive-assistants": (chat(user(), assistant("a"), assistant("b")), ["user", "agent", "agent"]),
        "no-messages": (chat(id="none"), []),
    },
)
def test_any_order_of_roles(seen, expected):
    assert [row["source"] for row in seen.steps] == expected
    assert [row["step_id"] for row in seen.steps] == list(range(1, len(expected) + 1))
    assert seen.lints == {}


@case(
    98,
    {
        "prompt": (
            text({"prompt": [user()], "chosen": [assistant("a")], "rejected": [assistant("b")]}),
            ("B9:prompt", "/rejected"),
        ),
        "conversations": (
            text({"chosen": [user(), assistant("a")], "rejected": [user(), assistant("b")]}),
            ("B9:chosen", "/rejected"),
        ),
        "preferred": (
            text(
                {"input": {"messages": [user()]}, "preferred_output": [assistant("a")], "non_preferred_output": [assistant("b")]}
            ),
            ("B9", "/non_preferred_output"),
        ),
    },
)
def test_the_chosen_answer_is_the_story(seen, expected):
    form, other = expected
    assert origin_of(seen.run)["form"] == form
    assert [row["message_value"] for row in seen.steps] == ['"how long is the bolt?"', '"a"']
    rest = residual_of(seen.run)
    assert list(rest) == [other]
    assert json.loads(rest[other]) == json.loads(seen.data)[other[1:]]


# --- rows ---------------------------------------------------------------------------------------------------


def row(step: Any, messages: list[dict[str, Any]], answer: Any = "ok", session: str = "s-1", **more: Any) -> dict[str, Any]:
    response = {"response": {"role": "assistant", "content": answer}} if isinstance(answer, str) else {"response": answer}
    return {"session_id": session, "step_id": step, "messages": messages, **response, **more}


def turns_of(seen, run=None):
    return [(step["step_id"], step["source"], json.loads(step["message_value"])) for step in seen.steps_of(run or seen.run)]


FIRST = row(1, [system("be brief"), user("a")], "A")
SECOND = row(2, [system("be brief"), user("a"), assistant("A"), user("b")], "B")
BOTH = [(1, "system", "be brief"), (2, "user", "a"), (3, "agent", "A"), (4, "user", "b"), (5, "agent", "B")]


@case(
    None,
    {
        "83-a-array": (text([FIRST, SECOND]), ("A", BOTH)),
        "83-a-session-steps": (text({"session_steps": [FIRST, SECOND], "n": 1}), ("A:session_steps", BOTH)),
        "83-a-row": (text(FIRST), ("A:row", BOTH[:3])),
        "99-unsorted": (text([SECOND, FIRST]), ("A", BOTH)),
    },
)
def test_rows_of_one_session_are_one_story(seen, expected):
    form, turns = expected
    assert origin_of(seen.run)["form"].startswith(form)
    assert turns_of(seen) == turns
    assert [step["is_copied_context"] for step in seen.steps] == [True, *[None] * (len(turns) - 1)]
    assert seen.run["session_id"] == "s-1"
    assert seen.lints == {}


@case(83, {"a-lines": text(FIRST) + b"\n" + text(SECOND) + b"\n"}, suffix=".jsonl")
def test_rows_on_lines_are_one_story(seen, expected):
    assert turns_of(seen) == BOTH
    assert origin_of(seen.run)["container"] == "jsonl"


@case(
    99,
    {
        "interleaved": text(
            [
                row(1, [user("a")], "A", "x"),
                row(1, [user("c")], "C", "y"),
                row(2, [user("a"), assistant("A"), user("b")], "B", "x"),
            ]
        )
    },
)
def test_interleaved_sessions_are_two_stories(seen, expected):
    x, y = seen.runs
    assert [run["session_id"] for run in seen.runs] == ["x", "y"]
    assert turns_of(seen, x) == [(1, "user", "a"), (2, "agent", "A"), (3, "user", "b"), (4, "agent", "B")]
    assert turns_of(seen, y) == [(1, "user", "c"), (2, "agent", "C")]
    assert len({run["document_id"] for run in seen.runs}) == 2


@case(99, {"gap": text([row(1, [user("a")], "A"), row(4, [user("a"), assistant("A"), user("b")], "B")])})
def test_a_gap_in_the_steps_of_rows(seen, expected):
    assert turns_of(seen) == [(1, "user", "a"), (2, "agent", "A"), (7, "user", "b"), (8, "agent", "B")]
    assert seen.lints == {}


@case(
    99,
    {
        "repeated": (
            text([row(1, [user("a")], "A"), row(1, [user("a"), assistant("A"), user("b")], "B")]),
            {"repeated-step-id": 1},
        ),
        "missing": (
            text([row(1, [user("a")], "A"), without(row(2, [user("a"), assistant("A"), user("b")], "B"), "step_id")]),
            {"invalid-step-id": 1},
        ),
        "zero-based-unsorted": (
            text([row(1, [user("a"), assistant("A"), user("b")], "B"), row(0, [user("a")], "A")]),
            {"invalid-step-id": 1},
        ),
        "zero": (text([row(0, [user("a")], "A"), row(2, [user("a"), assistant("A"), user("b")], "B")]), {"invalid-step-id": 1}),
    },
)
def test_steps_of_rows_that_name_no_order(seen, expected):
    assert turns_of(seen) == [(1, "user", "a"), (2, "agent", "A"), (3, "user", "b"), (4, "agent", "B")]
    assert seen.lints == expected


@case(99, {"system-prompt": text([FIRST, row(2, [system("be long"), user("a"), assistant("A"), user("b")], "B")])})
def test_a_changed_system_prompt_is_a_turn(seen, expected):
    assert [(source, value) for _, source, value in turns_of(seen)] == [
        ("system", "be brief"),
        ("user", "a"),
        ("agent", "A"),
        ("system", "be long"),
        ("user", "b"),
        ("agent", "B"),
    ]
    assert json.loads(seen.steps[3]["extra"]) == {"context_reset": True}


@case(99, {"compacted": text([FIRST, row(2, [system("be brief"), user("summary: a was asked"), user("b")], "B")])})
def test_compacted_history_is_a_turn(seen, expected):
    assert [value for _, _, value in turns_of(seen)] == ["be brief", "a", "A", "summary: a was asked", "b", "B"]
    assert json.loads(seen.steps[3]["extra"]) == {"context_reset": True}


@case(99, {"middle-user": text([FIRST, row(2, [system("be brief"), user("a"), assistant("A"), user("wait"), user("b")], "B")])})
def test_a_new_user_message_in_the_middle_is_a_turn(seen, expected):
    assert [value for _, _, value in turns_of(seen)] == ["be brief", "a", "A", "wait", "b", "B"]
    assert all(step["extra"] is None for step in seen.steps)


@case(
    99,
    {
        "call-id-again": text(
            [
                row(1, [user("a")], calls(call())),
                row(2, [user("a"), calls(call()), tool("k1", "30"), user("b")], calls(call('{"part":"nut"}'))),
                row(
                    3,
                    [
                        user("a"),
                        calls(call()),
                        tool("k1", "30"),
                        user("b"),
                        calls(call('{"part":"nut"}')),
                        tool("k1", "8"),
                        user("c"),
                    ],
                    "C",
                ),
            ]
        )
    },
)
def test_the_same_call_id_in_several_rows(seen, expected):
    assert [columns(made, ("tool_call_id", "arguments")) for made in seen.calls] == [
        ("k1", '{"part":"bolt"}'),
        ("k1#2", '{"part":"nut"}'),
    ]
    assert [[one["content"] for one in json.loads(made["results"])] for made in seen.calls] == [["30"], ["8"]]
    assert seen.lints == {"repeated-tool-call-id": 1}


@case(
    99,
    {
        "float-time": (text([row(1, [user("a")], "A", created_at=1772600767.25)]), 1772600767_250_000_000),
        "text-time": (
            text([row(1, [user("a")], "A", created_at="2026-03-04T05:06:07+00:00")]),
            int(datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()) * 10**9,
        ),
        "no-time": (text([row(1, [user("a")], "A", created_at=None)]), None),
    },
)
def test_the_time_of_a_row(seen, expected):
    assert [step["timestamp"] for step in seen.steps] == [expected] * 2


STATE = {"group_id": "g", "source": "gym", "env_state": {"total_latency_ms": 900, "ttft_ms": 12, "prompt_tokens": 7}}


@case(
    99,
    {
        "meta-string": text([row(1, [user("a")], "A", meta_json=json.dumps(STATE), reward=0.50)]),
        "meta-object": text([row(1, [user("a")], "A", meta_json=STATE, reward=0.5)]),
    },
)
def test_the_meta_of_a_row(seen, expected):
    answer = seen.steps[1]
    assert columns(answer, ("latency", "ttft")) == (900, 12)
    assert json.loads(answer["metrics"]) == {"reward": 0.5, "latency_ms": 900, "ttft_ms": 12, "prompt_tokens": 7}
    assert seen.run["agent_id"] == "gym"


@case(
    99,
    {
        "names": text(
            [row(1, [user("a")], "A", agent_id="wrench", agent_model="m-1", llm_model="m-2", run_id="r-1", job_id="j-1")]
        )
    },
)
def test_the_names_of_a_row(seen, expected):
    assert columns(seen.run, ("agent_id", "agent_model_name", "run_id")) == ("wrench", "m-1", "r-1")
    assert seen.steps[1]["model_name"] == "m-1"


# --- what must not leak -------------------------------------------------------------------------------------

IMAGE = f"data:image/png;base64,{PNG}"


@case(
    100,
    {
        "data-url": chat(
            user([{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": IMAGE}}]),
            assistant("a hinge"),
        )
    },
)
def test_inline_data_is_a_digest_in_the_story(seen, expected):
    (text_part, image) = json.loads(seen.steps[0]["message_value"])
    assert image == {"type": "image", "source": {"media_type": "image/png", "path": PNG_DIGEST}}
    assert text_part == {"type": "text", "text": "what is it?"}
    assert PNG not in seen.steps[0]["message_value"]
    assert IMAGE.encode() in seen.as_format("openai_msg")
    made = materialize(MaterializeOptions(paths=seen.lake.paths))
    pages = [path.read_text() for path in (seen.lake.root.parent / "lake/agenticmd/cases").glob("*.md")]
    assert len(pages) == made.stories
    assert any("what is it?" in page for page in pages)
    assert not any(PNG in page for page in pages)


MARKUP = "<tool_call>measure\n<arg>bolt</arg></tool_call>"


@case(
    101, {"messages": (chat(user(), assistant(MARKUP)), []), "row": (text([row(1, [user("a")], MARKUP)]), ["embedded-1-measure"])}
)
def test_a_call_in_the_text_is_no_call_of_the_source(seen, expected):
    """Rows derive one for queries (rule 9 of the peer); the export in the own format has none in any case."""
    assert [made["tool_call_id"] for made in seen.calls] == expected
    assert b'"tool_calls"' not in seen.as_format("openai_msg")
    assert json.loads(seen.steps[1]["message_value"]) == MARKUP


@case(
    102,
    {
        "line": (chat(*TALK, dataset="d", score=1.0), ("run", {"/dataset": '"d"', "/score": "1.0"})),
        "message": (
            chat({**user(), "cache_control": {"ttl": 5}}, assistant()),
            ("first", {"/messages/0/cache_control": '{"ttl":5}'}),
        ),
        "call": (chat(user(), calls(call(extra_content={"n": 1}))), ("second", {f"{CALL}/extra_content": '{"n":1}'})),
        "function": (
            chat(user(), calls({**call(), "function": {"name": "measure", "arguments": "{}", "strict": True}})),
            ("second", {f"{CALL}/function/strict": "true"}),
        ),
        "part": (
            chat(user([{"type": "text", "text": "a", "annotations": []}])),
            ("message", '[{"type":"text","text":"a","annotations":[]}]'),
        ),
        "tool": (chat(user(), calls(call()), {**tool("k1", "30"), "status": "ok"}), ("second", {"/messages/2/status": '"ok"'})),
    },
)
def test_unknown_members_at_each_level(seen, expected):
    where, rest = expected
    if where == "message":
        assert seen.step["message_value"] == rest
    else:
        held = seen.run if where == "run" else seen.steps[0 if where == "first" else 1]
        assert residual_of(held) == rest


def test_nothing_is_in_quarantine(lake):
    assert lake.entries == {}
    assert lake.reports[1].exit_code() == 0
