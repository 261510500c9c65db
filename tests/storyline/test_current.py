"""CURRENT: its forms and its transitions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chronicle.errors import CurrentConflict, IntegrityError
from chronicle.storyline import current as states
from chronicle.storyline.current import Current, Lease, Snapshot
from tests.storyline.stores import PROJECTION

POINTER: dict[str, Any] = {
    "schema_version": 1,
    "generation": "gen-2-1-1",
    "parent_generation": "gen-1-1-0",
    "table_generation": "gen-1-1-0",
    "runs_version": 3,
    "steps_version": 4,
    "tool_calls_version": 5,
    "objects_version": 1,
}
LEASE = {
    "epoch": 9,
    "owner_id": "gen-9-9-0",
    "issued_at_unix_ms": 1000,
    "expires_at_unix_ms": 61000,
    "base_generation": "gen-2-1-1",
}


def read(value: Any) -> Current:
    return states.decode(json.dumps(value).encode(), "CURRENT")


def envelope(**more: Any) -> dict[str, Any]:
    return {"control_version": 1, "revision": 9, "committed": POINTER, **more}


def snapshot(generation: str, parent: str | None) -> Snapshot:
    return Snapshot(**{**POINTER, "generation": generation, "parent_generation": parent})


def test_the_envelope_with_and_without_a_lease() -> None:
    assert read(envelope()).lease is None
    held = read(envelope(lease=LEASE, news={"unknown": 1}))
    assert held.lease == Lease(**LEASE)  # type: ignore[arg-type]
    assert held.committed.versions == {"runs": 3, "steps": 4, "tool_calls": 5}
    assert read(envelope(lease=None)).lease is None


def test_the_bare_pointer_and_lineage() -> None:
    bare = read({**POINTER, "other": [1]})
    assert (bare.revision, bare.committed.generation) == (0, "gen-2-1-1")
    lineage = {"kind": "canonical_events", "source_uri": "/e", "fact_version": 1, "fact_rows": 3, "layout_revision": 2, "x": 1}
    texts = dict.fromkeys(("source_id", "source_file", "projector_name", "recipe_hash", "completeness"), "t")
    found = read(envelope(committed={**POINTER, "projection": {**texts, "source": lineage}})).committed.projection
    assert found is not None
    assert found.source.fact_rows == 3
    other = {**texts, "source": {"kind": "exchange", "source_uri": "/x", "snapshot_ref": "r"}}
    assert read(envelope(committed={**POINTER, "projection": other})).committed.projection is not None


def test_what_is_written_reads_the_same() -> None:
    whole = Current(
        control_version=1,
        revision=4,
        committed=Snapshot(**{**POINTER, "projection": PROJECTION}),
        lease=Lease(**LEASE),  # type: ignore[arg-type]
    )
    assert states.decode(states.encode(whole), "CURRENT") == whole
    assert b"lease" not in states.encode(read(envelope()))


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        envelope(control_version=2),
        envelope(committed={**POINTER, "schema_version": 2}),
        envelope(committed={**POINTER, "generation": "g1"}),
        envelope(committed={**POINTER, "table_generation": "gen-/../x"}),
        envelope(committed={**POINTER, "runs_version": None}),
        envelope(revision="9"),
        envelope(committed={**POINTER, "runs_version": 0}),
        envelope(committed={**POINTER, "steps_version": 2**63}),
        envelope(committed={**POINTER, "objects_version": -1}),
        {**POINTER, "schema_version": 2},
    ],
)
def test_what_is_no_current(value: Any) -> None:
    with pytest.raises(IntegrityError, match="CURRENT does not read"):
        read(value)


def test_bytes_that_are_no_json() -> None:
    for data in (b"", b"{", b'{"committed":"\xff"}'):
        with pytest.raises(IntegrityError):
            states.decode(data, "CURRENT")


def test_a_lease_is_taken_renewed_moved_and_given_back() -> None:
    taken = states.leased(read(envelope()), "me", 5000, 2000)
    assert taken.lease == Lease(
        epoch=10, owner_id="me", issued_at_unix_ms=5000, expires_at_unix_ms=7000, base_generation="gen-2-1-1"
    )
    later = states.renewed(taken, "me", 6000, 2000)
    assert later.lease is not None
    assert (later.revision, later.lease.epoch, later.lease.expires_at_unix_ms) == (11, 10, 8000)
    moved = states.committed(later, "me", snapshot("gen-3-1-1", "gen-2-1-1"))
    assert moved.lease is not None
    assert (moved.committed.generation, moved.lease.base_generation) == ("gen-3-1-1", "gen-3-1-1")
    free = states.released(moved, "me")
    assert free is not None
    assert (free.lease, free.revision) == (None, 13)


def test_a_lease_of_somebody_else_is_respected() -> None:
    theirs = read(envelope(lease=LEASE))
    assert states.released(theirs, "me") is None
    assert states.released(None, "me") is None
    for state in (theirs, read(envelope()), None):
        with pytest.raises(CurrentConflict):
            states.renewed(state, "me", 0, 1)
        with pytest.raises(CurrentConflict):
            states.committed(state, "me", snapshot("gen-3-1-1", "gen-2-1-1"))


def test_a_commit_goes_on_the_state_it_began_from() -> None:
    taken = states.leased(read(envelope()), "me", 0, 1)
    with pytest.raises(CurrentConflict):
        states.committed(taken, "me", snapshot("gen-3-1-1", "gen-1-1-0"))
