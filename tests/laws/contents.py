"""Small sources of every shape, for histories."""

from __future__ import annotations

import json


def atif(session: str, steps: int, **extra: object) -> bytes:
    """One ATIF document, pretty or compact by its length."""
    body = {
        "schema_version": "ATIF-v1.7",
        "session_id": session,
        "agent": {"name": "wrench", "version": "1"},
        "steps": [step(number) for number in range(1, steps + 1)],
        **extra,
    }
    return json.dumps(body, indent=2 if steps % 2 else None).encode()


def step(number: int) -> dict[str, object]:
    """One step; every third calls a tool."""
    made: dict[str, object] = {
        "step_id": number,
        "timestamp": f"2026-02-03T04:05:{number % 60:02d}.250Z",
        "source": "user" if number == 1 else "agent",
        "message": f"message {number}",
    }
    if number % 3 == 0:
        made["tool_calls"] = [{"tool_call_id": f"c{number}", "function_name": "ls", "arguments": {"n": number}}]
        made["observation"] = {"results": [{"source_call_id": f"c{number}", "content": "ok"}]}
    return made


def child(name: str, steps: int) -> dict[str, object]:
    """An embedded trajectory."""
    return {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": name,
        "agent": {"name": "helper", "version": "1"},
        "steps": [step(number) for number in range(1, steps + 1)],
    }


def chat(number: int) -> bytes:
    """One line of chat."""
    messages = [
        {"role": "user", "content": f"question {number}"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"k{number}", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.50}'}}],
        },
        {"role": "tool", "tool_call_id": f"k{number}", "content": "1"},
        {"role": "assistant", "content": f"answer {number}"},
    ]
    return json.dumps({"id": f"chat-{number}", "messages": messages}).encode()


def chats(numbers: range, end: bytes = b"\n") -> bytes:
    """JSONL of chats."""
    return b"\n".join(chat(number) for number in numbers) + end


def rows(sessions: int) -> bytes:
    """A row corpus (form A) of several sessions."""
    made = []
    for number in range(sessions * 2):
        said = [{"role": "user", "content": "hi"}]
        answer = {"role": "assistant", "content": f"answer {number}"}
        ids = {"session_id": f"r{number % sessions}", "step_id": 1 + number // sessions}
        made.append({**ids, "messages": said, "response": answer})
    return json.dumps(made).encode()


def storyline(session: str, *, valid: bool = True) -> bytes:
    """A Storyline file; the invalid one repeats a turn id."""
    turns = [{"id": 1, "src": "user", "msg": "hi"}, {"id": 2 if valid else 1, "src": "agent", "msg": "ho"}]
    return json.dumps({"spec": "storyline/v1", "session": session, "agent": {"id": "w"}, "turns": turns}).encode()


CONTENTS: list[bytes] = [
    atif("s1", 4),
    atif("s1", 5),
    atif("s2", 3, subagent_trajectories=[child("bird", 3), child("fish", 2)], notes="two helpers"),
    b"[" + atif("s3", 2) + b",\n" + atif("s4", 3) + b"]\n",
    b'{"schema_version":"ATIF-v1.7","agent":{},"steps":[{"step_id":1,"source":"agent","message":"x","metrics":{"l":[NaN]}}]}',
    chats(range(3)),
    chats(range(5)),
    chats(range(8), end=b""),
    chats(range(3)) + b'{"messages":[{"role":"user","content":"cut of',
    chats(range(3)) + b"not json\n" + chats(range(3, 5)),
    rows(2),
    storyline("s9"),
    storyline("s9", valid=False),
    b'{"messages":[{"role":"user","content":"alone"}]}',
    b"{ broken",
    b"",
]
"""What a file of a history may hold: documents that share sessions, containers, grown JSONL, odd, invalid and broken ones."""
