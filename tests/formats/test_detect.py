"""Every shape gets its right name; what other tools keep for themselves is never taken for ATIF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import InputError
from chronicle.formats import detect
from chronicle.formats.cut import cut
from chronicle.formats.slices import top_of

SHARED = Path(__file__).resolve().parents[2].parent / "shared"

STEP = {"step_id": 1, "source": "user", "message": "m"}
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def verdict(value: Any) -> detect.Verdict:
    top = top_of(json.dumps(value).encode())
    assert top is not None
    return detect.recognise(top)


@pytest.mark.parametrize(
    ("value", "format"),
    [
        ({"schema_version": "ATIF-v1.7"}, "atif"),
        ({"schema_version": "atif-v9", "steps": None}, "atif"),
        ({"schema_version": "1.4", "agent": {}, "steps": []}, "atif"),
        ({"agent": {"name": "x"}, "steps": []}, "atif"),
        ({"steps": [STEP, STEP]}, "atif"),
        ({"steps": [STEP], "agent": "text"}, "atif"),
        ({"schema_version": "ATIF-v1.5", "messages": CHAT}, "atif"),
        ({"schema_version": "storyline/v1", "steps": [STEP], "agent": {}}, "storyline"),
        ({"spec": "storyline/v7"}, "storyline"),
        ({"spec": "storyline/v1", "schema_version": "ATIF-v1.7"}, "storyline"),
        ({"session_id": "s", "turns": []}, "storyline"),
        ({"story_id": "s", "turns": [1], "agent": {"id": "a"}}, "storyline"),
        ({"messages": CHAT}, "openai_msg"),
        ({"messages": CHAT, "type": "chat", "sessionId": "x", "parentId": None, "timestamp": 1}, "openai_msg"),
        ({"conversations": CHAT, "type": "chat", "sessionId": "x"}, "openai_msg"),
        (CHAT, "openai_msg"),
        ({"session_id": "s", "step_id": 1, "messages": CHAT}, "openai_msg"),
    ],
)
def test_formats(value: Any, format: str) -> None:
    found = verdict(value)
    assert (found.format, found.unsupported) == (format, "")
    assert found.reason


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"sessionId": "s", "messages": [{"type": "user", "content": "x"}]}, "gemini-cli-log"),
        ({"sessionId": "s", "projectHash": "h"}, "gemini-cli-log"),
        ({"id": "1", "timestamp": "t", "type": "gemini", "content": "x"}, "gemini-cli-log"),
        ({"id": 1, "timestamp": "t", "source": "agent", "message": "m", "action": "run"}, "openhands-log"),
        ({"id": 2, "source": "environment", "message": "m", "cause": 1, "observation": "run"}, "openhands-log"),
        ({"steps": [{"id": 1, "source": "agent", "message": "m", "action": "run"}]}, "openhands-log"),
        ({"type": "user", "sessionId": "s", "message": {"role": "user"}}, "claude-code-log"),
        ({"type": "summary", "leafUuid": "u", "summary": "x"}, "claude-code-log"),
        ({"timestamp": "t", "type": "session_meta", "payload": {}}, "codex-log"),
        ({"type": "session", "version": 3, "id": "i", "cwd": "/x"}, "pi-log"),
        ({"type": "message", "id": "i", "parentId": None, "timestamp": "t", "message": {"role": "user"}}, "pi-log"),
        ({"kind": "scope", "atof_version": "0.1", "uuid": "u"}, "atof-log"),
        ({"interactions": [], "version": 1}, "vcr-cassette"),
        ({"log": {"version": "1.2", "entries": []}}, "har"),
        ({"object": "chat.completion", "choices": [{"message": {"role": "assistant"}}]}, "openai-completion"),
        ({"object": "chat.completion.chunk", "choices": []}, "sse-capture"),
        ({"choices": [{"index": 0, "delta": {}}]}, "sse-capture"),
        ({"type": "content_block_delta", "index": 0}, "sse-capture"),
        ({"type": "response.created", "sequence_number": 0}, "sse-capture"),
        ({"object": "response", "output": [], "usage": {}}, "openai-response"),
        ({"request": {"messages": CHAT}, "response": {"choices": []}}, "openai-exchange"),
        ({"body": {"messages": CHAT}, "response": {"id": "x"}}, "openai-exchange"),
        ({"custom_id": "c", "method": "POST", "url": "/v1", "body": {"messages": CHAT}}, "openai-batch"),
        ({"id": "b", "custom_id": "c", "response": None, "error": {}}, "openai-batch"),
        ({"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}, "anthropic-response"),
        ({"seq": 0, "source": "p", "kind": "note", "payload": {}}, "event-journal"),
        ({"task_id": "t", "attempts": {"1": {"trajectory": {"schema_version": "ACTF_v1.0"}}}}, "actf"),
        ({"schema_version": "ATIF-v1.7", "task_id": "t", "attempts": {"1": {"trajectory": []}}}, "actf"),
        ({"conversations": [{"from": "human", "value": "x"}]}, "sharegpt"),
        ({"attempts": {}, "agent": {}, "steps": [STEP]}, "json-object"),
        ({"steps": [STEP, {"source": "agent"}]}, "json-object"),
        ({"steps": []}, "json-object"),
        ({"extra": {"steps": [STEP]}}, "json-object"),
        ({"turns": 5, "session_id": "s"}, "json-object"),
        ([STEP], "json-array"),
        ([[1]], "json-array"),
    ],
)
def test_what_is_not_taken(value: Any, what: str) -> None:
    found = verdict(value)
    assert (found.format, found.unsupported) == ("", what)
    assert found.reason
    assert all(detect.describe(what))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"data: {}\n\ndata: [DONE]\n", "sse-capture"),
        (b": keep-alive\n\nevent: ping\ndata: {}\n", "sse-capture"),
        (b"interactions:\n- request: {}\n", "vcr-cassette"),
        (b"---\nversion: 1\ninteractions:\n", "vcr-cassette"),
        (b"\xef\xbb\xbf---\r\nblock: x\r\nformat: persisting\r\n---\r\n", "agenticmd"),
        (b"prose\n<!-- persisting:block:user {} -->\nhi\n", "agenticmd"),
        (b"---\nformat: other\n---\n", None),
        (b"# data: of a page\n", None),
        (b"An inline <!-- persisting:block:user {} --> marker\n", None),
    ],
)
def test_text_that_is_not_json(text: bytes, what: str | None) -> None:
    assert detect.of_text(text) == what
    with pytest.raises(InputError) as caught:
        cut(text, name="x.md")
    assert caught.value.kind == (f"unsupported:{what}" if what else "unreadable")


@pytest.mark.parametrize("wrapped", ["jsonl", "array"])
def test_a_native_log_is_refused_as_a_whole(wrapped: str) -> None:
    events = [{"id": i, "timestamp": "t", "source": "agent", "message": "m", "action": "run"} for i in range(3)]
    lines = [json.dumps(each) for each in events]
    text = "\n".join(lines) if wrapped == "jsonl" else json.dumps(events)
    with pytest.raises(InputError) as caught:
        cut(text.encode(), name="log.jsonl")
    assert caught.value.kind == "unsupported:openhands-log"
    assert "OpenHands" in str(caught.value)
    assert caught.value.hint


CORPUS = {
    "actf/": "unsupported:actf",
    "agenticmd/": "unsupported:agenticmd",
    "atif/not_atif_gemini_cli_native.json": "unsupported:gemini-cli-log",
    "atif/not_atif_openhands_native.json": "unsupported:openhands-log",
    "atif/": "atif object 1",
    "capture/agentgateway_non_json": "unreadable",
    "capture/agentgateway_truncated_tool_call.json": "unsupported:openai-completion",
    "capture/native_claude_code_one_step.jsonl": "unsupported:claude-code-log",
    "capture/native_codex_full.jsonl": "unsupported:codex-log",
    "capture/native_pi_tool_calls.jsonl": "unsupported:pi-log",
    "capture/openai_tools_streaming_cassette.yaml": "unsupported:vcr-cassette",
    "capture/vercel_openai_text.json": "unsupported:openai-completion",
    "capture/*.request.json": "openai_msg object 1",
    "capture/*.exchange.json": "unsupported:openai-exchange",
    "capture/*.sse": "unsupported:sse-capture",
    "capture/*.chunks.jsonl": "unsupported:sse-capture",
    "openai_msg/harbor_traces_openhands.json": "openai_msg array 2",
    "openai_msg/harbor_traces_terminus2_invalid_json.json": "openai_msg array 4",
    "openai_msg/inspect_browser.jsonl": "openai_msg jsonl 1",
    "openai_msg/llamafactory_glaive_toolcall_20.json": "unsupported:sharegpt",
    "openai_msg/llamafactory_mllm_audio_demo.json": "openai_msg array 3",
    "openai_msg/llamafactory_v1_dpo.jsonl": "openai_msg jsonl 10",
    "openai_msg/llamafactory_v1_multimodal.jsonl": "openai_msg jsonl 24",
    "openai_msg/llamafactory_v1_sft_100.jsonl": "openai_msg jsonl 100",
    "openai_msg/tau_bench_airline_20_messages.jsonl": "openai_msg jsonl 20",
    "openai_msg/tau_bench_airline_5.json": "openai_msg array 5",
    "openai_msg/tau_bench_airline_all_200.json": "openai_msg array 200",
    "openai_msg/": "openai_msg object 1",
}
"""Verdict of each corpus file; the first pattern that fits counts, `directory/` stands for all others in it."""

INPUTS = {
    "02_openai_lone_surrogate_escape.jsonl": "openai_msg jsonl 2",
    "03_openai_cesu8_bytes.jsonl": "openai_msg jsonl 2 member:encoding",
    "04_openai_tool_args_not_objects.jsonl": "openai_msg jsonl 6",
    "17_bom_crlf_blank_truncated.jsonl": "openai_msg jsonl 3 member:truncated",
    "27_empty_file.json": "empty",
    "28_json_scalar.json": "unsupported:json-scalar",
    "29_two_atif_docs.jsonl": "atif jsonl 2",
    "30_array_of_atif.json": "atif array 2",
}
"""Verdict of each reported input; all others are one ATIF object."""


def verdict_of(path: Path) -> str:
    try:
        found = cut(path.read_bytes(), name=path.name)
    except InputError as error:
        return error.kind
    faults = sorted({each.fault for each in found.documents if each.fault})
    return " ".join([found.format, found.container, str(len(found.documents)), *faults])


def expected(name: str) -> str:
    for pattern, outcome in CORPUS.items():
        if name == pattern or (pattern.endswith("/") and name.startswith(pattern)):
            return outcome
        directory, star, suffix = pattern.partition("*")
        if star and name.startswith(directory) and name.endswith(suffix):
            return outcome
    return "?"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not there")
def test_corpus() -> None:
    root = SHARED / "corpus"
    names = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*") if path.is_file())
    assert len(names) > 80
    assert {name: verdict_of(root / name) for name in names} == {name: expected(name) for name in names}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared inputs are not there")
def test_reported_inputs() -> None:
    root = SHARED / "bugs" / "inputs"
    paths = sorted(path for path in root.rglob("*.json*") if path.is_file())
    assert len(paths) > 20
    found = {path.name: verdict_of(path) for path in paths}
    assert found == {path.name: INPUTS.get(path.name, "atif object 1") for path in paths}
