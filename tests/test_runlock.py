"""run.json: one run at a time, and nobody waits for the dead."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest

from chronicle.layout import DatasetPaths
from chronicle.runlock import RunLock, RunRecord, take_run


@pytest.fixture
def paths(tmp_path: Path) -> DatasetPaths:
    return DatasetPaths(str(tmp_path), "team/runs")


def held(paths: DatasetPaths, run_id: str, **options) -> RunLock:
    lock = take_run(paths, run_id, **options)
    assert isinstance(lock, RunLock)
    return lock


def test_record_says_who_is_at_work_and_is_gone_at_the_end(paths: DatasetPaths) -> None:
    lock = held(paths, "first")
    record = json.loads(Path(paths.run).read_text())
    assert record["run_id"] == "first"
    assert record["pid"] == os.getpid()
    lock.release()
    assert not Path(paths.run).exists()


def test_second_run_learns_who_holds_it_and_disturbs_nothing(paths: DatasetPaths) -> None:
    lock = held(paths, "first")
    before = Path(paths.run).read_bytes()
    other = take_run(paths, "second")
    assert isinstance(other, RunRecord)
    assert other.run_id == "first"
    assert Path(paths.run).read_bytes() == before
    lock.release()
    held(paths, "third").release()


def test_record_moves_while_the_run_lives(paths: DatasetPaths) -> None:
    lock = held(paths, "first", beat_seconds=0.01)
    seen = {Path(paths.run).read_bytes() for _ in range(2000)}
    lock.release()
    assert len(seen) > 1
    assert not Path(paths.run).exists()


def _hold_and_wait(paths: DatasetPaths, ready: multiprocessing.synchronize.Event) -> None:
    held(paths, "killed")
    ready.set()
    signal.pause()


def test_killed_run_is_taken_over_at_once(paths: DatasetPaths) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=_hold_and_wait, args=(paths, ready))
    child.start()
    assert ready.wait(60)
    assert isinstance(take_run(paths, "second"), RunRecord)
    child.kill()
    child.join()

    def never(seconds: float) -> None:
        raise AssertionError("nobody waits for a process that has ended")

    held(paths, "second", sleep=never).release()


def test_record_of_another_host_that_stands_still_is_taken_over_after_three_beats(paths: DatasetPaths) -> None:
    Path(paths.ops).mkdir(parents=True)
    Path(paths.run).write_text(json.dumps({"run_id": "far", "host": "elsewhere", "pid": 1, "beat": 7}))
    waits: list[float] = []
    lock = held(paths, "near", sleep=waits.append)
    assert waits == [5.0, 5.0, 5.0]
    assert json.loads(Path(paths.run).read_text())["run_id"] == "near"
    lock.release()


def test_record_of_another_host_that_moves_is_left_alone(paths: DatasetPaths) -> None:
    Path(paths.ops).mkdir(parents=True)
    record = {"run_id": "far", "host": "elsewhere", "pid": 1, "beat": 7}
    Path(paths.run).write_text(json.dumps(record))

    def beats_meanwhile(seconds: float) -> None:
        record["beat"] += 1
        Path(paths.run).write_text(json.dumps(record))

    other = take_run(paths, "near", sleep=beats_meanwhile)
    assert isinstance(other, RunRecord)
    assert other.run_id == "far"
    assert json.loads(Path(paths.run).read_text())["run_id"] == "far"


def test_unreadable_record_is_watched_like_any_other(paths: DatasetPaths) -> None:
    Path(paths.ops).mkdir(parents=True)
    Path(paths.run).write_text("{ half")
    waits: list[float] = []
    held(paths, "near", sleep=waits.append).release()
    assert len(waits) == 3


def test_a_run_that_was_taken_over_removes_nothing(paths: DatasetPaths) -> None:
    lock = held(paths, "first")
    Path(paths.run).write_text(json.dumps({"run_id": "usurper", "host": socket.gethostname(), "pid": os.getpid()}))
    lock.release()
    assert json.loads(Path(paths.run).read_text())["run_id"] == "usurper"
