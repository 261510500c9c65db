"""The tool that counts equal files has to see what is different."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from chronicle.formats.jsontext import dump
from tests.formats.trees import trees
from tests.jsoncompare import same_json


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (b'{"a":1.10,"b":[1e2,NaN,-0.0,"\\u0061"]}', b' { "a" : 1.1 ,\n"b":[100,NaN,0.0,"a"]}\n'),
        (b"0.1", b"0.1000000000000000055511151231257827"),
        (b'{"a":1}\n\n{"b":2}\n', b'{"a":1}\n{ "b": 2 }'),
        (b'{"a":1}{"b":2}', b'{"a":1} {"b":2}\n'),
        (b"", b" \n"),
        (b"not json", b"not json"),
    ],
)
def test_what_is_equal(a, b):
    assert same_json(a, b) is None


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', '/a: 1 != member "b"'),
        (b'{"a":1,"a":2}', b'{"a":2}', "/a: 1 != 2"),
        (b'{"a":1,"a":1}', b'{"a":1}', "/a: 1 != no member"),
        (b'{"a":1}', b'{"a":1,"b":null}', "/b: no member != null"),
        (b"[1,2]", b"[1]", "/1: 2 != no element"),
        (b'[{"a/b":[0,"x"]}]', b'[{"a/b":[0,"y"]}]', '/0/a~1b/1: "x" != "y"'),
        (b"9007199254740993", b"9007199254740992", ": 9007199254740993 != 9007199254740992"),
        (b"9007199254740993", b"9007199254740992.0", ": 9007199254740993 != 9007199254740992.0"),
        (b"1e400", b"1e401", ": 1e400 != 1e401"),
        (b"1e-400", b"0.0", ": 1e-400 != 0.0"),
        (b"NaN", b"Infinity", ": NaN != Infinity"),
        (b"[true]", b"[1]", "/0: true != 1"),
        (b'["1"]', b"[1]", '/0: "1" != 1'),
        (b"[{}]", b"[[]]", "/0: {} != []"),
        (b"{}", b"[{}]", ": object != array"),
        (b'{"a":1}\n{"a":2}', b'{"a":1}\n{"a":3}', "/1/a: 2 != 3"),
        (b'{"a":1}\n{"a":2}', b'[{"a":1},{"a":2}]', ": jsonl != array"),
        (b'{"a":1}\n{"a":2}', b'{"a":1}{"a":2}', ": jsonl != concatenated"),
        (b'{"a":1}\n{"a":2}', b'{"a":1}', ": jsonl != object"),
        (b"", b"{}", ": empty != object"),
    ],
)
def test_the_first_difference(a, b, difference):
    assert same_json(a, b) == difference


def test_text_that_is_not_json_is_different():
    assert "not both are JSON" in (same_json(b"{", b"{}") or "")


@given(trees)
def test_every_value_equals_itself(tree):
    assert same_json(dump(tree), b" " + dump(tree) + b"\n") is None


@given(trees, trees)
def test_other_values_differ_where_they_are_other_numbers_or_other_texts(a, b):
    if same_json(dump(a), dump(b)) is None and a != b:
        assert any(character.isdigit() for character in dump(a).decode())


def test_directories(tmp_path: Path):
    for root, texts in (("a", {"x/1.json": "[1.0]", "2.json": "{}", "3.json": "1"}), ("b", {"x/1.json": "[1]", "2.json": "[]"})):
        for name, text in texts.items():
            (tmp_path / root / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / root / name).write_text(text)
    command = [sys.executable, "-m", "tests.jsoncompare", str(tmp_path / "a"), str(tmp_path / "b")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "equal 1 different 1 missing 1"
    (tmp_path / "b" / "2.json").write_text("{ }")
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "equal 2 different 0 missing 1")
