"""A rebuild on a local disk that stands still for longer than its lease: it keeps its turn as long as it lives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chronicle.errors import CurrentConflict
from chronicle.layout import STORYLINE_LOCK
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions, VerifyOptions
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from chronicle.verify import verify
from tests.lake import Lake
from tests.laws.contents import atif
from tests.stopped import COMMAND, COMMIT, stopped, wake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Tables that are behind: one story has changed, one is new."""
    lake = Lake.of_two(tmp_path)
    lake.put("a.json", atif("a", 5))
    lake.put("c.json", atif("c", 3))
    lake.ingest()
    return lake


def call(lake: Lake) -> tuple[str, ...]:
    return "rebuild", "--lake", lake.paths.lake, "--dataset", "d", "--json"


def as_the_facts_say(lake: Lake) -> bool:
    rows = lake.rows()
    assert lake.rebuild().mode == "fresh"
    maintain(MaintainOptions(paths=lake.paths, retention_seconds=0))
    assert lake.rows() == rows
    return (
        verify(VerifyOptions(paths=lake.paths)).differences == [] and lake.rebuild(full=True).failed == [] and lake.rows() == rows
    )


def test_the_others_wait_for_it_and_it_commits(lake: Lake) -> None:
    before, pinned = lake.rows(), StorylineDataSource.open(lake.paths.storyline)
    with stopped(COMMAND, COMMIT, *call(lake)) as late:
        store = StorylineLanceStore(lake.paths.storyline)
        with pytest.raises(CurrentConflict, match="another writer"), store.writer(lease_seconds=0.1, wait_seconds=0.5):
            pytest.fail("two writers at once")
        assert lake.rows() == before
        lake.put("d.json", atif("d", 3))
        assert lake.ingest().ingested == 1, "facts need no turn"
        code, err = wake(late)
    assert code == 0, err
    assert sorted(row["session_id"] for row in lake.rows()["runs"]) == ["a", "b", "c"]
    assert [story.session for story in pinned.stories()] == ["a", "b"]
    assert lake.rebuild().mode == "incremental"
    assert as_the_facts_say(lake)


def test_it_is_killed_in_its_sleep(lake: Lake) -> None:
    before = lake.rows()
    with stopped(COMMAND, COMMIT, *call(lake)):
        pass
    assert lake.rows() == before
    assert lake.rebuild().mode == "incremental"
    assert as_the_facts_say(lake)


def test_its_lock_is_taken_away(lake: Lake) -> None:
    """Somebody tidied up: the next writer gets a lock of its own, so the lease has to tell the sleeper that it is late."""
    with stopped(COMMAND, COMMIT, *call(lake)) as late:
        os.unlink(Path(lake.paths.storyline) / STORYLINE_LOCK)
        lake.put("d.json", atif("d", 3))
        lake.ingest()
        assert lake.rebuild().runs == 4
        rows, seen = lake.rows(), StorylineLanceStore(lake.paths.storyline).current()
        code, err = wake(late)
    assert (code, "lease" in err) == (73, True), err
    assert StorylineLanceStore(lake.paths.storyline).current() == seen
    assert lake.rows() == rows
    assert as_the_facts_say(lake)
