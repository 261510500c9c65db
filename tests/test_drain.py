"""drain: a spool's records reach the log once they are told to be stored, whoever dies on the way."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.drain import drain
from chronicle.errors import CommitStateUnknown, ConfigError, NotFoundError, StaleFence, UsageError
from chronicle.events.log import EventWriter, EventWriterFence, RawEventLanceStore
from chronicle.events.spool import EventSpool, SpoolOptions
from chronicle.layout import DatasetPaths
from chronicle.options import DrainOptions
from chronicle.quarantine import Quarantine
from chronicle.reports import DrainReport
from tests import spoolkills
from tests.command import chronicle
from tests.events.spools import dying, held, note
from tests.lake import Lake
from tests.laws.contents import atif, chats

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Place:
    """A spool and a lake."""

    def __init__(self, root: Path) -> None:
        self.spool = root / "spool"
        self.paths = DatasetPaths(str(root / "lake"), "d")

    def open(self, roll_bytes: int = 700) -> EventSpool:
        return EventSpool(str(self.spool), SpoolOptions(roll_bytes=roll_bytes))

    def append(self, *records: object) -> list[bytes]:
        with self.open() as spool:
            return [spool.append(record).records[0].text for record in records]  # type: ignore[arg-type]

    def drain(self, **more: object) -> DrainReport:
        return drain(DrainOptions(paths=self.paths, spool=str(self.spool), **more))  # type: ignore[arg-type]

    @property
    def store(self) -> RawEventLanceStore:
        return RawEventLanceStore(self.paths.events)

    def log(self) -> list[bytes]:
        return [record.text for _, record in self.store.replay()] if self.store.exists() else []

    def journals(self) -> list[str]:
        return sorted(name for name in os.listdir(self.spool) if name.startswith("journal"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_was_spooled_is_in_the_log_and_gone_from_the_spool(place: Place) -> None:
    sent = place.append(*[note(f"s{number % 2}") for number in range(9)])
    files = len(place.journals())
    report = place.drain(batch_bytes=1)
    assert (report.records, report.files, report.segments, report.exit_code()) == (9, files, files, 0)
    assert report.bytes == sum(map(len, sent))
    assert place.log() == sent
    assert place.journals() == []
    assert [record.seq for _, record in place.store.replay("s1")] == [0, 1, 2, 3]
    before = place.store.manifest()
    again = place.drain()
    assert (again.records, again.files, again.segments, again.fact_version) == (0, 0, 0, report.fact_version)
    assert place.store.manifest() == before, "a drain of nothing writes nothing"


def test_many_files_are_one_micro_batch(place: Place) -> None:
    place.append(*[note() for _ in range(12)])
    assert len(place.journals()) > 3
    report = place.drain()
    assert (report.segments, report.fact_version) == (1, 1)


def test_dry_run_looks_and_changes_nothing(place: Place) -> None:
    place.append(note(), note())
    before = {name: (place.spool / name).read_bytes() for name in os.listdir(place.spool)}
    report = place.drain(dry_run=True)
    assert (report.records, report.dry_run) == (2, True)
    assert {name: (place.spool / name).read_bytes() for name in os.listdir(place.spool)} == before
    assert not Path(place.paths.lake).exists()


def test_places_that_are_no_spool(place: Place, tmp_path: Path) -> None:
    for dry_run in (True, False):
        with pytest.raises(NotFoundError):
            place.drain(dry_run=dry_run)
        with pytest.raises(ConfigError):
            drain(DrainOptions(paths=place.paths, spool=str(tmp_path), dry_run=dry_run))
        with pytest.raises(UsageError):
            drain(DrainOptions(paths=place.paths, spool="s3://bucket/spool", dry_run=dry_run))
    assert os.listdir(tmp_path) == []


def test_what_is_no_record_goes_to_quarantine_with_its_bytes(place: Place) -> None:
    with place.open() as spool:
        spool.append(note(), b'{"kind":"note"}', b"\xff\n\xfe", note())
    report = place.drain()
    assert (report.records, report.quarantined_new, report.exit_code()) == (2, 2, 65)
    quarantine = Quarantine(place.paths)
    assert {quarantine.data(entry): entry.kind for entry in quarantine.entries.values()} == {
        b'{"kind":"note"}': "member:invalid",
        b"\xff\n\xfe": "member:encoding",
    }
    assert place.drain().exit_code() == 0
    assert chronicle("quarantine", "list", "--lake", place.paths.lake, "--dataset", "d").code == 0


def test_damage_in_a_file_costs_what_is_damaged(place: Place) -> None:
    with place.open(10_000) as spool:
        sent = [record.text for _ in range(5) for record in spool.append(note()).records]
    path = place.spool / place.journals()[0]
    data = bytearray(path.read_bytes())
    data[data.index(sent[2]) + 5] ^= 1
    path.write_bytes(data)
    report = place.drain()
    assert place.log() == [*sent[:2], *sent[3:]]
    assert (report.exit_code(), report.torn, [one.kind for one in report.quarantine]) == (65, 0, ["unreadable"])


@pytest.mark.parametrize("garbage", [None, b"garbage"])
def test_damage_at_the_end_of_a_file_counts(place: Place, garbage: bytes | None) -> None:
    """It was told to be stored: a killed producer leaves the beginning of a record only."""
    sent = place.append(note(), note())
    path = place.spool / place.journals()[0]
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data) if garbage is None else path.read_bytes() + garbage)
    report = place.drain()
    assert place.log() == sent[: 1 if garbage is None else 2]
    assert (report.exit_code(), report.torn, [one.kind for one in report.quarantine]) == (65, 0, ["unreadable"])


def test_a_torn_end_is_said_and_kept(place: Place) -> None:
    (sent,) = place.append(note())
    with (place.spool / place.journals()[0]).open("ab") as dead:
        dead.write(b"r 00000100 12345678 {half")
    report = place.drain()
    assert place.log() == [sent]
    assert (report.torn, report.exit_code(), report.quarantined_new) == (1, 0, 0)
    assert "cut off" in report.warnings[0]
    (entry,) = Quarantine(place.paths).entries.values()
    assert (entry.kind, Quarantine(place.paths).data(entry)) == ("truncated", b"r 00000100 12345678 {half")


def test_drains_beside_producers_take_each_record_once(place: Place) -> None:
    producers, each = 4, 25

    def produce(number: int) -> None:
        with place.open() as spool:
            for turn in range(each):
                spool.append(note(f"s{number}", event_id=f"{number}-{turn}"))

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    place.append(note("first", event_id="first"))
    for thread in threads:
        thread.start()
    reports: list[DrainReport] = []
    drains = [threading.Thread(target=lambda: reports.append(place.drain())) for _ in range(3)]
    for thread in drains:
        thread.start()
    for thread in (*threads, *drains):
        thread.join()
    place.drain()
    found = [json.loads(text)["event_id"] for text in place.log()]
    assert sorted(found) == sorted(["first", *(f"{n}-{turn}" for n in range(producers) for turn in range(each))])
    for number in range(producers):
        assert [one for one in found if one.startswith(f"{number}-")] == [f"{number}-{turn}" for turn in range(each)]
    assert len(reports) == 3


def test_a_drain_does_not_wait_for_ever_for_another(place: Place) -> None:
    place.append(note())
    with (place.spool / "drain.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = place.drain(wait_seconds=0.1)
    assert report.skipped
    assert report.exit_code() == 0
    assert place.log() == []
    assert place.drain().records == 1


def test_a_producers_fence_decides_who_drains(place: Place) -> None:
    lease = EventWriterFence(7, "lease")
    first = place.append(note())
    assert place.drain(fence=lease).records == 1
    second = place.append(note())
    place.store.append([], fence=None)
    with pytest.raises(StaleFence):
        place.drain(fence=EventWriterFence(6, "older lease"))
    assert place.log() == first
    assert len(place.journals()) == 1, "it waits for a drain that may"
    assert place.drain(fence=lease).records == 1
    assert place.store.manifest().active_writer.epoch == 7
    assert place.log() == first + second


@pytest.mark.parametrize("landed", [True, False])
def test_an_unknown_outcome_keeps_the_files(place: Place, monkeypatch: pytest.MonkeyPatch, landed: bool) -> None:
    sent = place.append(note(), note())
    publish = EventWriter.publish

    def unsure(writer: EventWriter) -> None:
        if landed:
            publish(writer)
        raise CommitStateUnknown("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(EventWriter, "publish", unsure)
        with pytest.raises(CommitStateUnknown):
            place.drain()
    assert place.drain().records == 2
    assert place.log() == sent * (1 + landed)


def test_facts_of_a_log_go_through_a_spool_into_another(tmp_path: Path) -> None:
    one = Lake(tmp_path / "one")
    one.put("a.json", atif("s", 4))
    one.put("b.jsonl", chats(range(3)))
    one.ingest()
    two = Lake(tmp_path / "two", inbox=one.inbox)
    with EventSpool(str(tmp_path / "spool")) as spool:
        spool.append(*one.records())
    drain(DrainOptions(paths=two.paths, spool=str(tmp_path / "spool")))
    assert [record.text for record in two.records()] == [record.text for record in one.records()]
    assert two.exact() == one.exact()
    assert two.ingest().unchanged == 2, "the receipts know them"
    one.rebuild()
    two.rebuild()
    assert two.rows()["steps"] == one.rows()["steps"]


def test_command(place: Place) -> None:
    sent = place.append(note(), note())
    where = ("--lake", place.paths.lake, "--dataset", "d")
    assert chronicle("drain", place.spool, *where, "--dry-run").json["records"] == 2
    done = chronicle("drain", place.spool, *where, "--json")
    assert (done.code, done.json["verb"], done.json["records"], done.json["fact_version"]) == (0, "drain", 2, 1)
    assert [json.loads(line) for line in chronicle("replay", *where).lines] == [json.loads(text) for text in sent]
    assert len(list(Path(place.paths.reports).glob("*-drain-*.json"))) == 1
    assert chronicle("drain", place.spool / "none", *where).code == 66
    assert chronicle("drain", place.paths.lake, *where).code == 78
    assert chronicle("drain", "s3://bucket/spool", *where).code == 2


def test_each_step_is_on_the_disk_before_the_next(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: int | str, *rest: Any, **named: Any) -> Any:
            where = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            made.append((name, rest[0] if name == "replace" else where))
            return real(first, *rest, **named)

        return call

    for name in ("write", "fsync", "replace", "rename", "unlink"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    spool = str(place.spool)
    with place.open() as producer:
        made.clear()
        producer.append(note())
        journal = f"{spool}/journal-0000000001.open"
        assert made == [("fsync", spool), ("write", journal), ("fsync", journal)]
    made.clear()
    place.drain()
    shown = max(at for at, step in enumerate(made) if step == ("replace", f"{place.paths.events}/_manifest.json"))
    steps = [step for step in made[shown:] if "/ops/" not in step[1] and ".tmp" not in step[1]]
    assert steps == [
        ("replace", f"{place.paths.events}/_manifest.json"),
        ("fsync", place.paths.events),
        ("replace", f"{spool}/sequence.json"),
        ("fsync", spool),
        ("unlink", journal.removesuffix("open") + "closed"),
        ("fsync", spool),
    ]


def test_the_example_of_the_operators_page(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (spoolkills.REPOSITORY / "docs/operators.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "EventSpool" in block]
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    assert place.drain().records == 1


# Deaths

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "restart", "drain", "drain"]), st.integers(0, 40), st.integers(1, 4)),
    max_size=7,
)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_the_log_holds_what_was_acknowledged_whoever_dies(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        place = Place(Path(folder))
        told = spoolkills.Told()
        spool = place.open()
        tried = 0
        for what, at, count in steps:
            if what == "drain":
                with dying(at):
                    place.drain(batch_bytes=500)
                continue
            alive = False
            with dying(at if at < 8 else 0):
                batch = [note(f"s{n % 2}", event_id=f"{tried + n}") for n in range(count)]
                tried += count
                done = spool.append(*batch)
                told.lines += [(str(record.session_id), record.seq, str(record.event_id)) for record in done.records]
                alive = what == "append"
            if not alive:
                spool.close()
                spool = place.open()
        spool.close()
        place.drain()
        assert held(place.spool) == []
        spoolkills.check(place.log(), told)


@pytest.mark.parametrize(
    ("call", "count", "when", "repeats"),
    [
        ("replace", 2, "before", False),  # the segment is there, nothing shows it
        ("replace", 2, "after", True),  # shown, and nothing acknowledged
        ("unlink", 2, "before", True),  # one file is removed, one is not
    ],
)
def test_a_killed_drain(place: Place, call: str, count: int, when: str, repeats: bool) -> None:
    told = spoolkills.Told()
    with place.open(1500) as spool:
        for number in range(15):
            for record in spool.append(note(f"s{number % 3}")).records:
                told.lines.append((str(record.session_id), record.seq, str(record.event_id)))
    assert len(place.journals()) > 2
    assert spoolkills.killed_drain(place.spool, Path(place.paths.lake), call, count, when) == -9
    texts = spoolkills.drained(place.spool, Path(place.paths.lake))
    duplicates = spoolkills.check(texts, told)
    assert (duplicates > 0) is repeats


def test_killed_producers(place: Place) -> None:
    told = spoolkills.Told()
    for run, seconds in enumerate((0, 0.02, 0.1)):
        assert spoolkills.killed_producer(place.spool, run, seconds, told) > 0
        if run == 1:
            spoolkills.drained(place.spool, Path(place.paths.lake))
    spoolkills.check(spoolkills.drained(place.spool, Path(place.paths.lake)), told)
