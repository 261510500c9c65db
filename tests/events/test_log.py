"""RawEventLanceStore on a local disk: appends, pinned reads, damage."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from chronicle.errors import (
    CommitStateUnknown,
    IntegrityError,
    NotFoundError,
    PublicationChanged,
    StaleFence,
    StorageError,
)
from chronicle.events import log as log_module
from chronicle.events import manifest as transitions
from chronicle.events.log import EventWriterFence, RawEventLanceStore
from chronicle.events.row import COLUMNS, SCHEMA, EventColumns, record_of, row_of, rows_of
from chronicle.layout import segment_path
from chronicle.storage import files, lanceio, objects
from tests.events.helpers import START_MS, event, events, log_at, seqs


def batch_of(records):
    columns = EventColumns()
    for record in records:
        columns.add_row(row_of(record))
    return columns.batch()


@pytest.fixture
def store(tmp_path):
    return log_at(tmp_path / "a" / "b")


@pytest.fixture
def filled(store):
    """Rows 0..59 in three segments of 20, spread over sessions s0, s1, s2."""
    for first in (0, 20, 40):
        store.append(events(20, first))
    return store


def segment_dirs(store):
    return files.list_dir(f"{store.events}/segments")


def test_no_log(store):
    assert not store.exists()
    for read in (store.manifest, store.snapshot, store.stats, store.replay):
        with pytest.raises(NotFoundError) as caught:
            read()
        assert caught.value.exit_code == 66


def test_a_writer_that_writes_nothing_changes_nothing(store, tmp_path):
    report = store.append([])
    assert (report.rows, report.fact_version, report.segment) == (0, 0, None)
    with store.writer() as writer:
        writer.write(batch_of([]))
        assert writer.publish() is None
        assert writer.fence is None
    assert os.listdir(tmp_path) == []


def test_append_and_replay(store):
    records = events(7)
    report = store.append(records)
    assert (report.rows, report.fact_version, report.segment.sealed) == (7, 1, True)
    assert list(store.replay()) == list(enumerate(records))
    assert store.append(records).fact_version == 2, "duplicates are legal facts"
    assert seqs(store) == [*range(7), *range(7)]
    assert [s.id[:3] for s in store.manifest().segments] == ["e1-", "e2-"]


def test_records_without_an_instant_get_one(store):
    store.append([event(1, timestamp_unix_ms=None, timestamp="2026-01-02T03:04:05.678Z"), event(2, timestamp_unix_ms=None)])
    stamps = [record.timestamp_unix_ms for _, record in store.replay()]
    assert stamps[0] == START_MS
    assert stamps[1] > START_MS


def test_one_writer_publishes_many_micro_batches_under_one_fence(store):
    with store.writer(writer_id="me") as writer:
        for first in (0, 10, 20):
            writer.write(batch_of(events(5, first)))
            writer.write(batch_of(events(5, first + 5)))
            assert writer.publish().rows == 10
            assert writer.publish() is None
        assert writer.fence == EventWriterFence(1, "me")
        assert writer.fact_version == 3
    manifest = store.manifest()
    assert (manifest.revision, manifest.fact_rows, len(manifest.segments)) == (4, 30, 3)
    assert seqs(store) == list(range(30))


def test_close_removes_what_was_not_published(store):
    store.append(events(3))
    with store.writer() as writer:
        writer.write(batch_of(events(5, 3)))
        writer._finish()
        assert len(segment_dirs(store)) == 2
    assert len(segment_dirs(store)) == 1
    with pytest.raises(ZeroDivisionError):
        write_and_fail(store)
    assert len(segment_dirs(store)) == 1
    assert seqs(store) == [0, 1, 2]


def write_and_fail(store):
    with store.writer() as writer:
        writer.write(batch_of(events(5, 3)))
        raise ZeroDivisionError


def test_segments_have_the_peers_schema_and_dense_payloads(filled):
    for segment in filled.manifest().segments:
        dataset = lanceio.open_version(segment_path(filled.events, segment.id), segment.version)
        assert dataset.schema.equals(SCHEMA, check_metadata=True)
        assert dataset.data_storage_version == "2.2"


def test_a_snapshot_is_pinned(filled):
    before = filled.snapshot()
    filled.append(events(5, 60))
    assert (before.fact_rows, before.fact_version, before.revision) == (60, 3, 6)
    assert sum(batch.num_rows for _, batch in before.scan(["seq"])) == 60
    assert filled.snapshot().fact_rows == 65


def test_versions_that_no_manifest_pins_are_invisible(filled):
    segment = filled.manifest().segments[-1]
    lanceio.append(segment_path(filled.events, segment.id), segment.version, SCHEMA, [batch_of(events(9, 900))])
    assert seqs(filled) == list(range(60))


@pytest.mark.parametrize(("start", "stop"), [(0, None), (5, 45), (20, 40), (19, 21), (59, 99), (60, None), (30, 30), (40, 20)])
def test_scan_gives_exactly_the_range(filled, start, stop):
    found = []
    for first, batch in filled.snapshot().scan(["seq", "payload_json"], start, stop):
        assert batch.schema.names == ["seq", "payload_json"]
        assert batch["seq"].to_pylist() == list(range(first, first + batch.num_rows))
        found += batch["seq"].to_pylist()
    assert found == list(range(60))[start:stop]


def test_long_values_make_small_batches(store):
    store.append([event(n, payload={"text": os.urandom(100_000).hex()}) for n in range(120)])
    sizes = [batch.num_rows for _, batch in store.snapshot().scan(["payload_json"])]
    assert sum(sizes) == 120
    assert max(sizes) < 60


def test_lookup_names_physical_rows(filled):
    snapshot = filled.snapshot()
    found = [
        (number, seq)
        for numbers, batch in snapshot.lookup("session_id", ["s1", "none", "it's"], ["seq"])
        for number, seq in zip(numbers.to_pylist(), batch["seq"].to_pylist(), strict=True)
    ]
    assert found == [(n, n) for n in range(60) if n % 3 == 1]
    assert list(snapshot.lookup("session_id", [], ["seq"])) == []


def test_lookup_of_more_values_than_one_filter_takes(filled, monkeypatch):
    monkeypatch.setattr("chronicle.events.snapshot.VALUES_A_FILTER", 7)
    wanted = [f"e{n}" for n in range(0, 60, 2)]
    numbers = [n for found, _ in filled.snapshot().lookup("event_id", wanted, ["kind"]) for n in found.to_pylist()]
    assert sorted(numbers) == list(range(0, 60, 2))


def test_values_are_data_not_sql(store):
    odd = "s' OR '1'='1"
    store.append([event(0, odd), event(1, "s1")])
    assert seqs(store, session_id=odd) == [0]
    assert [n.to_pylist() for n, _ in store.snapshot().lookup("session_id", [odd], ["seq"])] == [[0]]


def test_take_keeps_the_order_given(filled):
    snapshot = filled.snapshot()
    assert snapshot.take([59, 0, 25, 25, 20], ["seq", "kind"]).to_pydict()["seq"] == [59, 0, 25, 25, 20]
    assert snapshot.take([1, 21, 41], ["seq"])["seq"].to_pylist() == [1, 21, 41]
    assert snapshot.take([], ["seq"]).num_rows == 0
    for bad in ([60], [-1]):
        with pytest.raises(IndexError):
            snapshot.take(bad, ["seq"])
    with pytest.raises(ValueError, match="no column"):
        snapshot.take([0], ["secret"])


def test_replay_by_session_and_range(filled):
    assert seqs(filled, session_id="s1", start=3, limit=4) == [4, 7, 10, 13]
    assert seqs(filled, start=18, limit=4) == [18, 19, 20, 21]
    assert seqs(filled, session_id="none") == []
    assert seqs(filled, limit=0) == []
    assert seqs(filled, start=99) == []


def test_replay_overrides_with_the_physical_columns(store):
    routed = row_of(event(1, "claimed"))._replace(session_id="routed", agent_id="other")
    columns = EventColumns()
    columns.add_row(routed)
    with store.writer() as writer:
        writer.write(columns.batch())
        writer.publish()
    (_, record), *_ = store.replay("routed")
    assert (record.session_id, record.agent_id, record.envelope.session_id) == ("routed", "other", "claimed")


def test_a_row_that_contradicts_itself_stops_the_replay(store):
    columns = EventColumns()
    columns.add_row(row_of(event(1))._replace(kind="note"))
    with store.writer() as writer:
        writer.write(columns.batch())
        writer.publish()
    with pytest.raises(IntegrityError, match="kind"):
        list(store.replay())


def test_stats(filled):
    filled.append([event(60, None, kind="note")])
    stats = filled.stats()
    assert (stats.rows, stats.segments, stats.sessions) == (61, 4, 3)
    assert stats.kinds == {"llm.request": 60, "note": 1}
    assert (stats.first_unix_ms, stats.last_unix_ms) == (START_MS, START_MS + 60)
    assert stats.bytes == files.tree_bytes(f"{filled.events}/segments")


def test_stats_of_an_activated_empty_log(store):
    store.change(lambda manifest: transitions.activate(manifest, "w"))
    stats = store.stats()
    assert (stats.rows, stats.kinds, stats.first_unix_ms) == (0, {}, None)
    assert list(store.snapshot().scan(["seq"])) == []


def test_append_reads_no_earlier_row(filled):
    """Earlier segments may be unreadable, even gone: an append does not look."""
    kept = filled.manifest().segments
    for path in Path(filled.events, "segments").rglob("*"):
        if path.is_file():
            path.write_bytes(b"\0")
            path.chmod(0)
    filled.append(events(5, 60))
    files.remove_tree(segment_path(filled.events, kept[0].id))
    filled.append(events(5, 65))
    assert filled.manifest().segments[:3] == kept
    new = [seq for _, batch in filled.snapshot().scan(["seq"], 60) for seq in batch["seq"].to_pylist()]
    assert new == list(range(60, 70))
    with pytest.raises(IntegrityError):
        seqs(filled)


def damage_missing_segment(store, segment):
    files.remove_tree(segment_path(store.events, segment.id))


def damage_missing_data(store, segment):
    files.remove_tree(segment_path(store.events, segment.id) + "/data")


def damage_truncated_data(store, segment):
    for path in Path(segment_path(store.events, segment.id), "data").iterdir():
        os.truncate(path, 100)


def damage_random_data(store, segment):
    for path in Path(segment_path(store.events, segment.id), "data").iterdir():
        path.write_bytes(os.urandom(path.stat().st_size))


def damage_row_count(store, segment):
    path = Path(store.events, "_manifest.json")
    manifest = json.loads(path.read_text())
    for entry in manifest["segments"]:
        entry["rows"] += 1 if entry["id"] == segment.id else 0
    manifest["fact_rows"] += 1
    path.write_text(json.dumps(manifest))


def damage_foreign_columns(store, segment):
    path = segment_path(store.events, segment.id)
    files.remove_tree(path)
    schema = pa.schema([pa.field("seq", pa.int64())])
    lanceio.create(path, schema, [pa.record_batch([pa.array(range(20), pa.int64())], schema=schema)])


@pytest.mark.parametrize(
    "damage",
    [
        damage_missing_segment,
        damage_missing_data,
        damage_truncated_data,
        damage_random_data,
        damage_row_count,
        damage_foreign_columns,
    ],
)
def test_damage_is_an_integrity_error_that_names_the_place(filled, damage):
    segment = filled.manifest().segments[1]
    damage(filled, segment)
    with pytest.raises(IntegrityError) as caught:
        seqs(filled)
    assert segment.id in str(caught.value)
    assert caught.value.exit_code == 78
    with pytest.raises(IntegrityError):
        filled.snapshot().take([25], ["payload_json"])


def test_a_manifest_that_names_a_way_out_is_refused_before_any_join(filled):
    path = Path(filled.events, "_manifest.json")
    path.write_text(path.read_text().replace(filled.manifest().segments[0].id, "../../../etc"))
    for act in (filled.snapshot, lambda: filled.append(events(1, 60))):
        with pytest.raises(IntegrityError, match="not a safe path segment"):
            act()


def test_row_numbers_hold_where_rows_were_deleted(filled):
    """The peer takes segments with deletion vectors; a row's number is its place among those that are left."""
    segment = filled.manifest().segments[1]
    dataset = lanceio.open_version(segment_path(filled.events, segment.id), segment.version)
    dataset.delete("seq IN (20, 21, 30)")
    path = Path(filled.events, "_manifest.json")
    manifest = json.loads(path.read_text())
    manifest["segments"][1].update(version=2, rows=17)
    manifest["fact_rows"] = 57
    path.write_text(json.dumps(manifest))
    snapshot = filled.snapshot()
    scanned = {n: s for first, b in snapshot.scan(["seq"]) for n, s in enumerate(b["seq"].to_pylist(), first)}
    assert len(scanned) == 57
    found = {
        number: seq
        for numbers, batch in snapshot.lookup("session_id", ["s0"], ["seq"])
        for number, seq in zip(numbers.to_pylist(), batch["seq"].to_pylist(), strict=True)
    }
    assert found == {number: seq for number, seq in scanned.items() if seq % 3 == 0}
    assert snapshot.take([20, 28], ["seq"])["seq"].to_pylist() == [scanned[20], scanned[28]]


