"""A process is killed before and after every durable step of every verb, on disk and in an object store, and run again.

Two points at a time. On disk a step is a call (also of Lance, and in the middle of it); in an object store a request that
writes. Then the object store itself is killed, again and again, under processes of every kind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chronicle.storage import lease, s3config
from tests.crash.matrix import SCENARIOS, Matrix, Scenario, Tally
from tests.crash.outage import restarted_under_load
from tests.crash.points import HASTY_BEAT_SECONDS, Point
from tests.crash.sites import Disk, Forks, ObjectStore
from tests.long import evidence
from tests.s3.proxy import Proxy, proxy
from tests.s3.server import Running, startable

pytestmark = pytest.mark.long

AT_A_TIME = 2
RESTARTS = 8
ONE_IN = int(os.environ.get("CRASH_ONE_IN", "1"))
"""For less time: only so many of the points. An odd number takes befores and afters in turn."""
NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Proxy]]:
    folder = tmp_path_factory.mktemp("store")
    with startable(folder) as running, proxy(running.server) as between, pytest.MonkeyPatch.context() as monkeypatch:
        s3config.configure()
        for name, value in running.server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(lease, "BEAT_SECONDS", HASTY_BEAT_SECONDS)
        yield running, between


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Matrix:
    root = tmp_path_factory.mktemp("disk")
    matrix = Matrix(Disk(root, root / "inbox", forks), root / "inbox")
    matrix.prepare(*NAMES)
    return matrix


@pytest.fixture(scope="module")
def in_store(tmp_path_factory: pytest.TempPathFactory, forks: Forks, store: tuple[Running, Proxy]) -> Matrix:
    root = tmp_path_factory.mktemp("s3")
    matrix = Matrix(ObjectStore(root, root / "inbox", forks, store[0].server, store[1]), root / "inbox")
    matrix.prepare(*NAMES)
    return matrix


def strike_all(matrix: Matrix, scenario: Scenario) -> dict[str, Any]:
    """Every point of a scenario, two at a time; what came of it. Fails after the last one, with all that went wrong."""
    began = time.monotonic()
    points, tally = matrix.count(scenario), Tally()
    failures: list[str] = []

    def strike(point: Point) -> None:
        try:
            matrix.strike(scenario, point, tally)
        except Exception as error:  # any of them is a finding, and the other points count too
            failures.append(f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(AT_A_TIME) as workers:
        list(workers.map(strike, points[::ONE_IN]))
    done = tally.said() | {"seconds": round(time.monotonic() - began, 1)}
    print(matrix.site.name, scenario.name, done, flush=True)
    assert failures == [], f"{len(failures)} of {len(points)}: " + "\n".join(failures[:5])
    return done


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_on_disk(on_disk: Matrix, scenario: Scenario, found: dict[str, Any]) -> None:
    found.setdefault("disk", {})[scenario.name] = done = strike_all(on_disk, scenario)
    assert done["killed"] == done["points"]
    assert done["left"] == {}


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.name != "spool-append"], ids=lambda scenario: scenario.name)
def test_in_an_object_store(in_store: Matrix, scenario: Scenario, found: dict[str, Any]) -> None:
    found.setdefault("s3", {})[scenario.name] = done = strike_all(in_store, scenario)
    # Indices of one table are built two at a time: which is first decides how some files are named, and which are written again.
    assert done["killed"] >= 0.75 * done["points"]


def test_a_store_that_is_killed_under_load(
    store: tuple[Running, Proxy], tmp_path: Path, forks: Forks, found: dict[str, Any]
) -> None:
    running, between = store
    inbox = tmp_path / "inbox"
    remote = ObjectStore(tmp_path / "remote", inbox, forks, running.server, between)
    found["server"] = restarted_under_load(running, remote, Disk(tmp_path / "disk", inbox, forks), inbox, RESTARTS)


def keep(found: dict[str, Any], site: str, **more: Any) -> None:
    """The evidence of one site, with the sums of all scenarios."""
    sums = ("points", "inside", "runs", "killed", "reruns_ok", "reads", "torn_reads", "acknowledged", "duplicates")
    total = {key: sum(one[key] for one in found[site].values()) for key in sums}
    print(site, total)
    name = f"crash-{site}" if ONE_IN == 1 else f"crash-{site}-one-in-{ONE_IN}"
    evidence.keep(name, {"one_in": ONE_IN, "total": total, "lost": 0, **more, "scenarios": found[site]})


def test_all_was_killed_on_disk(found: dict[str, Any]) -> None:
    assert len(found["disk"]) == len(SCENARIOS)
    keep(found, "disk")


def test_all_was_killed_in_an_object_store(found: dict[str, Any]) -> None:
    assert len(found["s3"]) == len(SCENARIOS) - 1
    assert found["server"]["restarts"] == RESTARTS
    keep(found, "s3", server=found["server"])
