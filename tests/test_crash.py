"""Some processes that die at a chosen step of their work, on disk; `make test-long PART=crash` does all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.matrix import SCENARIOS, Matrix, Tally
from tests.crash.points import AFTER, BEFORE, INSIDE, Point, Steps, install_os
from tests.crash.sites import Disk, Forks

pytestmark = pytest.mark.xdist_group("crash")

MANIFEST, SEGMENT = "events/d/events.lance/_manifest.json", "events/d/events.lance/segments"
CHOSEN = {
    "ingest-again": [
        Point(f"fragment.write_fragments {SEGMENT}/e2.lance", 1, f"{INSIDE}:1"),
        Point(f"os.replace {MANIFEST}", 2, BEFORE),
        Point(f"os.replace {MANIFEST}", 2, AFTER),
        Point("LanceDataset.commit ops/d/receipts.lance", 1, AFTER),
    ],
    "rebuild-incremental": [
        Point("LanceDataset.delete storyline/d/generations/gen/steps.lance", 1, AFTER),
        Point("os.replace storyline/d/CURRENT", 2, BEFORE),
        Point("os.replace storyline/d/CURRENT", 2, AFTER),
    ],
    "maintain": [Point(f"os.replace {MANIFEST}", 1, BEFORE), Point(f"os.replace {MANIFEST}", 1, AFTER)],
    "maintain-vacuum": [Point(f"local.remove_tree {SEGMENT}/e9.lance", 1, f"{INSIDE}:1")],
    "drain": [Point(f"os.replace {MANIFEST}", 2, AFTER), Point("os.unlink journal-0000000001.closed", 1, AFTER)],
}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Matrix:
    root = tmp_path_factory.mktemp("crash")
    found = Matrix(Disk(root, root / "inbox", forks), root / "inbox")
    found.prepare(*CHOSEN)
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_what_died_is_run_again(matrix: Matrix, name: str) -> None:
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == name]
    points, tally = matrix.count(scenario), Tally()
    for point in CHOSEN[name]:
        assert point in points
        matrix.strike(scenario, point, tally)
    print(f"{name}: {len(points)} points, {tally}")
    assert tally.killed == tally.reruns_ok == len(CHOSEN[name])


def test_a_write_outside_of_all_steps_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a way to write that nobody counts would pass for none."""
    for name in ("replace", "open", "fsync", "mkdir"):
        monkeypatch.setattr(os, name, getattr(os, name))  # put back at the end
    steps = Steps([str(tmp_path)], None, True)
    install_os(steps)
    os.mkdir(tmp_path / "a")
    os.close(os.open(tmp_path / "a/x", os.O_CREAT | os.O_WRONLY))
    assert steps.finish().unexplained == []
    (tmp_path / "a/y").write_text("1")
    counted = steps.finish()
    assert counted.steps == [("os.mkdir a", 1), ("os.create a/x", 1)]
    assert counted.unexplained == [f"before the end: {tmp_path / 'a/y'}"]
