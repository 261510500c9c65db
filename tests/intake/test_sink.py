"""The order of rows in a micro-batch, and what it spares a reader of sources (design 4.2)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chronicle import facts
from chronicle.events.snapshot import LogSnapshot
from tests.lake import Lake
from tests.laws.contents import atif, chats

NAMES = ("a.json", "b.json", "c.jsonl")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    for name, data in zip(NAMES, (atif("a", 3), atif("b", 2), chats(range(4))), strict=True):
        made.put(name, data)
    return made


def kinds(lake: Lake) -> list[str]:
    return [record.kind for record in lake.records()]


def test_the_ends_of_sources_lie_side_by_side_behind_their_documents(lake: Lake) -> None:
    lake.ingest()
    assert kinds(lake)[-3:] == ["source.closed"] * 3
    assert kinds(lake).count("source.closed") == 3
    begins = [number for number, kind in enumerate(kinds(lake)) if kind == "source.opened"]
    assert [kinds(lake)[number + 1] for number in begins] == ["document.opened"] * 3


def test_each_micro_batch_holds_the_ends_of_its_own_sources(lake: Lake) -> None:
    report = lake.ingest(batch_bytes=1)
    snapshot = facts.pin(lake.paths)
    assert report.segments == len(snapshot.segments) == 3
    ends = itertools.accumulate(segment.rows for segment in snapshot.segments)
    assert [kinds(lake)[end - 1] for end in ends] == ["source.closed"] * 3


def test_sources_are_known_by_their_ends_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ingest()
    begun = next(record.text for record in lake.records() if record.kind == "source.opened")
    lake.append([begun.replace(b"a.json", b"d.json")])  # again, of another key: content that is known whole
    lake.append([begun.replace(source_id_of(begun), b"f" * 32)])  # content of which nothing else is there
    real = LogSnapshot.take
    taken: list[int] = []

    def take(snapshot: LogSnapshot, rows: Sequence[int], columns: Sequence[str]) -> Any:
        taken.extend(rows)
        return real(snapshot, rows, columns)

    monkeypatch.setattr(LogSnapshot, "take", take)
    fold = facts.source_fold(facts.pin(lake.paths))
    assert {key.rsplit("/", 1)[-1] for key in fold.current} == set(NAMES)
    assert list(fold.begun) == ["f" * 32]
    assert [kinds(lake)[row] for row in taken] == ["source.closed"] * 3 + ["source.opened"]


def source_id_of(record: bytes) -> bytes:
    """The source id that a `source.*` record names."""
    return record.partition(b'"source_id":"')[2][:32]
