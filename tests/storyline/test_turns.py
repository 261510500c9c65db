"""Rebuilds at once: they take turns, every reader sees one whole state, and the last state is that of one full rebuild."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from tests.lake import Lake
from tests.laws.contents import atif
from tests.process import REPOSITORY, command, environment

Rows = dict[str, list[dict[str, Any]]]


@contextmanager
def watched(lake: Lake) -> Iterator[list[Rows]]:
    """A reader that looks again and again; what it saw, each state once, is there when the block ends."""
    seen: list[Rows] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            rows = lake.rows()
            if rows not in seen:
                seen.append(rows)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        done.set()
        reader.join()


def at_once(*calls: list[str]) -> list[int]:
    """Exit codes of processes that were started together."""
    processes = [subprocess.Popen(call, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE) for call in calls]
    for process in processes:
        process.communicate(timeout=120)
    return [process.returncode for process in processes]


@pytest.mark.parametrize("log", ["grown", "another"])
def test_rebuilds_at_once(tmp_path: Path, log: str) -> None:
    lake = Lake(tmp_path)
    for name in ("a", "b"):
        lake.put(f"{name}.json", atif(name, 3))
        lake.ingest()
    lake.rebuild()
    before, pinned = lake.rows(), StorylineDataSource.open(lake.paths.storyline)
    if log == "another":  # of as many rows, segments and versions, under the same name
        shutil.rmtree(lake.paths.events)
        (lake.inbox / "a.json").unlink()
        (lake.inbox / "b.json").unlink()
    for name in ("b", "c"):
        lake.put(f"{name}.json", atif(f"{name}-new", 3))
        lake.ingest()
    call = command("rebuild", "--lake", lake.paths.lake, "--dataset", "d", "--json")
    with watched(lake) as seen:
        assert at_once(call, [*call, "--full"]) == [0, 0]
    after = lake.rows()
    sessions = {"a", "b-new", "c-new"} if log == "grown" else {"b-new", "c-new"}
    assert {row["session_id"] for row in after["runs"]} == sessions
    assert all(rows in (before, after) for rows in seen)
    assert [story.session for story in pinned.stories()] == ["a", "b"]
    current = StorylineLanceStore(lake.paths.storyline).current()
    assert current is not None
    assert current.lease is None
    assert lake.rebuild().mode == "fresh"
    assert lake.rebuild(full=True).failed == []
    assert lake.rows() == after