def test_lookup_uses_an_index_that_was_published(filled):
    segment = filled.manifest().segments[0]
    dataset = lanceio.open_version(segment_path(filled.events, segment.id), segment.version)
    dataset.create_scalar_index("session_id", "BTREE")
    indexed = transitions.Segment(segment.id, dataset.version, segment.rows, segment.level, segment.sealed)

    def publish(manifest):
        return transitions.publish(manifest, transitions.fence_of(manifest), indexed)

    assert filled.change(publish).fact_version == 3
    assert seqs(filled, session_id="s2") == [n for n in range(60) if n % 3 == 2]


# Fences


def test_another_writer_in_between_costs_an_epoch_and_no_row(store):
    with store.writer(writer_id="slow") as slow:
        slow.write(batch_of(events(5, 5)))
        store.append(events(5), writer_id="quick")
        segment = slow.publish()
        assert slow.fence == EventWriterFence(3, "slow")
    assert segment.id.startswith("e1-")
    assert seqs(store) == [*range(5), *range(5, 10)]
    assert len(segment_dirs(store)) == 2


def test_activation_seals_what_was_left_open(filled):
    path = Path(filled.events, "_manifest.json")
    path.write_text(path.read_text().replace('"sealed": true', '"sealed": false'))
    filled.append(events(1, 60))
    assert all(segment.sealed for segment in filled.manifest().segments)


