"""Who may write, where no lock ends with its process: leases that must move, and must stand still to be taken."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest

from chronicle.errors import CurrentConflict
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions, RebuildOptions
from chronicle.rebuild import rebuild
from chronicle.runlock import RunLock, RunRecord, take_run
from chronicle.storage import files, lease
from chronicle.storage.objects import MISSING
from chronicle.storage.s3object import S3Object
from chronicle.storyline import current as states
from chronicle.storyline.store import StorylineLanceStore
from tests.laws.contents import atif
from tests.s3.conftest import Place


@pytest.fixture
def paths(place: Place) -> DatasetPaths:
    place.put("in/a.json", atif("s", 2))
    found = DatasetPaths(f"{place.uri}/lake", "d")
    ingest(IngestOptions(paths=found, sources=(f"{place.uri}/in",)))
    rebuild(RebuildOptions(paths=found))
    return found


def steal(paths: DatasetPaths, owner: str) -> None:
    """Put a lease into CURRENT as a writer does that then dies."""
    target = S3Object(f"{paths.storyline}/CURRENT")
    data, token = target.read()
    taken = states.leased(states.decode(data or b"", ""), owner, int(time.time() * 1000), 60_000)
    assert target.swap(states.encode(taken), token)


def test_a_dead_writers_lease_is_taken_when_it_stood_still(place: Place, paths: DatasetPaths) -> None:
    place.put("in/b.json", atif("t", 3))
    ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/in",)))
    before = StorylineLanceStore(paths.storyline).current()
    steal(paths, "gen-1-1-1")
    began = time.monotonic()
    report = rebuild(RebuildOptions(paths=paths, lease_seconds=0.5))
    assert time.monotonic() - began >= 0.5
    after = StorylineLanceStore(paths.storyline).current()
    assert report.runs == 2
    assert before is not None
    assert after is not None
    assert after.lease is None
    assert after.committed.table_generation != before.committed.table_generation, "never in place"


def test_a_living_writers_lease_is_waited_for(paths: DatasetPaths) -> None:
    store = StorylineLanceStore(paths.storyline)
    with store.writer(lease_seconds=0.6):
        with pytest.raises(CurrentConflict), store.writer(lease_seconds=0.6, wait_seconds=1.5):
            pytest.fail("two writers at once")
        released = threading.Event()
        waited: list[bool] = []

        def wait() -> None:
            with store.writer(lease_seconds=0.6, wait_seconds=30) as writer:
                waited.append(released.is_set() and not writer.took_over)

        other = threading.Thread(target=wait)
        other.start()
        released.set()
    other.join()
    assert waited == [True]


def test_a_writer_that_lost_its_lease_publishes_nothing(place: Place, paths: DatasetPaths) -> None:
    store = StorylineLanceStore(paths.storyline)
    before = store.current()
    assert before is not None
    with store.writer(lease_seconds=60) as writer:
        steal(paths, "gen-9-9-9")
        with pytest.raises(CurrentConflict):
            writer.rebuild((), before.committed.projection)
    after = store.current()
    assert after is not None
    assert after.committed == before.committed
    assert {name.split("/")[4] for name in place.names("lake/storyline/d/generations/")} == {before.committed.table_generation}


def test_a_damaged_current_is_moved_aside(place: Place, paths: DatasetPaths) -> None:
    files.write_atomic(f"{paths.storyline}/CURRENT", b"{ broken")
    report = rebuild(RebuildOptions(paths=paths, full=True))
    assert report.runs == 1
    assert any("CURRENT.damaged" in name for name in place.names("lake/storyline/"))


def test_one_holder_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.2)
    inside: list[int] = []
    worst: list[int] = []

    def work() -> None:
        for _ in range(3):
            with files.locked(f"{place.uri}/x.lock"):
                inside.append(1)
                worst.append(len(inside))
                time.sleep(0.01)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == [1] * 12


def test_a_lock_of_the_dead_is_taken_over_and_one_of_the_living_is_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.1)
    path = f"{place.uri}/x.lock"
    S3Object(path).swap(msgspec.json.encode({"owner": "dead", "beat": 7}), MISSING)
    began = time.monotonic()
    with files.locked(path):
        assert time.monotonic() - began >= 0.4
        monkeypatch.setattr(lease, "WAIT_SECONDS", 1.0)
        with pytest.raises(lease.ConflictError), files.locked(path):
            pytest.fail("two holders at once")


def test_runs_watch_each_other(place: Place) -> None:
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    first = take_run(paths, "one", beat_seconds=0.2)
    assert isinstance(first, RunLock)
    met = take_run(paths, "two", beat_seconds=0.2)
    assert isinstance(met, RunRecord)
    assert met.run_id == "one"
    first.release()
    assert not files.exists(paths.run)
    dead: dict[str, Any] = {"run_id": "dead", "host": met.host, "pid": met.pid}
    files.write_atomic(paths.run, msgspec.json.encode(dead))
    taken = take_run(paths, "three", beat_seconds=0.05)
    assert isinstance(taken, RunLock)
    taken.release()


def test_two_first_rebuilds_take_turns(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """There is no CURRENT yet that could hold a lease."""
    for number in range(3):
        place.put(f"in/{number}.json", atif(f"s{number}", 2))
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/in",)))
    met = threading.Barrier(3)
    reports = []

    def work() -> None:
        met.wait()
        reports.append(rebuild(RebuildOptions(paths=paths)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.mode for report in reports) == ["fresh", "fresh", "full"]
    assert [report.runs for report in reports] == [3, 3, 3]
    current = StorylineLanceStore(paths.storyline).current()
    assert current is not None
    assert current.lease is None
    assert {name.split("/")[4] for name in place.names("lake/storyline/d/generations/")} == {current.committed.table_generation}


def test_a_first_writer_that_lives_is_waited_for_and_a_dead_one_replaced(paths: DatasetPaths) -> None:
    files.remove(f"{paths.storyline}/CURRENT")
    store = StorylineLanceStore(paths.storyline)
    first = store.writer(lease_seconds=0.8)
    second = store.writer(lease_seconds=0.8, wait_seconds=2)
    with first, pytest.raises(CurrentConflict, match="for 2 s"), second:
        pytest.fail("two writers at once")
    files.write_atomic(f"{paths.storyline}/.storyline-write.lock", msgspec.json.encode({"owner": "dead", "beat": 3}))
    began = time.monotonic()
    assert rebuild(RebuildOptions(paths=paths, lease_seconds=0.8)).runs == 1
    assert time.monotonic() - began >= 0.8
