"""Inputs of public bug reports, which lie beside the repository: each behaves as its report says is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronicle import facts
from tests.conformance.spine import Lake, Seen, columns, lake_of, lints_of, origin_of, residual_of

INPUTS = Path(__file__).resolve().parents[2] / "../shared/bugs/inputs"

pytestmark = pytest.mark.skipif(not INPUTS.is_dir(), reason="the inputs of bug reports are not beside the repository")


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Lake:
    """All inputs taken through the tool where they lie."""
    kept = {
        "03_openai_cesu8_bytes.jsonl": slice(1, 2),
        "17_bom_crlf_blank_truncated.jsonl": slice(0, 3, 2),
    }
    converted = {}
    for name, which in kept.items():
        lines = (INPUTS / name).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
        converted[name] = b"".join(line + b"\n" for line in lines[which])
    return lake_of(tmp_path_factory.mktemp("lake"), INPUTS.resolve(), converted)


@pytest.fixture
def seen(request, lake) -> Seen:
    """What became of the one input whose name begins with the parameter."""
    (name,) = [name for name in lake.files if name.startswith(request.param)]
    found = lake.of(name)
    found.check_laws()
    return found


def input_(name: str) -> pytest.MarkDecorator:
    """Run a test on one input, the name of which is given by its beginning."""
    return pytest.mark.parametrize("seen", [pytest.param(name, id=f"input{name}")], indirect=True)


def test_ingest_twice_is_ingest_once(lake):
    first, _, again = lake.reports
    assert (again.files_opened, again.ingested, again.events, again.quarantined_new) == (0, 0, 0, 0)
    assert again.unchanged == first.ingested
    assert again.fact_version == first.fact_version
    assert first.ignored == {".py": 1}


def test_rebuild_in_full_gives_the_same_rows(lake):
    assert lake.rows == lake.rows_in_full
    assert [report.failed for report in lake.rebuilds] == [[], [], [], []]


def test_only_these_are_in_quarantine(lake):
    assert lake.entries == {
        "03_openai_cesu8_bytes.jsonl": [(0, "member:encoding")],
        "17_bom_crlf_blank_truncated.jsonl": [(2, "member:truncated")],
        "27_empty_file.json": [(None, "empty")],
        "28_json_scalar.json": [(None, "unsupported:json-scalar")],
    }
    assert (lake.reports[0].quarantined_new, lake.reports[0].empty, lake.reports[0].exit_code()) == (3, 1, 65)


@input_("01")
def test_a_lone_surrogate_keeps_its_escape(seen):
    assert "cut \\ud83d" in seen.steps[1]["message_value"]
    assert seen.lints == {"unpaired-surrogate": 1}


@input_("02")
def test_a_lone_surrogate_does_not_cost_its_neighbour(seen):
    odd, clean = seen.runs
    assert "\\ud99c" in seen.steps_of(odd)[0]["message_value"]
    assert lints_of(odd) == {"unpaired-surrogate": 1}
    assert seen.steps_of(clean)[0]["message_value"] == '"clean row after it"'
    assert lints_of(clean) == {}


@input_("03")
def test_a_line_that_is_not_utf8_is_an_opaque_member(seen):
    assert origin_of(seen.run)["locator"] == 1
    assert seen.steps[0]["message_value"] == '"clean"'


@input_("04")
def test_arguments_that_are_no_objects(seen):
    found = [seen.calls_of(run)[0]["arguments"] for run in seen.runs]
    assert found == [r'"{\"format\": \"%Y"', '""', "null", "[1,2]", '{"a":1}', '"str"']
    invalid = {"invalid-arguments": 1}
    assert [lints_of(run) for run in seen.runs] == [invalid, invalid, {}, {}, {}, {}]
    assert [json.loads(seen.calls_of(run)[0]["results"])[0]["content"] for run in seen.runs] == ["r"] * 6


@input_("07")
def test_both_calls_of_one_id_are_kept(seen):
    assert [columns(row, ("tool_call_id", "arguments")) for row in seen.calls] == [("c", '{"n": 1}'), ("c#2", '{"n": 2}')]
    assert [json.loads(row["results"])[0]["content"] for row in seen.calls] == ["first", "second"]
    assert seen.lints == {"repeated-tool-call-id": 1}


@input_("08")
def test_results_without_content_or_link_are_kept_in_order(seen):
    results = json.loads(seen.steps[1]["observation"])["results"]
    assert results == [
        {"source_call_id": "c", "extra": {"tool_result": {"ok": True}}},
        {"content": None},
        {"content": "unlinked"},
    ]
    assert json.loads(seen.calls[0]["results"]) == results[:1]
    assert seen.lints == {}


def test_input09_one_session_in_two_files(lake):
    a, b = (lake.of(f"09_same_session_two_docs/{name}.json") for name in "ab")
    for seen in (a, b):
        seen.check_laws()
    assert (a.run["session_id"], b.run["session_id"]) == ("run-1", "run-1")
    assert (a.run["run_id"], b.run["run_id"]) == ("doc-a", "doc-b")
    assert a.run["document_id"] != b.run["document_id"]
    assert [seen.steps[1]["message_value"] for seen in (a, b)] == ['"first"', '"second"']


@input_("10")
def test_a_file_without_ids_has_a_derived_one(seen):
    assert seen.run["session_id"] == seen.run["document_id"]
    assert residual_of(seen.run) == {"/session_id": None}
    assert seen.lints == {"missing-ids": 1}


@input_("13")
def test_nul_and_controls(seen):
    message = json.loads(seen.steps[1]["message_value"])
    assert message == json.loads(seen.data)["steps"][1]["message"]
    assert "\0" in message
    assert seen.lints == {}


@input_("14")
def test_numbers_of_any_size(seen):
    extra = seen.run["agent_extra"]
    assert f'"extra":{extra}}}'.encode() in seen.data
    for spelling in ("18446744073709551616", "-9223372036854775809", "1E400", "-0.0", "1.0", "0.0005250000000000001"):
        assert f":{spelling}".encode() in seen.as_format("atif")
    assert seen.lints == {}


@input_("15")
def test_nan_and_infinity(seen):
    assert seen.step["metrics"] == '{"logprobs":[NaN,-Infinity,-0.1]}'
    assert seen.lints == {"not-a-number": 2}


@input_("17")
def test_bom_crlf_blank_lines_and_a_torn_end(seen):
    assert [origin_of(run)["locator"] for run in seen.runs] == [0, 1]
    assert [lints_of(run) for run in seen.runs] == [{"byte-order-mark": 1}, {}]


@input_("20")
def test_ids_with_gaps_and_repeats(seen):
    assert [row["step_id"] for row in seen.steps] == [1, 2, 3, 4]
    assert [residual_of(row).get("/step_id") for row in seen.steps] == [None, "5", "5", "2"]
    assert [row["message_value"] for row in seen.steps] == ['"go"', '"ok"', '"again"', '"back"']
    assert seen.lints == {"step-ids-not-distinct": 1}


@pytest.mark.parametrize(("seen", "version"), [("21", "ATIF-v1.8"), ("22", "1.4")], indirect=["seen"], ids=["input21", "input22"])
def test_no_reader_gates_on_the_version(seen, version):
    assert origin_of(seen.run)["schema_version"] == version
    assert len(seen.steps) == 2
    assert seen.lints == {}


def test_input24_names_with_every_character(lake):
    """6 of 6 files; in keys nothing is encoded or decoded."""
    names = ["a [1].json", "b#1?.json", "c%2Fd+e.json", "o'brien;--.json", "sp ace.json", "日本.json"]
    keys = facts.source_fold(facts.pin(lake.paths)).current
    for name in names:
        seen = lake.of(f"24_names/{name}")
        seen.check_laws()
        assert seen.run["session_id"] == f"name-{name}"
        assert f"file://{lake.root}/24_names/{name}" in keys
    assert len([key for key in keys if "/24_names/" in key]) == 6
    assert len([path for path in lake.exact if path.startswith("24_names/")]) == 6


@input_("26")
def test_no_steps(seen):
    assert (seen.steps, seen.lints, residual_of(seen.run)) == ([], {}, {})


@pytest.mark.parametrize("seen", ["27", "28"], indirect=True, ids=["input27", "input28"])
def test_files_without_a_trajectory(seen):
    assert seen.runs == []


@pytest.mark.parametrize(
    ("seen", "container", "sessions"),
    [("29", "jsonl", ["l1", "l2"]), ("30", "array", ["a1", "a2"])],
    indirect=["seen"],
    ids=["input29", "input30"],
)
def test_two_documents_of_a_file(seen, container, sessions):
    assert [origin_of(run)["container"] for run in seen.runs] == [container] * 2
    assert [run["session_id"] for run in seen.runs] == sessions
