"""Writers that are killed: readers see whole snapshots, and a plain re-run goes through."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.storyline.store import StorylineLanceStore
from tests.storyline.stores import batches, story, visible

BEFORE = [story(0), story(1), story(2)]
AFTER = {
    "rebuild": [story(1, "second"), story(8), story(9)],
    "replace": [story(0), story(1, "second"), story(2), story(8), story(9)],
}


@pytest.mark.parametrize(
    ("verb", "moment"),
    [
        ("rebuild", "writing"),
        ("rebuild", "after the swap"),
        ("replace", "writing"),
        ("replace", "before the swap"),
        ("replace", "after the swap"),
    ],
)
def test_a_killed_writer(tmp_path: Path, verb: str, moment: str) -> None:
    root = str(tmp_path / "storyline")
    store = StorylineLanceStore(root)
    with store.writer() as writer:
        writer.rebuild(batches(BEFORE), None)
    call = [sys.executable, "-m", "tests.storyline.dying_writer", root, verb, moment]
    done = subprocess.run(call, capture_output=True, cwd=Path(__file__).parents[2], timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert visible(root) == (AFTER[verb] if moment == "after the swap" else BEFORE)
    due = [story(1, "second"), story(8), story(9)]
    with store.writer(wait_seconds=0) as writer:
        assert writer.took_over
        if verb == "rebuild":
            writer.rebuild(batches(due), None)
        else:
            writer.replace([each.story_id for each in due], batches(due), None)
    assert visible(root) == AFTER[verb]
    current = store.current()
    assert current is not None
    assert current.lease is None


def test_a_writer_killed_before_the_first_commit(tmp_path: Path) -> None:
    root = str(tmp_path / "storyline")
    call = [sys.executable, "-m", "tests.storyline.dying_writer", root, "rebuild", "before the swap"]
    done = subprocess.run(call, capture_output=True, cwd=Path(__file__).parents[2], timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert StorylineLanceStore(root).current() is None
    with StorylineLanceStore(root).writer(wait_seconds=0) as writer:
        writer.rebuild(batches(BEFORE), None)
    assert visible(root) == BEFORE
