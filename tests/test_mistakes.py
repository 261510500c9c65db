"""Mistakes and mishaps through the real command: one clear line, the right code, nothing half-done, nothing outside."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lake import Lake, tree
from tests.laws.contents import atif, chats
from tests.process import REPOSITORY, Done, chronicle, command, environment, start


def refused(done: Done, code: int, *words: str) -> None:
    """Assert how a call with --json ended: its code, one line on stderr that says what next, the same as JSON on stdout."""
    assert done.code == code, done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    error = done.json["error"]
    assert done.err == f"error: {error['message']}; {error['hint']}\n"
    assert error["hint"]
    assert error["kind"] not in ("bug", "error")
    for word in words:
        assert word in done.err


def made(root: Path) -> Lake:
    """An inbox of two files, ingested, with tables."""
    lake = Lake(root)
    lake.put("a.json", atif("s", 3))
    lake.put("b.jsonl", chats(range(3)))
    lake.ingest()
    lake.rebuild()
    return lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return made(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, dict[str, bytes]]:
    """A lake for calls that must not change anything, and all that lies there."""
    lake = made(tmp_path_factory.mktemp("unchanged"))
    return lake, tree(lake.root)


def call(lake: Lake, *arguments: object, dataset: str = "d", **settings: object) -> Done:
    return chronicle(*arguments, "--lake", lake.paths.lake, "--dataset", dataset, "--json", **settings)


USAGE = [
    ("ingest", "in", "--dataset", "../d"),
    ("ingest", "in", "--dataset", "a/../../d"),
    ("ingest", "in", "--format", "nonsense"),
    ("ingest", "in", "--nonsense"),
    ("ingest",),
    ("nonsense",),
    ("export", "--to", "out"),
    ("export", "--exact", "--format", "atif", "--to", "out"),
    ("export", "--format", "nonsense", "--to", "out"),
    ("export", "--exact", "--to", "lake/out"),
    ("export", "--exact", "--to", "lake"),
    ("export", "--exact", "--to", "in"),
    ("export", "--exact", "--to", "in/a.json"),
    ("query", "SELEC 1"),
    ("query", "SELECT nope FROM runs"),
    ("query", "DELETE FROM runs"),
    ("query", "SELECT * FROM read_text('in/a.json')"),
    ("query", "PIVOT runs ON agent_id USING count(*)"),
    ("query", "SELECT 1", "--timeout", "inf"),
    ("query", "SELECT 1", "--timeout", "nan"),
    ("query", "SELECT 1", "--limit", "9" * 20),
    ("find", "words", "--limit", "9" * 20),
    ("export", "--format", "parquet", "--to", "out", "--since", "2026"),
    ("run", "in", "--dataset", ".."),
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_a_wrong_call_is_2(unchanged: tuple[Lake, dict[str, bytes]], arguments: tuple[str, ...]) -> None:
    lake, before = unchanged
    where = [] if "--dataset" in arguments else ["--dataset", "d"]
    refused(chronicle(*arguments, *where, "--lake", "lake", "--json", cwd=lake.root), 2)
    assert tree(lake.root) == before


MISSING = [
    ("ingest", "nowhere"),
    ("ingest", "in/*.parquet"),
    ("rebuild", "--dataset", "other"),
    ("materialize", "--dataset", "other"),
    ("export", "--exact", "--to", "out", "--dataset", "other"),
    ("verify", "--dataset", "other"),
    ("replay", "--dataset", "other"),
    ("query", "SELECT 1", "--dataset", "other"),
    ("stats", "--dataset", "other"),
    ("receipts", "list", "--dataset", "other"),
    ("quarantine", "list", "--dataset", "other"),
    ("quarantine", "show", "0123"),
    ("quarantine", "drop", "0123"),
    ("quarantine", "retry", "0123"),
    ("list", "--lake", "nowhere"),
]


@pytest.mark.parametrize("arguments", MISSING, ids=" ".join)
def test_what_is_not_there_is_66(unchanged: tuple[Lake, dict[str, bytes]], arguments: tuple[str, ...]) -> None:
    lake, before = unchanged
    dataset = [] if "--dataset" in arguments or arguments[0] == "list" else ["--dataset", "d"]
    where = [] if "--lake" in arguments else ["--lake", "lake"]
    refused(chronicle(*arguments, *where, *dataset, "--json", cwd=lake.root), 66)
    assert tree(lake.root) == before


def test_a_missing_path_beside_good_ones_takes_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put("a.json", atif("s", 3))
    refused(call(lake, "ingest", lake.inbox, tmp_path / "nowhere"), 66, "nowhere")
    assert not Path(lake.paths.lake).exists()


def test_an_empty_directory_is_a_warning(lake: Lake) -> None:
    (lake.root / "empty").mkdir()
    done = call(lake, "ingest", lake.root / "empty")
    assert done.code == 0
    assert any("no file" in warning for warning in done.json["warnings"])
    assert done.json["fact_version"] == 1


@pytest.mark.parametrize("place", ["a file", "below a file", "below proc"])
def test_a_lake_that_cannot_be_is_78(tmp_path: Path, place: str) -> None:
    source = tmp_path / "a.json"
    source.write_bytes(atif("s", 3))
    lake = {"a file": source, "below a file": source / "lake", "below proc": Path("/proc/lake")}[place]
    refused(chronicle("ingest", source, "--lake", lake, "--dataset", "d", "--json"), 78, str(lake))
    assert tree(tmp_path) == {"a.json": atif("s", 3)}


Mount = Callable[..., Path]


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Mount]:
    """Mount a small file system, or mount it again with other options."""
    where = tmp_path / "mounted"

    def mount(options: str) -> Path:
        known = where.exists()
        where.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"remount,{options}" if known else options, "tmpfs", str(where)],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"mount is not permitted here: {done.stderr.decode().strip()}")
        return where

    yield mount
    if where.exists():
        subprocess.run(["umount", str(where)], capture_output=True, check=False)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount command")
def test_a_lake_that_cannot_be_written_is_78(tmp_path: Path, tmpfs: Mount) -> None:
    lake = Lake(tmp_path)
    lake.put("a.json", atif("s", 3))
    where = tmpfs("size=8m") / "lake"
    mounted = ("--lake", where, "--dataset", "d", "--json")
    assert chronicle("ingest", lake.inbox, *mounted).code == 0
    tmpfs("ro")
    before = tree(where)
    lake.put("a.json", atif("s", 4))
    for verb in (("ingest", lake.inbox), ("rebuild",), ("materialize",)):
        refused(chronicle(*verb, *mounted), 78, str(where))
    assert tree(where) == before
    assert chronicle("export", "--exact", "--to", tmp_path / "out", *mounted).code == 0, "reading needs no writing"


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount command")
def test_a_full_disk_is_69_and_nothing_shows_half(tmp_path: Path, tmpfs: Mount) -> None:
    lake = Lake(tmp_path)
    noise = random.Random(7)
    for number in range(12):
        lake.put(f"{number}.json", atif(f"s{number}", 3, notes=noise.randbytes(150_000).hex()))
    full = {f"in/{name}": data for name, data in tree(lake.inbox).items()}
    where, out = tmpfs("size=1200k") / "lake", tmp_path / "out"
    mounted = ("--lake", where, "--dataset", "d", "--json")
    small = {"CHRONICLE_LIMITS_BATCH_BYTES": 700_000}

    refused(chronicle("ingest", lake.inbox, *mounted, **small), 69, "space")
    assert chronicle("export", "--exact", "--to", out, *mounted).code == 0
    assert 0 < len(tree(out)) < 12
    assert tree(out).items() < full.items()
    tmpfs("size=32m")
    again = chronicle("ingest", lake.inbox, *mounted, **small)
    assert (again.code, again.json["ingested"] + again.json["unchanged"]) == (0, 12)
    assert chronicle("export", "--exact", "--to", out, "--overwrite", *mounted).code == 0
    assert tree(out) == full

    for verb, shown in (("rebuild", where / "storyline/d/CURRENT"), ("materialize", where / "agenticmd/d/s1.md")):
        filler = where / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        refused(chronicle(verb, *mounted), 69, "space")
        assert not shown.exists()
        filler.unlink()
        assert chronicle(verb, *mounted).code == 0
        assert shown.exists()
    assert chronicle("verify", *mounted).json["differences"] == []


def interrupted(process: subprocess.Popen[bytes], at_work: Callable[[], bool]) -> tuple[int, str]:
    """Press Ctrl-C as soon as the process is at work; its exit code and words."""
    while process.poll() is None and not at_work():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate()
    return process.returncode, words.decode()


def test_ctrl_c_is_130_and_the_next_call_goes_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(40):
        lake.put(f"{number}.json", atif(f"s{number}", 300))
    where = ("--lake", lake.paths.lake, "--dataset", "d")
    process = start("ingest", lake.inbox, *where, CHRONICLE_LIMITS_BATCH_BYTES=1)
    code, words = interrupted(process, lambda: lake.store.exists() and bool(lake.store.manifest().segments))
    assert (code, words.count("\n")) == (130, 1)
    assert words.startswith("interrupted: ")
    assert "run the same command again" in words
    assert 0 < len(lake.exact()) < 40
    assert len(os.listdir(f"{lake.paths.events}/segments")) == len(lake.store.manifest().segments), "its own garbage is gone"
    assert chronicle("ingest", lake.inbox, *where).code == 0
    assert len(lake.exact()) == 40

    generations = Path(lake.paths.storyline) / "generations"
    process = start("rebuild", *where)
    code, words = interrupted(process, lambda: generations.exists() and bool(os.listdir(generations)))
    assert (code, words.count("\n")) == (130, 1)
    assert "run the same command again" in words
    assert not (generations.parent / "CURRENT").exists()
    left = set(os.listdir(generations))
    assert len(left) <= 1, "at most one, and nobody can see it"
    assert chronicle("rebuild", *where, "--json").json["runs"] == 40
    assert chronicle("maintain", "--vacuum", "--retention", "0", *where).code == 0
    assert len(os.listdir(generations)) == 1
    assert left.isdisjoint(os.listdir(generations)), "what the interruption left is removed"


def test_a_directory_that_holds_the_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path, inbox=tmp_path)
    lake.put("a.json", atif("s", 3))
    for ingested in (1, 0):
        done = call(lake, "ingest", tmp_path)
        assert (done.code, done.json["sources"], done.json["ingested"]) == (0, 1, ingested)
    assert call(lake, "materialize").code == 0
    assert call(lake, "ingest", tmp_path).json["sources"] == 1


@pytest.mark.parametrize("key", ["in/../../../evil.json", "in/.."])
def test_a_source_key_in_the_facts_that_leaves_the_target_is_78(lake: Lake, key: str) -> None:
    root = f"file://{lake.root}"
    records = [record.text for record in lake.records()]
    assert any(f'"{root}/in/a.json"'.encode() in record for record in records)
    evil = Lake(lake.root, dataset="evil")
    evil.append([record.replace(f'"{root}/in/a.json"'.encode(), json.dumps(f"{root}/{key}").encode()) for record in records])
    evil.rebuild()
    before = tree(lake.root)
    for what in (("--exact",), ("--format", "atif")):
        out = lake.root / what[-1]
        refused(call(lake, "export", *what, "--to", out, dataset="evil"), 78)
        assert {name: data for name, data in tree(lake.root).items() if not name.startswith(f"{out.name}/")} == before
        shutil.rmtree(out, ignore_errors=True)
    assert not (lake.root.parent / "evil.json").exists()


def test_a_gzip_bomb_is_65(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put("bomb.json.gz", gzip.compress(b"[" + b" " * (64 << 20) + b"]"))
    lake.put("a.json", atif("s", 3))
    done = call(lake, "ingest", lake.inbox)
    assert (done.code, done.json["ingested"]) == (65, 1)
    assert [entry["kind"] for entry in done.json["quarantine"]] == ["too-large"]


DAMAGE = [
    (b"{", ("rebuild", "--full")),
    (b"", ("verify",)),
    (b"[]", ("export", "--exact", "--to", "out")),
    (b'{"segments":[{"id":"../../../../etc"}]}', ("replay",)),
]


@pytest.mark.parametrize(("manifest", "verb"), DAMAGE, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_a_damaged_manifest_is_78(lake: Lake, manifest: bytes, verb: tuple[str, ...]) -> None:
    (Path(lake.paths.events) / "_manifest.json").write_bytes(manifest)
    lake.put("c.json", atif("c", 3))
    before = tree(lake.root)
    for arguments in (("ingest", lake.inbox), verb):
        refused(call(lake, *arguments, cwd=lake.root), 78, "_manifest.json")
    assert tree(lake.root) == before


def test_a_missing_segment_is_78_and_tables_stay(lake: Lake) -> None:
    (segment,) = lake.store.manifest().segments
    shutil.rmtree(f"{lake.paths.events}/segments/{segment.id}.lance")
    for verb in (("rebuild", "--full"), ("export", "--exact", "--to", lake.root / "out"), ("verify",), ("replay",)):
        refused(call(lake, *verb), 78, segment.id)
    asked = call(lake, "query", "SELECT count(*) AS n FROM runs")
    assert (asked.code, asked.json) == (0, {"n": 4})


def test_a_reader_that_goes_away_is_no_error(lake: Lake) -> None:
    for arguments in (("replay",), ("query", "SELECT * FROM range(2000000)")):
        where = ("--lake", lake.paths.lake, "--dataset", "d")
        process = start(*arguments, *where)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (0, b"")
        process.stderr.close()


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    name = os.fsencode(lake.inbox) + b"/caf\xe9.json"
    try:
        with open(name, "wb") as file:
            file.write(atif("s", 3))
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    line = [os.fsencode(word) for word in command("ingest", "--lake", lake.paths.lake, "--dataset", "d", "--json")]
    for source, ingested in ((os.fsencode(lake.inbox), 1), (name, 0)):
        done = subprocess.run([*line, source], env=environment(), cwd=REPOSITORY, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout.decode())["ingested"] == ingested
    done = subprocess.run([*line, name + b".not"], env=environment(), cwd=REPOSITORY, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode().count("\n")) == (66, 1)
    assert list(lake.exact().values()) == [atif("s", 3)]
    assert call(lake, "verify").json["differences"] == []
