"""EventSpool: what append returned for is on the disk, in order, with numbers that go on for ever."""

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import ConfigError, InputError, IntegrityError, NotFoundError, StorageError, UsageError
from chronicle.events import frames, sequence
from chronicle.events.record import parse
from chronicle.events.sequence import Sequence
from chronicle.events.spool import EventSpool, SpoolOptions
from tests.events.helpers import event
from tests.events.spools import Dead, dying, empty, held, ids, note, power_cut

ROOT = Path(__file__).resolve().parents[2]
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where many small spools lie: an fsync costs nothing there."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "spool"


def test_a_record_is_completed_and_keeps_its_bytes(path):
    options = SpoolOptions(session_id="own", agent_id="agent", run_id="run")
    text = b'{ "source": "gate", "kind": "note",\n "extra": 1.50, "payload": {"model": "m"} }'
    with EventSpool(str(path), options) as spool:
        (first,) = spool.append(text).records
        (second,) = spool.append({"source": "gate", "kind": "note", "payload": None, "session_id": "other"}).records
    assert first.text.startswith(text[:-1])
    told = json.loads(first.text)
    assert (told["seq"], told["session_id"], told["agent_id"], told["run_id"]) == (0, "own", "agent", "run")
    assert (told["storyline_id"], told["producer"]) == ("own", "gate")
    assert abs(told["timestamp_unix_ms"] - time.time() * 1000) < 60_000
    assert len(told["event_id"]) == 32
    assert (second.session_id, second.seq, second.envelope.run_id) == ("other", 0, "run")
    assert [record.text for record in held(path)] == [first.text, second.text]


def test_what_a_record_says_itself_stays(path):
    record = event(7)
    with EventSpool(str(path)) as spool:
        assert spool.append(record).records == (record,)
        assert spool.append(event(3)).records[0].seq == 3, "a given number may go back"
        assert spool.append(note("s0")).records[0].seq == 8
        assert spool.append(note("s0", seq=None, event_id=None, timestamp="2026-01-02T03:04:05.678Z")).records[0].seq == 9
    last = held(path)[-1]
    assert last.event_id
    assert last.timestamp_unix_ms == 1767323045678


def test_numbers_go_on_after_restarts_and_drains(path):
    numbers = []
    for turn in range(6):
        with EventSpool(str(path)) as spool:
            numbers += [spool.append(note(session)).records[0].seq for session in ("a", "b", None)]
            if turn % 2:
                empty(spool)
                assert [p.name for p in sorted(path.iterdir())] == ["lock", "reserve", "sequence.json"]
    assert numbers == [turn for turn in range(6) for _ in range(3)]


def test_one_record_that_is_none_does_not_stop_its_neighbours(path):
    bad = [b"{", b"\xff", {"kind": "note"}, {"source": " ", "kind": "k", "payload": 1}, {"payload": object()}, note(seq=-1)]
    with EventSpool(str(path)) as spool:
        done = spool.append(note(), *bad, note())
        assert [record.seq for record in done.records] == [0, 1]
        assert [one.kind for one in done.set_aside][:2] == ["member:unreadable", "member:encoding"]
        assert {one.kind for one in done.set_aside[2:]} <= {"member:invalid", "member:unreadable"}
        assert done.set_aside[1].data == b"\xff"
        spool.roll()
        found = [piece.kind for piece in frames.pieces(spool.read(spool.closed()[0]))]
    assert sorted(found) == [b"r"] * 2 + [b"x"] * 6


def test_a_session_that_has_used_up_its_numbers(path):
    with EventSpool(str(path)) as spool:
        spool.append(note(seq=2**63 - 1))
        done = spool.append(note(), note("t"))
        assert [record.session_id for record in done.records] == ["t"]
        assert "no seq left" in done.set_aside[0].reason


def test_files_are_private(path, monkeypatch):
    before = os.umask(0)
    try:
        with EventSpool(str(path), SpoolOptions(roll_bytes=300)) as spool:
            for _ in range(4):
                spool.append(note())
            spool.acknowledge(spool.closed()[:1])
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert len(modes) == 6
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_other_directories_are_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    for wrong in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError):
            EventSpool(str(wrong))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(NotFoundError):
        EventSpool(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError):
        EventSpool("s3://bucket/spool")
    with EventSpool(str(tmp_path / "new")) as spool:
        spool.append(note())
        for name in ("lock", "../file", "journal-0000000001.open"):
            with pytest.raises(UsageError):
                spool.acknowledge([name])
    with pytest.raises(UsageError, match="closed"):
        spool.append(note())
    assert len(held(tmp_path / "new")) == 1


