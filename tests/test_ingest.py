"""ingest: what is taken, skipped, bound, continued, set aside, retried and dropped (design 4.2, 4.4)."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from chronicle import identity
from chronicle.errors import IntegrityError, NotFoundError, UsageError
from chronicle.export import export
from chronicle.ingest import _read_ahead, ingest
from chronicle.intake import reading
from chronicle.intake.reading import Limits
from chronicle.intake.receipts import list_receipts, rebuild_receipts
from chronicle.intake.sources import begin
from chronicle.layout import DatasetPaths
from chronicle.options import ExportOptions, IngestOptions, VerifyOptions
from chronicle.quarantine import Quarantine
from chronicle.retry import retry
from chronicle.storage.listing import SourceFile, list_sources
from chronicle.verify import verify
from tests.jsoncompare import same_json
from tests.lake import Lake, tree
from tests.laws.contents import atif, chat, chats, child, storyline


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def counts(report: object) -> dict[str, int]:
    names = ("sources", "ingested", "unchanged", "bound", "empty", "quarantined_new", "quarantined_still", "files_opened")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def test_a_touched_file_is_digested_once_and_no_fact_is_written(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.ingest()
    lake.put("a.json", atif("s", 2))
    assert counts(lake.ingest()) == {"sources": 1, "unchanged": 1, "files_opened": 1}
    again = lake.ingest()
    assert counts(again) == {"sources": 1, "unchanged": 1}
    assert again.fact_version == 1


def test_of_very_many_small_files_few_are_read_ahead(lake: Lake) -> None:
    for number in range(700):
        lake.put(f"{number}.json", b"{}")
    run = begin(IngestOptions(paths=lake.paths, sources=(str(lake.inbox),)))
    files = deque(list_sources((str(lake.inbox),), lake.paths.lake).files)
    ahead = _read_ahead(run, files)
    next(ahead)
    assert len(files) >= 640, "they are on their way, or held as they were read"
    assert len(list(ahead)) == 699


def test_a_racy_file_is_digested_once_more(lake: Lake) -> None:
    path = lake.inbox / "a.json"
    path.write_bytes(atif("s", 2))
    os.utime(path, ns=(time.time_ns() + 10**9, time.time_ns() + 10**9))  # younger than any clock's grain
    lake.ingest()
    assert list_receipts(lake.paths)[0].stat.racy
    assert counts(lake.ingest()) == {"sources": 1, "unchanged": 1, "files_opened": 1}


def test_a_change_that_leaves_size_and_times_is_found_by_ctime(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.ingest()
    path = lake.inbox / "a.json"
    kept = path.stat()
    path.write_bytes(atif("t", 2))
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert path.stat().st_size == kept.st_size
    assert counts(lake.ingest()) == {"sources": 1, "ingested": 1, "files_opened": 1}
    assert lake.exact() == {"in/a.json": atif("t", 2)}


def test_a_file_that_changes_while_it_is_read_is_taken_next_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put("a.json", atif("s", 2))
    lake.put("b.json", atif("t", 2))
    read_all = reading._read_all

    def growing(handle: int, size: int) -> bytes:
        if size == len(atif("s", 2)) and (lake.inbox / "a.json").stat().st_size == size and not grown.is_set():
            grown.set()
            with (lake.inbox / "a.json").open("ab") as file:
                file.write(b" ")
        return read_all(handle, size)

    grown = threading.Event()
    monkeypatch.setattr(reading, "_read_all", growing)
    report = lake.ingest()
    assert len(report.changed_while_read) == 1
    assert report.ingested == 1
    assert report.exit_code() == 0
    assert any("changed while it was read" in warning for warning in report.warnings)
    assert lake.ingest().ingested == 1
    assert set(lake.exact()) == {"in/a.json", "in/b.json"}


def test_a_reverted_file_comes_back_without_new_documents(lake: Lake) -> None:
    old, new = atif("s", 2), atif("s", 4)
    for data in (old, new):
        lake.put("a.json", data)
        lake.ingest()
        lake.rebuild()
    assert len(lake.rows()["steps"]) == 4
    lake.put("a.json", old)
    report = lake.ingest()
    assert counts(report) == {"sources": 1, "bound": 1, "files_opened": 1}
    assert report.events == 1
    assert lake.rebuild().mode == "incremental"
    assert len(lake.rows()["steps"]) == 2
    assert lake.exact() == {"in/a.json": old}
    assert lake.ingest().files_opened == 0


def test_the_same_bytes_under_two_keys_are_stored_once_and_exported_twice(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.put("copy/b.json", atif("s", 2))
    report = lake.ingest()
    assert counts(report) == {"sources": 2, "ingested": 1, "bound": 1, "files_opened": 2}
    lake.rebuild()
    assert len(lake.rows()["runs"]) == 1
    assert lake.exact() == {"in/a.json": atif("s", 2), "in/copy/b.json": atif("s", 2)}
    assert set(lake.exported("atif")) == {"in/a.json", "in/copy/b.json"}
    (lake.inbox / "a.json").unlink()
    lake.put("copy/b.json", atif("s", 3))
    lake.ingest()
    assert lake.exact() == {"in/a.json": atif("s", 2), "in/copy/b.json": atif("s", 3)}, "a file that went away stays in the lake"


def test_a_grown_jsonl_stores_its_tail_only(lake: Lake) -> None:
    lake.put("a.jsonl", chats(range(200)))
    first = lake.ingest()
    lake.rebuild()
    before = {row["document_id"]: row for row in lake.rows()["runs"]}
    lake.put("a.jsonl", chats(range(203), end=b""))
    report = lake.ingest()
    assert (report.continued, report.documents) == (1, 3)
    assert report.events == 2 + 3 * 6 < first.events // 10
    rebuilt = lake.rebuild()
    assert (rebuilt.mode, rebuilt.facts_read, rebuilt.stories_replaced) == ("incremental", report.events, 3)
    after = {row["document_id"]: row for row in lake.rows()["runs"]}
    assert {key: after[key] for key in before} == before
    assert len(after) == 203
    assert lake.exact() == {"in/a.jsonl": chats(range(203), end=b"")}


def test_a_jsonl_that_did_not_end_at_a_line_end_is_stored_anew(lake: Lake) -> None:
    lake.put("a.jsonl", chats(range(3), end=b""))
    lake.ingest()
    lake.put("a.jsonl", chats(range(4)))
    assert lake.ingest().continued == 0
    assert lake.exact() == {"in/a.jsonl": chats(range(4))}


def test_a_grown_tail_may_hold_a_bad_line(lake: Lake) -> None:
    lake.put("a.jsonl", chats(range(3)))
    lake.ingest()
    grown = chats(range(3)) + b'{"messages": [\n' + chat(9) + b"\n"
    lake.put("a.jsonl", grown)
    report = lake.ingest()
    assert report.exit_code() == 65
    assert [(entry.locator, entry.kind) for entry in report.quarantine] == [(3, "member:truncated")]
    assert lake.exact() == {"in/a.jsonl": grown}
    assert len([lake.rebuild(), *lake.rows()["runs"]]) == 5


def test_removed_lines_leave_the_tables(lake: Lake) -> None:
    lake.put("a.jsonl", chats(range(5)))
    lake.ingest()
    lake.rebuild()
    lake.put("a.jsonl", chats(range(1, 4)))
    lake.ingest()
    assert lake.rebuild().stories_removed == 5
    assert {row["session_id"] for row in lake.rows()["runs"]} == {"chat-1", "chat-2", "chat-3"}


BAD = {
    "empty.json": (b" \n", "empty"),
    "list.json": (b"[]", "empty"),
    "cut.json": (b'{"schema_version":"ATIF-v1.7","steps":[', "truncated"),
    "words.json": (b"hello world", "unreadable"),
    "latin.json": ('{"messages":[{"role":"user","content":"caf\u00e9"}]}'.encode("latin-1"), "encoding"),
    "utf16.json": ('{"messages":[{"role":"user","content":"x"}]}'.encode("utf-16"), "encoding"),
    "share.json": (b'[{"conversations":[{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}]', "unsupported:sharegpt"),
    "short.json.gz": (gzip.compress(atif("s", 2))[:-9], "truncated"),
    "bomb.json.gz": (gzip.compress(b"[" + b" " * (64 << 20) + b"]"), "too-large"),
}


def test_every_unreadable_file_is_set_aside_with_its_bytes_and_its_neighbours_are_committed(lake: Lake) -> None:
    for name, (data, _) in BAD.items():
        lake.put(name, data)
    lake.put("good.json", atif("s", 2))
    report = lake.ingest()
    assert report.ingested == 1
    assert report.exit_code() == 65
    assert (report.empty, report.quarantined_new) == (2, len(BAD) - 2)
    quarantine = Quarantine(lake.paths)
    kinds = {entry.source_key.rpartition("/")[2]: entry.kind for entry in quarantine.entries.values()}
    assert kinds == {name: kind for name, (_, kind) in BAD.items()}
    for entry in quarantine.entries.values():
        assert quarantine.data(entry) == BAD[entry.source_key.rpartition("/")[2]][0]
        assert len(entry.reason) > 10
    assert lake.exact() == {"in/good.json": atif("s", 2)}

    again = lake.ingest()
    assert counts(again) == {"sources": 10, "unchanged": 1, "empty": 2, "quarantined_still": len(BAD) - 2}
    assert again.exit_code() == 65
    assert lake.ingest(allow_quarantine=True).exit_code() == 0
    (lake.inbox / "good.json").unlink()
    for name, (_, kind) in BAD.items():
        if kind != "empty":
            (lake.inbox / name).unlink()
    assert lake.ingest().exit_code() == 0, "empty files alone are no fault"


def test_a_plain_file_over_the_limit_is_known_by_key_size_and_digest_only(lake: Lake) -> None:
    lake.put("big.json", atif("s", 9))
    report = lake.ingest(max_source_bytes=100)
    (entry,) = Quarantine(lake.paths).entries.values()
    assert (entry.kind, entry.stored, entry.size) == ("too-large", False, len(atif("s", 9)))
    assert entry.source_id == identity.source_id(atif("s", 9))
    assert report.exit_code() == 65
    assert lake.ingest(max_source_bytes=100).files_opened == 0


def test_what_was_too_large_is_taken_once_the_limits_allow_it(lake: Lake) -> None:
    lake.put("big.json", atif("big", 90))
    lake.put("dense.json.gz", gzip.compress(b" " * (2 << 20) + atif("dense", 2)))
    lake.put("small.json", atif("s", 1))
    assert lake.ingest(max_source_bytes=3_500).quarantined_new == 2
    higher = lake.ingest(max_source_bytes=3_600)
    assert (higher.files_opened, higher.quarantined_still) == (2, 2), "a higher limit is tried"
    assert lake.ingest(max_source_bytes=3_600).files_opened == 0, "once"
    assert lake.ingest(max_source_bytes=3_550).files_opened == 0
    dense = next(e for e in Quarantine(lake.paths).entries.values() if e.stored)
    assert retry(lake.paths, (dense.id,), limits=Limits(3_600, 200)).quarantined_still == 1
    before = lake.store.manifest().fact_version
    would = retry(lake.paths, (dense.id,), limits=Limits(4 << 20, 2_000), dry_run=True)
    assert (would.ingested, would.exit_code(), dense.id in Quarantine(lake.paths).entries) == (1, 0, True)
    assert lake.store.manifest().fact_version == before, "nothing was written"
    assert retry(lake.paths, (dense.id,), limits=Limits(4 << 20, 2_000)).ingested == 1
    assert lake.ingest().ingested == 1
    assert not Quarantine(lake.paths).entries
    assert lake.ingest().files_opened == 0


def test_a_source_that_reads_as_another_format_leaves_the_quarantine(lake: Lake) -> None:
    lake.put("a.json", json.dumps({"steps": [], "turns": []}).encode())
    assert lake.ingest().quarantined_new == 1
    assert lake.ingest(format="atif").ingested == 1
    assert not Quarantine(lake.paths).entries
    assert lake.ingest().files_opened == 0


def test_who_may_not_open_a_file_says_nothing_to_who_may(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights of a user change without a trace in the file's stat."""
    lake.put("a.json", atif("s", 2))
    opened = os.open

    def refused(path: str, *rest: int) -> int:
        if path.endswith("a.json"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *rest)

    with monkeypatch.context() as user:
        user.setattr("chronicle.intake.reading.os.open", refused)
        assert lake.ingest().quarantined_new == 1
        assert lake.ingest().quarantined_still == 1
    report = lake.ingest()
    assert (report.ingested, report.exit_code()) == (1, 0)
    assert not Quarantine(lake.paths).entries


