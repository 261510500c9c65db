"""The page about runs: its numbers are those of the tables, and nothing in it comes from outside or is more than text."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import NotFoundError, UsageError
from chronicle.figures import MOST_ROWS
from chronicle.layout import DatasetPaths
from chronicle.options import ReportOptions
from chronicle.report import report
from chronicle.storyline.source import StorylineDataSource
from infra import samples
from tests.command import chronicle
from tests.lake import Lake
from tests.laws.contents import atif

HOSTILE = "<script>alert('x')</script>\"'&\u202e\x1b[31m\x00"
VOID = {"meta"}


class Tables(HTMLParser):
    """Reads a page: the rows of its tables by id, all tags, attributes and texts. Fails where tags do not match."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = self.tables[str(dict(attrs)["id"])] = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self._rows[-1][-1] += data

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        """Name of a row -> its cells by column, numbers as numbers."""
        head, *rows = self.tables[table]
        found = {}
        for row in rows:
            assert len(row) == len(head)
            found[row[0]] = {name: _value(cell) for name, cell in zip(head, row, strict=True)}
        return found


def _value(cell: str) -> Any:
    try:
        number = float(cell.replace(",", ""))
    except ValueError:
        return cell
    return number


def read(path: Path) -> Tables:
    page = Tables()
    page.feed(path.read_text("utf-8"))
    page.close()
    assert page._open == []
    return page


def tools(*results: object) -> bytes:
    """A run with one call for each result."""
    calls = [{"tool_call_id": f"c{n}", "function_name": "make", "arguments": {}} for n in range(len(results))]
    seen = [
        {"source_call_id": f"c{n}", "content": "exit_code: 1", "extra": extra}
        for n, extra in enumerate(results)
        if extra is not None
    ]
    turn = {"step_id": 1, "source": "agent", "message": "", "tool_calls": calls, "observation": {"results": seen}}
    copied = {"step_id": 2, "source": "agent", "message": "", "is_copied_context": True, "metrics": {"prompt_tokens": 10**6}}
    odd = {"step_id": 3, "source": "agent", "message": "", "metrics": {"prompt_tokens": 7, "completion_tokens": "many"}}
    agent = {"name": "t", "version": "1"}
    body = {"schema_version": "ATIF-v1.7", "session_id": "t", "agent": agent, "steps": [turn, copied, odd]}
    return json.dumps(body).encode()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("report"))
    samples.write(lake.inbox)
    hostile = json.loads(atif(HOSTILE, 3))
    hostile["agent"] = {"name": HOSTILE, "version": HOSTILE, "model_name": HOSTILE}
    hostile["steps"][2]["tool_calls"][0]["function_name"] = HOSTILE
    lake.put("hostile.json", json.dumps(hostile).encode())
    failing = tools({"is_error": True}, {"is_error": False}, {"exit_code": 2}, {"exit_code": 0}, {"status": "error"}, {}, None)
    lake.put("tools.json", failing)
    lake.ingest()
    lake.rebuild()
    return lake


