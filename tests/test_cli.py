"""The verbs as a user and a script meet them: flags, JSON, exit codes, files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.cli import app
from infra.samples import samples, write
from tests.command import Outcome, chronicle

VERBS = {
    "run", "ingest", "rebuild", "materialize", "export", "replay", "query", "stats", "list", "verify", "convert",
    "quarantine", "receipts", "serve", "drain", "maintain", "doctor", "find", "report",
}  # fmt: skip


class Lake:
    """A lake with one dataset, and the command for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "lake"
        self.exports = root / "exports"

    def __call__(self, *arguments: object, **options: Any) -> Outcome:
        return chronicle(*arguments, "--lake", self.path, "--dataset", "team/d", **options)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with all samples, tables and Markdown; the tests only read it."""
    found = Lake(tmp_path_factory.mktemp("full"))
    write(found.exports)
    assert found("ingest", found.exports).code == 65
    assert found("rebuild").code == 0
    assert found("materialize").code == 0
    return found


def test_the_verbs_are_those_of_this_version() -> None:
    assert set(app.commands) == VERBS
    assert set(app.commands["quarantine"].commands) == {"list", "show", "retry", "drop"}  # type: ignore[attr-defined]
    assert set(app.commands["receipts"].commands) == {"list", "rebuild"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_and_the_common_flags(verb: str) -> None:
    done = chronicle(verb, "--help")
    assert done.code == 0
    assert {"--json", "--config", "--quiet"} <= set(done.out.decode().split())


@pytest.mark.parametrize("verb", ["run", "ingest", "rebuild", "materialize", "export", "convert"])
def test_verbs_that_change_something_can_be_tried(verb: str) -> None:
    assert "--dry-run" in chronicle(verb, "--help").out.decode()


@pytest.mark.parametrize("verb", ["md", "deploy"])
def test_what_is_not_there_is_a_usage_error(verb: str) -> None:
    assert chronicle(verb).code == 2


def test_lake_and_dataset_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "--lake" in chronicle("ingest", tmp_path).err
    assert chronicle("ingest", tmp_path).code == 2
    assert "--dataset" in chronicle("ingest", tmp_path, "--lake", tmp_path).err
    assert chronicle("rebuild", "--lake", tmp_path, "--dataset", "../up").code == 2
    monkeypatch.setenv("CHRONICLE_LAKE", str(tmp_path))
    monkeypatch.setenv("CHRONICLE_DATASET", "none")
    assert chronicle("rebuild").code == 66


def test_ingest_reports_and_a_second_run_finds_nothing_new(lake: Lake) -> None:
    write(lake.exports)
    first, second = lake("ingest", lake.exports, "--json"), lake("ingest", lake.exports, "--json")
    assert (first.code, second.code) == (65, 65)
    counts = ("sources", "ingested", "unchanged", "empty", "quarantined_new", "quarantined_still", "files_opened")
    assert [first.json[name] for name in counts] == [12, 10, 0, 1, 1, 0, 12]
    assert [second.json[name] for name in counts] == [12, 0, 10, 1, 0, 1, 0]
    assert second.json["fact_version"] == first.json["fact_version"]
    kept = sorted((lake.path / "ops/team/d/reports").glob("*-ingest-*.json"))
    assert len(kept) == 2
    assert json.loads(kept[0].read_bytes())["verb"] == "ingest"
    assert lake("ingest", lake.exports, "--allow-quarantine").code == 0


def test_reports_say_whether_the_tables_are_fresh(lake: Lake) -> None:
    lake.exports.mkdir()

    def said(*words: object) -> str:
        return str(lake(*words, "--json").json["freshness"])

    def put(name: str) -> None:
        (lake.exports / name).write_bytes(samples()["eval/survey-7.json"].replace(b"survey-7", name.encode()))

    put("a.json")
    assert said("ingest", lake.exports, "--dry-run") == said("ingest", lake.exports) == said("materialize") == "missing"
    assert said("rebuild") == said("maintain", "--compact") == said("ingest", lake.exports) == "fresh"
    put("b.json")
    events = lake("ingest", lake.exports, "--json").json["events"]
    assert said("materialize") == said("ingest", lake.exports) == f"stale by {events} facts"
    assert said("rebuild", "--dry-run") == f"stale by {events} facts"
    current = lake.path / "storyline/team/d/CURRENT"
    current.write_text("{")
    assert said("ingest", lake.exports) == ""


def test_dry_run_makes_no_lake(lake: Lake) -> None:
    write(lake.exports)
    done = lake("ingest", lake.exports, "--dry-run")
    assert done.json["sources"] == 12
    assert not lake.path.exists()


def test_a_source_that_is_not_there(lake: Lake) -> None:
    done = lake("ingest", lake.root / "nowhere", "--json")
    assert done.code == 66
    assert "nowhere" in done.json["error"]["message"]
    assert not lake.path.exists()


def test_exact_export_gives_back_what_came_in(full: Lake, tmp_path: Path) -> None:
    assert full("export", "--exact", "--to", tmp_path / "out").code == 0
    found = {
        p.relative_to(tmp_path / "out/exports").as_posix(): p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()
    }
    assert found == {name: data for name, data in samples().items() if "cut-off" not in name and data}
    assert full("export", "--exact", "--to", tmp_path / "out").code == 2, "not empty"
    assert full("export", "--exact", "--to", tmp_path / "out", "--overwrite").code == 0


def test_export_needs_one_way(full: Lake, tmp_path: Path) -> None:
    assert full("export", "--to", tmp_path / "out").code == 2
    assert full("export", "--to", tmp_path / "out", "--exact", "--format", "atif").code == 2
    assert full("export", "--to", tmp_path / "out", "--format", "atif", "--all-versions").code == 2
    assert full("export", "--to", full.path / "in", "--exact").code == 2, "inside the lake"


def test_replay_into_ingest_gives_the_same_export(full: Lake, lake: Lake) -> None:
    events = full("replay")
    assert events.code == 0
    assert lake("ingest", "-", stdin=events.out).code == 0
    for one, to in ((full, "a"), (lake, "b")):
        assert one("export", "--exact", "--to", lake.root / to).code == 0
    trees = [{p.relative_to(lake.root / to): p.read_bytes() for p in (lake.root / to).rglob("*.json*")} for to in ("a", "b")]
    assert trees[0] == trees[1] != {}


def test_replay_of_a_session_and_of_a_range(full: Lake) -> None:
    everything = full("replay").lines
    assert full("replay", "--from-row", "3", "--limit", "4").lines == everything[3:7]
    session = [json.loads(line) for line in full("replay", "--session", "survey-7").lines]
    assert session
    assert {event["session_id"] for event in session} == {"survey-7"}
    assert full("replay", "--session", "survey-7", "--limit", "0").lines == []
    assert full("replay", "--session", "survey-7", "--from-row", "1000").code == 0


def test_replay_of_no_session(full: Lake) -> None:
    done = full("replay", "--session", "nope")
    assert (done.code, done.out) == (66, b"")
    assert "'nope'" in done.err


QUERY = "SELECT agent_id, count(*) AS n, 1.10 AS price FROM runs GROUP BY ALL ORDER BY n DESC, agent_id LIMIT 2"


def test_query_formats(full: Lake) -> None:
    rows = [json.loads(line) for line in full("query", QUERY).lines]
    assert [(row["agent_id"], row["n"]) for row in rows] == [("openai-import", 6), ("wrench", 4)]
    assert b'"price":1.10' in full("query", QUERY).out
    assert full("query", QUERY, "--format", "csv").lines == [b"agent_id,n,price", b"openai-import,6,1.10", b"wrench,4,1.10"]
    table = full("query", QUERY, "--format", "table").out.decode()
    assert "openai-import" in table
    import pyarrow.parquet as parquet

    stored = parquet.read_table(io.BytesIO(full("query", QUERY, "--format", "parquet").out))
    assert stored.column("agent_id").to_pylist() == ["openai-import", "wrench"]
    assert full("query", QUERY, "--format", "parquet", terminal=True).code == 2
    assert "openai-import" in full("query", QUERY, terminal=True).out.decode()


def test_query_over_the_lake_names_datasets(full: Lake) -> None:
    done = chronicle("query", "SELECT DISTINCT dataset FROM steps", "--lake", full.path)
    assert done.json == {"dataset": "team/d"}


def test_the_whole_lake_while_a_dataset_is_set(full: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_LAKE", str(full.path))
    monkeypatch.setenv("CHRONICLE_DATASET", "other")
    assert [one["dataset"] for one in chronicle("list").json["datasets"]] == ["team/d"]
    assert chronicle("query", "SELECT DISTINCT dataset FROM steps", "--dataset", "").json == {"dataset": "team/d"}
    assert chronicle("stats", "--dataset", "").json["verb"] == "list"
    monkeypatch.setenv("CHRONICLE_DATASET", "team/d")
    assert "add --dataset ''" in chronicle("query", "SELECT DISTINCT dataset FROM steps").err
    assert "no dataset is given" in chronicle("rebuild", "--dataset", "").err


def test_a_lake_that_is_a_file(full: Lake) -> None:
    file = next(path for path in full.exports.rglob("*.json"))
    for verb in (("list",), ("query", "SELECT 1"), ("ingest", file, "--dataset", "d")):
        done = chronicle(*verb, "--lake", file)
        assert (done.code, f"the lake path {file} is a file" in done.err) == (78, True)


@pytest.mark.parametrize("sql", ["DROP TABLE runs", "SELECT 1; SELECT 2", "SELEC 1", "SELECT * FROM 'x.csv'"])
def test_query_refuses(full: Lake, sql: str) -> None:
    done = full("query", sql)
    assert done.code == 2
    assert done.out == b""


def test_query_keeps_control_characters_from_a_terminal(full: Lake) -> None:
    sql = "SELECT 'a' || chr(27) || '[31m' || chr(10) || 'b' AS x"
    for format in ("table", "jsonl", "csv"):
        assert "\x1b[31m" not in full("query", sql, "--format", format, terminal=True).out.decode()
    assert full("query", sql).json == {"x": "a\x1b[31m\nb"}


def test_list_stats_and_verify(full: Lake) -> None:
    listed = chronicle("list", "--lake", full.path)
    assert [one["dataset"] for one in listed.json["datasets"]] == ["team/d"]
    assert full("stats").json["stories"] == 15
    assert full("verify").json["differences"] == []
    assert full("verify", "--sample", "2").json["sources"] <= 2
    whole = chronicle("verify", "--lake", full.path)
    assert (whole.code, whole.json["sources"]) == (0, 10)
    assert chronicle("verify", "--lake", full.root).code in (0, 66)
    assert chronicle("list", "--lake", full.root / "nowhere").code == 66


def test_verify_finds_a_table_that_lost_a_story(lake: Lake) -> None:
    write(lake.exports)
    lake("ingest", lake.exports)
    lake("rebuild")
    lake("materialize")
    victim = next((lake.path / "agenticmd/team/d").glob("*.md"))
    victim.unlink()
    done = lake("verify")
    assert done.code == 65
    assert {difference["layer"] for difference in done.json["differences"]} == {"markdown"}


def test_quarantine_from_entry_to_fact(lake: Lake) -> None:
    lake.exports.mkdir()
    path = lake.exports / "a.json"
    path.write_bytes(samples()["eval/repair-103-cut-off.json"])
    assert lake("ingest", lake.exports).code == 65
    (entry,) = lake("quarantine", "list", "--json").json["entries"]
    assert entry["kind"] == "truncated"
    assert entry["source_key"] == path.as_uri()
    assert "cut off" in entry["reason"]
    shown = lake("quarantine", "show", entry["id"][:6]).json
    assert shown["preview"].startswith('{\n  "schema_version"')
    assert lake("quarantine", "show", "nonsense").code == 66
    would = lake("quarantine", "retry", "--dry-run")
    assert (would.code, would.json["dry_run"], would.json["quarantined_still"]) == (65, True, 1)
    assert would.json["quarantine"][0]["id"] == entry["id"]
    assert lake("quarantine", "retry").code == 65
    assert lake("quarantine", "drop", entry["id"], "--dry-run").code == 0
    assert len(lake("quarantine", "list").json["entries"]) == 1
    assert lake("quarantine", "drop", entry["id"]).code == 0
    assert lake("quarantine", "list").json["entries"] == []


def test_several_entries_are_dropped_or_none(lake: Lake) -> None:
    lake.exports.mkdir()
    for number in range(3):
        (lake.exports / f"{number}.json").write_bytes(b'{"cut": %d' % number)
    assert lake("ingest", lake.exports).json["quarantined_new"] == 3
    first, second, third = (entry["id"] for entry in lake("quarantine", "list").json["entries"])
    assert lake("quarantine", "drop").code == 2
    assert lake("quarantine", "drop", first, "nonsense").code == 66
    assert len(lake("quarantine", "list").json["entries"]) == 3
    would = lake("quarantine", "drop", first, third[:8], first, "--dry-run").json
    done = lake("quarantine", "drop", first, third[:8], first).json
    assert [entry["id"] for entry in done["entries"]] == [first, third]
    assert would["entries"] == done["entries"]
    assert [entry["id"] for entry in lake("quarantine", "list").json["entries"]] == [second]


def test_receipts_can_be_made_anew(full: Lake) -> None:
    def known(done: Outcome) -> list[tuple[str, str]]:
        return [(one["source_key"], one["source_id"]) for one in done.json["receipts"]]

    listed = full("receipts", "list")
    assert len(known(listed)) == 10
    assert known(full("receipts", "rebuild", "--dry-run")) == known(listed)


def test_convert_there_and_back(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_bytes(samples()["eval/survey-7.json"])
    story, back = tmp_path / "story.json", tmp_path / "back.json"
    assert chronicle("convert", source, story, "--from", "atif", "--to", "storyline", "--strict").code == 0
    assert chronicle("convert", story, back, "--from", "storyline", "--to", "atif").code == 0
    assert json.loads(back.read_bytes()) == json.loads(source.read_bytes())
    lossy = chronicle("convert", source, tmp_path / "m.jsonl", "--from", "atif", "--to", "openai_msg", "--strict")
    assert lossy.code == 65
    assert lossy.json["lost"] == ["1 document came back as 2"]
    assert lossy.err.startswith("nothing was written: 1 place would be lost, first: 1 document came back as 2; ")
    assert not (tmp_path / "m.jsonl").exists()
    told = chronicle("convert", source, tmp_path / "m.jsonl", "--from", "atif", "--to", "openai_msg")
    assert (told.code, told.json["lost"]) == (0, lossy.json["lost"])
    assert (tmp_path / "m.jsonl").exists()
    piped = chronicle("convert", source, "-", "--from", "atif", "--to", "openai_msg")
    assert piped.out == (tmp_path / "m.jsonl").read_bytes()
    assert "1 place is lost" in piped.err


def test_convert_to_markdown(tmp_path: Path) -> None:
    source, page = tmp_path / "in.json", tmp_path / "out.md"
    source.write_bytes(samples()["eval/repair-101.json"])
    to = ("--from", "atif", "--to", "agenticmd")
    done = chronicle("convert", source, page, *to)
    assert done.code == 0
    assert done.json["lost"] == ["all of it: AgenticMD is a view to read, which is not read back"]
    where = ("--lake", tmp_path / "lake", "--dataset", "d")
    for verb in (("ingest", source), ("rebuild",), ("export", "--format", "agenticmd", "--to", tmp_path / "md")):
        assert chronicle(*verb, *where).code == 0
    assert page.read_bytes() == (tmp_path / "md/repair-101.md").read_bytes()
    assert chronicle("convert", source, "-", *to, "--strict").code == 65
    source.write_bytes(samples()["eval/batch.json"])
    several = chronicle("convert", source, tmp_path / "none.md", *to)
    assert (several.code, (tmp_path / "none.md").exists()) == (2, False)
    assert "export --format agenticmd" in several.err


def test_convert_in_a_pipe() -> None:
    data = samples()["stories/kiln-5.storyline.json"]
    done = chronicle("convert", "-", "-", "--from", "storyline", "--to", "atif", stdin=data)
    assert done.code == 0
    assert done.json["session_id"] == "kiln-5"
    assert chronicle("convert", "-", "-", "--from", "storyline", "--to", "atif", stdin=b"{").code == 65
    assert chronicle("convert", "-", "-", "--from", "events", "--to", "atif", stdin=data).code == 2
    assert chronicle("convert", "/nowhere.json", "-", "--from", "atif", "--to", "storyline").code == 66


def test_serve_wants_a_schedule(full: Lake) -> None:
    assert full("serve").code == 78


def test_run_wants_sources_and_times(full: Lake) -> None:
    assert full("run").code == 2
    assert full("run", full.exports, "--since", "yesterday").code == 2


def test_reader_that_leaves_early_is_no_error(full: Lake) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "flows.cli", "replay", "--lake", str(full.path), "--dataset", "team/d"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
