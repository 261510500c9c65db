"""`verify` can fail: one changed leaf in any layer is a difference that names what it is in (design 2, 11)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronicle.layout import segment_path
from chronicle.materialize import INDEX
from chronicle.options import VerifyOptions
from chronicle.reports import VerifyReport
from chronicle.storage import lanceio
from chronicle.verify import verify
from tests.command import chronicle
from tests.lake import Lake
from tests.laws.contents import atif, chats, child


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.put("a.json", atif("a", 4, subagent_trajectories=[child("bird", 3)], notes="n"))
    lake.put("b.jsonl", chats(range(3)))
    lake.ingest()
    lake.rebuild()
    lake.markdown()
    assert run(lake).differences == []
    return lake


def run(lake: Lake, sample: int | None = None) -> VerifyReport:
    return verify(VerifyOptions(paths=lake.paths, sample=sample))


def in_facts(lake: Lake, old: str, new: str) -> None:
    """Replace a text in the records of the log, as the store holds them. The changed row moves to the end of the log."""
    (segment,) = lake.store.manifest().segments
    dataset = lanceio.open_version(segment_path(lake.paths.events, segment.id), segment.version)
    done = dataset.update(
        {"payload_json": f"replace(payload_json, '{old}', '{new}')"}, where=f"contains(payload_json, '{old}')"
    )
    assert done["num_rows_updated"] == 1
    _point(Path(lake.paths.events) / "_manifest.json", "version", segment.version, dataset.version)


def in_table(lake: Lake, table: str, column: str, value: str, where: str) -> None:
    """Set a cell of a table, as the store holds it."""
    (uri,) = Path(lake.paths.storyline).glob(f"generations/*/{table}.lance")
    dataset = lanceio.open_latest(str(uri))
    before = dataset.version
    assert dataset.update({column: value}, where=where)["num_rows_updated"] == 1
    _point(Path(lake.paths.storyline) / "CURRENT", f"{table}_version", before, dataset.version)


def _point(path: Path, name: str, before: int, after: int) -> None:
    text = path.read_text()
    changed = text.replace(f'"{name}": {before}', f'"{name}": {after}').replace(f'"{name}":{before}', f'"{name}":{after}')
    assert changed != text
    path.write_text(changed)


@pytest.mark.parametrize(
    ("old", "new", "source", "session"),
    [
        ('"message": "message 4"', '"message": "message 8"', "a.json", "a"),
        (r"\"notes\": \"n\"", r"\"notes\": \"m\"", "a.json", "a"),
        ("answer 1", "answer 8", "b.jsonl", "chat-1"),
        ('"pointer":"/messages/3"},"lead":", "', "", "b.jsonl", "chat-2"),
    ],
)
def test_one_leaf_of_the_facts(lake: Lake, old: str, new: str, source: str, session: str) -> None:
    found = next(row["document_id"] for row in lake.rows()["runs"] if row["session_id"] == session and row["run_id"] is None)
    if not new:  # the text between two parts; numbers of the document are in the way
        payload = next(record.text.decode() for record in lake.records() if b'"content": "answer 2"' in record.text)
        old, new = payload, payload.replace('"lead":", "', '"lead":","')
    in_facts(lake, old, new)
    report = run(lake)
    assert report.exit_code() == 65
    (fault,) = [one for one in report.differences if one.layer == "facts"]
    assert fault.what == (lake.inbox / source).as_uri()
    assert fault.detail.endswith(f"document {found}")
    assert found in {one.what for one in report.differences if one.layer == "tables"}
    done = chronicle("verify", "--lake", lake.paths.lake, "--dataset", "d")
    assert (done.code, [one["what"] for one in done.json["differences"]]) == (65, [one.what for one in report.differences])


def test_what_stands_between_documents(lake: Lake) -> None:
    in_facts(lake, r'"wire":"\n{\"id\": \"chat-1\"', r'"wire":" {\"id\": \"chat-1\"')
    (fault,) = [one for one in run(lake).differences if one.layer == "facts"]
    assert fault.what == (lake.inbox / "b.jsonl").as_uri()
    assert "between its documents" in fault.detail


@pytest.mark.parametrize(
    ("table", "column", "value", "where"),
    [
        ("runs", "notes", "'m'", "notes = 'n'"),
        ("steps", "message_value", "'\"message 8\"'", "message_value = '\"message 4\"'"),
        ("steps", "timestamp", "TIMESTAMP '2026-02-03 04:05:04.251'", "message_value = '\"message 4\"'"),
        ("tool_calls", "arguments", "'{\"n\": 4}'", "document_id = '{id}'"),
    ],
)
def test_one_leaf_of_the_tables(lake: Lake, table: str, column: str, value: str, where: str) -> None:
    found = next(row["document_id"] for row in lake.rows()["runs"] if row["notes"] == "n")
    in_table(lake, table, column, value, where.format(id=found))
    report = run(lake)
    assert report.exit_code() == 65
    assert [(one.layer, one.what) for one in report.differences] == [("tables", found)]


def test_one_leaf_of_the_markdown(lake: Lake) -> None:
    path = next(Path(lake.paths.agenticmd).glob("a*.md"))
    path.write_bytes(path.read_bytes().replace(b"message 4", b"message 8"))
    (fault,) = run(lake).differences
    assert (fault.layer, fault.what) == ("markdown", path.name)
    index = Path(lake.paths.agenticmd) / INDEX
    known = json.loads(index.read_bytes())
    known["files"][path.name]["digest"] = "0" * 64
    index.write_text(json.dumps(known))
    (fault,) = run(lake).differences
    assert (fault.layer, fault.what) == ("markdown", path.name)


def test_a_sample_finds_what_is_in_it(lake: Lake) -> None:
    for name in "cdefgh":
        lake.put(f"{name}.json", atif(name, 2))
    lake.ingest()
    lake.rebuild()
    lake.markdown()
    everything = run(lake)
    assert (everything.sources, everything.stories, everything.differences) == (8, 11, [])
    some = run(lake, sample=3)
    assert (some.sources, some.differences) == (3, [])
    for table in ("runs", "steps"):
        dataset = lanceio.open_latest(str(next(Path(lake.paths.storyline).glob(f"generations/*/{table}.lance"))))
        before = dataset.version
        dataset.update({"residual": "'{}'"})
        _point(Path(lake.paths.storyline) / "CURRENT", f"{table}_version", before, dataset.version)
    assert 3 <= len([one for one in run(lake, sample=3).differences if one.layer == "tables"]) < 11


def test_sources_that_changed_are_counted_and_no_difference(lake: Lake) -> None:
    (lake.inbox / "a.json").write_bytes(atif("a", 5))
    (lake.inbox / "b.jsonl").unlink()
    report = run(lake)
    assert (report.sources_changed, report.sources_gone, report.differences) == (1, 1, [])
