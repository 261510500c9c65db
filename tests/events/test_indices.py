"""Indices of segments: a log that was indexed is never seen without them, whatever part of maintenance runs."""

from __future__ import annotations

from pathlib import Path

from chronicle.events.log import RawEventLanceStore
from chronicle.events.maintenance import INDEXED, LogMaintenance, index_name
from chronicle.reports import MaintainReport
from chronicle.retired import Retired
from tests.events.helpers import events, log_at, seqs

GROUP, INDEX_ROWS = 4, 10


def tend(store: RawEventLanceStore, *, compact: bool = True, index: bool = True, dry_run: bool = False) -> MaintainReport:
    """Maintenance with small sizes."""
    retired = Retired(f"{Path(store.events).parent}/retired")
    work = LogMaintenance(store, retired, MaintainReport(dry_run=dry_run), GROUP, INDEX_ROWS)
    work.tend(compact=compact, index=index, full=False)
    return work.report


def append_all(store: RawEventLanceStore, counts: list[int]) -> None:
    """One segment for each count of rows."""
    for count in counts:
        store.append(events(count, store.manifest().fact_rows if store.exists() else 0))


def indexed(store: RawEventLanceStore) -> list[bool]:
    """Of each visible segment whether the version that the manifest names has all indices."""
    snapshot = store.snapshot()
    found = [{index.name for index in snapshot.dataset(at).describe_indices()} for at in range(len(snapshot.segments))]
    return [names == set(map(index_name, INDEXED)) for names in found]


def is_looked_up(store: RawEventLanceStore, at: int) -> bool:
    """Whether a question for a session reads an index of segment `at`."""
    return "ScalarIndexQuery" in store.snapshot().dataset(at).scanner(filter="session_id = 's1'").explain_plan()


def test_compaction_alone_shows_a_merge_with_its_indices(tmp_path: Path) -> None:
    store = log_at(tmp_path)
    append_all(store, [20, 20, 20])
    tend(store)
    append_all(store, [20])
    assert indexed(store) == [True, True, True, False]
    before = store.manifest()
    report = tend(store, index=False)
    after = store.manifest()
    assert after.revision == before.revision + 1, "one swap shows the merge and its indices"
    assert report.indexed == [f"segment {after.segments[0].id}"]
    assert (indexed(store), is_looked_up(store, 0)) == ([True], True)
    assert seqs(store) == list(range(80))
    assert seqs(store, session_id="s1") == [seq for seq in range(80) if seq % 3 == 1]
    again = tend(store)
    assert (again.merged, again.indexed) == ([], [])


def test_merges_of_merges_keep_them_too(tmp_path: Path) -> None:
    store = log_at(tmp_path)
    append_all(store, [20])
    tend(store)
    append_all(store, [3] * 15)
    report = tend(store, index=False)
    assert [each.level for each in report.merged] == [1, 1, 1, 1, 2]
    assert indexed(store) == [True]
    assert seqs(store) == list(range(65))


def test_a_log_without_indices_gets_none_by_compaction(tmp_path: Path) -> None:
    store = log_at(tmp_path)
    append_all(store, [20] * 4)
    assert tend(store, index=False).indexed == []
    assert indexed(store) == [False]


def test_small_merges_get_none(tmp_path: Path) -> None:
    store = log_at(tmp_path)
    append_all(store, [1] * 4)
    tend(store)
    assert indexed(store) == [False]


def test_a_dry_run_tells_which_merges_are_indexed(tmp_path: Path) -> None:
    for index in (False, True):
        store = log_at(tmp_path / str(index))
        append_all(store, [20])
        tend(store)
        append_all(store, [3] * 15 + [20, 20])
        would, did = tend(store, index=index, dry_run=True), tend(store, index=index)
        assert len(would.indexed) == len(did.indexed) == (4 if index else 2)
        assert [each.level for each in would.merged] == [each.level for each in did.merged]
