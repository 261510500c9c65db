"""Maintenance of a log: what it merges, what it never changes, what vacuum spares."""

import os
import threading
import time

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.errors import IntegrityError, NotFoundError, StaleFence
from chronicle.events import log as log_module
from chronicle.events import maintenance
from chronicle.events.log import Ambient, RawEventLanceStore
from chronicle.events.maintenance import INDEXED, LogMaintenance, index_name, level_of, next_group, plan
from chronicle.events.manifest import Segment
from chronicle.events.row import SCHEMA
from chronicle.layout import going_path, segment_path
from chronicle.reports import MaintainReport
from chronicle.retired import Retired
from chronicle.rowdigest import RowDigest
from chronicle.storage import lanceio
from tests.events.helpers import event, events, log_at, seqs
from tests.peer import PEER, query

WEEK = 7 * 86400


def segment(number, level=0, rows=1, sealed=True):
    return Segment(f"s{number}", 1, rows, level, sealed)


def texts(store):
    return [record.text for _, record in store.replay()]


def append_all(store, batches):
    """One segment for each count of records."""
    first = 0
    for count in batches:
        store.append(events(count, first))
        first += count


def tend(store, *, group=2, index_rows=1, full=False, index=True, **options):
    """Compaction and indices with small sizes."""
    work = LogMaintenance(store, Retired(retired_of(store)), MaintainReport(**options), group, index_rows)
    work.tend(compact=True, index=index, full=full)
    return work.report


def retired_of(store):
    return f"{os.path.dirname(store.events)}/retired"


def age(store, seconds):
    """Let all records have been written so long ago."""
    for name in os.listdir(retired_of(store)):
        path = f"{retired_of(store)}/{name}"
        moment = os.stat(path).st_mtime - seconds
        os.utime(path, (moment, moment))


def lying(store):
    """Ids of the segments on the disk."""
    return {name.removesuffix(".lance") for name in os.listdir(f"{store.events}/segments") if name.endswith(".lance")}


def visible(store):
    return {segment.id for segment in store.manifest().segments}


# planning


def test_groups_are_neighbours_of_one_level_lowest_first():
    levels = [1, 1, 0, 0, 0, 1, 0]
    segments = [segment(at, level) for at, level in enumerate(levels)]
    assert [s.id for s in next_group(segments, 2)] == ["s2", "s3"]
    assert [s.id for s in next_group(segments, 2, {"s2", "s3"})] == ["s0", "s1"]
    assert next_group(segments, 4) == ()
    assert next_group([segment(0), segment(1, sealed=False), segment(2)], 2) == ()


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(2, 8))
def test_a_plan_keeps_rows_and_order_and_leaves_no_group(levels, size):
    segments = [segment(at, level, rows=at) for at, level in enumerate(levels)]
    groups, after = plan(segments, size, full=False)
    assert next_group(after, size) == ()
    assert sum(each.rows for each in after) == sum(each.rows for each in segments)
    made = {f"merge-{number}": group for number, group in enumerate(groups, 1)}

    def leaves(found):
        return [leaf for each in found for leaf in (leaves(made[each.id]) if each.id in made else [each.id])]

    assert leaves(after) == [each.id for each in segments]
    assert all(len(group) == size and len({each.level for each in group}) == 1 for group in groups)


def test_levels_of_merges():
    assert level_of([segment(at) for at in range(8)], 8) == 1
    assert level_of([segment(0, 2), *(segment(at) for at in range(1, 7))], 8) == 2
    assert level_of([segment(0, 255), segment(1, 255)], 2) == 255


# compaction and indices


