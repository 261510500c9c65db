"""Words are found in the same rows with a full-text index, without one, and where only a part is in it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
from chronicle.storyline import fulltext
from chronicle.storyline.source import StorylineDataSource
from chronicle.words import Words
from tests.lake import Lake
from tests.laws.contents import atif

WORDS = ["owl", "Owl's", "OWL", "read_file", "naïve", "éclair", "clair", "nowl", "你好", "42", "1.10", "x" * 33, "y" * 39, "K9"]
BETWEEN = [" ", "\n", "\t", "“", "—", "\u00a0", "<", "🦉", "\u200b", "'", "/", "\\", '"', "é", "_", "\u001b[31m", "\r\n", "ا", ""]
SEARCHES = [
    "owl", "owl's", "read_file", "clair", "éclair", "nowl", "你好", "1.10", "x" * 33, "y" * 39, "owl 42", "<owl", "nothing",
    "31mowl",
]  # fmt: skip


def text(dice: random.Random) -> str:
    return "".join(dice.choice(WORDS) + dice.choice(BETWEEN) for _ in range(dice.randint(1, 6)))


def document(dice: random.Random, session: str, steps: int) -> bytes:
    """A run whose texts hold words beside everything that may stand beside one, escaped in several ways."""
    body: dict[str, Any] = json.loads(atif(session, steps))
    for step in body["steps"]:
        step["message"] = text(dice) if dice.random() < 0.7 else [{"type": "text", "text": text(dice)}]
        if step["source"] == "agent":
            step["reasoning_content"] = text(dice)
        if "tool_calls" in step:
            arguments: object = {"q": text(dice)}
            step["tool_calls"][0]["arguments"] = json.dumps(arguments) if dice.random() < 0.5 else arguments
            step["observation"]["results"][0]["content"] = json.dumps({"out": text(dice)})
    return json.dumps(body, ensure_ascii=dice.random() < 0.7).encode()


def put(lake: Lake, numbers: range, seed: int) -> None:
    dice = random.Random(seed)
    for number in numbers:
        lake.put(f"{number}.json", document(dice, f"s{number}", 9))
    lake.ingest()
    lake.rebuild()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("words"))
    put(lake, range(30), 1)
    return lake


def everything(source: StorylineDataSource, words: Words) -> set[tuple[str, int, str]]:
    """What a look at every cell of every row finds."""
    found = set()
    for table, columns in fulltext.COLUMNS.items():
        for row in getattr(source, table).to_table().to_pylist():
            for column in columns:
                if row[column] is not None and words.snippet(row[column]) is not None:
                    found.add((row["document_id"], row["step_id"], f"{table}.{column}"))
    return found


def look(lake: Lake, *, expect_index: bool) -> dict[str, list[fulltext.Hit]]:
    """Hits of all searches, which are those of a look at everything."""
    source = StorylineDataSource.open(lake.paths.storyline)
    by_index = fulltext._indexed(source.steps, fulltext.COLUMNS["steps"], Words("owl"), source.root) is not None
    assert by_index == expect_index
    found = {}
    for search in SEARCHES:
        words = Words(search)
        found[search] = list(fulltext.hits(source, words))
        assert {(hit.document_id, hit.step_id, hit.column) for hit in found[search]} == everything(source, words), search
    return found


def test_both_ways_find_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fulltext, "_COMMON", 1.0)  # by the index also where a scan would be faster
    scanned = look(lake, expect_index=False)
    assert sum(map(bool, scanned.values())) >= len(SEARCHES) - 3
    maintain(MaintainOptions(paths=lake.paths, compact=False, vacuum=False))
    assert look(lake, expect_index=True) == scanned, "in the same order too"

    put(lake, range(25, 40), 2)  # new runs, and other bytes for old ones
    assert look(lake, expect_index=True) != scanned


def test_a_common_word_is_scanned_for(lake: Lake) -> None:
    maintain(MaintainOptions(paths=lake.paths, compact=False, vacuum=False))
    source = StorylineDataSource.open(lake.paths.storyline)
    assert fulltext._indexed(source.steps, fulltext.COLUMNS["steps"], Words("owl"), source.root) is None
    found = fulltext._indexed(source.steps, fulltext.COLUMNS["steps"], Words("nothing"), source.root)
    assert found is not None
    assert [rows for rows in found.values() if rows] == []
