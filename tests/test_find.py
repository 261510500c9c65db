"""Finding runs by an id or by words, in a dataset and in a lake (design 8)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from msgspec.structs import replace

from chronicle.errors import NotFoundError, UsageError
from chronicle.find import Found, find
from chronicle.intake.receipts import list_receipts
from chronicle.options import FindOptions
from infra import samples
from tests.command import chronicle
from tests.lake import Lake
from tests.laws.contents import atif, rows


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two datasets with tables and one without; the tests only read them."""
    lake = Lake(tmp_path_factory.mktemp("full"), "team/a")
    samples.write(lake.inbox)
    lake.put("two-sessions.json", rows(2))
    lake.ingest()
    lake.rebuild()
    other = Lake(lake.root, "b", lake.root / "other")
    other.put("x.json", atif("survey-8", 3))
    other.ingest()
    other.rebuild()
    bare = Lake(lake.root, "bare", lake.root / "other")
    bare.ingest()
    return lake


def ask(lake: Lake, text: str, dataset: str | None = "team/a", *, words: bool = False, limit: int | None = None) -> list[Found]:
    return list(find(FindOptions(lake=lake.paths.lake, text=text, dataset=dataset, words=words, limit=limit)).rows)


def places(found: list[Found]) -> list[tuple[str | None, int | None, str]]:
    return [(one.session_id, one.step_id, one.column) for one in found]


def test_by_the_ids_of_a_run(lake: Lake) -> None:
    by_session = ask(lake, "survey-7")
    assert places(by_session) == [("survey-7", None, "runs.session_id")] * 2, "the run and what is embedded in it"
    document = by_session[0].document_id
    assert document is not None
    assert places(ask(lake, document)) == [("survey-7", None, "runs.document_id")]
    assert places(ask(lake, "bird-1")) == [("survey-7", None, "runs.run_id")]
    assert places(ask(lake, "rl-2026-02")) == [("rollout-12", None, "runs.run_id")]


def test_by_a_tool_call(lake: Lake) -> None:
    found = ask(lake, "c2")
    assert {(one.step_id, one.column) for one in found} == {(4, "tool_calls.tool_call_id")}
    assert sorted(str(one.session_id) for one in found) == ["repair-101", "repair-102", "repair-201", "repair-202"]
    assert found[0].snippet.startswith('order { "item": "screw M4x12"')


def test_by_a_source_key_or_its_end(lake: Lake) -> None:
    for text in ((lake.inbox / "eval/batch.json").as_uri(), "eval/batch.json", "batch.json"):
        found = ask(lake, text)
        assert [one.session_id for one in found] == ["repair-201", "repair-202"]
        assert {(one.column, one.snippet) for one in found} == {("source_key", (lake.inbox / "eval/batch.json").as_uri())}
    assert [one.session_id for one in ask(lake, "two-sessions.json")] == ["r0", "r1"]
    assert ask(lake, "atch.json") == []


def test_by_a_source_id(lake: Lake) -> None:
    key = (lake.inbox / "eval/batch.json").as_uri()
    (receipt,) = (one for one in list_receipts(lake.paths) if one.source_key == key)
    found = ask(lake, receipt.source_id)
    assert {(one.column, one.snippet) for one in found} == {("source_id", key)}
    assert {one.document_id for one in found} == {one.document_id for one in ask(lake, key)}


def test_by_a_fact(lake: Lake) -> None:
    records = {(record.kind, record.session_id): record for record in lake.records()}
    part = records["document.part", "leaf-3"].event_id
    closed = next(record.event_id for record in lake.records() if record.kind == "source.closed")
    assert part is not None
    assert closed is not None
    assert places(ask(lake, part)) == [("leaf-3", None, "event_id")]
    assert places(ask(lake, closed)) == [(None, None, "event_id")]


def test_by_the_beginning_of_one_id(lake: Lake) -> None:
    (kiln,) = ask(lake, "kiln-5")
    assert kiln.document_id is not None
    assert ask(lake, kiln.document_id[:9])[0].document_id == kiln.document_id
    assert places(ask(lake, "kiln-"))[0] == ("kiln-5", None, "runs.session_id")
    assert ask(lake, "repair-1") == [], "several ids begin so"
    assert ask(lake, "kil") == [], "too short to be an id"
    assert {one.session_id for one in ask(lake, "surv", None)} == set()
    assert {one.session_id for one in ask(lake, "surv")} == {"survey-7"}


def test_by_words(lake: Lake) -> None:
    found = ask(lake, "GARDEN hinge")
    assert {(one.step_id, one.column) for one in found} == {(2, "steps.message_value")}
    assert {one.snippet for one in found} == {"The hinge of the garden door is loose. Fix it."}
    assert {one.column for one in ask(lake, "screws")} == {"steps.message_value", "steps.observation", "steps.reasoning_content"}
    assert {one.column for one in ask(lake, "m4x12")} == {"steps.observation", "tool_calls.arguments"}
    assert places(ask(lake, "tü-tü-li")) == [("survey-7", 2, "steps.observation")]
    assert ask(lake, "hing") == []
    assert ask(lake, "kiln")[1:] == ask(lake, "kiln", words=True) != []


def test_words_of_an_id_on_request(lake: Lake) -> None:
    assert places(ask(lake, "bird-1", words=True)) == [("survey-7", 2, "steps.observation")]


def test_a_whole_lake(lake: Lake) -> None:
    found = find(FindOptions(lake=lake.paths.lake, text="message"))
    assert {one.dataset for one in found.rows} == {"b"}
    assert found.warnings == ["without tables, left out: bare; run `chronicle rebuild`"]
    assert [one.dataset for one in ask(lake, "survey-8", None)] == ["b"]
    assert len(ask(lake, "hinge", None, limit=3)) == 3


def test_what_is_not_there(lake: Lake) -> None:
    options = FindOptions(lake=lake.paths.lake, text="x")
    for text in ("", " \n", '"'):
        with pytest.raises(UsageError):
            list(find(replace(options, text=text)).rows)
    for dataset in ("nope", "bare"):
        with pytest.raises(NotFoundError):
            find(replace(options, dataset=dataset))


@pytest.mark.parametrize("text", ["it's", "'; DROP TABLE runs; --", "%", "a\\u0000b", "\x00", "x" * 5000, "$1", "日本"])
def test_any_text_is_only_text(lake: Lake, text: str) -> None:
    assert ask(lake, text) == []


def test_on_the_command_line(lake: Lake, tmp_path: Path) -> None:
    where = ("--lake", lake.paths.lake, "--dataset", "team/a")
    lines = [json.loads(line) for line in chronicle("find", "hinge", *where).lines]
    assert set(lines[0]) == {"dataset", "document_id", "session_id", "step_id", "column", "snippet"}
    assert chronicle("find", "hinge", *where, "--format", "csv", "--limit", 2).lines[0] == b",".join(
        name.encode() for name in Found._fields
    )
    stored = parquet.read_table(io.BytesIO(chronicle("find", "hinge", *where, "--format", "parquet").out))
    assert stored.num_rows == len(lines)
    assert "garden door" in chronicle("find", "hinge", *where, terminal=True).out.decode()
    nothing = chronicle("find", "unheard-of", *where)
    assert (nothing.code, nothing.out, nothing.err) == (0, b"", "nothing was found\n")
    assert chronicle("find", "unheard-of", *where, "--format", "parquet").code == 0
    assert chronicle("find", "x", "--lake", tmp_path / "none").code == 66
    assert "left out: bare" in chronicle("find", "hinge", "--lake", lake.paths.lake).err