def test_a_producers_fence_is_used_as_it_is(store):
    lease = EventWriterFence(7, "lease")
    store.append(events(2), fence=lease)
    store.append(events(2, 2), fence=lease)
    assert transitions.fence_of(store.manifest()) == lease
    with store.writer(lease) as writer:
        writer.write(batch_of(events(2, 4)))
        store.append(events(1, 9))
        with pytest.raises(StaleFence):
            writer.publish()
    assert seqs(store) == [0, 1, 2, 3, 9]
    assert len(segment_dirs(store)) == 3, "the fenced-out writer takes its garbage away"
    with pytest.raises(StaleFence):
        store.append(events(1), fence=EventWriterFence(6, "old"))


class Rival:
    """The manifest beside somebody who takes the fence whenever it is read."""

    def __init__(self, store):
        self.real = store._object
        self.takes = 0
        self._store = RawEventLanceStore(store.events)

    def read(self):
        found = self.real.read()
        self._store.change(lambda manifest: transitions.activate(manifest, "rival"))
        self.takes += 1
        return found

    def swap(self, data, token):
        return self.real.swap(data, token)


def test_an_endless_rival_wins_after_so_many_swaps(store):
    with store.writer(writer_id="mine") as writer:
        writer.write(batch_of(events(2)))
        store._object = rival = Rival(store)
        with pytest.raises(PublicationChanged) as caught:
            writer.publish()
        assert caught.value.exit_code == 73
        assert rival.takes <= 2 * objects.ATTEMPTS
        store._object = rival.real
        assert store.manifest().segments == ()
        assert writer.publish().rows == 2, "the same segment again, once the rival rests"
        assert writer.fence == transitions.fence_of(store.manifest())
    assert seqs(store) == [0, 1]


