"""A log is known again by a mark, whatever was appended and merged since; another log is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.events import manifest as transitions
from chronicle.events.log import RawEventLanceStore
from chronicle.events.mark import LogMark, is_of, mark_of
from chronicle.events.record import EventRecord, parse


def note(number: int, log: str) -> EventRecord:
    text = f'{{"event_id":"{log}-{number}","seq":{number},"source":"s","kind":"note","timestamp_unix_ms":1,"payload":{{}}}}'
    return parse(text.encode())


def store(path: Path) -> RawEventLanceStore:
    return RawEventLanceStore(str(path / "events.lance"))


@settings(max_examples=6, deadline=None)
@given(steps=st.lists(st.sampled_from(["append", "merge", "vacuum"]), min_size=1, max_size=4))
def test_a_log_knows_its_marks_and_another_none(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    path = tmp_path_factory.mktemp("mark")
    logs = {name: store(path / name) for name in ("mine", "other")}
    made: list[LogMark | None] = []
    for step in ["append", *steps]:
        for name, log in logs.items():
            if step == "append":
                log.append([note(number, f"{name}{len(made)}") for number in range(2)])
            else:
                log.maintain(compact=step == "merge", index=False, vacuum=step == "vacuum", full=True, retention_seconds=0)
        made.append(mark_of(logs["mine"].snapshot()))
        assert all(mark is not None and is_of(mark, logs["mine"].snapshot()) for mark in made)
        assert not any(mark is not None and is_of(mark, logs["other"].snapshot()) for mark in made)


def test_an_empty_log_has_no_end(tmp_path: Path) -> None:
    log = store(tmp_path)
    log.change(lambda manifest: transitions.activate(manifest, "w"))
    assert mark_of(log.snapshot()) is None
    assert not is_of(LogMark("e1-a", 1, "x"), log.snapshot())


def test_damage_is_no_other_log(tmp_path: Path) -> None:
    log = store(tmp_path)
    log.append([note(0, "a")])
    mark = mark_of(log.snapshot())
    assert mark is not None
    for file in (tmp_path / "events.lance/segments").rglob("*.lance"):
        if file.is_file():
            file.write_bytes(b"")
    assert is_of(LogMark("merged-since", mark.rows, "another"), log.snapshot())
