"""Tables of files that no lake holds (design 5.2, 8: `query --from`)."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from chronicle.errors import InputError, NotFoundError
from chronicle.intake.reading import Limits
from chronicle.sql.filetables import tables_of
from infra import samples
from tests.command import chronicle
from tests.lake import ORDER, Lake

LIMITS = Limits(2 << 30, 200)
DEEP = b'{"schema_version":"ATIF-v1.6","session_id":"deep","agent":{"name":"a","version":"1"},"steps":[%b]}' % (
    b'{"step_id":1,"source":"user","message":"m","extra":%b1%b}' % (b'{"a":' * 300, b"}" * 300)
)
ODD = {
    "deep.json": DEEP,
    "bom.json": b"\xef\xbb\xbf" + samples.samples()["eval/survey-7.json"].replace(b"survey-7", b"with-bom"),
    "packed.json.gz": gzip.compress(samples.samples()["eval/survey-7.json"].replace(b"survey-7", b"packed")),
    "again.json": samples.samples()["eval/survey-7.json"],
    "lines.jsonl": b'{"messages":[{"role":"user","content":"a"}]}\n{"messages":[{"role"\n{"messages":[]}\n',
    "story.json": b'{"spec":"storyline/v1","session":"s","agent":{"id":"a"},"turns":[{"id":1,"src":"user","msg":"m"}]}',
}


def test_rows_are_those_of_ingest_and_rebuild(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for name, data in (samples.samples() | ODD).items():
        lake.put(name, data)
    lake.ingest(allow_quarantine=True)
    lake.rebuild()
    readable = [path for path in sorted(lake.inbox.rglob("*")) if path.is_file() and "cut-off" not in path.name]
    tables, warnings = tables_of([str(path) for path in readable], LIMITS)
    for name, rows in lake.rows().items():
        found = sorted(tables[name].to_pylist(), key=lambda row: [row[key] for key in ORDER[name]])
        assert len(found) > 10
        assert found == rows
    assert [warning.rpartition("/")[2].partition(": ")[0] for warning in warnings] == ["nothing-yet.jsonl", "lines.jsonl"]
    assert "lines.jsonl: document 1 left out" in warnings[1]


def test_what_does_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(samples.samples()["eval/survey-7.json"])
    (tmp_path / "bad.json").write_bytes(b'{"schema_version": "ATIF-v1.4", "steps": [')
    (tmp_path / "bad.json.gz").write_bytes(gzip.compress(b"x" * 9999)[:20])
    for name in ("bad.json", "bad.json.gz"):
        with pytest.raises(InputError) as caught:
            tables_of([str(tmp_path / "good.json"), str(tmp_path / name)], LIMITS)
        assert caught.value.message.startswith(f"{tmp_path / name}")
    with pytest.raises(InputError, match="bad"):
        tables_of([str(tmp_path)], Limits(10, 200))
    tables, warnings = tables_of([str(tmp_path)], LIMITS)
    assert (tables["runs"].num_rows, len(warnings)) == (2, 2), "neighbours in a directory are taken"
    assert all(warning.startswith(f"left out: {tmp_path / 'bad.json'}") for warning in warnings)
    with pytest.raises(NotFoundError, match="nowhere"):
        tables_of([str(tmp_path / "nowhere.json")], LIMITS)
    for name, data in {"own.md": b"---\nformat: persisting\n---\n", "runs.parquet": b"PAR1\xff", "words.txt": b"hello"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match="--from takes ATIF, OpenAI messages and Storyline") as caught:
            tables_of([str(tmp_path / name)], LIMITS)
        assert "quarantine" not in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="no file"):
        tables_of([str(tmp_path / "empty")], LIMITS)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHRONICLE_LAKE", str(tmp_path / "lake"))  # does no harm
    samples.write(tmp_path / "exports")
    one, other = "exports/eval/survey-7.json", "exports/eval/batch.json"
    sql = "SELECT count(*) AS runs FROM runs"
    tables, _ = tables_of([one, other], LIMITS)
    assert chronicle("query", sql, "--from", one, other).json == {"runs": tables["runs"].num_rows}
    walked = chronicle("query", sql, "--from", "exports")
    assert (walked.code, walked.json) == (0, {"runs": 15})
    assert "warning: left out: " in walked.err
    assert "repair-103-cut-off.json, line 46: not JSON" in walked.err
    refused: list[tuple[tuple[str, ...], int, str]] = [
        ((sql, "--from", "exports/eval/repair-103-cut-off.json"), 65, "repair-103-cut-off.json"),
        ((sql, "--from", "nowhere.json"), 66, "nowhere.json"),
        ((sql, "--from", one, "--lake", "lake"), 2, "--from goes without --lake and --dataset"),
        ((sql, "--from", one, "--dataset", "d"), 2, "--from goes without --lake and --dataset"),
        ((sql, one), 2, "one too many"),
    ]
    for arguments, code, words in refused:
        done = chronicle("query", *arguments)
        assert (done.code, done.out) == (code, b"")
        assert words in done.err
        assert done.err.count("\n") == 1
