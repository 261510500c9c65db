"""One log, two tools: the real `pchronicle` reads and appends to ours, we read and append to its."""

import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from chronicle.drain import drain
from chronicle.errors import EpochAlreadyOwned, StaleFence
from chronicle.events.log import EventWriterFence
from chronicle.events.row import EventColumns, row_of
from chronicle.events.spool import EventSpool
from chronicle.layout import DatasetPaths
from chronicle.options import DrainOptions
from tests.events.helpers import event, events, log_at, seqs
from tests.events.spools import note
from tests.peer import PEER, needed, query

pytestmark = needed


def test_the_peer_counts_and_reads_our_facts(tmp_path):
    store = log_at(tmp_path)
    records = [*events(20), event(20, kind="note", call_id=None, payload={"text": "x" * 200_000})]
    store.append(records[:9])
    store.append(records[9:])
    assert query(tmp_path, "select kind, count(*) as n from dataset.events group by 1 order by 1") == [
        {"kind": "llm.request", "n": 20},
        {"kind": "note", "n": 1},
    ]
    found = query(tmp_path, "select seq, session_id, payload_json from dataset.events order by seq")
    assert [row["payload_json"].encode() for row in found] == [record.text for record in records]
    assert [row["session_id"] for row in found] == [record.session_id for record in records]
    assert query(tmp_path, "select count(distinct session_id) as n from dataset.events") == [{"n": 3}]
    assert query(tmp_path, "select count(*) as n from dataset.steps") == [{"n": 21}], "every row decodes and agrees"


@pytest.fixture
def control(tmp_path):
    """A serving peer over `tmp_path/lake`; call it to append records of a session."""
    lake = tmp_path / "lake"
    lake.mkdir()
    arguments = [PEER, "serve", "--storage", str(lake), "--control", "127.0.0.1:0"]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            ready = json.loads(server.stdout.readline())["control"]
            host, _, port = ready["endpoint"].rpartition(":")

            def append(session, records):
                payload = {"storage": str(lake), "agent_id": "agent", "session_id": session, "root_session_id": "run"}
                message = {
                    "version": 2,
                    "request_id": 1,
                    "auth_token": ready["auth_token"],
                    "request": {"type": "append_trajectory", "payload": {**payload, "records": records}},
                }
                with socket.create_connection((host, int(port)), timeout=60) as link:
                    link.sendall(json.dumps(message).encode() + b"\n")
                    return json.loads(link.makefile().readline())["response"]["payload"]

            yield append
        finally:
            server.kill()


def test_both_append_to_one_log(tmp_path, control):
    note = {"source": "peer", "kind": "note", "timestamp": "2026-01-02T03:04:05.678Z", "payload": {"text": "from the peer"}}
    store = log_at(tmp_path / "lake" / "agent" / "run")
    store.append(events(3))
    with store.writer(writer_id="slow") as slow:
        slow.write(store.snapshot().take([0, 1], store.snapshot().dataset(0).schema.names).combine_chunks().to_batches()[0])
        assert control("s9", [{**note, "seq": 100}, {**note, "seq": 101}])["accepted_records"] == 2
        assert not store.manifest().segments[-1].sealed
        slow.publish()
    assert all(segment.sealed for segment in store.manifest().segments)
    assert control("s9", [{**note, "seq": 102}])["accepted_records"] == 1
    store.append(events(1, 7))
    assert seqs(store) == [0, 1, 2, 100, 101, 0, 1, 102, 7]
    replayed = [record for _, record in store.replay("s9")]
    assert [record.seq for record in replayed] == [100, 101, 102]
    assert {record.timestamp_unix_ms for record in replayed} == {1767323045678}
    assert store.stats().kinds == {"llm.request": 6, "note": 3}


# Fences, in turns


def from_peer(*numbers):
    """Records for the peer to append."""
    stamp = "2026-01-02T03:04:05.678Z"
    return [{"source": "peer", "kind": "note", "timestamp": stamp, "payload": {"text": "x"}, "seq": n} for n in numbers]


def batch_of(records):
    columns = EventColumns()
    for record in records:
        columns.add_row(row_of(record))
    return columns.batch()


@pytest.fixture
def shared(tmp_path):
    """The log that the peer appends to for agent `agent` and run `run`, as ours."""
    return log_at(tmp_path / "lake" / "agent" / "run")


def equal_counts(store):
    """Both tools count the same rows, by kind and by session; how many there are."""
    stats = store.stats()
    root = str(Path(store.events).parent)
    assert {row["kind"]: row["n"] for row in query(root, "select kind, count(*) n from dataset.events group by 1")} == stats.kinds
    by_peer = query(root, "select session_id s, count(*) n from dataset.events group by 1 order by 1")
    replayed = [record.session_id for _, record in store.replay()]
    assert {row["s"]: row["n"] for row in by_peer} == {session: replayed.count(session) for session in set(replayed)}
    return stats.rows


