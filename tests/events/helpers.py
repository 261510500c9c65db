"""Records and logs for the tests of this package."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from chronicle.events import record
from chronicle.events.log import Ambient, RawEventLanceStore
from chronicle.events.record import EventRecord

START_MS = 1_767_323_045_678


def event(number: int, session: str = "s0", **changes: Any) -> EventRecord:
    """One record of the plainest kind."""
    members: dict[str, Any] = {
        "event_id": f"e{number}",
        "run_id": "r",
        "storyline_id": session,
        "timestamp_unix_ms": START_MS + number,
        "producer": "test",
        "seq": number,
        "source": "test",
        "kind": "llm.request",
        "session_id": session,
        "agent_id": "agent",
        "call_id": f"c{number}",
        "payload": {"model": "m1", "messages": [{"role": "user", "content": f"hi {number}"}]},
    }
    members.update(changes)
    return record.parse(json.dumps({key: value for key, value in members.items() if value is not None}).encode())


def events(count: int, first: int = 0, sessions: int = 3) -> list[EventRecord]:
    """Records numbered from `first`, spread over sessions."""
    return [event(number, f"s{number % sessions}") for number in range(first, first + count)]


def log_at(path: Path, seed: int = 1) -> RawEventLanceStore:
    """A store whose pauses are over at once."""
    return RawEventLanceStore(str(path / "events.lance"), Ambient(rng=random.Random(seed), sleep=lambda seconds: None))


def seqs(store: RawEventLanceStore, **options: Any) -> list[int]:
    """The seq of each replayed record."""
    return [found.seq for _, found in store.replay(**options)]
