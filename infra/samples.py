"""Small exports for the demo and the tests, made by ourselves: `python -m infra.samples DIR`.

They stand for what people bring: several producers, several formats and containers, and one file that was cut off while
it was copied. Writing them again leaves files alone that already hold the right bytes, so that their stat stays.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def _step(number: int, source: str, message: object, **more: object) -> dict[str, object]:
    moment = f"2026-02-03T09:{number:02d}:00Z"
    return {"step_id": number, "timestamp": moment, "source": source, "message": message, **more}


def _call(name: str, function: str, result: object, **arguments: object) -> dict[str, object]:
    """The members of an agent step that makes one tool call and sees its result."""
    return {
        "tool_calls": [{"tool_call_id": name, "function_name": function, "arguments": arguments}],
        "observation": {"results": [{"source_call_id": name, "content": result}]},
    }


def _agent(name: str, model: str, **more: object) -> dict[str, object]:
    return {"name": name, "version": "1.2", "model_name": model, **more}


def _hinge(session: str, reward: float) -> dict[str, object]:
    """An ATIF v1.4 run of an evaluation job: two tool calls, token counts, a reward."""
    return {
        "schema_version": "ATIF-v1.4",
        "session_id": session,
        "agent": _agent("wrench", "m-large"),
        "steps": [
            _step(1, "system", "You repair small mechanical parts."),
            _step(2, "user", "The hinge of the garden door is loose. Fix it."),
            _step(
                3,
                "agent",
                "Let me look at the drawing.",
                reasoning_content="The drawing says which screws it takes.",
                metrics={"prompt_tokens": 210, "completion_tokens": 18, "cost_usd": 0.00190},
                **_call("c1", "read_file", "hinge: 4 screws M4x12\nplate: steel", path="hinge.txt"),
            ),
            _step(
                4,
                "agent",
                "",
                metrics={"prompt_tokens": 260, "completion_tokens": 25, "cost_usd": 0.00240},
                **_call("c2", "order", {"ok": True, "price": 1.10}, item="screw M4x12", count=4),
            ),
            _step(5, "agent", "Four new screws are on their way.", metrics={"prompt_tokens": 300, "completion_tokens": 9}),
        ],
        "final_metrics": {"total_prompt_tokens": 770, "total_completion_tokens": 52, "total_steps": 5},
        "extra": {"reward": reward, "job": "repair-nightly"},
    }


def _survey() -> dict[str, object]:
    """An ATIF v1.7 run that hands a part of its work to a subagent."""
    bird = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "bird-1",
        "agent": _agent("spotter", "m-small"),
        "steps": [
            _step(1, "user", "Which bird sings at 5 in the morning?"),
            _step(2, "agent", "A blackbird.", llm_call_count=1, **_call("b1", "listen", "♪ tü-tü-li", seconds=30)),
        ],
    }
    reference = [{"trajectory_id": "bird-1"}]
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "survey-7",
        "trajectory_id": "main",
        "agent": _agent("surveyor", "m-large"),
        "steps": [
            _step(1, "user", "Write down who sings in the garden."),
            _step(
                2,
                "agent",
                "I ask a spotter.",
                tool_calls=[{"tool_call_id": "s1", "function_name": "delegate", "arguments": {"to": "spotter"}}],
                observation={"results": [{"source_call_id": "s1", "subagent_trajectory_ref": reference}]},
            ),
            _step(3, "agent", "A blackbird, at 5 in the morning."),
        ],
        "subagent_trajectories": [bird],
    }


def _pictures() -> dict[str, object]:
    """An ATIF v1.6 run with content parts beside text."""
    image = {"type": "image", "source": {"media_type": "image/png", "path": "images/leaf.png"}}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "leaf-3",
        "agent": _agent("botanist", "m-vision"),
        "steps": [
            _step(1, "user", [{"type": "text", "text": "Which tree is this?"}, image]),
            _step(2, "agent", "An oak: the edge is lobed.", extra={"confidence": 0.970}),
        ],
    }


def _tool(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def _chat(identity: str, question: str, answer: str) -> dict[str, object]:
    """One line of a fine-tuning file: a chat with a tool call."""
    arguments = json.dumps({"query": question}, separators=(",", ":"))
    return {
        "id": identity,
        "messages": [
            {"role": "system", "content": "Answer from the handbook."},
            {"role": "user", "content": question},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "k1", "type": "function", "function": {"name": "search", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": "k1", "content": answer},
            {"role": "assistant", "content": answer},
        ],
        "tools": [_tool("search")],
    }


def _preference(question: str, good: str, bad: str) -> dict[str, object]:
    return {
        "input": {"messages": [{"role": "user", "content": question}]},
        "preferred_output": [{"role": "assistant", "content": good}],
        "non_preferred_output": [{"role": "assistant", "content": bad}],
    }


def _row(step: int, question: str, answer: str, reward: float) -> dict[str, object]:
    """One row of an RL rollout table."""
    return {
        "session_id": "rollout-12",
        "step_id": step,
        "messages": [{"role": "user", "content": question}],
        "response": {"role": "assistant", "content": answer},
        "agent_model": "m-policy",
        "run_id": "rl-2026-02",
        "reward": reward,
        "is_terminal": step == 2,
    }


def _story() -> dict[str, object]:
    return {
        "spec": "storyline/v1",
        "session": "kiln-5",
        "run": "main",
        "agent": {"id": "potter", "name": "potter", "ver": "0.4", "model": "m-small"},
        "turns": [
            {"id": 1, "src": "user", "msg": "How hot is the kiln?", "ts": "2026-02-04T10:00:00Z"},
            {
                "id": 2,
                "src": "agent",
                "msg": "It holds 1,240 degrees.",
                "tool_calls": [{"tcid": "t1", "fn": "read_sensor", "args": {"name": "kiln"}, "duration_ms": 14}],
                "observation": {"results": [{"source_call_id": "t1", "content": "1240"}]},
                "metrics": {"prompt_tokens": 40, "completion_tokens": 8},
                "nllm": 1,
            },
        ],
    }


def _pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def samples() -> dict[str, bytes]:
    """Bytes of every sample by its path below the directory. The same in every call."""
    whole = _pretty(_hinge("repair-104", 0.5))
    talk = [{"role": "user", "content": "Good morning!"}, {"role": "assistant", "content": "Good morning. What shall we fix?"}]
    return {
        "eval/repair-101.json": _pretty(_hinge("repair-101", 1.0)),
        "eval/repair-102.json": _pretty(_hinge("repair-102", 0.0)),
        "eval/repair-103-cut-off.json": whole[: len(whole) // 2],
        "eval/survey-7.json": _pretty(_survey()),
        "eval/leaf-3.json": _pretty(_pictures()),
        "eval/batch.json": _pretty([_hinge("repair-201", 1.0), _hinge("repair-202", 0.25)]),
        "chats/handbook.jsonl": _lines(
            _chat("chat-1", "Where is the spare key?", "In the blue drawer."),
            _chat("chat-2", "When is the workshop open?", "From 8 to 18 o'clock."),
            _chat("chat-3", "Who waters the plants?", "The one who comes first."),
        ),
        "chats/preferences.jsonl": _lines(
            _preference("Is 1.10 the same as 1.1?", "As a number, yes. As text, no.", "Yes."),
            _preference("Name a tree.", "An oak.", "A fern."),
        ),
        "chats/morning.json": _pretty(talk),
        "chats/nothing-yet.jsonl": b"",
        "rollouts/rollout-12.json": _pretty(
            [_row(1, "Lift the cup.", "up(3)", 0.1), _row(2, "Now put it down.", "down(3)", 1.0)]
        ),
        "stories/kiln-5.storyline.json": _pretty(_story()),
    }


def write(directory: Path) -> list[Path]:
    """Write the samples and return the files that had to be written."""
    written = []
    for name, data in samples().items():
        path = directory / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            written.append(path)
    return written


def main() -> None:
    """Write the samples into the directory that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m infra.samples DIR")
    directory = Path(sys.argv[1])
    written = write(directory)
    sys.stdout.write(f"{len(samples())} sample exports in {directory} ({len(written)} written now)\n")


if __name__ == "__main__":
    main()
