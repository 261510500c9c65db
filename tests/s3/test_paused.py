"""Writers that are stopped before their swap, for longer than the patience of others, and wake when these are done.

Nothing tells them that they are late: their swap has to lose, and what they wrote must never be seen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.events.log import RawEventLanceStore
from chronicle.events.record import parse
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions, RebuildOptions, VerifyOptions
from chronicle.rebuild import rebuild
from chronicle.stats import stats
from chronicle.storage import lease
from chronicle.storyline.store import StorylineLanceStore
from chronicle.verify import verify
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.test_faults import record
from tests.s3.test_lake import RemoteLake
from tests.stopped import APPENDING, COMMAND, COMMIT, CURSOR, REPLACE, SHOW, STOPPED, stopped, wake

APPEND = (
    STOPPED
    + """
from chronicle.events.log import EventWriterFence, RawEventLanceStore
from chronicle.events.record import parse
from tests.s3.test_faults import record
RawEventLanceStore(arguments[0]).append([parse(record(7)), parse(record(8))], fence=EventWriterFence(9, "lease"))
"""
)


@pytest.fixture
def lake(tmp_path: Path, place: Place) -> RemoteLake:
    found = RemoteLake(tmp_path, place)
    for number in range(4):
        found.put(f"{number}.json", atif(f"s{number}", 3))
        found.ingest()
    return found


def where(lake: RemoteLake) -> tuple[str, ...]:
    return "--lake", lake.paths.lake, "--dataset", "d"


@pytest.mark.parametrize(
    ("first", "at"),
    [
        pytest.param(True, COMMIT, marks=pytest.mark.long, id="first"),
        pytest.param(False, COMMIT, id="again"),
        pytest.param(False, APPENDING, marks=pytest.mark.long, id="while-it-writes"),
    ],
)
def test_a_writer_of_tables(lake: RemoteLake, place: Place, first: bool, at: str) -> None:
    if not first:
        lake.rebuild()
        lake.put("0.json", atif("s0", 9))
        lake.ingest()
    with stopped(COMMAND, at, "rebuild", *where(lake)) as late:
        lake.put("new.json", atif("new", 2))
        lake.ingest()
        winner = rebuild(RebuildOptions(paths=lake.paths, lease_seconds=1))
        assert winner.runs == 5
        rows, seen = lake.rows(), StorylineLanceStore(lake.paths.storyline).current()
        code, err = wake(late)
    assert (code, "lease" in err or "another writer" in err) == (73, True), err
    assert StorylineLanceStore(lake.paths.storyline).current() == seen
    assert lake.rows() == rows
    assert lake.rebuild().mode == "fresh"
    maintain(MaintainOptions(paths=lake.paths, retention_seconds=0))
    assert lake.rows() == rows
    assert verify(VerifyOptions(paths=lake.paths)).differences == []


@pytest.mark.long
def test_a_writer_of_tables_that_has_swapped(lake: RemoteLake) -> None:
    """Its cursor comes late and is that of no visible commit: the next rebuild begins anew, with the same rows."""
    lake.rebuild()
    lake.put("0.json", atif("s0", 9))
    lake.ingest()
    with stopped(COMMAND, CURSOR, "rebuild", *where(lake)) as late:
        assert len(lake.rows()["steps"]) == 18, "its commit is seen"
        lake.put("new.json", atif("new", 2))
        lake.ingest()
        assert rebuild(RebuildOptions(paths=lake.paths, lease_seconds=1)).runs == 5
        rows, seen = lake.rows(), StorylineLanceStore(lake.paths.storyline).current()
        code, err = wake(late)
    assert code == 0, err
    assert StorylineLanceStore(lake.paths.storyline).current() == seen
    assert (stats(lake.paths).freshness, lake.rows()) == ("fresh", rows)
    assert (lake.rebuild().mode, lake.rebuild().mode) == ("full", "fresh")
    assert lake.rows() == rows


@pytest.mark.long
def test_a_producer_with_its_own_fence(lake: RemoteLake, place: Place) -> None:
    store = RawEventLanceStore(lake.paths.events)
    with stopped(APPEND, SHOW, lake.paths.events) as late:
        store.append([parse(record(1))])
        before = store.manifest()
        code, err = wake(late)
    assert code == 1
    assert "StaleFence" in err
    assert [found.seq for _, found in store.replay() if found.kind == "note"] == [1]
    assert store.manifest() == before
    names = {name.split("/")[5] for name in place.names("lake/events/d/events.lance/segments/")}
    assert names == {f"{segment.id}.lance" for segment in before.segments}, "its garbage goes with it"


@pytest.mark.parametrize("retention", [pytest.param(None, marks=pytest.mark.long), 0.0], ids=["overtaken", "and-vacuumed"])
def test_an_ingest(lake: RemoteLake, place: Place, retention: float | None) -> None:
    """It takes another epoch and shows its rows once more, which the fold drops; or nothing, where vacuum took them."""
    lake.put("new.json", atif("new", 2))
    lake.put("newer.json", atif("newer", 2))
    with stopped(COMMAND, SHOW, "ingest", f"{place.uri}/in", *where(lake), "--json", call=2) as late:
        assert lake.ingest().ingested == 1
        if retention is not None:
            maintain(MaintainOptions(paths=lake.paths, retention_seconds=retention))
        exact, rows = lake.exact(), len(lake.records())
        code, err = wake(late)
    assert code == (0 if retention is None else 73), err
    assert (len(lake.records()) > rows) is (retention is None)
    assert lake.exact() == exact
    lake.rebuild()
    assert len(lake.rows()["runs"]) == 6
    assert verify(VerifyOptions(paths=lake.paths)).differences == []
    assert lake.ingest().files_opened == 0


@pytest.mark.long
def test_a_maintenance(lake: RemoteLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.2)
    before = [found.text for found in lake.records()]
    with stopped(COMMAND, REPLACE, "maintain", *where(lake), "--full", "--retention", "0", "--json") as late:
        maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0))
        after = lake.store.manifest()
        code, err = wake(late)
    assert code == 0, err
    assert lake.store.manifest().segments == after.segments
    assert [found.text for found in lake.records()] == before