def test_turns_in_one_log(shared, control):
    expected = []
    for turn in range(4):
        ours, theirs = range(10 * turn, 10 * turn + 3), range(10 * turn + 5, 10 * turn + 7)
        epoch = shared.append(events(3, ours[0])) and shared.manifest().active_writer.epoch
        assert control("s9", from_peer(*theirs))["accepted_records"] == 2
        assert shared.manifest().active_writer.epoch == epoch + 1, "the peer takes the next epoch for each request"
        expected += [*ours, *theirs]
    assert seqs(shared) == expected, "append order is manifest order"
    assert equal_counts(shared) == len(expected)
    assert shared.manifest().active_writer.epoch == 8


def test_a_segment_that_the_peer_fenced_out_is_shown_under_the_next_epoch(shared, control):
    with shared.writer(writer_id="slow") as slow:
        slow.write(batch_of(events(4)))
        held = slow.fence
        for number in (100, 101):
            control("s9", from_peer(number))
        left_open = [segment.id for segment in shared.manifest().segments if not segment.sealed]
        before = shared.manifest()
        segment = slow.publish()
    after = shared.manifest()
    assert left_open
    assert (segment.id.split("-")[0], segment.rows, held.epoch) == (f"e{held.epoch}", 4, 1), "the same segment, not a copy"
    assert after.active_writer == type(after.active_writer)(before.active_writer.epoch + 1, "slow")
    assert [one.id for one in after.segments] == [*(one.id for one in before.segments), segment.id]
    assert all(one.sealed for one in after.segments)
    assert seqs(shared) == [100, 101, 0, 1, 2, 3]
    assert control("s9", from_peer(102))["accepted_records"] == 1
    assert after.segments[0] in shared.manifest().segments, "what is sealed the peer leaves as it is"
    assert equal_counts(shared) == 7


def test_a_lease_that_the_peer_fenced_out_shows_nothing(shared, control):
    lease = EventWriterFence(40, "lease")
    shared.append(events(1), fence=lease)
    with shared.writer(lease) as writer:
        writer.write(batch_of(events(2, 1)))
        control("s9", from_peer(100))
        assert shared.manifest().active_writer.epoch == 41
        with pytest.raises(StaleFence):
            writer.publish()
    with pytest.raises(EpochAlreadyOwned):
        shared.append(events(2, 1), fence=EventWriterFence(41, "lease"))
    assert equal_counts(shared) == 2
    shared.append(events(2, 1), fence=EventWriterFence(42, "lease"))
    assert seqs(shared) == [0, 100, 1, 2]
    assert equal_counts(shared) == 4


def test_both_append_at_the_same_time(shared, control):
    """The peer tells its caller when it was fenced out; we take another epoch ourselves. Nobody loses or doubles a row."""
    shared.append(events(1, 900))
    refusals = []

    def peer():
        for number in range(100, 112, 2):
            while "accepted_records" not in (answer := control("s9", from_peer(number, number + 1))):
                refusals.append(answer["message"])

    thread = threading.Thread(target=peer)
    thread.start()
    for number in range(0, 18, 3):
        shared.append(events(3, number))
    thread.join()
    found = seqs(shared)
    assert [seq for seq in found if seq < 100] == list(range(18))
    assert [seq for seq in found if 100 <= seq < 900] == list(range(100, 112))
    assert len(found) == equal_counts(shared) == 31
    assert all("stale event writer fence" in message for message in refusals), refusals


def test_the_peer_reads_what_was_drained_between_its_appends(tmp_path, control):
    # The layout of a lake of ours, with the peer's storage root where its log lies.
    paths = DatasetPaths(str(tmp_path), "agent/run")
    (tmp_path / "events").symlink_to(tmp_path / "lake")
    with EventSpool(str(tmp_path / "spool")) as spool:
        for turn in range(2):
            spool.append(note("s1"), note("s9"), note("s1"))
            assert drain(DrainOptions(paths=paths, spool=spool.path)).records == 3
            assert control("s9", from_peer(100 + turn))["accepted_records"] == 1
    store = log_at(tmp_path / "lake" / "agent" / "run")
    assert [record.seq for _, record in store.replay("s1")] == [0, 1, 2, 3]
    assert [record.seq for _, record in store.replay("s9")] == [0, 100, 1, 101]
    assert equal_counts(store) == 8
    assert query(tmp_path / "lake" / "agent" / "run", "select count(*) as n from dataset.steps") == [{"n": 8}]
