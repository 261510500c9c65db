"""Every ATIF file that the peer imports and exports without change comes out of our store by the peer without change."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import IntegrityError
from tests import peer, peerfiles
from tests.lake import Lake
from tests.laws.contents import atif, child
from tests.projection.test_unknown import UNKNOWN, with_members

pytestmark = peer.needed

STEP: dict[str, Any] = {
    "timestamp": "2026-02-03T04:05:07.123456789Z",
    "reasoning_content": "",
    "reasoning_effort": 0.5,
    "model_name": "m",
    "metrics": {"prompt_tokens": 5, "cost_usd": 0.25, "latency_ms": 5, "x": [-0.5, -1.25e-7]},
    "llm_call_count": 1,
    "is_copied_context": False,
    "extra": {"deep": [{"a": [None, 18446744073709551615, -9223372036854775808]}], "é": "\u0000\u2028😀"},
    "tool_calls": [
        {"tool_call_id": "a", "function_name": "f", "arguments": "raw {", "extra": {"duration_ms": 12}, "result": {"r": 1}},
        {"tool_call_id": "b", "function_name": "f", "arguments": [1, 1.5, 1e300, 9007199254740993]},
    ],
    "observation": {
        "results": [
            {
                "source_call_id": "b",
                "content": [{"type": "text", "text": "t"}],
                "subagent_trajectory_ref": [{"trajectory_path": "x"}],
            },
            {"source_call_id": "a", "content": "1"},
            {"source_call_id": "a", "content": "2", "extra": {"k": 1}},
            {"content": None},
            "text",
        ],
        "x": {},
    },
}
PARTS = [{"type": "text", "text": "t"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]
CHANGED = {
    "zone": "an instant in another zone is written in UTC",
    "naive": "an instant without a zone is taken for UTC",
    "nulls": "explicit nulls of known members are left out",
    "empty": "empty metrics are left out",
    "long-inside": "a long text inside of a JSON column is replaced by a description of where it lies",
}
"""Files that the peer changes by itself, and how."""
REFUSED = {
    "embedded-unknown": "unknown members of an embedded trajectory, none of the root: no root trajectory",
    "nan": "no strict JSON",
}
"""Files that it does not import, or not export again."""


def changed(**members: Any) -> dict[str, Any]:
    """A document with other members in its last step."""
    made: dict[str, Any] = json.loads(atif("s", 3))
    made["steps"][2].update(members)
    return made


def files() -> dict[str, dict[str, Any]]:
    """Documents by name; `session_id` is the name, or the peer renames the second one of a session."""
    kinds = {"list": [], "text": "", "number": 7, "object": {"a": 1}, "null": None, "parts": PARTS, "long": "y" * 70_000}
    found: dict[str, Any] = {f"message-{name}": changed(message=value) for name, value in kinds.items()}
    found["plain"] = changed()
    found["all"] = changed(**STEP)
    found["no-calls"] = changed(tool_calls=[], observation={"results": []})
    found["ids"] = changed(step_id=40) | {"trajectory_id": "stated"}
    found["root"] = changed() | {"notes": "", "final_metrics": {"n": 0.25}, "extra": {}, "continued_trajectory_ref": "b.json"}
    found["unknown"] = json.loads(with_members(UNKNOWN)) | {"trajectory_id": "main"}
    inner = child("inner", 3) | {"x": 1}
    nested = [child("outer", 2) | {"subagent_trajectories": [inner], "session_id": "own"}, child("beside", 3)]
    found["nested"] = changed() | {"subagent_trajectories": nested, "x": 0}
    found["zone"] = changed(timestamp="2026-02-03T04:05:07+09:00")
    found["naive"] = changed(timestamp="2026-02-03T04:05:07")
    found["nulls"] = changed(metrics=None, model_name=None)
    found["empty"] = changed(metrics={})
    found["long-inside"] = changed(extra={"t": "x" * 70_000})
    found["embedded-unknown"] = changed() | {"subagent_trajectories": [child("only", 2) | {"x": 1}]}
    return {name: copy.deepcopy(document) | {"session_id": name} for name, document in found.items()}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("files"))
    for name, document in files().items():
        lake.put(f"{name}.json", json.dumps(document).encode())
    odd = json.dumps(changed(step_id=3) | {"session_id": "nan", "x": "here", "y": 1, "big": 1 << 64}).encode()
    lake.put("nan.json", odd.replace(b'"here"', b"NaN"))
    lake.ingest()
    assert lake.rebuild().failed == []
    return lake


@pytest.fixture(scope="module")
def theirs(lake: Lake) -> dict[str, dict[str, Any]]:
    """What the peer by itself makes of the files that it takes, by session."""
    taken = lake.root / "taken"
    taken.mkdir()
    for name in files().keys() - REFUSED.keys():
        (taken / f"{name}.json").write_bytes((lake.inbox / f"{name}.json").read_bytes())
    assert peerfiles.taken_in(taken, lake.root / "alone/store")
    return {document["session_id"]: document for document in peerfiles.exported(lake.root / "alone/store")}


def test_what_the_peer_keeps_it_keeps_in_our_store(lake: Lake, theirs: dict[str, dict[str, Any]]) -> None:
    unchanged = {name for name, document in files().items() if name in theirs and peerfiles.equal(document, theirs[name]) is None}
    assert files().keys() - unchanged == CHANGED.keys() | (REFUSED.keys() - {"nan"})
    story_ids = {story_id for ids in peerfiles.story_ids_by_file(lake.paths).values() for story_id in ids}
    ours = {document["session_id"]: document for document in peerfiles.exported(lake.paths.storyline)}
    assert ours.keys() == {*files(), "nan"}
    for name in unchanged:
        assert peerfiles.equal(files()[name], ours[name], story_ids) is None
        assert peerfiles.equal(theirs[name], ours[name], story_ids) is None
    for name in ("long-inside", "embedded-unknown"):
        assert peerfiles.equal(files()[name], ours[name], story_ids) is None, "what it loses in its own store it keeps in ours"
    assert (ours["nan"]["y"], ours["nan"].keys() & {"x", "big"}) == (1, set()), "the rest of an odd one is there"


def test_we_read_what_the_peer_keeps(lake: Lake, theirs: dict[str, dict[str, Any]]) -> None:
    store = lake.root / "alone/store"
    for name, document in theirs.items():
        if name == "long-inside":  # its maintenance removed the text
            with pytest.raises(IntegrityError, match="is missing"):
                peerfiles.read(store, {name})
            continue
        found = peerfiles.read(store, {name, "own"} if name == "nested" else {name})
        wanted = [files()[name], *([document] if name in CHANGED else [])]  # it holds empty metrics, and does not export them
        assert None in [peerfiles.equal(each, found) for each in wanted]


def test_a_difference_is_seen() -> None:
    """Else the comparison would say nothing."""
    source = files()["nested"]
    found = copy.deepcopy(source) | {"trajectory_id": "added"}
    found["subagent_trajectories"][1] |= {"session_id": "nested", "trajectory_id": "other"}
    assert peerfiles.equal(source, found, {"added", "other"}) is None
    assert peerfiles.equal(source, found, {"added"}) is not None
    found["subagent_trajectories"][1]["session_id"] = "another"
    assert peerfiles.equal(source, found, {"added", "other"}) is not None
    for path in (("x",), ("subagent_trajectories", 0, "session_id"), ("steps", 2, "observation", "results", 0, "content")):
        found = copy.deepcopy(source)
        at: Any = found
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]
        assert peerfiles.equal(source, found, set()) is not None


def test_both_count_the_same(lake: Lake, theirs: dict[str, dict[str, Any]]) -> None:
    ours = peerfiles.counted_by_us(lake.paths)
    assert peerfiles.counted_by_peer(lake.paths.storyline) == ours
    assert peerfiles.listed(lake.paths.storyline) == peerfiles.totals(ours)
    by_file = peerfiles.story_ids_by_file(lake.paths)
    of_theirs = [ours[story_id] for name, ids in by_file.items() if name.removesuffix(".json") in theirs for story_id in ids]
    store = lake.root / "alone/store"
    assert sorted(peerfiles.counted_by_peer(store).values()) == sorted(of_theirs)
    assert peerfiles.listed(store)[0] == len(of_theirs)


@pytest.mark.parametrize("format", ["storyline", "openai-messages"])
def test_unknown_members_go_into_other_formats_as_from_its_own_store(tmp_path: Path, format: str) -> None:
    """It carries them; it does not refuse a file for them."""
    lake = Lake(tmp_path)
    lake.put("a.json", json.dumps(json.loads(atif("s", 2)) | {"x": {"a": 1}}).encode())
    lake.ingest()
    lake.rebuild()
    found = peer.peer("export", "--from", lake.paths.storyline, "--to", "-", "--output-format", format)
    assert json.loads(found)
    assert '"/x": {' in found
