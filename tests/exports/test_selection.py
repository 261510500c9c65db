"""Selections of runs as files, as JSON lines and as Markdown (design 8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chronicle.errors import NotFoundError, UsageError
from chronicle.export import export
from chronicle.formats import hub
from chronicle.options import ExportOptions
from chronicle.reports import ExportReport
from infra import samples
from tests.jsoncompare import same_json
from tests.lake import Lake, tree
from tests.laws.contents import atif, child, rows, storyline

HOSTILE = ["../x", "..", "a/b", "x" * 300, "日本語", "con", ".hidden", "a\x00b", "  ", "S", "s", "nul.txt", "\\..\\y"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All samples, and a run with embedded ones two deep; the tests only read it."""
    lake = Lake(tmp_path_factory.mktemp("full"))
    samples.write(lake.inbox)
    nested = child("nest", 2) | {"subagent_trajectories": [child("egg", 2)]}
    lake.put("deep.json", atif("deep", 3, subagent_trajectories=[nested, child("fish", 2)]))
    lake.put("two-sessions.json", rows(2))
    lake.ingest()
    lake.rebuild()
    return lake


def run(lake: Lake, to: Path, **options: Any) -> tuple[ExportReport, dict[str, bytes]]:
    report = export(ExportOptions(paths=lake.paths, to=str(to), **{"format": "atif", **options}))
    found = tree(to) if to.is_dir() else {to.name: to.read_bytes()} if to.exists() else {}
    assert (report.files, report.bytes) == (len(found), sum(map(len, found.values())))
    return report, found


def test_one_document_a_file(lake: Lake, tmp_path: Path) -> None:
    report, found = run(lake, tmp_path / "out", where="agent_model_name = 'm-large' AND session_id LIKE 'repair-10%'")
    assert set(found) == {"repair-101.json", "repair-102.json"}
    assert (report.documents, report.stories, report.freshness) == (2, 2, "fresh")
    for name, data in found.items():
        assert same_json(samples.samples()[f"eval/{name}"], data) is None


@pytest.mark.parametrize(
    ("format", "name"), [("storyline", "survey-7.storyline.json"), ("openai_msg", "survey-7.json"), ("atif", "survey-7.json")]
)
def test_what_is_embedded_goes_with_its_root(lake: Lake, tmp_path: Path, format: str, name: str) -> None:
    report, found = run(lake, tmp_path / "out", format=format, session="survey-7")
    assert set(found) == {name}
    assert (report.documents, report.stories) == (1, 2)
    if format != "openai_msg":  # which has no place for all of it
        back = hub.convert(format, "atif", found[name])
        assert same_json(samples.samples()["eval/survey-7.json"], back) is None
    else:
        assert [len(chat["messages"]) for chat in json.loads(found[name])] == [4, 3]


def test_an_embedded_run_alone_is_a_document_of_its_own(lake: Lake, tmp_path: Path) -> None:
    _, found = run(lake, tmp_path / "out", where="run_id = 'nest'")
    (data,) = found.values()
    source = json.loads((lake.inbox / "deep.json").read_bytes())
    assert json.loads(data) == source["subagent_trajectories"][0], "with what is embedded in it"
    _, carried = run(lake, tmp_path / "carried", format="storyline", where="run_id IN ('nest', 'fish')")
    back = [hub.convert("storyline", "atif", text) for _, text in sorted(carried.items())]
    assert {json.loads(each)["trajectory_id"] for each in back} == {"fish", "nest"}
    assert any(same_json(data, each) is None for each in back)


def test_a_part_of_a_row_corpus_holds_the_selected_sessions_only(lake: Lake, tmp_path: Path) -> None:
    _, part = run(lake, tmp_path / "part", format="openai_msg", where="session_id = 'r1'")
    assert {row["session_id"] for data in part.values() for row in json.loads(data)} == {"r1"}
    _, whole = run(lake, tmp_path / "whole.jsonl", format="openai_msg")
    lines = whole["whole.jsonl"].splitlines()
    assert any(same_json((lake.inbox / "two-sessions.json").read_bytes(), line) is None for line in lines)


def test_all_documents_in_one_file_of_json_lines(lake: Lake, tmp_path: Path) -> None:
    for format in hub.FORMATS:
        report, found = run(lake, tmp_path / f"{format}.jsonl", format=format)
        lines = found[f"{format}.jsonl"].splitlines()
        assert found[f"{format}.jsonl"].endswith(b"\n")
        values = {"storyline": report.stories, "atif": report.documents + 1, "openai_msg": report.stories - 1}
        assert len(lines) == values[format], "the two sessions of one array of rows are one line of that form, two of ATIF"
        assert all(isinstance(json.loads(line), dict | list) for line in lines)
    survey = next(line for line in (tmp_path / "atif.jsonl").read_bytes().splitlines() if b"survey-7" in line)
    assert same_json(samples.samples()["eval/survey-7.json"], survey) is None


def test_a_selection_that_takes_nothing_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    report, found = run(lake, tmp_path / "out", where="false")
    assert (report.documents, found, report.warnings) == (0, {}, ["no run is selected"])
    never = 2_000_000_000 * 10**9
    assert run(lake, tmp_path / "out.jsonl", session="survey-7", since_ns=never)[1] == {}
    with pytest.raises(NotFoundError):
        run(lake, tmp_path / "out", session="nobody")


