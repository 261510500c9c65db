"""A JSONL of chats that grows a little every day, taken in daily."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chronicle.options import VerifyOptions
from chronicle.verify import verify
from tests.lake import Lake

NAME = "chats.jsonl"
GROWTH = 0.01
"""By day, of the lines that are there."""
MOST = 1.4
"""What the facts of all days may weigh, by those of one ingest of the final file."""
_WORDS = [f"{first}{second}{third}" for first in "bdfglmnprst" for second in "aeiou" for third in ("", "n", "rk", "st", "lm")]


@dataclass(frozen=True)
class Weight:
    """Bytes of facts: payloads as they are, and segments as they lie on the disk."""

    payload: int
    disk: int
    segments: int

    @classmethod
    def of(cls, lake: Lake) -> Weight:
        snapshot = lake.store.snapshot()
        payload = sum(len(text) for _, batch in snapshot.scan(["payload_json"]) for text in map(str.encode, batch[0].to_pylist()))
        segments = Path(lake.paths.events) / "segments"
        disk = sum(path.stat().st_size for path in segments.rglob("*") if path.is_file())
        return cls(payload, disk, len(lake.store.manifest().segments))


def line(number: int, noise: random.Random) -> bytes:
    """One chat of a few kilobytes."""

    def text(words: int) -> str:
        return " ".join(noise.choices(_WORDS, k=words))

    messages: list[dict[str, Any]] = [{"role": "system", "content": "You fix what is broken."}]
    for turn in range(3):
        call = {
            "id": f"k{number}-{turn}",
            "type": "function",
            "function": {"name": "run", "arguments": json.dumps({"c": text(20)})},
        }
        messages += [
            {"role": "user", "content": text(60)},
            {"role": "assistant", "content": text(90), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text(120)},
        ]
    return json.dumps({"id": f"chat-{number}", "messages": messages}).encode() + b"\n"


def day(lake: Lake, lines: list[bytes]) -> None:
    """One daily run over the file as it is now."""
    lake.put(NAME, b"".join(lines))
    assert lake.ingest().exit_code() == 0
    assert lake.rebuild().mode in ("full", "incremental")
    assert len(lake.markdown()) == len(lines)


def sessions(lake: Lake) -> set[str]:
    return {row["session_id"] for row in lake.rows()["runs"]}


def grow(root: Path, *, days: int, lines: int, seed: int) -> dict[str, Any]:
    """Grow a file for some days, then remove lines, then bring them back; what was measured, with every claim asserted."""
    noise = random.Random(seed)
    lake, once = Lake(root / "daily"), Lake(root / "once")
    held = [line(number, noise) for number in range(lines)]
    first = lines
    for number in range(days):
        if number:
            held += [line(len(held) + more, noise) for more in range(max(1, round(GROWTH * len(held))))]
        day(lake, held)
    whole = b"".join(held)
    assert lake.exact() == {f"in/{NAME}": whole}
    assert len(sessions(lake)) == len(held)
    once.put(NAME, whole)
    once.ingest()
    daily, single = Weight.of(lake), Weight.of(once)
    assert (daily.segments, single.segments) == (days, 1)
    assert daily.payload <= MOST * single.payload
    assert daily.disk <= MOST * single.disk

    day(lake, held[: lines // 2])
    assert sessions(lake) == {f"chat-{number}" for number in range(lines // 2)}
    shrunk = Weight.of(lake)
    day(lake, held)
    back = Weight.of(lake)
    assert lake.exact() == {f"in/{NAME}": whole}
    assert len(sessions(lake)) == len(held)
    assert back.payload - shrunk.payload < 2_000, "a file that comes back is bound, not stored again"
    assert lake.store.stats().kinds["source.bound"] == 1
    report = verify(VerifyOptions(paths=lake.paths))
    assert (report.differences, report.stories) == ([], len(held))
    return {
        "days": days,
        "lines_first": first,
        "lines_last": len(held),
        "file_bytes": len(whole),
        "daily": asdict(daily),
        "once": asdict(single),
        "payload_ratio_to_once": round(daily.payload / single.payload, 4),
        "disk_ratio_to_once": round(daily.disk / single.disk, 4),
        "payload_ratio_to_file": round(daily.payload / len(whole), 4),
        "disk_ratio_to_file": round(daily.disk / len(whole), 4),
        "once_payload_ratio_to_file": round(single.payload / len(whole), 4),
    }
