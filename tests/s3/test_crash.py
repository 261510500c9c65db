"""Some processes that die at a chosen request, and a store that is killed under load; `make test-long PART=crash` does more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronicle.storage import lease, s3config
from tests.crash.matrix import SCENARIOS, Matrix, Tally
from tests.crash.outage import restarted_under_load
from tests.crash.points import AFTER, BEFORE, HASTY_BEAT_SECONDS, Point
from tests.crash.sites import Disk, Forks, ObjectStore
from tests.s3.proxy import proxy
from tests.s3.server import Server, startable

pytestmark = pytest.mark.xdist_group("crash")

MANIFEST = "lake/events/d/events.lance/_manifest.json"
CHOSEN = {
    "ingest-first": [
        Point(f"PUT {MANIFEST}", 2, BEFORE),
        Point(f"PUT {MANIFEST}", 2, AFTER),
    ],
    "rebuild-first": [
        Point("PUT lake/storyline/d/CURRENT", 1, BEFORE),
        Point("PUT lake/storyline/d/CURRENT", 1, AFTER),
    ],
}


def lead_to(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process speak to a server."""
    s3config.configure()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lease, "BEAT_SECONDS", HASTY_BEAT_SECONDS)


@pytest.fixture(scope="module")
def matrix(server: Server, tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Iterator[Matrix]:
    root = tmp_path_factory.mktemp("crash")
    with pytest.MonkeyPatch.context() as monkeypatch, proxy(server) as between:
        lead_to(server, monkeypatch)
        found = Matrix(ObjectStore(root, root / "inbox", forks, server, between), root / "inbox")
        found.prepare(*CHOSEN)
        yield found


@pytest.mark.parametrize("name", CHOSEN)
def test_what_died_is_run_again(matrix: Matrix, name: str) -> None:
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == name]
    points, tally = matrix.count(scenario), Tally()
    for point in CHOSEN[name]:
        assert point in points
        matrix.strike(scenario, point, tally)
    print(f"{name}: {len(points)} points, {tally}")
    assert tally.killed == tally.reruns_ok == len(CHOSEN[name])


def test_a_store_that_is_killed_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Forks) -> None:
    inbox = tmp_path / "inbox"
    with startable(tmp_path) as running, proxy(running.server) as between:
        lead_to(running.server, monkeypatch)
        remote = ObjectStore(tmp_path / "remote", inbox, forks, running.server, between)
        found = restarted_under_load(running, remote, Disk(tmp_path / "disk", inbox, forks), inbox, restarts=1)
    print(found)
    assert found["restarts"] == 1