@pytest.fixture(scope="module")
def page(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    path = tmp_path_factory.mktemp("out") / "below/report.html"
    done = report(ReportOptions(lake=lake.paths.lake, dataset="d", to=str(path)))
    assert (done.datasets, done.runs, done.bytes) == (1, 17, path.stat().st_size)
    return read(path)


def ask(lake: Lake, sql: str) -> dict[str, tuple[Any, ...]]:
    rows = StorylineDataSource.open(lake.paths.storyline).sql(sql).to_table().to_pylist()
    return {row["name"]: tuple(value for key, value in row.items() if key != "name") for row in rows}


def test_numbers_are_those_of_the_tables(lake: Lake, page: Tables) -> None:
    agents = page.rows("agents")
    counted = ask(lake, "SELECT agent_id AS name, count(*) FROM runs GROUP BY ALL")
    turns = ask(lake, "SELECT agent_id AS name, count(*) FROM runs JOIN steps USING (document_id) GROUP BY ALL")
    calls = ask(lake, "SELECT agent_id AS name, count(*) FROM runs JOIN tool_calls USING (document_id) GROUP BY ALL")
    assert len(agents) == len(counted)
    for name, row in agents.items():
        if "script" not in name:
            assert (row["runs"], row["turns"], row["calls"]) == (*counted[name], *turns[name], *calls.get(name, (0,)))
    assert {name: row["calls"] for name, row in page.rows("tools").items() if "script" not in name} == {
        name: count
        for name, (count,) in ask(lake, "SELECT function_name AS name, count(*) FROM tool_calls GROUP BY ALL").items()
        if "script" not in name
    }
    assert page.rows("models")["m-large"]["turns"] == 14


def test_tokens_and_costs(page: Tables) -> None:
    wrench = page.rows("agents")["wrench"]
    assert (wrench["prompt tokens"], wrench["completion tokens"], wrench["cost, USD"]) == (4 * 770, 4 * 52, 0.0172)
    assert page.rows("agents")["t"]["prompt tokens"] == 7, "copied turns and what is no number do not count"


def test_failed_and_unanswered_calls(page: Tables) -> None:
    made = page.rows("tools")["make"]
    assert (made["calls"], made["failed"], made["failed, %"], made["unanswered"]) == (7, 3, 42.9, 1)
    assert page.rows("agents")["t"]["failed"] == page.rows("models")["(not said)"]["failed"] == 3


def test_health(lake: Lake, page: Tables) -> None:
    health = page.rows("health")["d"]
    assert (health["sources"], health["tables"], health["in quarantine"]) == (12, "fresh", 2)
    assert {row[1] for row in page.tables["quarantine"][1:]} == {"empty", "truncated"}
    assert any("quarantine list" in text for text in page.texts)


def test_hostile_names_are_text(page: Tables) -> None:
    shown = "<script>alert('x')</script>\"'&\\u202e\\x1b[31m\\x00"
    for table in ("agents", "models", "tools"):
        assert shown in page.rows(table)
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") or name in ("src", "href", "style") for _, attrs in page.tags for name in attrs)
    style = "".join(page.texts)
    assert not any(word in style for word in ("url(", "@import", "http:", "https:"))
    (policy,) = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy).startswith("default-src 'none'")


def test_a_whole_lake_counts_equal_runs_of_two_datasets_twice(lake: Lake, tmp_path: Path) -> None:
    other = Lake(tmp_path)
    other.paths = DatasetPaths(lake.paths.lake, "copy")
    other.put("one.json", samples.samples()["eval/survey-7.json"])
    other.ingest()
    other.rebuild()
    try:
        done = report(ReportOptions(lake=lake.paths.lake, to=str(tmp_path / "r.html")))
        found = read(tmp_path / "r.html")
        assert (done.datasets, done.runs) == (2, 19)
        assert found.rows("agents")["surveyor"]["runs"] == 2
        assert found.rows("agents")["surveyor"]["turns"] == 6
        assert set(found.rows("health")) == {"d", "copy"}
    finally:
        for layer in ("events", "storyline", "ops"):
            shutil.rmtree(f"{lake.paths.lake}/{layer}/copy")


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    body = json.loads(atif("s", 1))
    calls = [{"tool_call_id": f"c{n}", "function_name": f"tool {n:03}", "arguments": {}} for n in range(MOST_ROWS + 5)]
    body["steps"] = [{"step_id": 1, "source": "agent", "message": "", "tool_calls": calls}]
    lake.put("a.json", json.dumps(body).encode())
    lake.ingest()
    lake.rebuild()
    report(ReportOptions(lake=lake.paths.lake, dataset="d", to=str(tmp_path / "r.html")))
    page = read(tmp_path / "r.html")
    assert len(page.rows("tools")) == MOST_ROWS
    assert "5 more are not shown." in page.texts
    assert page.rows("agents")["wrench"]["unanswered"] == MOST_ROWS + 5


def test_targets_and_exit_codes(lake: Lake, tmp_path: Path) -> None:
    where = ("--lake", lake.paths.lake, "--dataset", "d")
    path = tmp_path / "r.html"
    assert chronicle("report", "--to", path, *where, "--dry-run").code == 0
    assert not path.exists()
    assert chronicle("report", "--to", path, *where).json["runs"] == 17
    assert chronicle("report", "--to", path, *where).code == 2, "it is there already"
    assert chronicle("report", "--to", path, *where, "--overwrite").code == 0
    for to in (f"{lake.paths.lake}/r.html", tmp_path):
        assert chronicle("report", "--to", to, *where, "--overwrite").code == 2
    with pytest.raises(NotFoundError):
        report(ReportOptions(lake=lake.paths.lake, dataset="nope", to=str(tmp_path / "x.html")))
    with pytest.raises(UsageError):
        report(ReportOptions(lake=lake.paths.lake, dataset="d", to=str(tmp_path / "x.html"), timeout_seconds=0))