def test_a_damaged_sequence_stops(path):
    with EventSpool(str(path)) as spool:
        spool.append(note())
        empty(spool)
    (path / "sequence.json").write_text('{"file": "x"}')
    with pytest.raises(IntegrityError):
        EventSpool(str(path))


def test_files_roll_by_size_and_stay_in_order(path):
    with EventSpool(str(path), SpoolOptions(roll_bytes=1000)) as spool:
        sent = [spool.append(note(payload={"n": number})).records[0] for number in range(30)]
        sizes = [len(spool.read(name)) for name in spool.closed()]
        assert len(sizes) > 5
        assert max(sizes) <= 1000
        assert held(path) == sent
        large = spool.append(note(payload="x" * 5000), note()).records
        assert empty(spool) == [record.text for record in [*sent, *large]]


def test_a_torn_end_is_cut_off_at_every_byte(path, tmp_path):
    with EventSpool(str(path)) as spool:
        kept = spool.append(note(), note()).records
        whole = (path / "journal-0000000001.open").read_bytes()
        spool.append(note())
        data = (path / "journal-0000000001.open").read_bytes()
    for end in range(len(whole), len(data)):
        with tempfile.TemporaryDirectory(dir=MEMORY) as other:
            Path(other, "lock").touch()
            Path(other, "journal-0000000001.open").write_bytes(data[:end])
            with EventSpool(other) as spool:
                assert len(spool.warnings) == (end > len(whole))
                assert spool.append(note()).records[0].seq == 2
                spool.roll()
                found = [piece for name in spool.closed() for piece in frames.pieces(spool.read(name))]
            assert [piece.text for piece in found if piece.kind][:2] == [record.text for record in kept]
            assert b"".join(piece.text for piece in found if not piece.kind) == data[len(whole) : end]


def test_a_torn_end_of_another_process_is_seen_while_at_work(path):
    with EventSpool(str(path)) as spool:
        spool.append(note())
        with (path / "journal-0000000001.open").open("ab") as dead:
            dead.write(frames.frame(frames.RECORD, event(41, "s").text) + b"r 000")
        assert spool.append(note()).records[0].seq == 42
        assert "last 5 bytes" in spool.warnings[0]
        assert [record.seq for record in held(path)] == [0, 41, 42]


def test_the_bound_stops_and_a_drain_lets_go_on(path):
    options = SpoolOptions(max_bytes=3000, roll_bytes=1000)
    with EventSpool(str(path), options) as spool, EventSpool(str(path), options) as other:
        sent = len(fill(spool, 100))
        with pytest.raises(StorageError) as caught:
            spool.append(note(payload="x" * 100))
        assert (caught.value.kind, caught.value.transient, caught.value.exit_code) == ("spool-full", True, 69)
        assert 5 < sent < 12
        assert len(held(path)) == sent
        with pytest.raises(InputError) as never:
            spool.append(note(payload="x" * 3000))
        assert never.value.kind == "too-large"
        waiting = [threading.Thread(target=lambda: spool.append(note(payload="x" * 300), timeout=60)) for _ in range(30)]
        for thread in waiting:
            thread.start()
        taken = len(empty(other))
        while any(thread.is_alive() for thread in waiting):
            taken += len(empty(other))
            time.sleep(0.01)
        assert taken + len(held(path)) == sent + 30
        empty(other)
        spool.append(note())
        assert [record.seq for record in held(path)] == [sent + 30]
        began = time.monotonic()
        fill(spool, 100)
        with pytest.raises(StorageError):
            spool.append(note(payload="x" * 2000), timeout=0.1)
        assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("undo", [True, False])