def test_eight_small_segments_become_one_and_sixty_four_one_of_the_next_level(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1] * 73)
    before, texts_before = store.manifest(), texts(store)
    report = store.maintain()
    after = store.manifest()
    assert [s.level for s in after.segments] == [2, 1, 0]
    assert [s.rows for s in after.segments] == [64, 8, 1]
    assert (after.fact_version, after.fact_rows) == (before.fact_version, before.fact_rows)
    assert texts(store) == texts_before
    assert len(report.merged) == 10
    assert lying(store) >= {s.id for s in before.segments}, "nothing leaves within the retention"
    again = store.maintain()
    assert (again.merged, again.indexed, again.removed, again.skipped) == ([], [], [], [])
    assert store.manifest() == after, "nothing to do writes nothing"


ODD = st.sampled_from([None, "", "x", "é" * 40, "y" * 3000])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(st.one_of(st.lists(ODD, min_size=1, max_size=4), st.sampled_from(["tend", "full", "vacuum"])), max_size=14),
    group=st.integers(2, 3),
)
def test_no_history_of_maintenance_changes_a_byte(tmp_path_factory, history, group):
    store = log_at(tmp_path_factory.mktemp("log"))
    expected, number = [], 0
    for act in [["first"], *history, "tend"]:
        if isinstance(act, list):
            records = [event(number + at, parent_call_id=odd, trace_id=odd) for at, odd in enumerate(act)]
            number += len(records)
            expected += [record.text for record in records]
            version = store.append(records).fact_version
        elif act == "vacuum":
            store.maintain(compact=False, index=False, retention_seconds=0)
            assert lying(store) == visible(store)
        else:
            tend(store, group=group, full=act == "full")
        assert texts(store) == expected
        assert store.manifest().fact_version == version
    assert next_group(store.manifest().segments, group) == ()
    for session in ("s0", "nobody"):
        assert [r.text for _, r in store.replay(session)] == [t for t in expected if session == "s0"]


def test_row_digest_tells_values_nulls_and_borders_apart_but_not_batches():
    def digest(*batches):
        found = RowDigest(SCHEMA)
        for batch in batches:
            found.add(batch)
        return found.hexdigest()

    def rows(**columns):
        count = len(columns["event_id"])
        filled = {
            field.name: [None] * count if field.nullable else [0 if field.name in ("seq", "timestamp") else "k"] * count
            for field in SCHEMA
        }
        return pa.RecordBatch.from_pydict({**filled, **columns}, schema=SCHEMA)

    whole = rows(event_id=["ab", None, "c"], seq=[1, 2, 3])
    assert digest(whole) == digest(whole.slice(0, 1), whole.slice(1)) == digest(*(whole.slice(at, 1) for at in range(3)))
    others = [
        rows(event_id=["a", None, "bc"], seq=[1, 2, 3]),
        rows(event_id=["ab", "", "c"], seq=[1, 2, 3]),
        rows(event_id=["ab", None, "c"], seq=[1, 3, 2]),
        whole.slice(0, 2),
    ]
    assert len({digest(whole), *map(digest, others)}) == 5


def test_rows_that_come_out_wrong_replace_nothing(tmp_path, monkeypatch):
    store = log_at(tmp_path)
    append_all(store, [2, 2])
    before, create = store.manifest(), lanceio.create

    def wrong(path, schema, batches, encode):
        turned = (pa.RecordBatch.from_arrays([b.columns[0].take([1, 0]), *b.columns[1:]], schema=b.schema) for b in batches)
        return create(path, schema, turned, encode)

    monkeypatch.setattr(maintenance.lanceio, "create", wrong)
    with pytest.raises(IntegrityError, match="nothing was replaced"):
        tend(store)
    assert store.manifest() == before
    assert lying(store) == visible(store)


def test_a_group_that_changed_meanwhile_is_skipped(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1] * 4)
    other = log_at(tmp_path, seed=2)
    ids = iter(range(10**6))

    def new_id():
        if next(ids) == 0:
            other.maintain(full=True, vacuum=False)
        return f"00000000-0000-0000-0000-{next(ids):012}"

    racing = RawEventLanceStore(store.events, Ambient(new_id=new_id, sleep=lambda seconds: None))
    report = tend(racing, index=False)
    assert any("changed meanwhile" in each for each in report.skipped)
    assert len(store.manifest().segments) == 1
    assert seqs(store) == [0, 1, 2, 3]