class Unsure:
    """The manifest behind a link that loses answers: the n-th swap lands or not, and nobody is told."""

    def __init__(self, real, fates):
        self.real = real
        self.fates = fates

    def read(self):
        return self.real.read()

    def swap(self, data, token):
        fate = self.fates.pop(0) if self.fates else "answered"
        if fate == "lost before":
            raise CommitStateUnknown("no answer")
        done = self.real.swap(data, token)
        if fate == "lost after":
            raise CommitStateUnknown("no answer")
        return done


@pytest.mark.parametrize("activation", ["answered", "lost before", "lost after"])
@pytest.mark.parametrize("publication", ["lost before", "lost after"])
def test_a_lost_answer_is_read_back(store, activation, publication):
    store._object = Unsure(store._object, [activation, publication])
    store.append(events(3))
    store._object = store._object.real
    assert seqs(store) == [0, 1, 2]
    assert len(store.manifest().segments) == 1
    assert store.manifest().fact_version == 1


def test_an_answer_that_never_comes_is_neither_conflict_nor_clean_up(store):
    store._object = Unsure(store._object, ["answered"] + ["lost before"] * log_module.PUBLISH_ATTEMPTS)
    with store.writer() as writer:
        writer.write(batch_of(events(3)))
        with pytest.raises(CommitStateUnknown) as caught:
            writer.publish()
        assert caught.value.exit_code == 75
    assert len(segment_dirs(store)) == 1, "it may be visible: nobody deletes it"


