"""What a lake and a dataset hold, and whether what is derived is fresh (design 5.2, 8)."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from chronicle.cursor import Cursor, MadeFrom, made_from
from chronicle.errors import IntegrityError, NotFoundError
from chronicle.events.mark import LogMark
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.maintain import maintain
from chronicle.materialize import materialize
from chronicle.options import (
    IngestOptions,
    MaintainOptions,
    MaterializeOptions,
    QueryOptions,
    RebuildOptions,
    VerifyOptions,
)
from chronicle.projection.sources import SourceFold
from chronicle.query import query
from chronicle.rebuild import rebuild
from chronicle.stats import list_lake, stats
from chronicle.verify import verify
from tests.lake import Lake
from tests.laws.contents import atif


def trajectory(name: str, calls: int = 1) -> str:
    call = {"tool_call_id": "t", "function_name": "ls", "arguments": {}}
    steps = [
        {"step_id": 1, "source": "user", "message": "hi"},
        {"step_id": 2, "source": "agent", "message": "ho", "tool_calls": [call] * calls},
    ]
    return json.dumps({"schema_version": "ATIF-v1.7", "session_id": name, "agent": {"name": "a", "version": "1"}, "steps": steps})


def put(paths: DatasetPaths, folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    ingest(IngestOptions(paths=paths, sources=(str(folder),), allow_quarantine=True))


@pytest.fixture
def paths(tmp_path: Path) -> DatasetPaths:
    return DatasetPaths(str(tmp_path / "lake"), "team/a")


def test_a_dataset_through_its_life(paths: DatasetPaths, tmp_path: Path) -> None:
    put(paths, tmp_path / "in", one=trajectory("one"), two=trajectory("two", calls=2), bad="{")
    found = stats(paths)
    assert (found.sources, found.formats, found.freshness, found.markdown) == (2, {"atif": 2}, "missing", "missing")
    assert (found.stories, found.steps) == (None, None)
    assert (found.fact_rows, found.kinds["document.part"]) == (sum(found.kinds.values()), 4)
    assert found.quarantined == sum(found.quarantine_kinds.values()) == 1
    assert found.bytes["events"] > 0
    assert found.bytes["storyline"] == 0

    rebuild(RebuildOptions(paths=paths))
    materialize(MaterializeOptions(paths=paths))
    found = stats(paths)
    assert (found.freshness, found.markdown, found.markdown_files) == ("fresh", "fresh", 2)
    assert (found.stories, found.steps, found.tool_calls) == (2, 4, 3)
    assert sum(found.lints.values()) == 1, "the repeated call id"

    before = found.fact_rows
    put(paths, tmp_path / "in", three=trajectory("three"))
    found = stats(paths)
    stale = f"stale by {found.fact_rows - before} facts"
    assert (found.freshness, found.markdown) == (stale, "stale")
    assert found.hints[0] == f"the tables are {stale}: run `chronicle rebuild`"


def test_health_of_a_dataset(paths: DatasetPaths, tmp_path: Path) -> None:
    began = time.time_ns() // 1_000_000
    put(paths, tmp_path / "in", one=trajectory("one"), bad="{", empty="")
    found = stats(paths)
    assert (found.tables_unix_ms, found.lag_seconds, found.retired_bytes) == (None, None, 0)
    assert found.ingested_unix_ms is not None
    assert found.ingested_unix_ms >= began
    assert found.hints[:2] == [
        "the tables are missing: run `chronicle rebuild`",
        "1 input is in quarantine: see `chronicle quarantine list`",
    ]
    assert set(found.bytes) == {"events", "storyline", "agenticmd", "quarantine", "ops"}
    assert found.bytes["quarantine"] > 0

    rebuild(RebuildOptions(paths=paths))
    found = stats(paths)
    assert found.lag_seconds == 0
    assert found.tables_unix_ms is not None
    os.utime(f"{paths.storyline}/CURRENT", (1_000_000, 1_000_000))
    for number in range(8):
        put(paths, tmp_path / "in", **{f"more{number}": trajectory(f"more{number}")})
    found = stats(paths)
    assert found.ingested_unix_ms is not None
    assert found.lag_seconds == (found.ingested_unix_ms - 1_000_000_000) / 1000
    assert "8 small segments can become 1: run `chronicle maintain --compact`" in found.hints

    rebuild(RebuildOptions(paths=paths, full=True))
    maintain(MaintainOptions(paths=paths, index=False, vacuum=False))
    kept = stats(paths)
    assert kept.retired_bytes > 0
    assert kept.segments < found.segments
    maintain(MaintainOptions(paths=paths, retention_seconds=0))
    assert (stats(paths).retired_bytes, len(stats(paths).hints)) == (0, 1)


def test_all_datasets_of_a_lake(paths: DatasetPaths, tmp_path: Path) -> None:
    put(paths, tmp_path / "in", one=trajectory("one"))
    rebuild(RebuildOptions(paths=paths))
    other = DatasetPaths(paths.lake, "b")
    put(other, tmp_path / "other", two=trajectory("two"), bad="{")
    report = list_lake(paths.lake)
    assert [(one.dataset, one.freshness, one.stories, one.quarantined) for one in report.datasets] == [
        ("b", "missing", None, 1),
        ("team/a", "fresh", 1, 0),
    ]
    assert [one.bytes for one in report.datasets] == [sum(stats(at).bytes.values()) for at in (other, paths)]
    assert report.warnings == []


def test_a_lake_that_moved_is_as_fresh_as_before(paths: DatasetPaths, tmp_path: Path) -> None:
    put(paths, tmp_path / "in", one=trajectory("one"))
    rebuild(RebuildOptions(paths=paths))
    shutil.move(paths.lake, tmp_path / "moved")
    assert [one.freshness for one in list_lake(str(tmp_path / "moved")).datasets] == ["fresh"]


def test_one_broken_dataset_does_not_hide_the_others(paths: DatasetPaths, tmp_path: Path) -> None:
    put(paths, tmp_path / "in", one=trajectory("one"))
    broken = DatasetPaths(paths.lake, "broken")
    Path(broken.events).mkdir(parents=True)
    (Path(broken.events) / "_manifest.json").write_text("{")
    first, second = list_lake(paths.lake).datasets
    assert (first.dataset, first.fact_rows) == ("broken", 0)
    assert "manifest" in first.error
    assert (second.dataset, second.error) == ("team/a", "")
    with pytest.raises(IntegrityError):
        stats(broken)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        list_lake(str(tmp_path / "nothing"))
    assert list_lake(str(tmp_path)).datasets == []
    with pytest.raises(NotFoundError):
        stats(DatasetPaths(str(tmp_path), "nothing"))


@pytest.mark.parametrize("how", ["anew", "anew-and-merged", "restored", "restored-and-grown"])
def test_tables_of_another_log_are_not_fresh(tmp_path: Path, how: str) -> None:
    """Its counts are those of the log that they were made from; only its rows are others."""
    lake = Lake(tmp_path)
    lake.put("a.json", atif("a", 3))
    lake.ingest()
    backup = tmp_path / "backup"
    shutil.copytree(lake.paths.events, backup)
    lake.put("b.json", atif("b", 3))
    lake.ingest()
    lake.rebuild()
    maintain(MaintainOptions(paths=lake.paths, vacuum=False, full=how == "anew-and-merged"))
    before, made_from = lake.store.manifest(), lake.rows()
    assert stats(lake.paths).freshness == "fresh", "the log is merged, the tables are those of its rows"
    assert lake.rebuild().mode == "fresh"

    shutil.rmtree(lake.paths.events)
    (lake.inbox / "b.json").unlink()
    if how.startswith("restored"):
        shutil.copytree(backup, lake.paths.events)
    else:
        lake.put("a.json", atif("x", 3))
        lake.ingest()
    if how != "restored":
        lake.put("c.json", atif("c", 3))
        lake.ingest()
    if how == "anew-and-merged":
        maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0))
    after = lake.store.manifest()
    is_alike = (after.fact_version, after.fact_rows, len(after.segments)) == (
        before.fact_version, before.fact_rows, len(before.segments),
    )  # fmt: skip
    assert is_alike == (how != "restored")

    assert stats(lake.paths).freshness == "stale"
    assert [one.freshness for one in list_lake(lake.paths.lake).datasets] == ["stale"]
    with query(QueryOptions(lake=lake.paths.lake, dataset="d", sql="SELECT 1")) as result:
        assert result.warnings == ["not from all facts: d (stale); run `chronicle rebuild`"]
    checked = verify(VerifyOptions(paths=lake.paths))
    assert [(one.layer, one.what, one.detail) for one in checked.differences] == [
        ("tables", "CURRENT", "they were not made from this log")
    ]
    report = lake.rebuild()
    assert (report.mode, report.why) == ("full", "the log is another one than the tables were made from")
    sessions = {row["session_id"] for row in lake.rows()["runs"]}
    assert (
        sessions == {"anew": {"x", "c"}, "anew-and-merged": {"x", "c"}, "restored": {"a"}, "restored-and-grown": {"a", "c"}}[how]
    )
    assert lake.rows() != made_from
    assert stats(lake.paths).freshness == "fresh"
    assert verify(VerifyOptions(paths=lake.paths)).differences == []


def test_without_a_cursor_the_counts_tell(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put("a.json", atif("a", 3))
    lake.ingest()
    lake.rebuild()
    os.unlink(lake.paths.projection)
    assert stats(lake.paths).freshness == "fresh"
    lake.put("b.json", atif("b", 3))
    rows = lake.ingest().events
    assert stats(lake.paths).freshness == f"stale by {rows} facts"


@pytest.mark.parametrize("event", ["e" * 9, "e" * 9000, ',"fact_version":1'])
def test_the_beginning_of_a_cursor_is_enough(tmp_path: Path, event: str) -> None:
    paths = DatasetPaths(str(tmp_path), "d")
    Path(paths.ops).mkdir(parents=True)
    log = LogMark("e1-x", 7, event)
    fold = SourceFold(begun={f"{number:032}": f"file:///{number}.json" for number in range(200)})
    cursor = Cursor(generation="gen-1-1-1", fact_rows=7, log=log, fact_version=1, recipe="r", fold=fold)
    Path(paths.projection).write_bytes(msgspec.json.encode(cursor))
    assert made_from(paths, "gen-1-1-1") == MadeFrom(generation="gen-1-1-1", fact_rows=7, log=log)
    assert made_from(paths, "gen-1-1-2") is None
    Path(paths.projection).write_bytes(b"{")
    assert made_from(paths, "gen-1-1-1") is None
