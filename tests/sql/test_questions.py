"""Every statement of docs/questions.md gives what stands under it, and docs/notebook.py runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chronicle.intake.reading import Limits
from chronicle.sql.filetables import tables_of
from chronicle.sql.sandbox import Bounds, Tables, run
from infra import samples
from tests.lake import Lake

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "questions.md").read_text()
QUESTIONS = re.findall(r"^### (.*?)$.*?^```sql\n(.*?)^```$\n\n^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LIMITS = Limits(2 << 30, 200)

AGAIN = {
    "schema_version": "ATIF-v1.7",
    "session_id": "goes-on",
    "agent": {"name": "wrench", "version": "1", "model_name": "m-large"},
    "steps": [
        {"step_id": 1, "source": "agent", "message": "old", "is_copied_context": True, "metrics": {"prompt_tokens": 1000}},
        {"step_id": 2, "source": "agent", "message": "new", "metrics": {"prompt_tokens": 30, "cost_usd": 0.5}},
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "tool_calls": [
                {"tool_call_id": name, "function_name": "order", "arguments": {}}
                for name in ("fails", "refused", "silent", "works")
            ],
            "observation": {
                "results": [
                    {"source_call_id": "fails", "content": "Error: no such item"},
                    {"source_call_id": "refused", "content": {"ok": False}},
                    {"source_call_id": "works", "content": "no error at all"},
                ]
            },
        },
    ],
}


def answers(sql: str, tables: Tables) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(sql, [("", tables)], Bounds(seconds=60)).to_table().to_pylist()
    return found


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("exports")
    samples.write(folder)
    return [str(path) for path in folder.rglob("*.json*") if path.stat().st_size and "cut-off" not in path.name]


@pytest.fixture(scope="module")
def tables(exports: list[str]) -> Tables:
    return tables_of(exports, LIMITS)[0]


def test_every_question_has_an_answer() -> None:
    assert len(QUESTIONS) == PAGE.count("```sql") == PAGE.count("\n### ") >= 12


@pytest.mark.parametrize(("sql", "shown"), [each[1:] for each in QUESTIONS], ids=[each[0] for each in QUESTIONS])
def test_answers(tables: Tables, sql: str, shown: str) -> None:
    assert answers(sql, tables) == list(map(json.loads, shown.splitlines()))


def test_what_the_samples_do_not_hold(exports: list[str], tmp_path: Path) -> None:
    (tmp_path / "again.json").write_text(json.dumps(AGAIN))
    tables, _ = tables_of([*exports, str(tmp_path / "again.json")], LIMITS)
    sql = {title: statement for title, statement, _ in QUESTIONS}
    (cost,) = (row for row in answers(sql["What did each model cost?"], tables) if row["model"] == "m-large")
    assert cost == {"model": "m-large", "steps": 16, "prompt_tokens": 3110, "completion_tokens": 208, "cost_usd": 0.5172}
    (order, *_) = answers(sql["How often is each tool called, and how often does it fail?"], tables)
    assert order == {"function_name": "order", "calls": 8, "failed": 3, "percent": 37.5}


def test_notebook(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "mine", inbox=tmp_path / "exports")
    samples.write(lake.inbox)
    lake.ingest()
    lake.rebuild()
    done = subprocess.run([sys.executable, DOCS / "notebook.py"], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'runs': 15" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"
