"""Receipts stay in few pieces, keep their order, and come back from the facts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronicle import facts
from chronicle.drain import drain
from chronicle.errors import IntegrityError
from chronicle.events.imported import SourceRef, Stat
from chronicle.events.spool import EventSpool
from chronicle.ingest import ingest
from chronicle.intake import receipts, stored
from chronicle.intake.receipts import Receipts, list_receipts, rebuild_receipts
from chronicle.maintain import maintain, stock
from chronicle.options import DrainOptions, IngestOptions, MaintainOptions
from chronicle.storage import lanceio
from tests.lake import Lake
from tests.laws.contents import atif


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def rows(lake: Lake) -> list[tuple[str, str]]:
    """(kind, source key) of all rows of the receipts, in their order."""
    return [(kind, ref.source_key) for kind, ref in stored.StoredReceipts(lake.paths).rows()]


def ref(number: int) -> SourceRef:
    return SourceRef(source_id=f"{number:032x}", source_key=f"in/{number}", stat=Stat(size=number))


def append(lake: Lake, numbers: range) -> None:
    receipts._write(lake.paths, [("source.closed", ref(number)) for number in numbers])


def fragments(lake: Lake) -> list[int]:
    return [piece.physical_rows for piece in lanceio.open_latest(lake.paths.receipts).get_fragments()]


def test_appends_keep_their_order_in_few_pieces(lake: Lake) -> None:
    append(lake, range(500))
    for number in range(500, 560):
        append(lake, range(number, number + 1))
        assert len(fragments(lake)) <= 7, "2 ** 6 > 60"
    assert rows(lake) == [("source.closed", f"in/{number}") for number in range(560)]
    assert fragments(lake)[0] == 500, "a large piece is not written again for a few rows"


def test_many_small_ingests_read_as_one(lake: Lake) -> None:
    for number in range(20):
        lake.put(f"{number:02}.json", atif(f"s{number}", 2))
        ingest(IngestOptions(paths=lake.paths, sources=(f"in={lake.inbox / f'{number:02}.json'}",)))
    held = list_receipts(lake.paths)
    assert len(fragments(lake)) <= 5
    assert ingest(IngestOptions(paths=lake.paths, sources=(f"in={lake.inbox}",))).files_opened == 0
    assert rebuild_receipts(lake.paths) == held
    maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0))
    assert (list_receipts(lake.paths), stock(lake.paths).versions["receipts"]) == (held, 1)


def test_receipts_that_come_back_are_of_all_facts_then(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody stores facts and their receipts after a restore was decided on, and before it has the lock."""
    lake.put("a.json", atif("a", 2))
    lake.ingest()
    shutil.rmtree(lake.paths.receipts)
    lock = receipts.receipts_lock
    met: list[str] = []

    @contextmanager
    def later(paths: object) -> Iterator[None]:
        if not met:
            met.append("once")
            lake.put("b.json", atif("b", 2))
            lake.ingest()
        with lock(lake.paths):
            yield

    monkeypatch.setattr(receipts, "receipts_lock", later)
    assert rebuild_receipts(lake.paths) == list_receipts(lake.paths)
    assert [held.source_key.rpartition("/")[2] for held in list_receipts(lake.paths)] == ["a.json", "b.json"]