def test_full_leaves_one_segment_and_seals_what_was_open(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [3, 1, 2])
    expected = texts(store)
    manifest = store.manifest()
    opened = [*manifest.segments[:-1], Segment(manifest.segments[-1].id, 1, 2, 0, False)]
    store.change(lambda m: type(m)(m.revision + 1, m.fact_version, m.fact_rows, m.active_writer, tuple(opened)))
    report = store.maintain(full=True)
    (only,) = store.manifest().segments
    assert only.sealed
    assert texts(store) == expected
    assert store.maintain(full=True).merged == []
    assert len(report.merged) == 1


def test_large_segments_get_indices_that_readers_of_the_manifest_use(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [40, 3])
    pinned = store.snapshot()
    report = tend(store, group=8, index_rows=10)
    large, small = store.manifest().segments
    assert (large.version, small.version) == (3, 1)
    assert report.indexed == [f"segment {large.id}"]
    dataset = store.snapshot().dataset(0)
    assert {index.name for index in dataset.describe_indices()} == set(map(index_name, INDEXED))
    assert "ScalarIndexQuery" in dataset.scanner(filter="session_id IN ('s1')").explain_plan()
    assert seqs(store, session_id="s1") == [seq for seq in range(43) if seq % 3 == 1]
    assert [r.seq for _, r in pinned.replay()] == list(range(43)), "the version before still reads"
    assert tend(store, group=8, index_rows=10).indexed == []


def test_an_index_that_a_killed_maintenance_built_is_shown_by_the_next(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [20])
    (only,) = store.manifest().segments
    path = segment_path(store.events, only.id)
    lanceio.open_version(path, 1).create_scalar_index("session_id", "BTREE", name=index_name("session_id"))
    tend(store)
    assert store.manifest().segments[0].version == 3
    assert seqs(store) == list(range(20))


def stray(store, at=0):
    """What a writer that was fenced out puts above a pinned version."""
    pinned = store.manifest().segments[at]
    path = segment_path(store.events, pinned.id)
    rows = lanceio.open_version(path, pinned.version).to_table().to_batches()
    return lanceio.append(path, pinned.version, SCHEMA, rows, ())


def test_a_fenced_out_writers_version_hides_no_pinned_row(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [20])
    stray(store)
    report = tend(store)
    assert "somebody wrote version 2" in report.skipped[0]
    store.maintain(compact=False, index=False, retention_seconds=0)
    assert seqs(store) == list(range(20))
    store.append(events(1, 20))
    tend(store, full=True)
    store.maintain(retention_seconds=0)
    assert seqs(store) == list(range(21))
    assert lying(store) == visible(store)


# vacuum


def test_what_is_unreachable_stays_for_the_retention_by_the_age_of_its_record(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1] * 8)
    month_ago = time.time() - 30 * 86400
    for folder, _, names in os.walk(store.events):
        for name in names:
            os.utime(f"{folder}/{name}", (month_ago, month_ago))
    pinned = store.snapshot()
    report = store.maintain()
    assert (report.removed, report.waiting) == ([], 8)
    age(store, WEEK - 60)
    assert store.maintain().removed == []
    assert [r.seq for _, r in pinned.replay()] == list(range(8)), "inside the retention a reader does not break"
    age(store, 120)
    report = store.maintain()
    assert sorted(each.name for each in report.removed) == sorted(s.id for s in pinned.segments)
    assert report.removed_bytes == sum(each.bytes for each in report.removed) > 0
    assert lying(store) == visible(store)
    assert [name for name in os.listdir(retired_of(store)) if name.endswith(".json")] == []
    with pytest.raises(NotFoundError, match="not kept any more"):
        list(log_snapshot(store, pinned).replay())


