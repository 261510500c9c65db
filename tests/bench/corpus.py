"""The corpus of the speed bars: exported ATIF trajectories of random words, the same bytes for the same numbers everywhere.

A document has 8 to 40 steps: what the system and the user say, then an agent that thinks, speaks and mostly calls a tool or two,
with results of very different length. 2,000 documents are about 130 MB. Random words compress worse than what people write.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

DOCUMENTS = 2_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TOOLS = ("bash", "edit", "read_file", "search")
_CALLS = (0, 1, 1, 1, 2)
_RESULT_WORDS = (30, 100, 400)


def write(folder: Path, documents: int, *, first: int = 0) -> int:
    """Write documents number `first` and on, one a file; returns their bytes."""
    noise = Words(first)
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for number in range(first, first + documents):
        data = json.dumps(_document(noise, number)).encode()
        (folder / f"run-{number:06}.json").write_bytes(data)
        size += len(data)
    return size


def write_small(folder: Path, documents: int) -> int:
    """Write documents of a few steps with a word each, a thousand in a directory; returns their bytes."""
    size = 0
    for number in range(documents):
        steps = [{"step_id": at, "source": "agent", "message": f"word {number} {at}"} for at in range(1, 4)]
        data = json.dumps(_around(f"small-{number:06}", steps)).encode()
        path = folder / f"{number // 1000:03}" / f"run-{number:06}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        size += len(data)
    return size


class Words:
    """Texts out of five thousand words."""

    def __init__(self, seed: int) -> None:
        spelled = random.Random(20_260_201)
        self._all = ["".join(spelled.choices(_LETTERS, k=spelled.randint(2, 10))) for _ in range(5_000)]
        self.random = random.Random(f"corpus-{seed}")

    def text(self, words: int) -> str:
        return " ".join(self.random.choices(self._all, k=words))


def _document(noise: Words, number: int) -> dict[str, Any]:
    count = noise.random.randint(8, 40)
    steps = [_step(1, "system", noise.text(200)), _step(2, "user", noise.text(120))]
    steps += [_agent_step(noise, number, at) for at in range(3, count + 1)]
    totals = {"total_prompt_tokens": 1000 * count, "total_completion_tokens": 100 * count, "total_steps": count}
    return _around(f"run-{number:06}", steps) | {"final_metrics": totals}


def _around(session: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    agent = {"name": "bench", "version": "1.0", "model_name": "m-large"}
    return {"schema_version": "ATIF-v1.6", "session_id": session, "agent": agent, "steps": steps}


def _step(at: int, source: str, message: str) -> dict[str, Any]:
    moment = f"2026-02-03T{at // 60:02}:{at % 60:02}:00.{at:03}Z"
    return {"step_id": at, "timestamp": moment, "source": source, "message": message}


def _agent_step(noise: Words, number: int, at: int) -> dict[str, Any]:
    step = _step(at, "agent", noise.text(60)) | {"model_name": "m-large", "reasoning_content": noise.text(80)}
    tokens = noise.random.randint(100, 90_000)
    step["metrics"] = {"prompt_tokens": tokens, "completion_tokens": tokens % 900, "cost_usd": tokens / 1_000_000}
    names = [f"call-{number}-{at}-{place}" for place in range(noise.random.choice(_CALLS))]
    if names:
        step["tool_calls"] = [
            {
                "tool_call_id": name,
                "function_name": noise.random.choice(_TOOLS),
                "arguments": {"command": noise.text(20), "path": f"/{noise.text(1)}"},
            }
            for name in names
        ]
        results = [{"source_call_id": name, "content": noise.text(noise.random.choice(_RESULT_WORDS))} for name in names]
        step["observation"] = {"results": results}
    return step
