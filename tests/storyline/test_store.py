"""The writer of the tables: one swap, one writer, nothing of a dead one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import ConflictError, CurrentConflict, IntegrityError
from chronicle.layout import generation_path
from chronicle.storyline.current import Snapshot
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from chronicle.storyline.writer import Batches
from tests.storyline.stores import PROJECTION, batches, garble, story, visible


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "storyline")


def built(root: str, *numbers: int) -> Snapshot:
    with StorylineLanceStore(root).writer() as writer:
        return writer.rebuild(batches(map(story, numbers), 2), PROJECTION)


def test_a_rebuild_is_read_back(root: str) -> None:
    snapshot = built(root, 0, 1, 2)
    assert visible(root) == [story(0), story(1), story(2)]
    current = StorylineLanceStore(root).current()
    assert current is not None
    assert (current.lease, current.committed) == (None, snapshot)
    assert snapshot.projection == PROJECTION
    assert StorylineDataSource.open(root).counts() == {"runs": 3, "steps": 6, "tool_calls": 3}


def test_an_empty_rebuild_has_all_tables(root: str) -> None:
    built(root)
    assert visible(root) == []
    with StorylineLanceStore(root).writer() as writer:
        writer.replace([], batches([story(4)]), PROJECTION)
    assert visible(root) == [story(4)]


def test_replace_works_in_place_and_pinned_readers_stay(root: str) -> None:
    first = built(root, 0, 1, 2)
    before = StorylineDataSource.open(root)
    with StorylineLanceStore(root).writer() as writer:
        second = writer.replace([story(1).story_id], batches([story(1, "new"), story(5)]), PROJECTION)
    assert (second.table_generation, second.parent_generation) == (first.table_generation, first.generation)
    assert visible(root) == [story(0), story(1, "new"), story(2), story(5)]
    assert list(before.stories()) == [story(0), story(1), story(2)]


def test_replace_before_the_first_rebuild(root: str) -> None:
    with StorylineLanceStore(root).writer() as writer:
        assert writer.pinned is None
        writer.replace(["x"], batches([story(1)]), None)
        writer.replace([story(1).story_id], batches([story(2)]), None)
    assert visible(root) == [story(2)]


@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_any_sequence_of_commits_gives_the_stories_of_a_model(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = str(tmp_path_factory.mktemp("model"))
    model: dict[int, str] = {}
    for step in range(data.draw(st.integers(1, 4))):
        changed = data.draw(st.dictionaries(st.integers(0, 6), st.none() | st.text("ab", max_size=2), max_size=4))
        full = data.draw(st.booleans())
        gone = [story(number).story_id for number in changed if number in model]
        model = ({} if full else model) | {number: text for number, text in changed.items() if text is not None}
        model = {number: text for number, text in model.items() if changed.get(number, "") is not None}
        parts = batches([story(number, text) for number, text in sorted(changed.items()) if text is not None], step + 1)
        with StorylineLanceStore(root).writer() as writer:
            if full:
                writer.rebuild(parts, None)
            else:
                writer.replace(gone, parts, None)
        assert visible(root) == [story(number, text) for number, text in sorted(model.items())]


def test_ids_with_quotes_and_many_of_them(root: str) -> None:
    built(root, *range(3))
    with StorylineLanceStore(root).writer() as writer:
        writer.replace(["o'brien';--", *(story(n).story_id for n in range(1200))], batches([story(7)]), None)
    assert visible(root) == [story(7)]


def test_a_failure_leaves_nothing_and_frees_the_lease(root: str) -> None:
    first = built(root, 0, 1)

    def failing() -> Iterator[Batches]:
        yield from batches([story(2), story(3)])
        raise LookupError("no more")

    for verb in ("rebuild", "replace"):
        with pytest.raises(LookupError, match="no more"), StorylineLanceStore(root).writer() as writer:  # noqa: PT012
            if verb == "rebuild":
                writer.rebuild(failing(), None)
            else:
                writer.replace([story(0).story_id], failing(), None)
        current = StorylineLanceStore(root).current()
        assert current is not None
        assert (current.committed, current.lease) == (first, None)
        assert visible(root) == [story(0), story(1)]
    assert os.listdir(os.path.join(root, "generations")) == [first.table_generation]
    with StorylineLanceStore(root).writer() as writer:
        assert not writer.took_over
        writer.replace([story(0).story_id], batches([story(4)]), None)
    assert visible(root) == [story(1), story(4)]


def test_rows_of_a_dead_writer_never_show(root: str) -> None:
    first = built(root, 0, 1)
    for table in ("steps", "runs", "tool_calls"):
        garble(root, first, table)
    assert visible(root) == [story(0), story(1)]
    with StorylineLanceStore(root).writer() as writer:
        second = writer.replace([story(0).story_id], batches([story(2)]), None)
    assert second.table_generation == first.table_generation
    assert visible(root) == [story(1), story(2)]


def test_a_lease_left_behind_leads_to_a_new_generation(root: str) -> None:
    first = built(root, 0, 1)
    garble(root, first)
    leave_lease(root)
    with StorylineLanceStore(root).writer() as writer:
        assert writer.took_over
        second = writer.replace([story(1).story_id], batches([story(2)]), PROJECTION)
        assert second.table_generation != first.table_generation
        third = writer.replace([], batches([story(3)]), PROJECTION)
        assert third.table_generation == second.table_generation
    assert visible(root) == [story(0), story(2), story(3)]


def leave_lease(root: str) -> None:
    path = os.path.join(root, "CURRENT")
    current = json.loads(Path(path).read_bytes())
    lease = {"epoch": 1, "owner_id": "gen-1-1-0", "issued_at_unix_ms": 0, "expires_at_unix_ms": 1 << 50}
    current["lease"] = {**lease, "base_generation": current["committed"]["generation"]}
    Path(path).write_text(json.dumps(current))


def test_a_bare_pointer_becomes_the_envelope(root: str) -> None:
    built(root, 0)
    path = Path(root) / "CURRENT"
    path.write_text(json.dumps(json.loads(path.read_bytes())["committed"]))
    assert visible(root) == [story(0)]
    with StorylineLanceStore(root).writer() as writer:
        writer.replace([], batches([story(1)]), None)
    assert json.loads(path.read_bytes())["control_version"] == 1
    assert visible(root) == [story(0), story(1)]


@pytest.mark.parametrize("table", ["runs", "steps", "tool_calls"])
def test_a_strangers_commit_in_between_stops_the_writer(root: str, table: str) -> None:
    first = built(root, 0)

    def disturbed() -> Iterator[Batches]:
        yield from batches([story(1)])
        garble(root, writer.pinned or first, table)

    with pytest.raises(ConflictError), StorylineLanceStore(root).writer() as writer:
        writer.replace([], disturbed(), None)
    assert visible(root) == [story(0)]


def test_a_stranger_after_the_last_append_stops_the_writer(root: str) -> None:
    first = built(root, 0)
    with pytest.raises(CurrentConflict), StorylineLanceStore(root).writer() as writer:  # noqa: PT012
        versions = dict(first.versions)
        garble(root, first)
        writer.advance(versions, None)
    assert visible(root) == [story(0)]


def test_a_lost_lease_stops_the_commit(root: str) -> None:
    first = built(root, 0)

    def robbed() -> Iterator[Batches]:
        yield from batches([story(1)])
        leave_lease(root)

    with pytest.raises(CurrentConflict, match="lease"), StorylineLanceStore(root).writer() as writer:
        writer.replace([], robbed(), None)
    current = StorylineLanceStore(root).current()
    assert current is not None
    assert current.committed == first
    assert current.lease is not None
    assert current.lease.owner_id == "gen-1-1-0"


def test_the_lease_is_renewed_while_it_is_held(root: str) -> None:
    built(root, 0)
    store = StorylineLanceStore(root)
    with store.writer("me", lease_seconds=0.15):
        taken = store.current()
        assert taken is not None
        assert taken.lease is not None
        assert taken.lease.owner_id == "me"
        deadline = time.monotonic() + 10
        while (now := store.current()) is not None and now.revision < taken.revision + 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert now is not None
        assert now.lease is not None
        assert (now.lease.epoch, now.committed) == (taken.lease.epoch, taken.committed)
        assert now.lease.expires_at_unix_ms >= taken.lease.expires_at_unix_ms
    free = store.current()
    assert free is not None
    assert free.lease is None


def test_one_writer_at_a_time(root: str) -> None:
    built(root, 0)
    store = StorylineLanceStore(root)
    with store.writer():
        with pytest.raises(CurrentConflict, match="another writer"), StorylineLanceStore(root).writer(wait_seconds=0.05):
            pass
        begun = threading.Event()
        other = threading.Thread(target=append_when_free, args=(root, begun))
        other.start()
        begun.wait()
        assert visible(root) == [story(0)]
    other.join()
    assert visible(root) == [story(0), story(1)]


def append_when_free(root: str, begun: threading.Event) -> None:
    begun.set()
    with StorylineLanceStore(root).writer() as writer:
        writer.replace([], batches([story(1)]), None)


def test_two_first_builders_do_not_mix(root: str) -> None:
    with StorylineLanceStore(root).writer() as writer:
        made = writer.rebuild(batches([story(0)]), None)
        os.unlink(os.path.join(root, "CURRENT"))
        with pytest.raises(CurrentConflict):
            writer.rebuild(batches([story(1)]), None)
    assert os.path.isdir(generation_path(root, made.table_generation, "runs"))


def test_tables_of_others_are_not_appended_to(root: str) -> None:
    import pyarrow as pa

    from chronicle.storage import lanceio

    first = built(root, 0)
    other = generation_path(root, "gen-1-1-1", "runs")
    for table in ("steps", "tool_calls"):
        lanceio.create(generation_path(root, "gen-1-1-1", table), pa.schema([pa.field("a", pa.int64())]), ())
    lanceio.create(other, pa.schema([pa.field("a", pa.int64())]), ())
    path = Path(root) / "CURRENT"
    path.write_text(path.read_text().replace(first.table_generation, "gen-1-1-1"))
    with pytest.raises(IntegrityError, match="columns"), StorylineLanceStore(root).writer() as writer:
        writer.replace([], batches([story(1)]), None)
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild(batches([story(1)]), None)
    assert visible(root) == [story(1)]