def test_records_from_the_future_begin_anew(tmp_path):
    """The clock of the store was wrong when they were written."""
    store = log_at(tmp_path)
    append_all(store, [1] * 8)
    store.maintain()
    age(store, -20 * 365 * 86400)
    assert store.maintain().waiting == 8
    age(store, WEEK + 60)
    assert len(store.maintain().removed) == 8


def log_snapshot(store, pinned):
    """The same snapshot as another process would open it now."""
    return type(pinned)(store.events, pinned.manifest)


def test_damage_is_no_vacuum(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [2])
    snapshot = store.snapshot()
    for name in os.listdir(f"{segment_path(store.events, snapshot.segments[0].id)}/data"):
        os.unlink(f"{segment_path(store.events, snapshot.segments[0].id)}/data/{name}")
    with pytest.raises(IntegrityError):
        list(snapshot.replay())


def test_leftovers_wait_from_first_sight_and_strangers_are_let_alone(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1])
    segments = f"{store.events}/segments"
    left = "e7-11111111-2222-3333-4444-555555555555"
    for name in (left, "mine", "compact-me"):
        os.makedirs(f"{segments}/{name}.lance/data")
        os.utime(f"{segments}/{name}.lance", (1, 1))
    with open(f"{segments}/notes.txt", "w") as file:
        file.write("keep")
    assert store.maintain().waiting == 1
    assert left in lying(store)
    age(store, 2 * WEEK)
    assert [each.name for each in store.maintain().removed] == [left]
    assert lying(store) == visible(store) | {"mine", "compact-me"}
    assert os.path.exists(f"{segments}/notes.txt")


def test_records_of_what_can_be_reached_again_are_dropped(tmp_path):
    store = log_at(tmp_path)
    with store.writer() as writer:
        writer.write(batch_of(3))
        writer._finish()
        assert store.change(lambda m: m).segments == ()
        store.maintain()
        age(store, 2 * WEEK)
        writer.publish()
    assert store.maintain().removed == []
    assert os.listdir(retired_of(store)) == [".clock"]
    assert seqs(store) == [0, 1, 2]


def batch_of(count):
    from chronicle.events.row import EventColumns, row_of

    columns = EventColumns()
    for record in events(count):
        columns.add_row(row_of(record))
    return columns.batch()


def test_a_live_writer_loses_its_segment_to_zero_retention_only_and_then_shows_nothing(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [2])
    with store.writer() as writer:
        writer.write(batch_of(3))
        writer._finish()
        store.maintain()
        store.maintain(compact=False, index=False, retention_seconds=0)
        assert lying(store) == visible(store)
        with pytest.raises(StaleFence, match="removed by `maintain`"):
            writer.publish()
    assert seqs(store) == [0, 1]
    store.append(events(1, 2))
    assert seqs(store) == [0, 1, 2]


def test_a_writer_whose_files_are_removed_while_it_writes_is_told_why(tmp_path, monkeypatch):
    store = log_at(tmp_path)
    append_all(store, [1])
    write, sync = lanceio._write, log_module.files.sync_tree

    def vacuum():
        store.maintain(compact=False, index=False, retention_seconds=0)

    def while_writing(*given, **named):
        write(*given, **named)
        vacuum()
        raise NotFoundError("what Lance says of a file that it cannot rename into a directory that is gone")

    def while_syncing(path):
        vacuum()
        sync(path)

    for place, name, made in ((lanceio, "_write", while_writing), (log_module.files, "sync_tree", while_syncing)):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, made)
            with pytest.raises(StaleFence, match="removed by `maintain`"):
                store.append(events(2, 5))
    assert seqs(store) == [0]
    assert lying(store) == visible(store)


