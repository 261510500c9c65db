"""What is drawn on a terminal: tables that fit its width, records where none does, and results that are said."""

from __future__ import annotations

import re

import msgspec
import pytest

from chronicle.commandline.console import Console, verified
from chronicle.reports import (
    Difference,
    IngestReport,
    MaintainReport,
    PipelineReport,
    QuarantinedSource,
    QuarantineReport,
    ReceiptsReport,
    Report,
    Stock,
    VerifyReport,
)
from chronicle.stats import DatasetSummary, LakeReport, StatsReport
from tests.command import Outcome
from tests.commandline.test_command import call_of


def drawn(report: Report, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    done: Outcome = call_of(lambda call: report, "do", terminal=True)
    return plain(done)


def plain(done: Outcome) -> list[str]:
    """The lines without styles."""
    return [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", done.out.decode()).splitlines()]


def table(names: list[str], rows: list[list[object]], monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> list[str]:
    def do(call: object) -> None:
        Console().table(names, rows)

    monkeypatch.setenv("COLUMNS", str(columns))
    done = call_of(do, "do", terminal=True)
    lines = plain(done)
    assert max(map(len, lines)) <= columns
    return lines


def test_wide_rows_are_records(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"column_{number}" for number in range(30)]
    row: list[object] = ["x" * 200, None, "", 0, *["value"] * 26]
    lines = table(names, [row, ["second", *[None] * 29]], monkeypatch)
    assert lines[0] == "── 1"
    assert lines[1] == "column_0: " + "x" * 69 + "…"
    assert lines[2] == "column_3: 0"
    assert lines[-2:] == ["── 2", "column_0: second"]


def test_what_fits_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = table(["name", "words"], [["a", "word " * 40], ["b", ""]], monkeypatch)
    assert lines[0].split() == ["name", "words"]
    assert sum(line.startswith("a") for line in lines) == 1
    assert "".join(lines).count("word ") + "".join(lines).count("word") >= 40


def test_wide_characters_count_as_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{number}" for number in range(8)]
    assert table(names, [["日本語日本語"] * 8], monkeypatch)[0] == "── 1"
    assert table(names, [["abcdef"] * 8], monkeypatch)[0].split() == names


def test_headers_of_list_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    one = DatasetSummary(
        dataset="mine", fact_version=12, fact_rows=123456, segments=3, stories=15, steps=51, tool_calls=14, freshness="fresh",
        quarantined=1, bytes=123_456,
    )  # fmt: skip
    lines = drawn(LakeReport(verb="list", lake="/lake", datasets=[one]), monkeypatch)
    words = " ".join(lines).split()
    for name in ("dataset", "version", "segments", "stories", "steps", "freshness", "quarantined", "bytes", "123456"):
        assert name in words
    long = msgspec.structs.replace(one, dataset="a/much/longer/name", bytes=123_456_789_012)
    lines = drawn(LakeReport(verb="list", lake="/lake", datasets=[long]), monkeypatch)
    assert "dataset: a/much/longer/name" in lines
    assert "quarantined: 1" in lines


def test_verify_says_that_nothing_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "0 differences" in drawn(VerifyReport(dataset="d", sources=3), monkeypatch)
    assert "0 differences" in drawn(VerifyReport(dataset="d"), monkeypatch)
    found = VerifyReport(dataset="d", sources=1, differences=[Difference(layer="facts", what="a", detail="b")])
    assert "1 difference" in drawn(found, monkeypatch)


def test_a_run_without_news_does_not_claim_to_have_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(PipelineReport(dataset="d", ingest=IngestReport(), verify=VerifyReport()), monkeypatch)
    assert "nothing new, nothing to check" in lines
    assert "0 differences" not in lines
    assert "0 differences" in drawn(PipelineReport(dataset="d", verify=VerifyReport(sources=2)), monkeypatch)
    stale = msgspec.to_builtins(VerifyReport(differences=[Difference(layer="facts", what="a", detail="b")]))
    assert verified(stale, part=True) == "1 difference"


def test_ids_and_paths_of_reports_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "file:///a/directory/with/a/long/name/" + "and/more/below/it/" * 4 + "a.json"
    entry = QuarantinedSource(id="d9563a9b638d953d", source_key=key, locator=None, kind="truncated", reason="cut off", size=9)
    lines = drawn(QuarantineReport(dataset="d", entries=[entry]), monkeypatch)
    assert lines[0] == "quarantine list d"
    assert "id: d9563a9b638d953d" in lines
    assert f"source key: {key}" in lines
    short = msgspec.structs.replace(entry, source_key="in/a.json")
    (row,) = (line for line in drawn(QuarantineReport(dataset="d", entries=[short]), monkeypatch) if "d9563a9b638d953d" in line)
    assert row.split() == ["d9563a9b638d953d", "in/a.json", "truncated", "cut", "off", "9"]


def test_nested_values_and_instants_are_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    receipt: dict[str, object] = {"source_key": "in/a.json", "stat": {"size": 1683, "etag": None, "racy": True}}
    found = [
        *drawn(ReceiptsReport(dataset="d", receipts=[receipt, {"source_key": "b"}]), monkeypatch),
        *drawn(MaintainReport(dataset="d", before=Stock(bytes={"events": 1, "storyline": 2})), monkeypatch),
        *drawn(StatsReport(dataset="d", first_unix_ms=1_770_109_260_000), monkeypatch),
    ]
    words = " ".join(" ".join(found).split())
    assert "in/a.json size 1683, racy yes" in words
    assert "bytes events 1, storyline 2" in words
    assert "first 2026-02-03 09:01:00 UTC" in words
    assert not {"{", "}", "'", "unix"} & set(re.split(r"([{}'])|\s", words))
