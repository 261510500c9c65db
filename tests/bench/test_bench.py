"""The benchmarks measure what they say; their bars are run by `make bench`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench import corpus, report
from tests.bench.measure import Failed, Turns, Used, run, together
from tests.bench.report import Bar
from tests.bench.setting import Setting

MIB = 1 << 20
HOLD = "import sys, time; held = b'x' * (int(sys.argv[1]) << 20); time.sleep(0.3)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}, sys.argv[1]], check=True)"


def test_memory_is_that_of_the_process_tree() -> None:
    used = run([sys.executable, "-c", CHILD, 80])
    assert 80 * MIB <= used.peak_bytes < 200 * MIB
    assert used.seconds >= 0.3
    assert 0 < used.cpu_seconds < used.seconds


def test_memory_is_not_that_of_the_caller() -> None:
    held = b"x" * (200 * MIB)
    assert run([sys.executable, "-c", HOLD, 1]).peak_bytes < 100 * MIB
    assert len(held) == 200 * MIB


def test_a_process_that_fails_is_named() -> None:
    with pytest.raises(Failed, match=r"ended with 1: (?s:.)*no such thing"):
        run([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_several_processes_are_one_piece_of_work() -> None:
    assert together(Used(1, 2, 3), Used(10, 20, 2)) == Used(11, 22, 3)


def test_turns_are_taken_one_after_the_other_and_the_first_does_not_count() -> None:
    met: list[str] = []

    def once(name: str) -> Used | None:
        met.append(name)
        return None if name == "c" else Used(len(met), 0, 0)

    turns = Turns().take({name: lambda name=name: once(name) for name in "abc"}, turns=2)  # type: ignore[misc]
    assert "".join(met) == "abcabcabc"
    assert {name: said["runs"] for name, said in turns.said().items()} == {"a": 2, "b": 2}
    assert turns.median("a") == 5.5


def test_the_corpus_is_the_same_everywhere(tmp_path: Path) -> None:
    sizes = [corpus.write(tmp_path / name, 3) for name in "ab"]
    texts = [[path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in "ab"]
    assert texts[0] == texts[1]
    assert sizes == [sum(map(len, texts[0]))] * 2
    assert 8 <= len(json.loads(texts[0][0])["steps"]) <= 40
    corpus.write(tmp_path / "a", 1, first=3)
    assert len({path.read_bytes() for path in (tmp_path / "a").iterdir()}) == 4


def test_the_report_says_what_holds(tmp_path: Path) -> None:
    turns = Turns()
    turns.note("ours", Used(1.5, 1.25, 64 * MIB))
    bars = [Bar("Fast", "under 1 s", turns, {"ratio": {"ingest": 2.5}, "rows": 1000}, False), Bar("Small", "any", met=True)]
    found = report.document(bars, quick=False, load=0.5)
    report.write(tmp_path, found)
    assert json.loads((tmp_path / "benchmarks.json").read_text()) == found
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| ours | 1 | 1.5 | 1.5 | 1.5 | 1.25 | 64 |" in page
    assert "Bar: under 1 s: **does not hold**." in page
    assert "* ratio: ingest 2.5\n* rows: 1,000" in page
    assert "Bar: any: holds." in page


def test_a_quick_run_judges_nothing(tmp_path: Path) -> None:
    quick = Setting(tmp_path, quick=True, turns=5)
    assert (quick.size(2_000), quick.size(100), quick.judged(True)) == (20, 20, None)
    assert quick.take({"a": lambda: Used(1, 1, 1)}, 3).said()["a"]["runs"] == 1
    full = Setting(tmp_path, quick=False, turns=5)
    assert (full.size(100), full.judged(False)) == (100, False)
    assert full.take({"a": lambda: Used(1, 1, 1)}, 3).said()["a"]["runs"] == 15


def test_bars_that_were_not_measured_again_are_kept_with_their_date(tmp_path: Path) -> None:
    before = report.document([Bar("Fast", "under 1 s", met=False), Bar("Small", "any", met=True)], quick=False, load=0.5)
    before["date"] = before["bars"][0]["date"] = before["bars"][1]["date"] = "2020-01-01T00:00:00Z"
    report.write(tmp_path, before)
    report.write(tmp_path, report.document([Bar("Fast", "under 1 s", met=True), Bar("New", "any")], quick=False, load=0.1))
    stored = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [(bar["name"], bar["met"], bar["date"][:4] == "2020") for bar in stored["bars"]] == [
        ("Fast", True, False),
        ("Small", True, True),
        ("New", None, False),
    ]
    assert (tmp_path / "benchmarks.md").read_text().count("Measured 2020-01-01") == 1
    stored["machine"]["cores"] += 1
    (tmp_path / "benchmarks.json").write_text(json.dumps(stored))
    report.write(tmp_path, report.document([Bar("Fast", "under 1 s")], quick=False, load=0.1))
    assert [bar["name"] for bar in json.loads((tmp_path / "benchmarks.json").read_text())["bars"]] == ["Fast"]
