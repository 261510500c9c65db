"""Words in cells that hold JSON as its source wrote it."""

from __future__ import annotations

import json

import pytest

from chronicle.errors import UsageError
from chronicle.words import Words


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("world", '"hello\\nworld"'),
        ("world", '"hello\\\\nworld"'),
        ("World HELLO", '"hello, world!"'),
        ("quoted", json.dumps("“quoted” text")),
        ("quoted", json.dumps(json.dumps("“quoted” text"))),
        ("div", '"\\u003cdiv\\u003e"'),
        ("read_file", '{"name": "read_file"}'),
        ("a/b", '"a\\/b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("new", '"C:\\\\new"'),
        ("café", json.dumps("Le Café.")),
        ("CAFÉ", '"le café"'),
        ("你好", '"说你好吗"'),
        ("🦉", json.dumps("an 🦉owl")),
        ("owl", json.dumps("an 🦉owl")),
        ("1.10", '{"price": 1.10}'),
        ("===", '"a === b"'),
        ("x" * 60, '"' + "x" * 60 + '"'),
    ],
)
def test_what_a_cell_holds(text: str, cell: str) -> None:
    assert Words(text).snippet(cell) is not None


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("wor", '"hello world"'),
        ("orld", '"hello world"'),
        ("clair", json.dumps("éclair")),
        ("caf", json.dumps("café")),
        ("hello there", '"hello world"'),
        ("file_read", '"read_file"'),
        ("x" * 59, '"' + "x" * 60 + '"'),
    ],
)
def test_what_a_cell_does_not_hold(text: str, cell: str) -> None:
    assert Words(text).snippet(cell) is None


def test_a_snippet_shows_what_is_around_on_one_line() -> None:
    cell = json.dumps("start " * 30 + "needle\nin a\thaystack “of” words" + " end" * 30)
    found = Words("haystack needle").snippet(cell)
    assert found is not None
    assert "needle in a haystack “of” words" in found
    assert found.startswith("…")
    assert found.endswith("…")
    assert len(found) < 140
    assert Words("a").snippet('"a"') == "a"


@pytest.mark.parametrize("text", ["", "  ", '"', "\\ \n"])
def test_no_word(text: str) -> None:
    with pytest.raises(UsageError):
        Words(text)
