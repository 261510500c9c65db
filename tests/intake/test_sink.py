"""The order of rows in a micro-batch, and what it spares a reader of sources (design 4.2)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chronicle import facts
from chronicle.events.snapshot import LogSnapshot
from chronicle.intake import sources
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


def test_sources_that_are_only_bound_end_a_micro_batch_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ingest()
    for name in NAMES:
        lake.put(f"copy-{name}", (lake.inbox / name).read_bytes())
    monkeypatch.setattr(sources, "MOST_RECEIPTS", 2)
    report = lake.ingest()
    assert (report.bound, report.segments) == (3, 2), "one after two receipts, one at the end"
    assert kinds(lake)[-3:] == ["source.bound"] * 3


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


@pytest.mark.parametrize("trace", [None, "a run of theirs"])
def test_a_source_that_others_began_is_incomplete_whatever_its_trace_id_is(lake: Lake, trace: str | None) -> None:
    lake.ingest()
    texts = [record.text for record in lake.records() if record.kind.startswith("source.")]
    begun = next(text for text in texts if b'"source.opened"' in text)
    ended = next(text for text in texts if b'"source.closed"' in text)
    other = begun.replace(source_id_of(begun), b"f" * 32)
    lake.append([traced(other, trace), traced(ended, trace), traced(begun, trace)])
    assert list(facts.source_fold(facts.pin(lake.paths)).begun) == ["f" * 32]


def test_an_end_that_says_nothing_ends_no_source(lake: Lake) -> None:
    lake.ingest()
    texts = [record.text for record in lake.records() if record.kind.startswith("source.")]
    begun = next(text for text in texts if b'"source.opened"' in text).replace(source_id_of(texts[0]), b"f" * 32)
    empty = msgspec.json.encode(msgspec.json.decode(begun) | {"kind": "source.closed", "payload": {}})
    lake.append([begun, empty])
    assert list(facts.source_fold(facts.pin(lake.paths)).begun) == ["f" * 32]


def traced(record: bytes, trace: str | None) -> bytes:
    """The record with another trace id, or with none."""
    members = msgspec.json.decode(record)
    members.pop("trace_id")
    return msgspec.json.encode(members if trace is None else members | {"trace_id": trace})


def source_id_of(record: bytes) -> bytes:
    """The source id that a `source.*` record names."""
    return record.partition(b'"source_id":"')[2][:32]