def test_a_failing_disk_is_told_and_costs_nothing_that_was_acknowledged(path, monkeypatch, call, undo):
    with EventSpool(str(path)) as spool:
        first = spool.append(note()).records[0]
        real = getattr(os, call)

        def fail(descriptor, *rest):
            if call == "write":
                real(descriptor, bytes(rest[0])[:40])
            raise OSError(errno.EIO, "Input/output error")

        def no(*_):
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as broken:
            broken.setattr(os, call, fail)
            if not undo:
                broken.setattr(os, "ftruncate", no)
            with pytest.raises(StorageError, match="Input/output error"):
                spool.append(note())
        last = spool.append(note()).records[0]
        assert bool(spool.closed()) is not (undo and call == "write"), "what may be lost in a file is the last in it"
        texts = empty(spool)
    assert last.seq > first.seq
    assert [text for text in texts if text in (first.text, last.text)] == [first.text, last.text]
    assert len({json.loads(text)["seq"] for text in texts}) == len(texts), "no number twice"


def test_threads_share_an_fsync_and_return_only_when_durable(path, monkeypatch):
    threads, each = 100, 5
    real, durable, calls = os.fsync, {}, []
    lock = threading.Lock()
    start = threading.Barrier(threads)
    wrong = []

    def sync(descriptor):
        size = os.fstat(descriptor).st_size
        real(descriptor)
        with lock:
            calls.append(descriptor)
            durable[os.readlink(f"/proc/self/fd/{descriptor}")] = size

    with EventSpool(str(path)) as spool:
        spool.append(note("first", event_id="first-0"))
        monkeypatch.setattr(os, "fsync", sync)

        def work(number):
            start.wait()
            for turn in range(each):
                (record,) = spool.append(note(f"s{number % 7}", event_id=f"{number}-{turn}")).records
                journal = path / "journal-0000000001.open"
                end = journal.read_bytes().index(record.text) + len(record.text) + 1
                if durable[str(journal)] < end:
                    wrong.append(record)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert wrong == []
    assert len(calls) < threads * each / 3
    check_numbers(held(path), {f"{number}-{turn}" for number in range(threads) for turn in range(each)} | {"first-0"})


def check_numbers(records, expected):
    """Every record once, numbers without a gap in the order of the spool, each producer's own order kept."""
    assert {record.event_id for record in records} == expected
    assert len(records) == len(expected)
    for session in {record.session_id for record in records}:
        own = [record.seq for record in records if record.session_id == session]
        assert own == list(range(len(own)))
    for producer in {record.event_id.split("-")[0] for record in records}:
        turns = [int(record.event_id.split("-")[1]) for record in records if record.event_id.split("-")[0] == producer]
        assert turns == sorted(turns)


APPEND_SOME = """
import sys
from chronicle.events.spool import EventSpool, SpoolOptions
with EventSpool(sys.argv[1], SpoolOptions(roll_bytes=4000)) as spool:
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(60):
        record = {"source": "test", "kind": "note", "session_id": f"s{turn % 3}", "payload": 1}
        spool.append({**record, "event_id": f"{sys.argv[2]}-{turn}"})
"""


def test_processes_append_to_one_spool_beside_a_drain(path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    children = [subprocess.Popen([sys.executable, "-c", APPEND_SOME, str(path), str(n)], **pipes) for n in range(3)]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 3
    for child in children:
        child.stdin.write("go\n")
        child.stdin.close()
    texts = []
    with EventSpool(str(path)) as spool:
        while any(child.poll() is None for child in children):
            texts += empty(spool)
            time.sleep(0.01)
        texts += empty(spool)
    assert [child.returncode for child in children] == [0, 0, 0]
    check_numbers([parse(text) for text in texts], {f"{n}-{turn}" for n in range(3) for turn in range(60)})


def test_a_fork_opens_its_own(path):
    with EventSpool(str(path)) as spool:
        spool.append(note())
        spool._files._process += 1
        with pytest.raises(UsageError, match="fork"):
            spool.append(note())


def fill(spool, size):
    """Append until there is no room."""
    sent = []
    with suppress(StorageError):
        while len(sent) < 1000:
            sent += spool.append(note(payload="x" * size)).records
    return sent


def test_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here: " + mounted.stderr.decode(errors="replace").strip())
    try:
        with EventSpool(str(disk / "spool"), SpoolOptions(roll_bytes=100_000)) as spool:
            sent = [*fill(spool, 20_000), *fill(spool, 10)]
            with pytest.raises(StorageError, match="No space left") as caught:
                spool.append(note())
            assert (caught.value.kind, caught.value.transient) == ("spool-full", True)
            waiting = threading.Thread(target=lambda: sent.extend(spool.append(note(), timeout=60).records))
            waiting.start()
            with EventSpool(str(disk / "spool"), create=False) as drain:
                texts = empty(drain)
            waiting.join()
            texts += empty(spool)
            assert texts == [record.text for record in sent]
            assert [record.seq for record in sent] == list(range(len(sent)))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Numbers


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=40), st.integers(0, 40), st.integers(1, 4))
def test_numbers_never_go_back_whatever_is_forgotten(used, split, bound):
    before = sequence.MAX_SESSIONS
    sequence.MAX_SESSIONS = bound
    try:
        first, second = Sequence(), Sequence()
        highest = {}
        for at, (session, seq) in enumerate(used):
            one = first if at < split else second
            one.saw(str(session), seq)
            highest[session] = max(highest.get(session, -1), seq)
        first.merge(second.kept())
        assert len(first.kept().next) <= bound
        assert all(first.following(str(session)) > seq for session, seq in highest.items())
    finally:
        sequence.MAX_SESSIONS = before