def test_compressed_sources_come_back_decompressed_without_the_suffix(lake: Lake) -> None:
    lake.put("a.json.gz", gzip.compress(atif("s", 2)))
    lake.put("b.jsonl.zst", zstandard.compress(chats(range(3))))
    lake.put("plain.json.gz", atif("p", 2))
    assert lake.ingest().exit_code() == 0
    assert lake.exact() == {"in/a.json": atif("s", 2), "in/b.jsonl": chats(range(3)), "in/plain.json.gz": atif("p", 2)}


def test_a_zstd_file_may_begin_with_a_frame_to_skip(lake: Lake) -> None:
    skipped = b"\x51\x2a\x4d\x18\x04\x00\x00\x00abcd"  # as pzstd writes it
    lake.put("a.json.zst", skipped + zstandard.compress(atif("s", 2)) + skipped)
    assert lake.ingest().exit_code() == 0
    assert lake.exact() == {"in/a.json": atif("s", 2)}


def test_a_container_loses_one_member_and_keeps_its_bytes(lake: Lake) -> None:
    data = chats(range(2)) + b"{ broken\r\n" + chats(range(2, 3), end=b"\n\n")
    lake.put("a.jsonl", data)
    report = lake.ingest()
    assert report.exit_code() == 65
    assert [(entry.locator, entry.kind) for entry in report.quarantine] == [(2, "member:unreadable")]
    assert lake.exact() == {"in/a.jsonl": data}
    assert lake.rebuild().runs == 3
    assert counts(lake.ingest()) == {"sources": 1, "unchanged": 1, "quarantined_still": 1}


