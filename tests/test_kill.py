"""A few kills of real processes; `make test-long PART=kill` does many."""

from __future__ import annotations

import pytest

from tests.kills import KINDS, Killing, Tally

MOMENTS = (0.2, 0.6)
"""Of the time at work."""


@pytest.fixture(scope="module")
def killing(tmp_path_factory: pytest.TempPathFactory) -> Killing:
    return Killing(tmp_path_factory.mktemp("kill"), files=20, steps=40, batch_bytes=150_000)


@pytest.mark.parametrize("name", ["ingest-first", "ingest-again", "rebuild-incremental", "rebuild-full"])
def test_killed_and_run_again(killing: Killing, name: str) -> None:
    (kind,) = [kind for kind in KINDS if kind.name == name]
    tally = Tally(spans=[killing.span(kind)])
    for moment in MOMENTS:
        killing.strike(kind, moment, tally, at_work=True)
    print(kind.name, tally.said())
    assert (tally.moments, tally.at_work) == (len(MOMENTS), len(MOMENTS))
    assert tally.reads >= len(MOMENTS)
