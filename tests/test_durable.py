"""What a swap names lies on the disk before the swap: files and directory entries, for every verb that publishes.

A process runs the verbs with `os.fsync` and `os.replace` watched. At each swap of a manifest or of CURRENT all that it names
must be as the last fsync left it (by inode, size and time), or as it was when the process began.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.laws.contents import atif
from tests.process import REPOSITORY

HOLDERS = {"events/d/events.lance", "storyline/d", "ops/d", "ops/d/retired"}
"""Directories that hold a lock or a clock, which is made in them without being synced."""

WATCHED = """
import json, os, sys
lake, inbox, wanted = sys.argv[1:4]
real_sync, real_replace = os.fsync, os.replace
synced, count, waits = {}, 0, ""

def state(path):
    found = os.lstat(path)
    return found.st_ino, 0 if os.path.isdir(path) else found.st_size, found.st_mtime_ns

def lying(root):
    for folder, _, names in os.walk(root):
        yield folder
        yield from (os.path.join(folder, name) for name in names)

def say(**told):
    print(json.dumps(told), flush=True)

def fsync(descriptor):
    global count, waits
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    before = state(path)
    real_sync(descriptor)
    if wanted == "all" or not os.path.isdir(path):
        synced[path] = before
    count += 1
    if path == waits:
        waits = ""

def named(target, data):
    if target.endswith("_manifest.json"):
        return [f"{os.path.dirname(target)}/segments/{each['id']}.lance" for each in json.loads(data)["segments"]]
    committed = json.loads(data)["committed"]
    folder = os.path.dirname(target)
    return [f"{folder}/generations/{committed['table_generation']}", f"{folder}/objects.lance"]

def dropped(target, data):
    if not target.endswith("_manifest.json") or not os.path.exists(target):
        return []
    now = {each["id"] for each in json.loads(data)["segments"]}
    gone = [each["id"] for each in json.loads(open(target).read())["segments"] if each["id"] not in now]
    return [f"{lake}/ops/d/retired/segment-{each}.json" for each in gone]

def replace(source, target, **named_arguments):
    global count, waits
    name = os.path.basename(target)
    if name in ("_manifest.json", "CURRENT"):
        data = open(source).read()
        roots = named(target, data)
        paths = [path for root in roots for path in lying(root)]
        for root in [*roots, target]:
            while (root := os.path.dirname(root)) != os.path.dirname(lake):
                paths.append(root)
        records = dropped(target, data)
        bad = [path for path in {source, *paths, *records} if not os.path.exists(path) or synced.get(path) != state(path)]
        bad = [path for path in bad if path != os.path.dirname(target)]  # it gets its last entry now
        say(swap=name, files=len(paths), records=len(records), syncs=count, bad=sorted(bad), open=waits)
        count, waits = 0, os.path.dirname(target)
    real_replace(source, target, **named_arguments)
    synced[target] = synced.pop(source, None)

os.fsync, os.replace = fsync, replace
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.maintain import maintain
from chronicle.options import IngestOptions, MaintainOptions, RebuildOptions
from chronicle.quarantine import Quarantine
from chronicle.rebuild import rebuild
paths = DatasetPaths(lake, "d")
verbs = {
    "ingest": lambda: ingest(IngestOptions(paths=paths, sources=(inbox + "/1",), batch_bytes=1)),
    "rebuild": lambda: rebuild(RebuildOptions(paths=paths)),
    "again": lambda: ingest(IngestOptions(paths=paths, sources=(inbox,))),
    "incremental": lambda: rebuild(RebuildOptions(paths=paths)),
    "maintain": lambda: maintain(MaintainOptions(paths=paths, group=2, index_rows=1, retention_seconds=3600)),
    "full": lambda: maintain(MaintainOptions(paths=paths, full=True, retention_seconds=3600)),
}
for verb, work in verbs.items():
    say(verb=verb)
    work()
    say(loose=sorted(os.path.relpath(path, lake) for path in lying(lake) if synced.get(path) != state(path)), open=waits)
"""


@dataclass
class Told:
    """What happened under one verb: its swaps, and what was not on the disk at its end."""

    swaps: list[dict[str, Any]]
    loose: list[str]


def watch(root: Path, wanted: str = "all") -> dict[str, Told]:
    """Run the verbs; `wanted`: which syncs count, `all` or those of `files`."""
    for folder, number in (("1", 0), ("1", 1), ("1", 2), ("2", 3)):
        (root / "in" / folder).mkdir(parents=True, exist_ok=True)
        (root / "in" / folder / f"{number}.json").write_bytes(atif(f"s{number}", 3))
    (root / "in/2/cut.json").write_bytes(atif("cut", 3)[:-9])
    arguments = [sys.executable, "-c", WATCHED, str(root / "lake"), str(root / "in"), wanted]
    done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Told] = {}
    for line in map(json.loads, done.stdout.splitlines()):
        if "verb" in line:
            found[line["verb"]] = told = Told([], [])
        elif "swap" in line:
            told.swaps.append(line)
        else:
            told.loose = line["loose"]
            assert line["open"] == "", "a swap whose directory was never synced"
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return watch(tmp_path_factory.mktemp("durable"))


def test_nothing_is_shown_before_it_is_on_the_disk(told: dict[str, Told]) -> None:
    for verb, found in told.items():
        for swap in found.swaps:
            assert (swap["bad"], swap["open"]) == ([], ""), verb


def test_every_kind_of_publication_was_met(told: dict[str, Told]) -> None:
    """Or the test before would say nothing."""
    swaps = {verb: [swap["swap"] for swap in found.swaps] for verb, found in told.items()}
    manifests = {verb: names.count("_manifest.json") for verb, names in swaps.items()}
    assert manifests["ingest"] == 4, "activation, and three micro-batches"
    assert (manifests["rebuild"], manifests["again"], manifests["incremental"]) == (0, 2, 0)
    assert manifests["maintain"] >= 3, "two merges of two, of these one of four, and an index"
    assert (swaps["rebuild"], swaps["incremental"].count("CURRENT") >= 2) == (["CURRENT", "CURRENT"], True)
    assert swaps["maintain"].count("CURRENT") >= 2
    sizes = [swap["files"] for swap in told["ingest"].swaps]
    assert sizes == sorted(sizes)
    assert sizes[1] - sizes[0] >= 6, "data, transaction, version, and their directories"
    assert all(swap["syncs"] >= 6 for swap in told["ingest"].swaps[1:])
    assert told["rebuild"].swaps[0]["files"] > 18, "three tables and the blobs"
    assert sum(swap["records"] for swap in told["maintain"].swaps) >= 4, "each merged segment was noted before"


def test_at_the_end_only_locks_are_not_on_the_disk(told: dict[str, Told]) -> None:
    for verb, found in told.items():
        loose = [path for path in found.loose if Path(path).suffix != ".lock" and Path(path).name != ".clock"]
        assert [path for path in loose if path not in HOLDERS] == [], verb


def test_a_missing_sync_is_noticed(tmp_path: Path) -> None:
    found = watch(tmp_path, "files")
    assert all(swap["bad"] for swap in found["ingest"].swaps[1:])
    assert found["rebuild"].swaps[0]["bad"]
