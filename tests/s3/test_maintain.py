"""Maintenance of a dataset in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import NotFoundError
from chronicle.events.log import RawEventLanceStore
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
from chronicle.reports import MaintainReport
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.test_lake import RemoteLake


def tend(lake: RemoteLake, **options: Any) -> MaintainReport:
    return maintain(MaintainOptions(paths=lake.paths, group=4, index_rows=20, **options))


def test_maintenance_changes_nothing_but_the_layout(tmp_path: Path, place: Place) -> None:
    lake = RemoteLake(tmp_path, place)
    for number in range(9):
        lake.put(f"{number}.json", atif(f"s{number}", 4))
        lake.ingest()
        lake.rebuild()
    before = lake.exact(), lake.rows(), [record.text for record in lake.records()]
    pinned = RawEventLanceStore(lake.paths.events).snapshot()
    names = place.names()
    would = tend(lake, dry_run=True)
    assert place.names() == names
    report = tend(lake)
    assert [merged.segments for merged in report.merged] == [merged.segments for merged in would.merged]
    assert report.after.segments == {"0": 1, "1": 2}
    assert (report.removed, report.skipped) == ([], [])
    assert report.indexed
    assert (lake.exact(), lake.rows(), [record.text for record in lake.records()]) == before
    assert [record.text for _, record in pinned.replay()] == before[2], "inside the retention a reader does not break"
    assert lake.rebuild().mode == "fresh"

    tend(lake, full=True, retention_seconds=0)
    assert (lake.exact(), lake.rows(), [record.text for record in lake.records()]) == before
    segments = {name.split("/")[4] for name in place.names("lake/events/d/events.lance/segments/")}
    assert len(segments) == 1
    with pytest.raises(NotFoundError):
        list(type(pinned)(lake.paths.events, pinned.manifest).replay())

    lake.put("new.json", atif("new", 3))
    lake.ingest()
    assert lake.rebuild().mode == "incremental"
    rows = lake.rows()
    assert lake.rebuild().mode == "fresh"
    lake.rebuild(full=True)
    assert lake.rows() == rows