def test_conditions_come_together(lake: Lake, tmp_path: Path) -> None:
    steps = "document_id IN (SELECT document_id FROM tool_calls WHERE function_name = 'order')"
    assert set(run(lake, tmp_path / "b", where=steps, session="repair-201")[1]) == {"repair-201.json"}
    first_of_february_4th = 1_770_163_200 * 10**9
    report, found = run(lake, tmp_path / "c", since_ns=first_of_february_4th)
    assert set(found) == {"kiln-5.json"}
    assert "without any time stamp" in report.warnings[0]
    for wrong in ("true) OR (true", ""):
        with pytest.raises(UsageError):
            run(lake, tmp_path / "d", where=wrong)


def test_markdown_has_the_names_and_bytes_of_materialize(lake: Lake, tmp_path: Path) -> None:
    report, found = run(lake, tmp_path / "all", format="agenticmd")
    assert found == lake.markdown()
    assert report.documents == report.stories == len(found)
    _, some = run(lake, tmp_path / "some", format="agenticmd", session="survey-7")
    assert some == {name: data for name, data in found.items() if name.startswith("survey-7")}
    assert len(some) == 2


def test_a_document_has_the_same_name_in_every_export(lake: Lake, tmp_path: Path) -> None:
    _, everything = run(lake, tmp_path / "all", where="true")
    for number, session in enumerate(("survey-7", "deep", "kiln-5")):
        _, one = run(lake, tmp_path / str(number), session=session)
        assert one.items() <= everything.items()


def test_a_dry_run_counts_and_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    for format in ("atif", "agenticmd", "parquet"):
        options = ExportOptions(paths=lake.paths, to=str(tmp_path / "out"), format=format, since_ns=0)
        tried, done = export(replace(options, dry_run=True)), None
        assert not (tmp_path / "out").exists()
        done = export(replace(options, to=str(tmp_path / format)))
        assert (tried.files, tried.bytes, tried.documents, tried.stories) == (
            done.files,
            done.bytes,
            done.documents,
            done.stories,
        )


def test_names_are_safe_and_distinct(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number, session in enumerate(HOSTILE):
        lake.put(f"{number}.json", atif(session, 1))
        lake.put(f"again-{number}.json", atif(session, 2))
    lake.put("none.json", atif("", 1))
    lake.ingest()
    lake.rebuild()
    report, found = run(lake, tmp_path / "deep/below/out", where="true")
    assert report.documents == len(found) == 2 * len(HOSTILE) + 1
    assert all("/" not in name and len(name) < 200 and not name.startswith(".") for name in found)
    assert len({name.lower() for name in found}) == len(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "in", "lake"]
    sessions = sorted(json.loads(data)["session_id"] for data in found.values())
    assert sessions == sorted([*HOSTILE, *HOSTILE, ""])


TRAINING = {
    "schema_version": "ATIF-v1.7",
    "session_id": "t",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "old question", "is_copied_context": True},
        {"step_id": 2, "source": "agent", "message": "old answer", "is_copied_context": True, "llm_call_count": 1},
        {"step_id": 3, "source": "user", "message": "question", "llm_call_count": 0},
        {"step_id": 4, "source": "agent", "message": "canned", "llm_call_count": 0, "extra": {"k": 1.50}},
        {"step_id": 5, "source": "agent", "message": "answer", "llm_call_count": 2, "is_copied_context": False},
        {"step_id": 6, "source": "agent", "message": "unknown", "unheard_of": 1},
    ],
}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("training"))
    lake.put("t.json", json.dumps(TRAINING).encode())
    copied = {**TRAINING, "session_id": "all-old", "steps": TRAINING["steps"][:2]}  # type: ignore[index]
    lake.put("old.json", json.dumps(copied).encode())
    lake.put("story.storyline.json", storyline("told"))
    lake.ingest()
    lake.rebuild()
    return lake


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, ["old question", "old answer", "question", "canned", "answer", "unknown"]),
        ({"skip_copied": True}, ["question", "canned", "answer", "unknown"]),
        ({"skip_zero_llm": True}, ["old question", "old answer", "question", "answer", "unknown"]),
        ({"skip_copied": True, "skip_zero_llm": True}, ["question", "answer", "unknown"]),
    ],
)
def test_turns_that_are_no_use_for_training(training: Lake, tmp_path: Path, flags: dict[str, bool], said: list[str]) -> None:
    report, found = run(training, tmp_path / "t.jsonl", format="openai_msg", session="t", **flags)
    (line,) = found["t.jsonl"].splitlines()
    assert [message["content"] for message in json.loads(line)["messages"]] == said
    assert report.turns_left_out == 6 - len(said)
    _, files = run(training, tmp_path / "files", session="t", **flags)
    assert [step["message"] for step in json.loads(files["t.json"])["steps"]] == said
    _, markdown = run(training, tmp_path / "md", format="agenticmd", session="t", **flags)
    assert markdown["t.md"].count(b"persisting:block") == len(said)
    _, sources = run(training, tmp_path / "sources", **flags)
    assert [step["message"] for step in json.loads(sources["in/t.json"])["steps"]] == said


def test_a_document_without_turns_is_left_out_and_named(training: Lake, tmp_path: Path) -> None:
    for to in ("lines.jsonl", "sources"):
        report, found = run(training, tmp_path / to, format="openai_msg", skip_copied=True)
        assert report.skipped == ["session all-old: no turn is left"]
        assert report.documents == 2
        assert not any(b"old question" in data for data in found.values())
