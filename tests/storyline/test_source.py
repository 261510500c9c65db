"""Readers of the tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chronicle.errors import NotFoundError, UsageError
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
from chronicle.projection.tables import TableBuilder
from chronicle.sql.sandbox import Bounds
from chronicle.storyline import source as module
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from infra import samples
from tests.lake import Lake
from tests.storyline.stores import batches, story, visible

COUNT = 12


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store whose rows lie in another order than its stories: every commit brought some of them."""
    root = str(tmp_path_factory.mktemp("scattered"))
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild(batches([story(n, turns=1 + n % 5) for n in range(COUNT)], 5), None)
        for some in ([7, 3], [0], [11, 3, 4], [5]):
            parts = batches([story(n, "new", turns=3) for n in some], 2)
            writer.replace([story(n).story_id for n in some], parts, None)
    return root


def expected(*numbers: int) -> list[object]:
    new = {7, 3, 0, 11, 4, 5}
    return [story(n, "new", turns=3) if n in new else story(n, turns=1 + n % 5) for n in sorted(set(numbers))]


def test_stories_come_in_storage_order(scattered: str) -> None:
    assert visible(scattered) == expected(*range(COUNT))


@pytest.mark.parametrize(("stretches", "rows"), [(0, 1024), (0, 3), (32, 2), (2, 1024)])
def test_however_the_rows_are_fetched(scattered: str, monkeypatch: pytest.MonkeyPatch, stretches: int, rows: int) -> None:
    monkeypatch.setattr(module, "_MOST_STRETCHES", stretches)
    monkeypatch.setattr(module, "SCAN_ROWS", rows)
    monkeypatch.setattr(module, "_FEWEST_ROWS", 1)
    assert visible(scattered) == expected(*range(COUNT))


@given(wanted=st.sets(st.integers(0, COUNT + 2)), few=st.booleans())
@settings(max_examples=20, deadline=None)
def test_some_stories(scattered: str, wanted: set[int], few: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_DOCUMENTS", 512 if few else 0)
        patch.setattr(module, "_DOCUMENTS_PER_FILTER", 3)
        found = list(StorylineDataSource.open(scattered).stories([story(n).story_id for n in wanted]))
    assert found == expected(*(n for n in wanted if n < COUNT))


def test_stories_of_one_document_stay_in_their_order(tmp_path: Path) -> None:
    root = str(tmp_path)
    family = [story(5), story(3), story(4)]
    builder = TableBuilder()
    builder.add(list(map(replace, family)), 17)
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild([builder.batches()], None)
    assert visible(root) == family


def test_counts_and_datasets(scattered: str) -> None:
    source = StorylineDataSource.open(scattered)
    assert source.counts()["runs"] == COUNT
    assert source.steps.to_table(columns=["step_id"]).num_rows == source.counts()["steps"]
    assert source.tool_calls.version == source.snapshot.tool_calls_version
    assert source.document_ids() == [story(n).story_id for n in range(COUNT)]


def test_origins(scattered: str) -> None:
    found = dict(StorylineDataSource.open(scattered).origins())
    assert found == {story(n).story_id: story(n).origin for n in range(COUNT)}


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no tables"):
        StorylineDataSource.open(str(tmp_path / "nowhere"))


def test_a_missing_version_is_named(tmp_path: Path) -> None:
    root = str(tmp_path)
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild(batches([story(0)]), None)
    current = tmp_path / "CURRENT"
    current.write_text(current.read_text().replace('"steps_version":1', '"steps_version":7'))
    with pytest.raises(NotFoundError, match="version 7"):
        StorylineDataSource.open(root)


def test_reading_and_writing_import_no_pandas(scattered: str) -> None:
    code = f"""
import sys
from chronicle.storage import lanceio
lanceio.lance()
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from infra import samples
from tests.lake import Lake
from tests.storyline.stores import batches
stories = list(StorylineDataSource.open({scattered!r}).stories())
with StorylineLanceStore({scattered + "-copy"!r}).writer() as writer:
    writer.rebuild(batches(stories), None)
assert len(stories) == {COUNT}
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=60)


def test_what_python_gets(scattered: str) -> None:
    source = StorylineDataSource.open(scattered)
    assert source.story(story(7).story_id) == story(7, "new", turns=3)
    with pytest.raises(NotFoundError, match="no story"):
        source.story("nobody")
    stream = source.stream("steps", columns=["document_id", "step_id"], filter="turn_ordinal = 0")
    assert (stream.schema.names, stream.read_all().num_rows) == (["document_id", "step_id"], COUNT)
    frame = source.to_pandas("runs", columns=["document_id"])
    assert sorted(frame["document_id"]) == sorted(source.document_ids())
    asked = source.sql("SELECT document_id, count(*) AS turns FROM steps GROUP BY 1 ORDER BY 1")
    assert asked.to_pandas()["turns"].sum() == source.counts()["steps"]
    assert [batch.num_rows for batch in source.sql("FROM runs", Bounds(rows=5)).batches()] == [5]
    with pytest.raises(UsageError, match="refused"):
        source.sql("DROP VIEW runs")


def test_python_is_told_what_does_not_fit(scattered: str, tmp_path: Path) -> None:
    source = StorylineDataSource.open(scattered)
    for table, what, word in (
        ("turns", {}, "turns"),
        ("steps", {"columns": ["document_id", "nope"]}, "nope"),
        ("steps", {"filter": "nope = 1"}, "nope"),
        ("steps", {"filter": "source === 1"}, "==="),
        ("steps", {"filter": ""}, "filter"),
    ):
        with pytest.raises(UsageError, match=word) as caught:
            source.stream(table, **what)
        assert "/home/" not in str(caught.value)
    rows = source.sql("SELECT 1 AS n")
    assert rows.to_table().num_rows == 1
    with pytest.raises(UsageError, match="read already"):
        rows.to_table()
    for uri in (Path(scattered), f"file://{scattered}", f"{scattered}/"):
        assert StorylineDataSource.open(uri).root == scattered
    (tmp_path / "lake/events").mkdir(parents=True)
    with pytest.raises(NotFoundError, match="name the dataset too"):
        StorylineDataSource.open(tmp_path / "lake")


def test_a_named_state(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(2):
        lake.put(f"{number}.json", samples.samples()["eval/leaf-3.json"].replace(b"leaf-3", b"leaf-%d" % number))
        lake.ingest()
        lake.rebuild()
    first = StorylineDataSource.open(str(tmp_path / "lake"), "d")
    assert first.root == lake.paths.storyline
    lake.put("2.json", samples.samples()["eval/leaf-3.json"])
    lake.ingest()
    lake.rebuild(full=True)
    assert [len(each.document_ids()) for each in (first, StorylineDataSource.open(first.root))] == [2, 3]
    earlier = StorylineDataSource.open(first.root, generation=first.snapshot.table_generation)
    assert (earlier.snapshot, earlier.document_ids()) == (first.snapshot, first.document_ids())
    assert StorylineDataSource.at(first.root, first.snapshot).counts() == first.counts()
    current = StorylineDataSource.open(first.root).snapshot
    assert StorylineDataSource.open(first.root, generation=current.table_generation).snapshot == current
    for name, error in (("gen-1-2-3", NotFoundError), ("../x", UsageError), ("runs", UsageError)):
        with pytest.raises(error):
            StorylineDataSource.open(first.root, generation=name)
    maintain(MaintainOptions(paths=lake.paths, retention_seconds=0))
    with pytest.raises(NotFoundError, match="holds no generation"):
        StorylineDataSource.open(first.root, generation=first.snapshot.table_generation)
