"""The peer reads our tables: list, stats, queries and export, which cross-checks every document it loads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from chronicle.formats.story import Agent, Origin, Parent, StorylineDocument, ToolCall, Turn
from chronicle.projection.tables import TableBuilder
from chronicle.storyline.store import StorylineLanceStore
from chronicle.storyline.writer import Batches
from tests.peer import needed, peer, query
from tests.storyline.stores import PROJECTION

pytestmark = needed

LOOK = ToolCall(tcid="c1", fn="look", args=b'{"at": 1.10, "big": 18446744073709551615}', duration_ms=7, extra=b'{"x":1}')
TRIED = b'[{"source_call_id":"c1","content":[{"type":"text","text":"a"}]}, {"source_call_id":null, "content":"b"}]'
ORIGIN = Origin(format="atif", schema_version="ATIF-v1.7", form="x", container="jsonl", document_id="d", source_id="s", locator=2)


def stories() -> list[StorylineDocument]:
    """A parent with its child, a conversation with repeated call ids, one with odd but loadable values."""
    image = b'[{"type":"text","text":"Name it."},{"type":"image","source":{"media_type":"image/png","path":"i/a.png"}}]'
    parent = StorylineDocument(
        story_id="0" * 32,
        session="trial",
        run="main",
        agent=Agent(id="wrench", name="wrench", ver="0.9", model="m", tools=b'[{"type":"function"}]', extra=b'{"k":1}'),
        children=["bird-1", "gone"],
        child_stories=["1" * 32],
        turns=[
            Turn(id=1, src="user", msg=image, ts="2026-01-02T12:04:05.250000+09:00", residual={"/odd": "1.10"}),
            Turn(
                id=2,
                src="agent",
                msg=b'""',
                ts="2026-01-02T03:04:06Z",
                reason="delegate",
                effort=b"0.5",
                tool_calls=[LOOK],
                observation=b'{"results": %b}' % TRIED,
                metrics=b'{"prompt_tokens": 90, "cost_usd": 0.0100}',
                nllm=1,
                copied=False,
                latency_ms=5,
                ttft_ms=2,
            ),
        ],
        notes="n",
        final_metrics=b'{"total_steps":2}',
        extra=b'{"e":[1]}',
        origin=ORIGIN,
        residual={"/zzz": "1", "#": ["steps", "zzz"]},
        lints={"order": 1},
    )
    child = StorylineDocument(
        story_id="1" * 32,
        session="trial",
        run="bird-1",
        agent=Agent(id="orn", name="orn", ver="1"),
        parent=Parent(psid="main", scid="c1", ptid=2, rel="spawn"),
        turns=[Turn(id=1, src="agent", msg=b'"a wren"')],
        origin=ORIGIN,
    )
    repeated = StorylineDocument(
        story_id="2" * 32,
        session="chat",
        agent=Agent(id="openai-import"),
        turns=[
            Turn(id=1, src="user", msg=b'"q"', ts="no time"),
            Turn(
                id=2,
                src="agent",
                msg=b'"a"',
                tool_calls=[LOOK, ToolCall(tcid="c1#2", fn="look", args=b'"raw"', residual={"/id": '"c1"'})],
                observation=b'{"results":[{"source_call_id":"c1","content":"3.50"},{"tool_call_id":"c1#2"},7]}',
            ),
        ],
        origin=Origin(format="openai_msg", form="B1"),
    )
    odd = StorylineDocument(
        story_id="3" * 32,
        session="odd",
        agent=Agent(id="x"),
        turns=[
            Turn(id=-4, src="tool", msg=b'{"a":1,"a":2}', kind="weird", extra=b"[1]"),
            Turn(id=7, src="user", msg=b"null", tool_calls=[]),
            Turn(id=5, src="agent", msg=b"123456789012345678901234567890", effort=b'{"a":1}'),
            Turn(id=6, src="agent", msg=b'"%b"' % (b"x" * 200_000)),
        ],
    )
    return [parent, child, repeated, odd]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("peer") / "storyline")
    whole = stories()
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild([built(whole[2:], 2)], PROJECTION)
        writer.replace([whole[3].story_id], [built(whole[:2], 0), built(whole[3:], 3)], PROJECTION)
    return root


def built(some: list[StorylineDocument], first: int) -> Batches:
    builder = TableBuilder()
    for at, story in enumerate(some, first):
        builder.add([replace(story)], at)
    return builder.batches()


def exported(root: str, format: str) -> Any:
    return json.loads(peer("export", "--from", root, "--to", "-", "--output-format", format))


def test_list_and_stats(root: str) -> None:
    (source,) = json.loads(peer("list", root, "--sources", "--format", "json"))["sources"]
    assert (source["status"], source["kind"], source["error"]) == ("ready", "store", None)
    counts = json.loads(peer("stats", root, "--format", "json", "--errors", "strict"))["counts"]
    assert (counts["runs"], counts["steps"], counts["tool_calls"]) == (4, 9, 3)


def test_queries(root: str) -> None:
    sql = "select (select count(*) from runs) r, (select count(*) from steps) s, (select count(*) from tool_calls) t"
    assert query(root, sql) == [{"r": 4, "s": 9, "t": 3}]
    rows = query(
        root, "select step_id, effective_kind from steps where session_id = 'trial' and run_id = 'main' order by step_id"
    )
    assert rows == [{"step_id": 1, "effective_kind": "dialogue"}, {"step_id": 2, "effective_kind": "autonomous"}]
    assert query(root, "select arguments, results from tool_calls where tool_call_id = 'c1#2'") == [
        {"arguments": '"raw"', "results": '[{"tool_call_id":"c1#2"}]'}
    ]


def test_export_as_atif(root: str) -> None:
    found = {each["session_id"]: each for each in exported(root, "atif")}
    assert sorted(found) == ["chat", "odd", "trial"]
    trial = found["trial"]
    first, second = trial["steps"]
    assert first["message"] == json.loads(stories()[0].turns[0].msg)
    assert (first["timestamp"], second["timestamp"]) == ("2026-01-02T03:04:05.250Z", "2026-01-02T03:04:06Z")
    assert second["observation"] == {"results": json.loads(TRIED)}
    assert second["tool_calls"][0]["arguments"] == {"at": 1.1, "big": 18446744073709551615}
    assert (second["reasoning_effort"], second["is_copied_context"], second["llm_call_count"]) == (0.5, False, 1)
    (bird,) = trial["subagent_trajectories"]
    assert [step["message"] for step in bird["steps"]] == ["a wren"]
    assert trial["agent"] == {
        "name": "wrench",
        "version": "0.9",
        "model_name": "m",
        "tool_definitions": [{"type": "function"}],
        "extra": {"k": 1},
    }
    assert (trial["notes"], trial["final_metrics"], trial["extra"]) == ("n", {"total_steps": 2}, {"e": [1]})
    assert [call["tool_call_id"] for call in found["chat"]["steps"][1]["tool_calls"]] == ["c1", "c1#2"]
    assert [step["step_id"] for step in found["odd"]["steps"]] == [-4, 7, 5, 6]
    assert len(found["odd"]["steps"][3]["message"]) == 200_000


def test_export_as_storyline(root: str) -> None:
    found = {each["trajectory"]: each for each in exported(root, "storyline")}
    assert found["0" * 32]["children"] == ["1" * 32]
    assert found["1" * 32]["parent"] == {"psid": "main", "scid": "c1", "ptid": 2}
    assert found["0" * 32]["origin"] == {"format": "atif", "schema_version": "ATIF-v1.7"}
    assert found["3" * 32]["turns"][0]["kind"] == "weird"
