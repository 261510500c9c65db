"""Derived layers that were damaged or removed in part: `verify` says so, `rebuild` makes them anew from facts (design 2, 5.2)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from chronicle.errors import IntegrityError
from chronicle.find import find
from chronicle.layout import generation_path, segment_path
from chronicle.maintain import maintain
from chronicle.options import FindOptions, MaintainOptions, QueryOptions, VerifyOptions
from chronicle.query import query
from chronicle.storage import lanceio
from chronicle.storyline.store import StorylineLanceStore
from chronicle.verify import verify
from tests.lake import Lake
from tests.laws.contents import atif


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.of_two(tmp_path)


def _generations(root: Path) -> None:
    shutil.rmtree(root / "generations")


def _one_table(root: Path) -> None:
    (table,) = root.glob("generations/*/steps.lance")
    shutil.rmtree(table)


def _rows_of_runs(root: Path) -> None:
    (data,) = root.glob("generations/*/runs.lance/data")
    shutil.rmtree(data)


@pytest.mark.parametrize("damage", [_generations, _one_table, _rows_of_runs])
def test_missing_tables_are_a_difference_and_come_back(lake: Lake, damage: Callable[[Path], None]) -> None:
    whole = lake.rows()
    damage(Path(lake.paths.storyline))
    report = verify(VerifyOptions(paths=lake.paths))
    assert report.exit_code() == 65
    assert [one.layer for one in report.differences] == ["tables"]
    lake.put("a.json", atif("a", 4))  # touches old rows, so it has to read them
    lake.ingest()
    rebuilt = lake.rebuild()
    assert rebuilt.mode == "full"
    assert rebuilt.why
    assert len(lake.rows()["steps"]) == len(whole["steps"]) + 1
    assert verify(VerifyOptions(paths=lake.paths)).exit_code() == 0


def test_a_current_that_does_not_read_is_moved_aside_on_request(lake: Lake) -> None:
    whole = lake.rows()
    current = Path(lake.paths.storyline) / "CURRENT"
    current.write_bytes(current.read_bytes()[:40])
    assert verify(VerifyOptions(paths=lake.paths)).exit_code() == 65
    with pytest.raises(IntegrityError) as caught:
        lake.rebuild()
    assert "rebuild --full" in str(caught.value.hint)
    assert len(lake.rebuild(full=True).warnings) == 1
    assert lake.rows() == whole
    assert len(list(current.parent.glob("CURRENT.damaged-*"))) == 1


@pytest.mark.parametrize("name", ["page_data.lance", "page_lookup.lance", "metadata.lance", "bitmap_page_lookup.lance"])
def test_damaged_indices_are_built_anew(lake: Lake, name: str) -> None:
    maintain(MaintainOptions(paths=lake.paths))
    whole = lake.rows()
    damaged = list(Path(lake.paths.storyline).rglob(name))
    assert damaged
    for file in damaged:
        file.write_bytes(b"")
    lake.put("c.json", atif("c", 3))
    lake.put("a.json", atif("a", 4))  # a deletion, which asks an index
    lake.ingest()
    lake.rebuild()
    report = maintain(MaintainOptions(paths=lake.paths))
    assert report.indexed
    assert not maintain(MaintainOptions(paths=lake.paths)).indexed
    assert len(lake.rows()["runs"]) == len(whole["runs"]) + 1
    found = find(FindOptions(lake=lake.paths.lake, text="c", dataset="d"))
    assert sum(batch.num_rows for batch in found.batches()) == 1
    assert verify(VerifyOptions(paths=lake.paths)).exit_code() == 0


@pytest.mark.parametrize("rows", [-1, 0, 10**9, -(2**62)])
def test_a_cursor_from_anywhere_is_not_gone_on_from(lake: Lake, rows: int) -> None:
    whole = lake.rows()
    path = Path(lake.paths.projection)
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "fact_rows": rows}))
    assert lake.rebuild().mode == "full"
    assert lake.rows() == whole


def test_tables_of_the_peer_say_what_to_do(lake: Lake) -> None:
    with StorylineLanceStore(lake.paths.storyline).writer() as writer:
        assert writer.pinned is not None
        place = generation_path(lake.paths.storyline, writer.pinned.table_generation, "runs")
        dataset = lanceio.open_latest(place)
        dataset.drop_columns(["residual"])
        writer.advance({**writer.pinned.versions, "runs": int(lanceio.open_latest(place).version)}, writer.pinned.projection)
    with pytest.raises(IntegrityError, match=r"are not Chronicle's: runs has no column residual; .*rebuild --full"):
        lake.exported("atif")
    lake.rebuild(full=True)
    assert lake.exported("atif")


def test_the_peer_gets_its_blobs_back(lake: Lake) -> None:
    objects = Path(lake.paths.storyline) / "objects.lance"
    shutil.rmtree(objects)
    lake.rebuild(full=True)
    assert (objects / "_versions").is_dir()


def test_a_query_names_damage_as_such(lake: Lake) -> None:
    (data,) = Path(lake.paths.storyline).glob("generations/*/steps.lance/data")
    shutil.rmtree(data)
    with (
        pytest.raises(IntegrityError, match="do not read"),
        query(QueryOptions(lake=lake.paths.lake, dataset="d", sql="SELECT message_value FROM steps")) as result,
    ):
        list(result.batches())


@pytest.mark.parametrize(("column", "value"), [("kind", "'note'"), ("trace_id", "'x'"), ("seq", "7")])
def test_a_row_whose_columns_left_its_record_is_a_difference(lake: Lake, column: str, value: str) -> None:
    """Such a row drops out of the folds silently: rebuilt tables would agree with what is left."""
    manifest = lake.store.manifest()
    (segment,) = manifest.segments
    dataset = lanceio.open_version(segment_path(lake.paths.events, segment.id), segment.version)
    dataset.update({column: value}, where="kind = 'source.closed'")
    path = Path(lake.paths.events) / "_manifest.json"
    path.write_text(path.read_text().replace(f'"version": {segment.version}', f'"version": {dataset.version}'))
    assert lake.store.manifest().segments[0].version == dataset.version
    report = verify(VerifyOptions(paths=lake.paths))
    found = [one for one in report.differences if one.layer == "facts"]
    assert [column in one.detail for one in found[:2]] == [True, True]


def test_a_cell_that_is_no_json_is_a_difference(lake: Lake) -> None:
    (table,) = Path(lake.paths.storyline).glob("generations/*/runs.lance")
    dataset = lanceio.open_latest(str(table))
    dataset.update({"origin": "'garbage'"})
    current = Path(lake.paths.storyline) / "CURRENT"
    current.write_text(current.read_text().replace('"runs_version":1', f'"runs_version":{dataset.version}'))
    report = verify(VerifyOptions(paths=lake.paths))
    assert [(one.layer, "does not read" in one.detail) for one in report.differences] == [("tables", True)]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "storage_ordinal", "storage_ordinal + 1"),
        ("runs", "started_at", "TIMESTAMP '2020-01-01 00:00:00'"),
        ("steps", "effective_kind", "'other'"),
        ("steps", "message_kind", "'json'"),
    ],
)
def test_a_changed_derived_column_is_a_difference(lake: Lake, table: str, column: str, value: str) -> None:
    """A story does not need these columns, so only a comparison of rows shows it."""
    lake.put("c.json", atif("c", 1))
    lake.ingest()
    lake.rebuild()
    assert verify(VerifyOptions(paths=lake.paths)).exit_code() == 0
    (uri,) = Path(lake.paths.storyline).glob(f"generations/*/{table}.lance")
    dataset = lanceio.open_latest(str(uri))
    before = dataset.version
    dataset.update({column: value})
    current = Path(lake.paths.storyline) / "CURRENT"
    current.write_text(current.read_text().replace(f'"{table}_version":{before}', f'"{table}_version":{dataset.version}'))
    report = verify(VerifyOptions(paths=lake.paths))
    assert report.exit_code() == 65
    assert {one.layer for one in report.differences} == {"tables"}
