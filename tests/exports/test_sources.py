"""Whole sources in another format: a file for each, in the container form in which it came (design 8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import ConfigError, UsageError
from chronicle.export import export
from chronicle.options import ExportOptions
from chronicle.reports import ExportReport
from chronicle.retry import retry
from tests.command import chronicle
from tests.jsoncompare import same_json
from tests.lake import Lake, tree
from tests.laws.contents import atif, chats, storyline


def run(lake: Lake, to: Path, **options: Any) -> tuple[ExportReport, dict[str, bytes]]:
    report = export(ExportOptions(paths=lake.paths, to=str(to), **{"format": "atif", **options}))
    return report, tree(to)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def filled(lake: Lake, **sources: bytes) -> None:
    for name, data in sources.items():
        lake.put(name.replace("_", "."), data)
    lake.ingest(allow_quarantine=True)
    lake.rebuild()


def test_documents_that_come_late_stand_in_their_place(lake: Lake, tmp_path: Path) -> None:
    """A member that only a later reading can take is stored behind the others."""
    lines = [json.dumps(json.loads(atif(f"s{number}", 1)), separators=(",", ":")).encode() for number in range(3)]
    filled(lake, a_jsonl=b"\n".join(lines) + b"\n")
    records = [record.text for record in lake.records()]
    first = [text for text in records if b'"session_id":"s0"' in text or b'"source.' in text]
    other = Lake(tmp_path / "other")
    other.append([text for text in records if text not in first] + first)
    other.rebuild()
    assert list(run(other, tmp_path / "out")[1].values()) == [b"\n".join(lines) + b"\n"]


def test_documents_that_the_tables_do_not_hold_are_named(lake: Lake, tmp_path: Path) -> None:
    lake.put("a.json", atif("s", 1))
    lake.put("b.jsonl", b'{"odd":1}\n' + json.dumps(json.loads(atif("t", 1))).encode() + b"\n{\n")
    lake.put("c.storyline.json", storyline("refused", valid=False))
    lake.ingest(allow_quarantine=True)
    lake.rebuild()
    report, found = run(lake, tmp_path / "out")
    assert (report.documents, set(found)) == (2, {"in/a.json", "in/b.jsonl"})
    inbox = lake.inbox.as_uri()
    assert [line.partition(" not in the tables")[0] for line in report.skipped] == [
        f"{inbox}/b.jsonl: 2 documents are",
        f"{inbox}/c.storyline.json: 1 document is",
    ]
    done = chronicle("export", "--format", "atif", "--to", tmp_path / "again", "--lake", lake.paths.lake, "--dataset", "d")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "b.jsonl: 2 documents are not in the tables" in done.err
    assert done.err.endswith(" (and 1 more)\n")


def test_pretty_documents_become_lines(lake: Lake, tmp_path: Path) -> None:
    stories = [json.dumps(json.loads(storyline(name)), indent=2).encode() for name in ("one", "two")]
    parts = json.dumps([{"type": "text", "text": "a\nb"}], indent=2).encode()
    stories[1] = stories[1].replace(b'"hi"', parts)
    filled(lake, a_json=b"\n".join(stories))
    _, found = run(lake, tmp_path / "out")
    (name, data), = found.items()
    assert name == "in/a.jsonl"
    assert [json.loads(line)["session_id"] for line in data.splitlines()] == ["one", "two"]


def test_a_grown_source_holds_what_it_continues(lake: Lake, tmp_path: Path) -> None:
    filled(lake, a_jsonl=chats(range(3)), b_jsonl=chats(range(2)))
    filled(lake, a_jsonl=chats(range(5)))
    report, found = run(lake, tmp_path / "out", format="openai_msg")
    for name, numbers in (("in/a.jsonl", range(5)), ("in/b.jsonl", range(2))):
        assert same_json(chats(numbers), found[name]) is None
    assert report.documents == 7


def test_equal_files_are_written_under_all_their_names(lake: Lake, tmp_path: Path) -> None:
    filled(lake, a_json=atif("s", 2), b_json=atif("s", 2))
    report, found = run(lake, tmp_path / "out")
    assert set(found) == {"in/a.json", "in/b.json"}
    assert len(set(found.values())) == 1
    assert (report.files, report.bytes) == (2, sum(map(len, found.values())))


def test_members_in_quarantine_leave_no_hole(lake: Lake, tmp_path: Path) -> None:
    filled(lake, a_json=b"[" + atif("s1", 2) + b", 7, " + atif("s2", 2) + b"]")
    retry(lake.paths)
    _, found = run(lake, tmp_path / "out")
    assert [one["session_id"] for one in json.loads(found["in/a.json"])] == ["s1", "s2"]


@pytest.mark.parametrize(
    "options",
    [
        {"format": "actf"},
        {"format": "events"},
        {"format": "nonsense"},
        {"format": None},
        {"exact": True},
        {"format": None, "exact": True, "where": "true"},
        {"format": None, "exact": True, "skip_copied": True},
        {"format": "parquet", "skip_copied": True},
        {"all_versions": True},
    ],
)
def test_what_does_not_go_together(lake: Lake, tmp_path: Path, options: dict[str, Any]) -> None:
    filled(lake, a_json=atif("s", 1))
    with pytest.raises(UsageError) as caught:
        run(lake, tmp_path / "out", **options)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


def test_targets_that_are_refused(lake: Lake, tmp_path: Path) -> None:
    filled(lake, a_json=atif("s", 1))
    (tmp_path / "link").symlink_to(lake.paths.lake)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "there.jsonl").write_bytes(b"old")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_bytes(b"")
    refused = [lake.paths.lake, f"{lake.paths.lake}/x", f"{lake.paths.lake}/x.jsonl", *(
        str(tmp_path / name) for name in ("link/x", "file", "there.jsonl", "folder.jsonl", "full")
    )]  # fmt: skip
    for to in refused:
        with pytest.raises(UsageError):
            run(lake, Path(to))
    for to in (f"{tmp_path}/x.jsonl", f"{tmp_path}/x"):
        for format in ("parquet", "agenticmd") if to.endswith("l") else ():
            with pytest.raises(UsageError):
                run(lake, Path(to), format=format)
    assert (tmp_path / "there.jsonl").read_bytes() == b"old"
    run(lake, tmp_path / "there.jsonl", overwrite=True)
    assert b'"session_id":"s"' in (tmp_path / "there.jsonl").read_bytes()
    run(lake, tmp_path / "full", overwrite=True)
    assert set(tree(tmp_path / "full")) == {"x", "in/a.json"}


def test_a_link_in_the_target_leads_nowhere(lake: Lake, tmp_path: Path) -> None:
    lake.put("a.json", atif("a", 1))
    lake.ingest()
    elsewhere, to = tmp_path / "elsewhere", tmp_path / "to"
    elsewhere.mkdir()
    to.mkdir()
    (to / lake.inbox.name).symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="a link leads out of it"):
        export(ExportOptions(paths=lake.paths, to=str(to), exact=True, overwrite=True))
    assert list(elsewhere.iterdir()) == []
    linked = tmp_path / "linked"
    linked.symlink_to(to)  # the target itself may be one
    (to / lake.inbox.name).unlink()
    assert export(ExportOptions(paths=lake.paths, to=str(linked), exact=True, overwrite=True)).files == 1
    assert (to / lake.inbox.name / "a.json").read_bytes() == atif("a", 1)


def test_an_export_that_fails_leaves_no_part_behind(lake: Lake, tmp_path: Path) -> None:
    filled(lake, a_jsonl=chats(range(3)))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/in").write_bytes(b"a file where a directory is due")
    with pytest.raises(Exception, match="in"):
        run(lake, tmp_path / "out", format="openai_msg", overwrite=True)
    assert set(tree(tmp_path / "out")) == {"in"}