def test_a_very_high_number_is_nobody_elses_floor():
    numbers = Sequence()
    numbers.saw("odd", 2**62)
    for session in range(5000):
        numbers.saw(f"s{session}", 5)
    assert len(numbers.kept().next) == sequence.MAX_SESSIONS
    assert numbers.following("new") == 6
    assert numbers.following("odd") == 2**62 + 1
    assert numbers.following("x" * 300) == 6
    numbers.saw("x" * 300, 9)
    assert numbers.following("x" * 300) == 10


# The law

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "restart", "roll", "empty", "other", "power"]),
        st.integers(0, 14),  # the call that is the last one; 0: nobody dies
        st.floats(0, 1),
        st.integers(1, 3),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_dies_what_was_acknowledged_is_there_in_order(steps):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = f"{folder}/spool"
        options = SpoolOptions(roll_bytes=700)
        spool, other = EventSpool(path, options), EventSpool(path, options)
        drained, acknowledged, tried, safe = [], [], 0, {}
        for what, at, share, count in steps:
            alive = False
            with dying(at, share, safe):
                if what in ("append", "other", "power"):
                    batch = [note(f"s{n % 2}", event_id=f"{tried + n}") for n in range(count)]
                    tried += count
                    done = (other if what == "other" else spool).append(*batch)
                    acknowledged += [record.event_id for record in done.records]
                elif what == "roll":
                    spool.roll()
                elif what == "empty":
                    drain_into(spool, drained)
                alive = what not in ("restart", "power")
            if what == "power":
                other.close()
                power_cut(path, safe, share)
                other = EventSpool(path, options)
            if not alive:
                spool.close()
                spool = EventSpool(path, options)
        drain_into(spool, drained)
        spool.close()
        other.close()
    firsts = list(dict.fromkeys(drained))
    assert len(set(ids(firsts))) == len(firsts), "a duplicate is the same record"
    assert [one for one in ids(firsts) if one in acknowledged] == acknowledged
    for session in ("s0", "s1"):
        numbers = [seq for text in firsts for seq in [json.loads(text)["seq"]] if json.loads(text)["session_id"] == session]
        assert numbers == sorted(set(numbers)), "no number twice, none goes back"


def drain_into(spool, drained):
    """A drain that may die between the swap of the log and the acknowledgement."""
    spool.roll()
    names = spool.closed()
    drained += [piece.text for name in names for piece in frames.pieces(spool.read(name)) if piece.kind]
    spool.acknowledge(names)


def test_the_dead_do_nothing_more(path):
    with EventSpool(str(path)) as spool:
        with dying(1, 0.5) as made:
            spool.append(note())
        assert made == ["fsync"], "of the directory that has the new file"
        with dying(1, 0.5) as made:
            spool.append(note())
        assert made == ["write"]
        with pytest.raises(Dead):
            raise Dead
        assert held(path) == []
        assert spool.append(note()).records[0].seq == 0
        assert len(spool.warnings) == 1
