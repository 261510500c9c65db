"""A bucket that keeps every version of an object: what is deleted is hidden by a marker, not gone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chronicle.drain import drain
from chronicle.events.spool import EventSpool
from chronicle.intake.receipts import list_receipts
from chronicle.layout import DatasetPaths
from chronicle.maintain import maintain
from chronicle.options import DrainOptions, MaintainOptions, VerifyOptions
from chronicle.storage import files
from chronicle.storage.listing import list_sources
from chronicle.verify import verify
from tests.laws.contents import atif
from tests.process import REPOSITORY
from tests.s3.conftest import Place
from tests.s3.test_lake import RemoteLake

VERSIONED = "chronicle-versioned"


@dataclass(frozen=True)
class Versioned(Place):
    """A place in a bucket of its own."""

    @property
    def uri(self) -> str:
        return f"s3://{VERSIONED}/{self.prefix}"

    def put(self, name: str, data: bytes) -> None:
        self.client.put(VERSIONED, f"{self.prefix}/{name}", data)

    def names(self, below: str = "") -> list[str]:
        return [one.key[len(self.prefix) + 1 :] for one in self.client.objects(VERSIONED, f"{self.prefix}/{below}")]

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.client.once(lambda s3: getattr(s3, method)(Bucket=VERSIONED, **arguments))
        return found

    def history(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(versions, delete markers) of the whole place."""
        versions: list[dict[str, Any]] = []
        markers: list[dict[str, Any]] = []
        more: dict[str, Any] = {}
        while True:
            page = self.ask("list_object_versions", Prefix=self.prefix, **more)
            versions += page.get("Versions", [])
            markers += page.get("DeleteMarkers", [])
            if not page.get("IsTruncated"):
                return versions, markers
            more = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}


@pytest.fixture
def versioned(place: Place) -> Versioned:
    found = Versioned(place.client, place.prefix)
    if VERSIONED not in {one["Name"] for one in place.client.once(lambda s3: s3.list_buckets())["Buckets"]}:
        found.ask("create_bucket")
        found.ask("put_bucket_versioning", VersioningConfiguration={"Status": "Enabled"})
    return found


def test_a_lake_and_its_sources_in_a_versioned_bucket(versioned: Versioned, tmp_path: Path) -> None:
    lake = RemoteLake(tmp_path, versioned)
    contents = {f"{number}.json": atif(f"s{number}", 2) for number in range(3)}
    for name, data in contents.items():
        lake.put(name, data)
        assert lake.ingest().ingested == 1
    assert all(held.stat.version_id for held in list_receipts(lake.paths))
    lake.rebuild()
    contents["0.json"] = atif("s0", 5)
    lake.put("0.json", contents["0.json"])
    versioned.client.delete(VERSIONED, f"{versioned.prefix}/in/2.json")
    assert [file.key.rpartition("/")[2] for file in list_sources((f"{versioned.uri}/in",), "/x").files] == ["0.json", "1.json"]
    report = lake.ingest()
    assert (report.ingested, report.unchanged, report.files_opened) == (1, 1, 1)
    assert lake.ingest().files_opened == 0
    lake.rebuild()
    rows = lake.rows()
    assert maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0)).removed
    assert lake.exact() == {f"in/{name}": data for name, data in contents.items()}
    assert lake.rows() == rows
    found = verify(VerifyOptions(paths=lake.paths))
    assert (found.differences, found.sources_gone) == ([], 1)

    (segment,) = lake.store.manifest().segments
    assert {name.split("/")[5] for name in versioned.names("lake/events/d/events.lance/segments/")} == {f"{segment.id}.lance"}
    again = maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0))
    assert (again.removed, again.waiting, again.after.segment_directories) == ([], 0, 1)
    versions, markers = versioned.history()
    hidden = sum(one["Size"] for one in versions if not one["IsLatest"])
    assert hidden > 0, "what vacuum removed still takes space here: a rule for old versions has to remove it"
    assert any("/segments/" in one["Key"] for one in markers)


def test_a_spool_is_drained_into_it(versioned: Versioned, tmp_path: Path) -> None:
    paths = DatasetPaths(f"{versioned.uri}/lake", "d")
    spool = str(tmp_path / "spool")
    for number in range(3):
        with EventSpool(spool) as open_spool:
            open_spool.append({"source": "t", "kind": "note", "session_id": "s", "payload": {"n": number}})
        assert drain(DrainOptions(paths=paths, spool=spool)).records == 1
    lake = RemoteLake(tmp_path, versioned)
    assert [record.seq for record in lake.records()] == [0, 1, 2]
    maintain(MaintainOptions(paths=paths, full=True, retention_seconds=0))
    assert [record.seq for record in lake.records()] == [0, 1, 2]
    assert files.exists(f"{paths.events}/_manifest.json")


def test_the_rule_of_the_operators_page_is_one(versioned: Versioned) -> None:
    page = (REPOSITORY / "docs/operators.md").read_text()
    rule = json.loads(page.split("```json\n")[1].split("```")[0])
    versioned.ask("put_bucket_lifecycle_configuration", LifecycleConfiguration=rule)
    (kept,) = versioned.ask("get_bucket_lifecycle_configuration")["Rules"]
    assert kept["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert kept["Expiration"] == {"ExpiredObjectDeleteMarker": True}
