"""Fifty kills of producers and fifty of drains: no record that was acknowledged is lost, no number used twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests import spoolkills
from tests.long import evidence

pytestmark = pytest.mark.long

SEED = 20_260_204
KILLS = 50


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {}


def counts(told: spoolkills.Told, texts: list[bytes], duplicates: int) -> dict[str, int]:
    """What a test found; `check` would have failed where something was lost."""
    return {"acknowledged": len(told.lines), "rows": len(texts), "duplicates": duplicates, "lost": 0}


def test_killed_producers(tmp_path: Path, found: dict[str, Any]) -> None:
    """Now and then a drain empties the spool, so that numbers must go on from sequence.json alone."""
    rng = random.Random(SEED)
    spool, lake, told = tmp_path / "spool", tmp_path / "lake", spoolkills.Told()
    for run in range(KILLS):
        assert spoolkills.killed_producer(spool, run, rng.uniform(0, 0.4), told) > 0
        if run % 10 == 9:
            spoolkills.check(spoolkills.drained(spool, lake), told)
    texts = spoolkills.drained(spool, lake)
    duplicates = spoolkills.check(texts, told)
    found["producers"] = {
        "kills": KILLS,
        "acknowledged": len(told.lines),
        "rows": len(texts),
        "duplicates": duplicates,
        "lost": 0,
    }


def test_killed_drains(tmp_path: Path, found: dict[str, Any]) -> None:
    """Each has a fresh load beside what the last one left, and dies at a moment of its own between its start and its end."""
    spool, lake, told = tmp_path / "spool", tmp_path / "lake", spoolkills.Told()
    killed, done, span = 0, 0, 1.0
    while killed < KILLS:
        spoolkills.killed_producer(spool, killed + done, 0.1, told)
        measures = (killed + done) % 10 == 0
        worked = spoolkills.drain_until(spool, lake, None if measures else span * ((killed * 7) % 10 + 0.5) / 10)
        killed += worked is None
        done += worked is not None
        span = min(worked or span, 5.0)
        assert done < KILLS
    texts = spoolkills.drained(spool, lake)
    duplicates = spoolkills.check(texts, told)
    found["drains"] = {"kills": killed, "came_to_their_end": done, **counts(told, texts, duplicates)}


def test_both_were_killed(found: dict[str, Any]) -> None:
    assert set(found) == {"producers", "drains"}
    evidence.keep("spool", found, seed=SEED)