def test_a_writer_that_finds_the_mark_shows_nothing(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1])
    with store.writer() as writer:
        writer.write(batch_of(1))
        writer._finish()
        open(going_path(store.events, writer._id), "w").close()  # what vacuum does first
        store.append(events(1, 1))  # and somebody takes the fence
        with pytest.raises(StaleFence):
            writer.publish()
        assert lying(store) > visible(store)
    store.maintain(retention_seconds=0)
    assert lying(store) == visible(store)
    assert not any(name.endswith(".going") for name in os.listdir(f"{store.events}/segments"))


def test_a_writer_that_wrote_on_after_its_files_were_removed_shows_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(lanceio, "MAX_ROWS_PER_FILE", 1)
    store = log_at(tmp_path)
    append_all(store, [1])
    before = lying(store)
    with store.writer() as writer:
        writer.write(batch_of(3))
        deadline = time.monotonic() + 30
        while not (data := list(tmp_path.glob(f"**/{writer._id}.lance/data/*.lance"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert data, "it has a whole file already"
        store.maintain(compact=False, index=False, retention_seconds=0)
        assert (lying(store), os.path.exists(going_path(store.events, writer._id))) == (before, False)
        writer.write(batch_of(3))
        with pytest.raises(StaleFence, match="removed by `maintain`"):
            writer.publish()
    assert seqs(store) == [0]


def test_a_writer_at_work_takes_the_fence_back_after_a_merge(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1] * 4)
    with store.writer() as writer:
        writer.write(batch_of(2))
        tend(store)
        writer.publish()
    assert seqs(store) == [0, 1, 2, 3, 0, 1]


def test_dry_run_says_what_would_happen_and_writes_nothing(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [1] * 17)
    left = f"{store.events}/segments/e7-11111111-2222-3333-4444-555555555555.lance/data"
    os.makedirs(left)
    before = {path: os.stat(path).st_mtime_ns for path, _, _ in os.walk(tmp_path)}
    would = store.maintain(retention_seconds=0, dry_run=True)
    assert {path: os.stat(path).st_mtime_ns for path, _, _ in os.walk(tmp_path)} == before
    did = store.maintain(retention_seconds=0)
    assert [(m.segments, m.rows, m.level, m.bytes) for m in would.merged] == [
        (m.segments, m.rows, m.level, m.bytes) for m in did.merged
    ]
    assert sorted((r.name, r.bytes) for r in would.removed) == sorted((r.name, r.bytes) for r in did.removed)
    assert len(did.removed) == 17


def test_appends_and_maintenance_at_the_same_time_lose_nothing(tmp_path):
    stores = [log_at(tmp_path, seed) for seed in range(3)]
    stores[0].append(events(1, 900))
    failures = []

    def write(number):
        try:
            for at in range(12):
                stores[number].append([event(1000 * number + at)])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads):
        tend(stores[0], group=2, index_rows=4)
        stores[0].maintain(compact=False, index=False)
        rounds += 1
    for thread in threads:
        thread.join()
    assert failures == []
    assert rounds
    tend(stores[0], group=2)
    found = seqs(stores[0])
    for number in (1, 2):
        assert [seq for seq in found if seq // 1000 == number] == [1000 * number + at for at in range(12)]
    assert len(found) == 25


@pytest.mark.peer
@pytest.mark.skipif(PEER is None, reason="the pchronicle binary is not installed (pip install --no-deps persisting)")
def test_the_peer_counts_the_same_before_and_after(tmp_path):
    store = log_at(tmp_path)
    append_all(store, [3] * 9)
    asked = [
        "select kind, count(*) as n, sum(length(payload_json)) as b from dataset.events group by 1",
        "select session_id, seq from dataset.events where session_id = 's1' order by seq",
        "select count(*) as n from dataset.steps",
    ]
    before = [query(tmp_path, sql) for sql in asked]
    tend(store, group=8, index_rows=4)
    assert [query(tmp_path, sql) for sql in asked] == before
    tend(store, full=True)
    store.maintain(retention_seconds=0)
    assert [query(tmp_path, sql) for sql in asked] == before
