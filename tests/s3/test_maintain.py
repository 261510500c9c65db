"""Maintenance of a dataset in an object store."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import NotFoundError
from chronicle.events.log import RawEventLanceStore
from chronicle.events.row import SCHEMA
from chronicle.events.snapshot import LogSnapshot
from chronicle.layout import segment_path
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions, VerifyOptions
from chronicle.reports import MaintainReport
from chronicle.storage import lanceio
from chronicle.verify import verify
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.proxy import Proxy, Request
from tests.s3.server import BUCKET
from tests.s3.test_lake import RemoteLake

RETENTION = 2.0


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
    fence = lake.store.manifest().active_writer
    again = tend(lake, retention_seconds=0)
    assert (again.removed, again.waiting, again.after.segment_directories) == ([], 0, 1), "what is gone is not found again"
    assert lake.store.manifest().active_writer == fence
    with pytest.raises(NotFoundError):
        list(type(pinned)(lake.paths.events, pinned.manifest).replay())

    lake.put("new.json", atif("new", 3))
    lake.ingest()
    assert lake.rebuild().mode == "incremental"
    rows = lake.rows()
    assert lake.rebuild().mode == "fresh"
    lake.rebuild(full=True)
    assert lake.rows() == rows


def texts(lake: RemoteLake) -> list[bytes]:
    return [record.text for record in lake.records()]


def test_the_clock_of_a_reader_is_the_record_not_the_object(tmp_path: Path, place: Place) -> None:
    """Segments older than the retention that are compacted now: who pinned them before reads them to the end."""
    lake = RemoteLake(tmp_path, place)
    for number in range(4):
        lake.put(f"{number}.json", atif(f"s{number}", 2))
        lake.ingest()
    while lake.store.manifest().segments and place.client.clock(BUCKET) - newest(place) < RETENTION:
        time.sleep(0.2)
    expected, pinned = texts(lake), lake.store.snapshot()
    report = tend(lake, retention_seconds=RETENTION)
    assert (len(report.merged), report.removed, report.waiting >= 4) == (1, [], True)
    assert [record.text for _, record in pinned.replay()] == expected
    while "segment" not in {each.kind for each in tend(lake, retention_seconds=RETENTION).removed}:
        time.sleep(0.2)
    with pytest.raises(NotFoundError, match="not kept any more"):
        list(type(pinned)(lake.paths.events, pinned.manifest).replay())
    assert texts(lake) == expected


def newest(place: Place) -> float:
    return max(one.modified for one in place.client.objects(BUCKET, f"{place.prefix}/lake/events/"))


def test_a_fenced_out_writers_version_hides_no_pinned_row(tmp_path: Path, place: Place) -> None:
    lake = RemoteLake(tmp_path, place)
    lake.put("a.json", atif("a", 4))
    lake.ingest()
    expected = texts(lake)
    (pinned,) = lake.store.manifest().segments
    path = segment_path(lake.paths.events, pinned.id)
    rows = lanceio.open_version(path, pinned.version).to_table().to_batches()
    assert lanceio.append(path, pinned.version, SCHEMA, rows) == pinned.version + 1
    maintain(MaintainOptions(paths=lake.paths, compact=False, index=False, retention_seconds=0))
    assert texts(lake) == expected
    lake.put("b.json", atif("b", 2))
    lake.ingest()
    expected = texts(lake)
    tend(lake, full=True, retention_seconds=0)
    assert texts(lake) == expected


def test_an_export_beside_maintenance_is_whole_or_says_what_is_gone(tmp_path: Path, place: Place) -> None:
    lake = RemoteLake(tmp_path, place)
    for number in range(4):
        lake.put(f"{number}.json", atif(f"s{number}", 3))
        lake.ingest()
    expected = lake.exact()
    pause, done = threading.Event(), threading.Event()
    opened = LogSnapshot.dataset

    def slowly(snapshot: LogSnapshot, at: int) -> Any:
        pause.set()  # maintenance comes in between
        done.wait()
        return opened(snapshot, at)

    outcomes = set()
    for retention in (3600.0, 0.0):
        for record in lake.records()[:1] * 2:
            lake.store.append([record])  # the same fact again: legal, and invisible
        pause.clear()
        done.clear()
        with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1) as pool:
            patched.setattr(LogSnapshot, "dataset", slowly)
            reading = pool.submit(lake.exact)
            pause.wait()
            patched.undo()
            tend(lake, full=True, index=False, retention_seconds=retention)
            done.set()
            try:
                assert reading.result() == expected
                outcomes.add((retention, "whole"))
            except NotFoundError as error:
                outcomes.add((retention, error.message.partition("is ")[2].partition(":")[0]))
    assert outcomes == {(3600.0, "whole"), (0.0, "not kept any more")}
    assert lake.exact() == expected


def test_answers_that_are_lost_make_no_second_descriptor(tmp_path: Path, place: Place, between: Proxy) -> None:
    """Of the manifest and of CURRENT, under ingest, rebuild and maintain."""
    lake = RemoteLake(tmp_path, place)
    lost: set[str] = set()

    def once_a_verb(request: Request) -> bool:
        name = request.path.partition("?")[0].rpartition("/")[2]
        if request.method != "PUT" or name not in {"_manifest.json", "CURRENT"} or name in lost:
            return False
        lost.add(name)
        return True

    between.loses = once_a_verb
    for number in range(2):
        lake.put(f"{number}.json", atif(f"s{number}", 3))
        assert lake.ingest().ingested == 1
        assert lost == {"_manifest.json"}
        lost.clear()
        lake.rebuild()
        assert lost == {"CURRENT"}
        lost.clear()
    segments = lake.store.manifest().segments
    assert len({segment.id for segment in segments}) == len(segments) == 2
    rows, expected = lake.rows(), texts(lake)
    report = tend(lake, full=True)
    assert lost == {"_manifest.json", "CURRENT"}
    assert (len(report.merged), report.skipped) == (1, [])
    between.loses = lambda request: False
    assert len(lake.store.manifest().segments) == 1
    assert (lake.rows(), texts(lake)) == (rows, expected)
    assert verify(VerifyOptions(paths=lake.paths)).differences == []