def test_a_bad_member_counts_under_every_key_that_holds_it(lake: Lake) -> None:
    data = chats(range(2)) + b"{ broken\n"
    lake.put("a.jsonl", data)
    lake.put("b.jsonl", data)
    report = lake.ingest()
    assert counts(report) == {"sources": 2, "ingested": 1, "bound": 1, "quarantined_new": 2, "files_opened": 2}
    entries = list(Quarantine(lake.paths).entries.values())
    assert [entry.source_key.rpartition("/")[2] for entry in entries] == ["a.jsonl", "b.jsonl"]
    assert {Quarantine(lake.paths).data(entry) for entry in entries} == {b"{ broken"}
    assert counts(lake.ingest()) == {"sources": 2, "unchanged": 2, "quarantined_still": 2}


def test_a_bad_line_counts_while_the_file_grows(lake: Lake) -> None:
    data = chats(range(2)) + b"{ broken\n"
    lake.put("a.jsonl", data)
    lake.ingest()
    lake.put("a.jsonl", data + chat(7) + b"\n")
    report = lake.ingest()
    assert (report.continued, report.quarantined_still, report.exit_code()) == (1, 1, 65)
    assert lake.ingest().quarantined_still == 1


def test_retry_of_a_member_supersedes_its_opaque(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that learns a new shape later reads the stored bytes: here it forgets one first."""
    import chronicle.intake.sources as verb

    data = chats(range(3))
    real = verb.cut

    def blind(source: bytes, **options: object) -> object:
        found = real(source, **options)  # type: ignore[arg-type]
        for document in found.documents:
            if document.locator == 1:
                document.fault, document.reason, document.parts = "member:unsupported:later", "not yet", ()
        return found

    monkeypatch.setattr(verb, "cut", blind)
    lake.put("a.jsonl", data)
    lake.ingest()
    assert lake.rebuild().runs == 2
    assert lake.exact() == {"in/a.jsonl": data}
    monkeypatch.setattr(verb, "cut", real)
    report = retry(lake.paths)
    assert (report.documents, report.exit_code()) == (1, 0)
    assert Quarantine(lake.paths).entries == {}
    assert lake.rebuild().runs == 3
    incremental = lake.rows()
    lake.rebuild(full=True)
    assert lake.rows() == incremental
    assert lake.exact() == {"in/a.jsonl": data}
    assert lake.ingest().exit_code() == 0


def test_retry_of_a_whole_source_does_not_displace_newer_bytes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    import chronicle.intake.sources as verb
    from chronicle.errors import InputError

    real = verb.cut

    def refuse(source: bytes, **options: object) -> object:
        raise InputError("a shape of tomorrow", kind="unsupported:later")

    lake.put("a.json", atif("old", 2))
    monkeypatch.setattr(verb, "cut", refuse)
    lake.ingest()
    monkeypatch.setattr(verb, "cut", real)
    lake.put("a.json", atif("new", 2))
    lake.ingest()
    report = retry(lake.paths)
    assert report.ingested == 1
    assert Quarantine(lake.paths).entries == {}
    assert lake.exact() == {"in/a.json": atif("new", 2)}
    assert lake.ingest().files_opened == 0
    out = lake.root / "versions"
    export(ExportOptions(paths=lake.paths, to=str(out), exact=True, all_versions=True))
    assert sorted(tree(out).values()) == sorted([atif("new", 2), atif("old", 2)])


def test_retry_stores_no_bytes_that_were_not_set_aside(lake: Lake) -> None:
    lake.put("a.json", b'{"schema_version":')
    (entry,) = lake.ingest().quarantine
    Path(lake.paths.quarantine, f"{entry.id}.bin").write_bytes(atif("other", 1))
    report = retry(lake.paths)
    assert (report.ingested, report.quarantined_still, len(report.warnings)) == (0, 1, 1)
    assert "were changed; ingest the file again" in report.warnings[0]


def test_retry_that_still_fails_keeps_the_entry_and_drop_removes_it(lake: Lake) -> None:
    lake.put("a.json", b"{ broken")
    lake.ingest()
    assert retry(lake.paths).quarantined_still == 1
    (entry,) = Quarantine(lake.paths).entries
    Quarantine(lake.paths).drop(entry[:6])
    assert Quarantine(lake.paths).entries == {}
    assert not lake.store.exists()
    with pytest.raises(NotFoundError):
        Quarantine(lake.paths).drop(entry)


def test_a_refused_storyline_is_stored_set_aside_and_not_projected(lake: Lake) -> None:
    lake.put("a.storyline.json", storyline("s", valid=False))
    report = lake.ingest()
    assert (report.exit_code(), [entry.kind for entry in report.quarantine]) == (65, ["invalid:repeated-turn-id"])
    assert lake.exact() == {"in/a.storyline.json": storyline("s", valid=False)}
    assert lake.rebuild().runs == 0


def test_a_forced_format_makes_a_new_copy_that_wins(lake: Lake) -> None:
    both = {"schema_version": "ATIF-v1.7", "agent": {"name": "a"}, "steps": [], "messages": [{"role": "user", "content": "x"}]}
    data = json.dumps(both).encode()
    lake.put("a.json", data)
    lake.ingest()
    lake.rebuild()
    assert len(lake.rows()["steps"]) == 0
    assert lake.ingest(format="openai_msg").ingested == 1
    lake.rebuild()
    incremental = lake.rows()
    assert len(incremental["steps"]) == 1
    lake.rebuild(full=True)
    assert lake.rows() == incremental
    assert lake.exact() == {"in/a.json": data}
    assert lake.ingest(format="openai_msg").files_opened == 0


def test_walks_leave_out_the_lake_hidden_files_and_what_is_no_export(lake: Lake) -> None:
    inside = DatasetPaths(str(lake.inbox / "lake"), "d")
    lake.put("a.json", atif("s", 2))
    lake.put(".hidden.json", atif("h", 2))
    lake.put("images/shot.png", b"\x89PNG")
    lake.put("README.md", b"# Notes\n")
    lake.put("x.lance/data.json", atif("x", 2))
    (lake.inbox / "loop").symlink_to(lake.inbox)
    options = IngestOptions(paths=inside, sources=(str(lake.inbox),))
    report = ingest(options)
    assert (report.sources, report.ignored) == (1, {".png": 1, ".md": 1})
    assert any("link to a directory" in warning for warning in report.warnings)
    assert ingest(options).sources == 1, "the lake itself is no source"


def test_named_roots_make_keys_that_move_between_machines(lake: Lake, tmp_path: Path) -> None:
    lake.put("deep/a.json", atif("s", 2))
    options = IngestOptions(paths=lake.paths, sources=(f"eval={lake.inbox}",))
    ingest(options)
    assert [receipt.source_key for receipt in list_receipts(lake.paths)] == ["eval/deep/a.json"]
    moved = tmp_path / "elsewhere"
    shutil.copytree(lake.inbox, moved)
    again = ingest(IngestOptions(paths=lake.paths, sources=(f"eval={moved}",)))
    assert (again.unchanged, again.events) == (1, 0)
    assert lake.exact() == {"eval/deep/a.json": atif("s", 2)}
    with pytest.raises(UsageError, match="not allowed"):
        ingest(IngestOptions(paths=lake.paths, sources=(f"..={lake.inbox}",)))


def test_two_roots_with_one_last_segment_do_not_collide(lake: Lake, tmp_path: Path) -> None:
    for folder, session in (("x/in", "one"), ("y/in", "two")):
        path = tmp_path / folder
        path.mkdir(parents=True)
        (path / "a.json").write_bytes(atif(session, 2))
    ingest(IngestOptions(paths=lake.paths, sources=(str(tmp_path / "x/in"), str(tmp_path / "y/in"))))
    exact = lake.exact()
    assert sorted(exact.values()) == sorted([atif("one", 2), atif("two", 2)])
    assert all(name.startswith("in~") and name.endswith("/a.json") for name in exact)


@pytest.mark.parametrize("name", ["a [1].json", "b#1?.json", "c%2Fd+e.json", "o'brien;--.json", "sp ace.json", "日本.json"])
def test_names_are_neither_encoded_nor_decoded(lake: Lake, name: str) -> None:
    lake.put(name, atif("s", 2))
    ingest(IngestOptions(paths=lake.paths, sources=(str(lake.inbox / name),)))
    assert list_receipts(lake.paths)[0].source_key == f"file://{lake.inbox}/{name}"
    assert lake.exact() == {f"in/{name}": atif("s", 2)}


def test_a_name_that_is_not_utf8_keeps_its_bytes(lake: Lake) -> None:
    path = os.fsencode(lake.inbox) + b"/bad\xff.json"
    with open(path, "wb") as file:
        file.write(atif("s", 2))
    assert lake.ingest().ingested == 1
    assert lake.exact() == {"in/bad\\xff.json": atif("s", 2)}


def test_two_files_of_one_key_are_not_lost_silently(lake: Lake) -> None:
    for name, session in ((b"x\xff.json", "bytes"), (b"x\\xff.json", "text")):
        with open(os.fsencode(lake.inbox) + b"/" + name, "wb") as file:
            file.write(atif(session, 2))
    report = lake.ingest()
    assert (report.sources, len(report.warnings)) == (1, 1)
    assert "one source key" in report.warnings[0]


@pytest.mark.parametrize("suffix", [".json", ""])
def test_a_name_as_long_as_a_name_may_be_comes_back(lake: Lake, suffix: str) -> None:
    name = "n" * (255 - len(suffix)) + suffix
    lake.put(name, atif("s", 2))
    lake.ingest()
    assert lake.exact() == {f"in/{name}": atif("s", 2)}
    lake.rebuild()
    assert len(lake.exported("storyline")) == 1


def test_a_glob_takes_its_fixed_directory_as_root(lake: Lake) -> None:
    lake.put("x/a.json", atif("s", 2))
    lake.put("y/b.json", atif("t", 2))
    ingest(IngestOptions(paths=lake.paths, sources=(f"{lake.inbox}/*/*.json",)))
    assert set(lake.exact()) == {"in/x/a.json", "in/y/b.json"}


def test_ingests_at_the_same_time_all_end_well(lake: Lake) -> None:
    """Each writer's receipts come behind those of the others, whoever makes the dataset."""
    for folder in "abcd":
        lake.put(f"{folder}/{folder}.json", atif(folder, 2))
    sources = [str(lake.inbox / folder) for folder in "abcd"]
    runs = [IngestOptions(paths=lake.paths, sources=(source,), batch_bytes=1) for source in sources]
    with ThreadPoolExecutor(len(runs)) as pool:
        assert [report.exit_code() for report in pool.map(ingest, runs)] == [0, 0, 0, 0]
    assert len(lake.exact()) == 4
    held = list_receipts(lake.paths)
    assert held == rebuild_receipts(lake.paths)
    assert counts(lake.ingest()) == {"sources": 4, "unchanged": 4}


def test_damaged_receipts_are_named_and_can_be_made_anew(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.ingest()
    held = list_receipts(lake.paths)
    shutil.rmtree(Path(lake.paths.receipts) / "data")
    with pytest.raises(IntegrityError, match="damaged") as caught:
        lake.ingest()
    assert "receipts rebuild" in str(caught.value.hint)
    assert rebuild_receipts(lake.paths) == held
    assert lake.ingest().files_opened == 0
    shutil.rmtree(Path(lake.paths.receipts) / "_versions")  # what a writer leaves that died before its first commit
    assert lake.ingest().files_opened == 0
    assert list_receipts(lake.paths) == held


def test_missing_sources_and_empty_directories(lake: Lake) -> None:
    for source in (str(lake.inbox / "nowhere"), str(lake.inbox / "*.json")):
        with pytest.raises(NotFoundError, match="does not exist"):
            ingest(IngestOptions(paths=lake.paths, sources=(source,)))
    report = lake.ingest()
    assert (report.sources, report.exit_code(), len(report.warnings)) == (0, 0, 1)
    assert not lake.store.exists()


def test_since_and_until_choose_by_modification_time(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.put("b.json", atif("t", 2))
    middle = (lake.inbox / "b.json").stat().st_mtime_ns
    found = lake.ingest(since_ns=middle)
    assert (found.sources, found.warnings) == (1, [])
    none = lake.ingest(until_ns=1)
    assert (none.sources, none.warnings) == (0, ["of 2 sources none was modified in the time of --since and --until"])
    assert lake.ingest(until_ns=middle).ingested == 1
    assert set(lake.exact()) == {"in/a.json", "in/b.json"}


def test_a_dry_run_writes_nothing(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.put("b.json", b"{ broken")
    report = lake.ingest(dry_run=True)
    assert (report.ingested, report.quarantined_new, report.documents) == (1, 1, 1)
    assert not Path(lake.paths.lake).exists()


def test_a_key_that_would_leave_the_target_is_refused_before_anything_is_written(lake: Lake) -> None:
    from tests.laws.test_facts import copy_of

    lake.append(copy_of(atif("s", 2), "file:///x/../../evil.json", parts=True))
    with pytest.raises(IntegrityError, match="would leave"):
        lake.exact()
    assert not (lake.root / "exact").exists()


def test_a_conversion_keeps_the_container_and_its_suffix_says_which(lake: Lake) -> None:
    lake.put("family.json", atif("s", 2, subagent_trajectories=[child("bird", 3), child("fish", 2)]))
    lake.put("chats.jsonl", chats(range(3)))
    lake.put("pair.json", b"[" + atif("a", 2) + b"," + atif("b", 2) + b"]")
    lake.put("run.json", atif("c", 2) + b" " + atif("d", 2))
    lake.ingest()
    lake.rebuild()
    openai, made, storyline_files = (lake.exported(name) for name in ("openai_msg", "atif", "storyline"))
    assert [len(json.loads(openai[f"in/{name}.json"])) for name in ("family", "pair")] == [3, 2]
    assert [line.startswith(b"{") for line in openai["in/run.jsonl"].splitlines()] == [True, True]
    assert same_json(openai["in/chats.jsonl"], chats(range(3))) is None
    assert [json.loads(line)["schema_version"] for line in made["in/chats.jsonl"].splitlines()] == ["ATIF-v1.7"] * 3
    assert {name: type(json.loads(data)) for name, data in storyline_files.items()} == {
        "in/chats.storyline.json": list,
        "in/family.storyline.json": list,
        "in/pair.storyline.json": list,
        "in/run.storyline.json": list,
    }


def test_export_refuses_the_lake_and_a_full_directory(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.ingest()
    for to in (lake.paths.lake, f"{lake.paths.lake}/out"):
        with pytest.raises(UsageError, match="inside the lake"):
            export(ExportOptions(paths=lake.paths, to=to, exact=True))
    with pytest.raises(UsageError, match="not empty"):
        export(ExportOptions(paths=lake.paths, to=str(lake.inbox), exact=True))


def test_verify_agrees_and_can_fail(lake: Lake) -> None:
    lake.put("a.json", atif("s", 3))
    lake.put("b.jsonl", chats(range(3)))
    lake.ingest()
    lake.rebuild()
    lake.markdown()
    good = verify(VerifyOptions(paths=lake.paths))
    assert (good.differences, good.sources, good.stories, good.markdown_files, good.freshness) == ([], 2, 4, 4, "fresh")

    lake.put("a.json", atif("s", 4))
    (lake.inbox / "b.jsonl").unlink()
    changed = verify(VerifyOptions(paths=lake.paths))
    assert (changed.differences, changed.sources_changed, changed.sources_gone) == ([], 1, 1)

    shutil.move(lake.paths.storyline, lake.root / "aside")
    absent = verify(VerifyOptions(paths=lake.paths))
    assert (absent.differences, absent.freshness) == ([], "missing")
    assert "there are no tables" in absent.warnings[0]
    shutil.move(lake.root / "aside", lake.paths.storyline)

    markdown = next(Path(lake.paths.agenticmd).glob("*.md"))
    markdown.unlink()
    assert [difference.layer for difference in verify(VerifyOptions(paths=lake.paths)).differences] == ["markdown"]


def test_deleted_receipts_are_folded_out_of_the_facts_again(lake: Lake) -> None:
    lake.put("a.json", atif("s", 2))
    lake.put("b.jsonl", chats(range(3)))
    lake.ingest()
    rows = lake.store.manifest().fact_rows
    shutil.rmtree(lake.paths.receipts)
    again = lake.ingest()
    assert (again.unchanged, again.files_opened, again.events) == (2, 0, 0)
    assert lake.store.manifest().fact_rows == rows


def test_a_file_that_goes_away_once_it_was_listed_keeps_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    for name in ("a", "b", "c"):
        lake.put(f"{name}.json", atif(name, 2))
    real = reading.read_source

    def read(file: SourceFile, limits: Limits) -> reading.SourceBytes:
        if file.key.endswith("/b.json"):
            (lake.inbox / "b.json").unlink()
        return real(file, limits)

    monkeypatch.setattr("chronicle.ingest.read_source", read)
    report = lake.ingest()
    assert (report.ingested, [key[-6:] for key in report.changed_while_read]) == (2, ["b.json"])