def test_after_a_lost_answer_another_writer_changes_nothing(store):
    with store.writer() as writer:
        writer.write(batch_of(events(3)))
        real = store._object

        class LandsThenRival(Unsure):
            def swap(self, data, token):
                real.swap(data, token)
                store._object = real
                log_at(Path(store.events).parent).append(events(2, 3))
                raise CommitStateUnknown("no answer")

        store._object = LandsThenRival(real, [])
        # The loop inside the writer holds the object it began with; the retry reads through it again.
        segment = writer.publish()
    assert seqs(store) == [0, 1, 2, 3, 4]
    assert store.manifest().segments[0] == segment


def test_a_merge_over_an_unknown_outcome_is_told_to_the_caller(store):
    store.append(events(2))
    with store.writer() as writer:
        writer.write(batch_of(events(3, 2)))
        real = store._object

        class LandsAndIsMerged(Unsure):
            def swap(self, data, token):
                real.swap(data, token)
                store._object = real
                before = store.manifest()
                merged = transitions.Segment("compact-1", 1, before.fact_rows, 1, True)
                fence = transitions.fence_of(before)
                store.change(lambda manifest: transitions.replace_group(manifest, fence, before.segments, merged))
                raise CommitStateUnknown("no answer")

        store._object = LandsAndIsMerged(real, [])
        with pytest.raises(CommitStateUnknown, match="may be visible"):
            writer.publish()
    assert len(store.manifest().segments) == 1


def test_too_many_lost_swaps(store, monkeypatch):
    class Hopeless(Unsure):
        def swap(self, data, token):
            return False

    with store.writer() as writer:
        writer.write(batch_of(events(3)))
        store._object = Hopeless(store._object, [])
        monkeypatch.setattr(objects, "LONGEST_PAUSE", 0)
        with pytest.raises(PublicationChanged):
            writer.publish()
    assert segment_dirs(store) == []


def test_a_failed_sync_shows_nothing(store, monkeypatch):
    store.append(events(1))

    def broken(path):
        raise StorageError(f"{path}: Input/output error")

    with store.writer() as writer:
        writer.write(batch_of(events(3, 1)))
        monkeypatch.setattr(files, "sync_tree", broken)
        with pytest.raises(StorageError):
            writer.publish()
    assert seqs(store) == [0]
    assert len(segment_dirs(store)) == 1


def test_rows_come_back_as_they_went_in(store):
    rows = [row_of(record) for record in events(30)]
    store.append(record_of(each) for each in rows)
    assert [each for _, batch in store.snapshot().scan(COLUMNS) for each in rows_of(batch)] == rows
