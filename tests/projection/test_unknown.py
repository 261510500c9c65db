"""Unknown members of ATIF documents in the columns that the peer has for them; what it cannot hold stays in the residual."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from msgspec.structs import replace

from chronicle.formats import hub
from chronicle.formats.cut import cut
from chronicle.formats.story import StorylineDocument
from chronicle.projection import tables
from chronicle.projection.tables import TableBuilder, stories
from chronicle.projection.unknown import MARKER
from tests.laws.contents import atif, chats, child

UNKNOWN: dict[str, Any] = {
    "/x": {"a": [1.5, None]},
    "/": 1,
    "/a~1b~0": -0.5,
    "/agent/x": True,
    "/steps/0/x": "é",
    "/steps/2/tool_calls/0/result": {"r": 1},
    "/subagent_trajectories/1/x": [],
    "/subagent_trajectories/1/agent/y": 18446744073709551615,
    "/subagent_trajectories/1/steps/2/tool_calls/0/x": 2,
}
COUNTS = {
    "/x": 1,
    "/": 1,
    "/a~1b~0": 1,
    "/agent/x": 1,
    "/steps/*/x": 1,
    "/steps/*/tool_calls/*/result": 1,
    "/subagent_trajectories/*/x": 1,
    "/subagent_trajectories/*/agent/y": 1,
    "/subagent_trajectories/*/steps/*/tool_calls/*/x": 1,
}


def document() -> dict[str, Any]:
    """A trajectory with two embedded ones."""
    found: dict[str, Any] = json.loads(atif("s1", 3, subagent_trajectories=[child("bird", 3), child("fish", 3)]))
    return found


def with_members(members: dict[str, Any]) -> bytes:
    """The document with these members at these places."""
    made = document()
    for pointer, value in members.items():
        at: Any = made
        *above, name = pointer[1:].split("/")
        for key in above:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[name.replace("~1", "/").replace("~0", "~")] = value
    return json.dumps(made).encode()


def read(data: bytes, source: str = "0" * 32) -> list[StorylineDocument]:
    found = cut(data)
    return [story for each in found.documents for story in hub.into(hub.document_of(data, found, each, source))]


def cells(some: list[StorylineDocument]) -> list[tuple[Any, Any]]:
    """`unknown_fields` and `unknown_key_counts` of each row, after the way back was tried."""
    builder = TableBuilder()
    for _, document in groupby(some, key=lambda story: story.origin and story.origin.document_id):
        builder.add(list(map(replace, document)), 0)
    made = builder.batches()
    assert list(stories(*([made[name]] for name in ("runs", "steps", "tool_calls")))) == some
    fields, counts = (
        [None if cell is None else json.loads(cell) for cell in made["runs"].column(name).to_pylist()]
        for name in ("unknown_fields", "unknown_key_counts")
    )
    return list(zip(fields, counts, strict=True))


def test_all_of_a_document_stand_in_the_row_of_its_root() -> None:
    some = [*read(atif("s0", 2)), *read(with_members(UNKNOWN), "1" * 32), *read(with_members({"/x": 3}), "2" * 32)]
    first, (fields, counts), bird, fish, (others, _), *_ = cells(some)
    assert first == bird == fish == (None, None)
    assert fields == {"sources": {"atif": {"fields": UNKNOWN, "source_document_id": some[1].story_id}}}
    assert counts == {"atif": COUNTS}
    assert others["sources"]["atif"] == {"fields": {"/x": 3}, "source_document_id": some[4].story_id}


def test_turns_of_later_batches_are_in_the_row_of_their_root_too(monkeypatch: pytest.MonkeyPatch) -> None:
    some = read(with_members(UNKNOWN))
    ((fields, counts), *_) = cells(list(map(replace, some)))
    monkeypatch.setattr(tables, "_FULL_ROWS", 1)
    builder = TableBuilder()
    builder.add(some, 0)
    (row,) = builder.batches()["runs"].to_pylist()
    assert (json.loads(row["unknown_fields"]), json.loads(row["unknown_key_counts"])) == (fields, counts)
    assert builder.rows > 5


def test_the_same_key_twice_counts_twice() -> None:
    ((_, counts), *_) = cells(read(with_members({"/steps/0/x": 1, "/steps/2/x": 2})))
    assert counts == {"atif": {"/steps/*/x": 2}}


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        '{"a":[-Infinity]}',
        '"\\ud800"',
        "1e400",
        "18446744073709551616",
        '{"a":-9223372036854775809}',
        "[" * 90 + "]" * 90,
        json.dumps(f"{MARKER}u:i:00:1:"),
    ],
)
def test_what_the_peer_cannot_hold_stays_in_the_residual(text: str) -> None:
    data = with_members({"/x": 1, "/y": "here", "/steps/0/z": "here"}).replace(b'"here"', text.encode())
    ((fields, _), *_) = cells(read(data))
    assert fields["sources"]["atif"]["fields"] == {"/x": 1}


@pytest.mark.parametrize(
    "data",
    [
        atif("s", 3),
        with_members({"/notes": 5, "/agent/name": None, "/steps/0/metrics": None, "/steps/0/timestamp": 7}),
        with_members({"/_storyline": {}, "/steps/0/_storyline": 1}),
        with_members({"/x\ud800": 1}),
        with_members({"/x": 1}).replace(b'"notes"', b'"x"').replace(b'{"schema', b'{"x":2,"schema', 1),
        chats(range(2)).replace(b'"id"', b'"x"'),
    ],
    ids=["none", "known", "reserved", "surrogate", "repeated", "other-format"],
)
def test_nothing_else_is_unknown(data: bytes) -> None:
    assert all(each == (None, None) for each in cells(read(data)))
