"""One lake, two tools: the real `pchronicle` finds in our tables and facts what we count there."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chronicle.layout import TABLES
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions, QueryOptions
from chronicle.query import query
from infra import samples
from tests import peer
from tests.jsoncompare import same_json
from tests.lake import Lake
from tests.laws.contents import atif, chats, child, rows

pytestmark = peer.needed

COUNTS = "select (select count(*) from runs) r, (select count(*) from steps) s, (select count(*) from tool_calls) t"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Exports of several shapes, taken in on two days: the second day's commit appends to the tables."""
    lake = Lake(tmp_path_factory.mktemp("peer"))
    samples.write(lake.inbox)
    lake.put("more/a.json", atif("s1", 7))
    lake.put("more/chats.jsonl", chats(range(4)))
    lake.ingest()
    lake.rebuild()
    lake.put("more/a.json", atif("s1", 9))
    lake.put("more/b.json", atif("s2", 4, subagent_trajectories=[child("bird", 3)]))
    lake.put("more/chats.jsonl", chats(range(6)))
    lake.put("more/rows.json", rows(2))
    lake.ingest()
    assert lake.rebuild().mode == "incremental"
    return lake


def counts(lake: Lake) -> tuple[int, ...]:
    return tuple(len(lake.rows()[name]) for name in TABLES)


def test_list_and_stats(lake: Lake) -> None:
    (source,) = json.loads(peer.peer("list", lake.paths.storyline, "--sources", "--format", "json"))["sources"]
    assert (source["status"], source["kind"], source["error"]) == ("ready", "store", None)
    found = json.loads(peer.peer("stats", lake.paths.storyline, "--format", "json", "--errors", "strict"))
    assert found["counts_complete"] is True
    assert tuple(found["counts"][name] for name in TABLES) == counts(lake)


def test_queries_of_the_tables(lake: Lake) -> None:
    assert tuple(peer.query(lake.paths.storyline, COUNTS)[0].values()) == counts(lake)
    ours = lake.rows()
    agents = Counter(row["agent_id"] for row in ours["runs"])
    theirs = peer.query(lake.paths.storyline, "select agent_id, count(*) as n from runs group by 1")
    assert {row["agent_id"]: row["n"] for row in theirs} == agents
    columns = ["document_id", "turn_ordinal", "step_id", "source", "effective_kind", "message_value", "observation"]
    theirs = peer.query(lake.paths.storyline, f"select {', '.join(columns)} from steps order by document_id, turn_ordinal")
    assert theirs == [{name: row[name] for name in columns if row[name] is not None} for row in ours["steps"]]
    theirs = peer.query(lake.paths.storyline, "select document_id, tool_call_id, function_name, arguments from tool_calls")
    assert sorted(theirs, key=str) == sorted(({name: row[name] for name in theirs[0]} for row in ours["tool_calls"]), key=str), (
        "JSON columns are text, as the source spelt it"
    )


def test_queries_of_the_facts(lake: Lake) -> None:
    kinds = Counter(record.kind for record in lake.records())
    theirs = peer.query(lake.paths.events, "select kind, count(*) as n from dataset.events group by 1 order by 1")
    assert {row["kind"]: row["n"] for row in theirs} == kinds
    found = peer.query(lake.paths.events, "select event_id, payload_json from dataset.events")
    assert sorted((row["event_id"], row["payload_json"]) for row in found) == sorted(
        (record.event_id, record.text.decode()) for record in lake.records()
    )


def test_export_as_atif(lake: Lake) -> None:
    """Every story comes out; those that are plain ATIF as the file they came from."""
    exported: Any = json.loads(peer.peer("export", "--from", lake.paths.storyline, "--to", "-", "--output-format", "atif"))
    roots = [row for row in lake.rows()["runs"] if row["parent"] is None]
    assert Counter(each["session_id"] for each in exported) == Counter(row["session_id"] for row in roots)
    (run,) = [row for row in roots if row["session_id"] == "s1"]
    (found,) = [each for each in exported if each["session_id"] == "s1"]
    wanted = {**json.loads(atif("s1", 9)), "trajectory_id": run["document_id"]}  # the one member that the peer adds
    ours, theirs = (json.dumps(each, sort_keys=True).encode() for each in (wanted, found))
    assert same_json(ours, theirs) is None


def asked(lake: Lake) -> tuple[Any, ...]:
    """The same counts of tables and facts by both tools: ours, theirs, theirs of facts."""
    with query(QueryOptions(lake=lake.paths.lake, dataset="d", sql=COUNTS)) as result:
        ours = [row for batch in result.batches() for row in batch.to_pylist()]
    kinds = peer.query(lake.paths.events, "select kind, count(*) as n from dataset.events group by 1")
    return ours, peer.query(lake.paths.storyline, COUNTS), Counter({row["kind"]: row["n"] for row in kinds})


def test_both_count_the_same_before_and_after_maintenance(lake: Lake, tmp_path: Path) -> None:
    shutil.copytree(lake.root, tmp_path, dirs_exist_ok=True)
    copied = Lake(tmp_path)
    before = asked(copied)
    assert before[0] == before[1]
    assert before[2] == copied.store.stats().kinds
    for full in (False, True):
        report = maintain(MaintainOptions(paths=copied.paths, index_rows=20, full=full, retention_seconds=0))
        assert any(each.startswith("segment") for each in report.indexed)
        assert len(report.merged) == full
        assert asked(copied) == before
