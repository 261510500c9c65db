"""One log, two tools: the real `pchronicle` reads and appends to ours, we read and append to its."""

import json
import socket
import subprocess

import pytest

from tests.events.helpers import event, events, log_at, seqs
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
