"""What a killed process left beside the data is removed by a vacuum; what may be a living one's, or a stranger's, is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
from chronicle.quarantine import Quarantine
from tests.lake import Lake
from tests.laws.contents import atif

HOUR = 3600.0


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.put("a.json", atif("s", 3))
    lake.put("broken.json", b"{ broken")
    lake.ingest()
    lake.rebuild()
    return lake


def leave(lake: Lake, name: str, age: float) -> Path:
    """A file of that name, last written so many seconds ago."""
    path = Path(lake.paths.lake) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"12345")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def vacuum(lake: Lake, retention: float, *, dry_run: bool = False) -> list[tuple[str, str, int]]:
    """Kind, name and bytes of the single files that went."""
    options = MaintainOptions(paths=lake.paths, compact=False, index=False, retention_seconds=retention, dry_run=dry_run)
    return [(each.kind, each.name, each.bytes) for each in maintain(options).removed if each.kind == "file"]


LEFT = (
    "events/d/events.lance/._manifest.json.00112233445566aa.tmp",
    "events/d/events.lance/segments/..e1-x.going.00112233445566aa.tmp",
    "storyline/d/.CURRENT.00112233445566aa.tmp",
    "ops/d/.projection.json.00112233445566aa.tmp",
    "ops/d/reports/.long-name.00112233445566aa.tmp",
    "ops/d/retired/.segment-x.json.00112233445566aa.tmp",
    "ops/d/quarantine/.0011223344556677.json.00112233445566aa.tmp",
    "ops/d/quarantine/0011223344556677.bin",
)


@pytest.mark.parametrize("name", LEFT)
def test_a_leftover_goes_when_it_is_old(lake: Lake, name: str) -> None:
    path = leave(lake, name, 2 * HOUR)
    assert vacuum(lake, 3 * HOUR) == []
    assert vacuum(lake, HOUR, dry_run=True) == [("file", name, 5)]
    assert path.exists()
    assert vacuum(lake, HOUR) == [("file", name, 5)]
    assert not path.exists()


def test_a_young_one_may_be_a_living_writers(lake: Lake) -> None:
    paths = [leave(lake, name, HOUR / 2) for name in LEFT]
    assert vacuum(lake, 0) == []
    assert all(path.exists() for path in paths)


def test_what_is_named_by_a_record_or_by_a_stranger_stays(lake: Lake) -> None:
    (entry,) = Quarantine(lake.paths).entries.values()
    os.utime(f"{lake.paths.quarantine}/{entry.id}.bin", (0, 0))
    names = ("ops/d/notes.tmp", "ops/d/quarantine/mine.bin", "storyline/d/.CURRENT.tmp", "events/d/events.lance/x.aa.tmp")
    strangers = [leave(lake, name, 9e6) for name in names]
    assert vacuum(lake, 0) == []
    assert all(path.exists() for path in strangers)
    assert Quarantine(lake.paths).data(entry) == b"{ broken"
