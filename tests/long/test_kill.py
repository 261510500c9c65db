"""Fifty kills of ingest, fifty of rebuild: every second at a moment of the whole duration of the process, the others
at a moment of its time at work, both spread evenly.

The duration is measured again now and then, because other work on the machine changes it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.kills import KINDS, Killing, Tally
from tests.long import evidence

pytestmark = pytest.mark.long

SEED = 20_260_203
MEASURED_EVERY = 5
AT_WORK = 0.6
"""Share of the processes that a blow must meet alive."""
SIZE = {"files": 100, "steps": 80, "batch_bytes": 700_000}


@pytest.fixture(scope="module")
def killing(tmp_path_factory: pytest.TempPathFactory) -> Killing:
    return Killing(tmp_path_factory.mktemp("kill"), **SIZE)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {}


def spread(kills: int) -> list[float]:
    """Moments of which those at even and those at odd places are spread evenly from 0 to 1."""
    halves = [[(number + 0.5) / count for number in range(count)] for count in ((kills + 1) // 2, kills // 2)]
    for half in halves:
        random.Random(SEED).shuffle(half)
    return [halves[number % 2][number // 2] for number in range(kills)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_killed_and_run_again(killing: Killing, kind, found: dict[str, Any]) -> None:
    moments = spread(kind.kills)
    tally = Tally()
    for number, moment in enumerate(moments):
        if number % MEASURED_EVERY == 0:
            tally.spans.append(killing.span(kind))
        killing.strike(kind, moment, tally, at_work=number % 2 == 1)
    found[kind.name] = tally.said()
    print(kind.name, tally.said())
    assert tally.moments == kind.kills
    assert tally.at_work >= AT_WORK * tally.tries


def test_every_kind_was_killed(killing: Killing, found: dict[str, Any]) -> None:
    assert set(found) == {kind.name for kind in KINDS}
    lost = {"lost_sources": 0, "torn_reads": 0, "failed_reruns": 0}  # any of them would have failed above
    sources = sum(len(data) for data in killing.ends["facts"].exact.values())
    evidence.keep("kill", {**SIZE, "source_bytes": sources, **lost, "kinds": found}, seed=SEED)
