"""Documents in pieces, and what is held of one while it becomes stories."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from msgspec.structs import replace

from chronicle.formats import hub
from chronicle.formats.cut import cut
from chronicle.formats.document import Document, drained
from chronicle.project import Projector
from chronicle.projection.fold import FactDocument
from tests.laws.contents import atif, chats

LARGE = "x" * (1 << 16)


def steps(count: int, **fields: object) -> list[dict[str, object]]:
    return [{"step_id": n, "source": "agent", "message": LARGE, **fields} for n in range(1, count + 1)]


def trajectory(count: int, **fields: object) -> dict[str, object]:
    given = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps(count)}
    return given | fields


CALL = {"tool_call_id": "c", "function_name": "f", "arguments": {}}
TURN = {"src": "agent", "msg": LARGE, "tool_calls": [{"tcid": "c", "fn": "f", "args": {}}]}
DOCUMENTS = {
    "atif": trajectory(100),
    "odd": trajectory(100, steps=[each | {"x": None} for each in steps(100)]),
    "ids": trajectory(100, steps=steps(100, step_id=1)),
    "calls": trajectory(100, steps=steps(100, tool_calls=[CALL])),
    "embedded": trajectory(50, subagent_trajectories=[trajectory(50)]),
    "storyline": {"spec": "storyline/v1", "session": "s", "agent": {"id": "a"}, "turns": [{"id": n, **TURN} for n in range(100)]},
}


def document(data: bytes) -> Document:
    found = cut(data)
    return hub.document_of(data, found, found.documents[0], "0" * 32)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_part_is_let_go_of_as_soon_as_it_is_a_turn(name: str) -> None:
    data = json.dumps(DOCUMENTS[name]).encode()
    hub.into(document(data))  # what is made once is there then
    tracemalloc.start()
    try:
        given = document(data)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        stories = hub.into(given)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(story.turns) for story in stories) == 100
    assert size > 100 * len(LARGE)
    assert peak < size + 20 * len(LARGE), "a few copies of one turn"
    assert held < size + 5 * len(LARGE)


@pytest.mark.parametrize("data", [atif("s", 3), chats(range(2)), json.dumps(DOCUMENTS["storyline"]).encode()])
def test_a_document_has_no_parts_when_it_has_become_stories(data: bytes) -> None:
    given = document(data)
    count = len(given.parts)
    stories = hub.into(given)
    assert count > 0
    assert given.parts == []
    assert stories[0].turns


@pytest.mark.parametrize("data", [atif("s", 3), chats(range(2))])
def test_a_document_that_was_cut_by_other_rules_is_cut_again(data: bytes) -> None:
    ours = document(data)
    theirs = replace(ours, cut="0", opening=ours.text, parts=[], closing=b"")
    projector = Projector()
    ((_, stories),) = projector.stories([FactDocument(0, ours.source_id, 0, b"", theirs, b"")])
    assert (stories, projector.failed) == (hub.into(ours), [])


def test_what_is_drained_comes_in_order() -> None:
    items = [1, 2, 3]
    left = [(item, len(items)) for item in drained(items)]
    assert left == [(1, 2), (2, 1), (3, 0)]
