"""What the kernel is asked to do: data reach the disk before the rename that makes them visible."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from infra import samples
from tests.process import environment

CALLS = "fsync,fdatasync,rename,renameat,renameat2"
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += 0\Z")
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>\Z")
_ENDED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)\) += 0\Z")
_SYNCED = re.compile(r"\d+<([^>]+)>")
_NAMES = re.compile(r'"([^"]+)"')


class Call(NamedTuple):
    """A call that succeeded: where its first line stands in the trace, and its last."""

    name: str
    arguments: str
    begun: int
    ended: int


def traced(tmp_path: Path, *words: str) -> list[Call]:
    """Calls of one run of the command, all threads and children."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-e", "trace=none", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace is not installed, or may not trace here")
    out = tmp_path / "trace"
    command = [strace, "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(out)]
    done = subprocess.run(
        [*command, sys.executable, "-m", "flows.cli", *words], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 65), done.stderr
    return calls(out.read_text().splitlines())


def calls(lines: list[str]) -> list[Call]:
    """The calls of a trace that ended well."""
    found = []
    open_calls: dict[tuple[str, str], tuple[str, int]] = {}
    for number, line in enumerate(lines):
        if whole := _CALL.match(line):
            found.append(Call(whole[2], whole[3], number, number))
        elif begun := _BEGUN.match(line):
            open_calls[begun[1], begun[2]] = begun[3], number
        elif ended := _ENDED.match(line):
            arguments, first = open_calls.pop((ended[1], ended[2]))
            found.append(Call(ended[2], arguments + ended[3], first, number))
    return found


def swaps(found: list[Call], target: Path) -> list[tuple[str, Call]]:
    """(name of the temporary file, call) of each rename onto a file."""
    renames = [(_NAMES.findall(call.arguments), call) for call in found if call.name.startswith("rename")]
    return [(names[0], call) for names, call in renames if len(names) == 2 and names[1] == str(target)]


def synced(found: list[Call]) -> dict[str, list[Call]]:
    """Syncs of each path."""
    syncs: dict[str, list[Call]] = {}
    for call in found:
        if call.name in ("fsync", "fdatasync") and (path := _SYNCED.search(call.arguments)):
            syncs.setdefault(path[1], []).append(call)
    return syncs


def check_order(found: list[Call], target: Path, data: list[Path]) -> None:
    """All data, their directories and the new file are on the disk before the last swap begins, its directory is after it."""
    syncs = synced(found)
    temporary, swap = swaps(found, target)[-1]
    files = [path for folder in data for path in folder.rglob("*") if path.is_file()]
    folders = {folder for path in files for folder in path.parents if any(folder.is_relative_to(each) for each in data)}
    assert len(files) >= 2 * len(data)
    for path in [*files, *folders, Path(temporary)]:
        assert any(call.ended < swap.begun for call in syncs.get(str(path), [])), f"{path} is not synced before {target} names it"
    assert any(call.begun > swap.ended for call in syncs[str(target.parent)])


def test_facts_and_tables_are_on_the_disk_before_anything_names_them(tmp_path: Path) -> None:
    inbox, lake = tmp_path / "inbox", tmp_path / "lake"
    samples.write(inbox)
    where = ("--lake", str(lake), "--dataset", "d", "--json")
    events = lake / "events/d/events.lance"
    found = traced(tmp_path, "ingest", str(inbox), *where)
    segments = list((events / "segments").glob("*.lance"))
    assert len(segments) == 1
    check_order(found, events / "_manifest.json", segments)

    found = traced(tmp_path, "rebuild", *where)
    generations = list((lake / "storyline/d/generations").iterdir())
    assert len(generations) == 1
    check_order(found, lake / "storyline/d/CURRENT", list(generations[0].glob("*.lance")))


def test_a_missing_sync_would_be_seen(tmp_path: Path) -> None:
    """The check itself: without the sync of one data file, or with it after the rename, it fails."""
    data = tmp_path / "segment"
    (data / "data").mkdir(parents=True)
    (data / "data/a").write_text("a")
    (data / "data/b").write_text("b")
    target, temporary = tmp_path / "_manifest.json", tmp_path / ".tmp"
    paths = [data / "data/a", data / "data/b", data / "data", data, temporary]
    syncs = [f"7 fsync(3<{path}>) = 0" for path in paths]
    rename = f'7 rename("{temporary}", "{target}") = 0'
    after = f"7 fsync(3<{tmp_path}>) = 0"
    check_order(calls([*syncs, rename, after]), target, [data])
    for missing in range(len(syncs)):
        others = [sync for number, sync in enumerate(syncs) if number != missing]
        with pytest.raises(AssertionError, match="is not synced before"):
            check_order(calls([*others, rename, syncs[missing], after]), target, [data])
