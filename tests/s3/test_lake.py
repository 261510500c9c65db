"""A whole lake in an object store, with sources there, equals one on a local disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronicle.ingest import ingest
from chronicle.intake.receipts import list_receipts, rebuild_receipts
from chronicle.layout import DatasetPaths
from chronicle.materialize import materialize
from chronicle.options import IngestOptions, MaterializeOptions, VerifyOptions
from chronicle.stats import stats
from chronicle.storage import files
from chronicle.storyline.source import StorylineDataSource
from chronicle.verify import verify
from tests.command import chronicle
from tests.lake import Lake
from tests.laws.contents import CONTENTS, atif, chats
from tests.s3.conftest import Place

SOURCES = {
    f"{number % 3}/file-{number:02d}{'.jsonl' if b'}' + bytes([10]) in data else '.json'}": data
    for number, data in enumerate(CONTENTS)
}


class RemoteLake(Lake):
    """A lake at `place/lake`, its sources at `place/in`."""

    def __init__(self, root: Path, place: Place, lake: str = "lake") -> None:
        super().__init__(root)
        self.place = place
        self.paths = DatasetPaths(f"{place.uri}/{lake}", "d")

    def put(self, name: str, data: bytes) -> None:
        self.place.put(f"in/{name}", data)

    def ingest(self, **options: object):
        return ingest(IngestOptions(paths=self.paths, sources=(f"{self.place.uri}/in",), **options))

    def markdown(self) -> dict[str, bytes]:
        materialize(MaterializeOptions(paths=self.paths))
        names = [name for name in files.list_dir(self.paths.agenticmd) if not name.startswith(".")]
        return {name: files.read(f"{self.paths.agenticmd}/{name}") or b"" for name in names}


@pytest.fixture
def local(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "local", inbox=tmp_path / "local/in")


@pytest.fixture
def remote(tmp_path: Path, place: Place) -> RemoteLake:
    return RemoteLake(tmp_path / "remote", place)


def test_every_layer_equals_that_of_a_local_run(local: Lake, remote: RemoteLake) -> None:
    for name, data in SOURCES.items():
        local.put(name, data)
        remote.put(name, data)
    here, there = local.ingest(), remote.ingest()
    for count in ("sources", "ingested", "bound", "empty", "quarantined_new", "documents", "events", "files_opened"):
        assert getattr(there, count) == getattr(here, count), count
    local.rebuild()
    remote.rebuild()
    assert remote.rows() == local.rows()
    assert remote.exact() == local.exact()
    assert remote.exported("storyline") == local.exported("storyline")
    assert remote.markdown() == local.markdown()
    assert verify(VerifyOptions(paths=remote.paths)).differences == []

    for lake in (local, remote):  # grown, changed, bound, and new
        lake.put("0/file-06.jsonl", chats(range(9)))
        lake.put("1/file-01.json", atif("changed", 3))
        lake.put("2/again.json", CONTENTS[0])
    here, there = local.ingest(), remote.ingest()
    assert (there.ingested, there.continued, there.bound, there.unchanged) == (
        here.ingested,
        here.continued,
        here.bound,
        here.unchanged,
    )
    assert remote.rebuild().mode == "incremental"
    local.rebuild()
    assert remote.rows() == local.rows()
    assert remote.exact() == local.exact()
    assert remote.markdown() == local.markdown()
    assert verify(VerifyOptions(paths=remote.paths)).differences == []


def test_a_second_run_opens_and_writes_nothing(remote: RemoteLake, place: Place) -> None:
    for number in range(3):
        remote.put(f"{number}.json", atif(f"s{number}", 3))
    remote.ingest()
    remote.rebuild()
    remote.markdown()
    before = place.names("lake/")
    again = remote.ingest()
    assert (again.unchanged, again.files_opened, again.segments) == (3, 0, 0)
    assert remote.rebuild().mode == "fresh"
    remote.markdown()
    assert place.names("lake/") == before


def test_an_object_that_was_written_again_is_digested_once(remote: RemoteLake, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.put("a.json", atif("s", 3))
    remote.ingest()
    receipt = list_receipts(remote.paths)[0]
    assert receipt.stat.etag
    assert receipt.stat.last_modified.endswith("Z")
    assert (receipt.stat.mtime_ns, receipt.stat.inode) == (0, 0)
    stamp = receipt.stat.last_modified
    while remote.place.client.head("chronicle-test", f"{remote.place.prefix}/in/a.json").modified == _seconds(stamp):  # type: ignore[union-attr]
        remote.put("a.json", atif("s", 3))
    again = remote.ingest()
    assert (again.unchanged, again.files_opened, again.events) == (1, 1, 0)
    assert remote.ingest().files_opened == 0
    assert list_receipts(remote.paths)[0].seen is not None
    assert rebuild_receipts(remote.paths)[0].seen is None


def _seconds(stamp: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(stamp).timestamp())


def test_a_lake_under_a_hostile_prefix(tmp_path: Path, place: Place) -> None:
    lake = RemoteLake(tmp_path, place, lake="la ke/[1]+%41#é?/日本")
    lake.put("a.json", atif("s", 4))
    lake.ingest()
    lake.rebuild()
    assert len(lake.rows()["steps"]) == 4
    assert lake.exact() == {"in/a.json": atif("s", 4)}
    assert all(name.startswith(("in/", "lake/la ke/[1]+%41#é?/日本/".removeprefix("lake/"))) for name in place.names())


def test_the_command_line_on_a_lake_elsewhere(place: Place, tmp_path: Path) -> None:
    place.put("in/a.json", atif("s", 3))
    place.put("in/cut.json", atif("s", 3)[:-9])
    lake = ("--lake", f"{place.uri}/lake", "--json")
    where = (*lake, "--dataset", "team/d")
    assert chronicle("ingest", f"{place.uri}/in", *where).code == 65
    assert chronicle("rebuild", *where).code == 0
    assert chronicle("materialize", *where).code == 0
    assert chronicle("verify", *lake).code == 0
    listed = chronicle("list", *lake).json["datasets"]
    assert [(one["dataset"], one["freshness"], one["quarantined"]) for one in listed] == [("team/d", "fresh", 1)]
    assert json.loads(chronicle("query", "SELECT count(*) AS n FROM steps", *lake).out) == {"n": 3}
    assert chronicle("stats", *where).json["formats"] == {"atif": 1}
    entry = chronicle("quarantine", "list", *where).json["entries"][0]
    assert entry["source_key"] == f"{place.uri}/in/cut.json"
    assert chronicle("quarantine", "show", entry["id"], *where).json["preview"].startswith("{")
    assert chronicle("quarantine", "drop", entry["id"], *where).code == 0
    assert chronicle("export", "--exact", "--to", tmp_path / "out", *where).code == 0
    assert (tmp_path / "out/in/a.json").read_bytes() == atif("s", 3)
    assert chronicle("export", "--exact", "--to", f"{place.uri}/out", *where).code == 2
    assert chronicle("ingest", f"{place.uri}/none", *where).code == 66
    assert chronicle("ingest", f"{place.uri}/in", "--lake", f"{place.uri}/lake", "--dataset", "team", "--json").code == 2
    assert len(chronicle("replay", *where).lines) == 7
    reports = files.list_dir(f"{place.uri}/lake/ops/team/d/reports")
    assert any("-ingest-" in name for name in reports)


def test_tables_of_a_log_that_was_made_anew(tmp_path: Path, place: Place) -> None:
    """The new one has the same name and as many rows, segments and versions."""
    lake = RemoteLake(tmp_path, place)
    lake.put("a.json", atif("a", 3))
    lake.ingest()
    lake.rebuild()
    before, pinned = lake.store.manifest(), StorylineDataSource.open(lake.paths.storyline)
    files.remove_tree(lake.paths.events)
    lake.put("a.json", atif("b", 3))
    lake.ingest()
    after = lake.store.manifest()
    assert (after.fact_rows, after.fact_version, len(after.segments)) == (before.fact_rows, before.fact_version, 1)
    assert stats(lake.paths).freshness == "stale"
    report = lake.rebuild()
    assert (report.mode, report.why) == ("full", "the log is another one than the tables were made from")
    assert [row["session_id"] for row in lake.rows()["runs"]] == ["b"]
    assert [story.session for story in pinned.stories()] == ["a"]
    assert stats(lake.paths).freshness == "fresh"