def test_a_drain_brings_deleted_receipts_back(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.ingest()
    journal = [record.text for record in lake.records()]
    other = Lake(lake.root / "other")
    other.put("b.json", atif("t", 2))
    other.ingest()
    held = list_receipts(other.paths)
    shutil.rmtree(other.paths.receipts)
    with EventSpool(str(lake.root / "spool")) as spool:
        for text in journal:
            spool.append(text)
    drain(DrainOptions(paths=other.paths, spool=str(lake.root / "spool")))
    kept = Receipts(other.paths)
    assert [kept.get(each.source_key) for each in held] == held
    assert len(kept.all()) == 2
    assert facts.source_fold(facts.pin(other.paths)).current.keys() == {each.source_key for each in kept.all()}


def test_receipts_that_vacuum_removes_under_a_reader_are_read_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put("a.json", atif("a", 2))
    lake.ingest()
    append(lake, range(3))
    latest, met = stored.latest, list[str]()

    def overtaken(path: str) -> object:
        dataset = latest(path)
        if not met:
            met.append("once")
            append(lake, range(3, 4))
            append(lake, range(4, 8))
            maintain(MaintainOptions(paths=lake.paths, compact=False, index=False, retention_seconds=0))
        return dataset

    monkeypatch.setattr(stored, "latest", overtaken)
    assert len(Receipts(lake.paths).all()) == 9


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("restored", [False, True])
def test_receipts_of_another_log_pass_no_source_over(lake: Lake, restored: bool, merged: bool) -> None:
    """Facts come back from an older backup, or are removed, beside receipts that know more than they hold."""
    events, backup = Path(lake.paths.events), lake.root / "backup"
    lake.put("a.json", atif("a", 2))
    lake.ingest()
    shutil.copytree(events, backup)
    lake.put("b.json", atif("b", 2))
    lake.ingest()
    if merged:
        maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0))
    shutil.rmtree(events)
    if restored:
        shutil.copytree(backup, events)
    foreseen = lake.ingest(dry_run=True)
    report = lake.ingest()
    assert (report.ingested, report.unchanged) == (foreseen.ingested, foreseen.unchanged) == ((1, 1) if restored else (2, 0))
    assert [warning.partition(" (")[0] for warning in report.warnings] == ["the receipts are of another log"]
    assert sorted(lake.exact()) == ["in/a.json", "in/b.json"]
    again = lake.ingest()
    assert (again.unchanged, again.files_opened, again.warnings) == (2, 0, [])
    assert list_receipts(lake.paths) == rebuild_receipts(lake.paths)


def test_receipts_are_listed_as_the_log_says(lake: Lake) -> None:
    lake.put("a.json", atif("a", 2))
    lake.ingest()
    other = Lake(lake.root / "other")
    other.put("b.json", atif("b", 2))
    other.ingest()
    shutil.rmtree(other.paths.receipts)
    shutil.copytree(lake.paths.receipts, other.paths.receipts)
    assert [held.source_key.rpartition("/")[2] for held in list_receipts(other.paths)] == ["b.json"]


def test_receipts_stay_those_of_a_log_that_was_merged(lake: Lake) -> None:
    for number in range(9):
        lake.put(f"{number}.json", atif(f"s{number}", 2))
        lake.ingest()
    lake.put("0.json", atif("s0", 2))  # the same bytes under another stat: only the receipts know
    assert lake.ingest().files_opened == 1
    maintain(MaintainOptions(paths=lake.paths, full=True, retention_seconds=0))
    report = lake.ingest()
    assert (report.files_opened, report.unchanged, report.warnings) == (0, 9, [])


def test_a_log_without_its_manifest_is_not_begun_anew(lake: Lake) -> None:
    """Its segments would become leftovers that a vacuum removes."""
    lake.put("a.json", atif("a", 2))
    lake.ingest()
    manifest = Path(lake.paths.events, "_manifest.json")
    kept = manifest.read_bytes()
    manifest.unlink()
    segments = sorted(Path(lake.paths.events, "segments").iterdir())
    with EventSpool(str(lake.root / "spool")) as spool:
        spool.append({"source": "s", "kind": "note", "payload": {}})
    for verb in (lake.ingest, lambda: drain(DrainOptions(paths=lake.paths, spool=str(lake.root / "spool")))):
        with pytest.raises(IntegrityError, match=r"its _manifest\.json is gone"):
            verb()
    assert (manifest.exists(), sorted(Path(lake.paths.events, "segments").iterdir())) == (False, segments)
    manifest.write_bytes(kept)
    assert lake.ingest().unchanged == 1
    assert drain(DrainOptions(paths=lake.paths, spool=str(lake.root / "spool"))).records == 1
