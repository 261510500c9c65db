"""The log between processes: takeovers, crashes, and what is on the disk before anybody sees it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.errors import StorageError
from chronicle.events.log import RawEventLanceStore
from chronicle.layout import segment_path
from chronicle.storage import files
from tests.events.helpers import event, events, log_at, seqs
from tests.storage.test_files import recorded

ROOT = Path(__file__).resolve().parents[2]

PREPARE = """
import os, signal, sys
from chronicle.events.log import *
from chronicle.events.row import EventColumns, row_of
from tests.events.helpers import events, log_at
from pathlib import Path
store = log_at(Path(sys.argv[1]), seed=os.getpid())
def batch(count, first):
    columns = EventColumns()
    for record in events(count, first):
        columns.add_row(row_of(record))
    return columns.batch()
"""

APPEND_SOME = PREPARE + "\nfor n in range(4): store.append(events(3, int(sys.argv[2]) + 3 * n))"

WAIT_THEN_PUBLISH = (
    PREPARE
    + """
fence = EventWriterFence(int(sys.argv[2]), "lease") if len(sys.argv) > 2 else None
writer = store.writer(fence, writer_id="slow")
writer.write(batch(4, 0))
print("written", flush=True)
sys.stdin.readline()
print(writer.publish().id, writer.fence.epoch, flush=True)
"""
)

DIE_BEFORE_PUBLISH = (
    PREPARE
    + """
writer = store.writer()
writer.write(batch(4, 100))
replace = os.replace
def die(source, target):
    if target.endswith("_manifest.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = die
writer.publish()
"""
)

DIE_WHILE_WRITING = (
    PREPARE
    + """
writer = store.writer()
for n in range(4):
    writer.write(batch(2000, 1000 + n))
os.kill(os.getpid(), signal.SIGKILL)
"""
)


APPEND_THREE = """
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.events.helpers import events, log_at
log_at(Path(sys.argv[2])).append(events(3))
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_takeover_between_processes_loses_nothing(tmp_path):
    slow = start(WAIT_THEN_PUBLISH, tmp_path)
    assert slow.stdout.readline() == "written\n"
    store = log_at(tmp_path)
    assert store.manifest().active_writer.epoch == 1
    store.append(events(3, 10))
    out, err = slow.communicate("go\n", timeout=60)
    assert slow.returncode == 0, err
    segment, epoch = out.split()
    assert segment.startswith("e1-")
    assert epoch == "3"
    assert seqs(store) == [10, 11, 12, 0, 1, 2, 3]


def test_a_fenced_out_lease_makes_nothing_visible(tmp_path):
    slow = start(WAIT_THEN_PUBLISH, tmp_path, 4)
    assert slow.stdout.readline() == "written\n"
    store = log_at(tmp_path)
    store.append(events(3, 10))
    _, err = slow.communicate("go\n", timeout=60)
    assert slow.returncode != 0
    assert "StaleFence" in err
    assert seqs(store) == [10, 11, 12]


def test_many_processes_append_at_once(tmp_path):
    children = [start(APPEND_SOME, tmp_path, 100 * number) for number in range(3)]
    for child in children:
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
    store = log_at(tmp_path)
    found = seqs(store)
    assert sorted(found) == sorted(100 * child + n for child in range(3) for n in range(12))
    for child in range(3):
        own = [seq for seq in found if seq // 100 == child]
        assert own == sorted(own), "one writer's batches keep their order"
    assert store.manifest().fact_version == len(store.manifest().segments) == 12
    assert len(files.list_dir(f"{store.events}/segments")) == 12


@pytest.mark.parametrize("code", [DIE_BEFORE_PUBLISH, DIE_WHILE_WRITING], ids=["before-publish", "while-writing"])
def test_a_killed_writer_leaves_nothing_visible(tmp_path, code):
    store = log_at(tmp_path)
    store.append(events(3))
    child = start(code, tmp_path)
    _, err = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, err
    assert seqs(store) == [0, 1, 2]
    assert len(files.list_dir(f"{store.events}/segments")) <= 2, "garbage stays for vacuum"
    store.append(events(2, 3))
    assert seqs(store) == [0, 1, 2, 3, 4]


def test_the_segment_is_on_the_disk_before_the_manifest_names_it(tmp_path):
    code = (
        "from pathlib import Path\nfrom tests.events.helpers import events, log_at\nlog_at(Path(sys.argv[1])).append(events(3))"
    )
    target = tmp_path / "lake"
    calls = recorded(f"sys.path.insert(0, {str(ROOT)!r})\n" + code, str(target))
    store = RawEventLanceStore(str(target / "events.lance"))
    segment = segment_path(store.events, store.manifest().segments[0].id)
    swaps = [at for at, (name, _) in enumerate(calls) if name == "replace"]
    assert len(swaps) == 2, "activation and publication"
    synced = {where for name, where in calls[: swaps[1]] if name == "fsync"}
    lying = {os.path.join(folder, name) for folder, _, names in os.walk(segment) for name in names}
    folders = {folder for folder, _, _ in os.walk(segment)}
    assert lying | folders <= synced
    parents = {str(tmp_path), str(target), store.events, f"{store.events}/segments"}
    assert parents <= synced
    assert calls[swaps[1] - 1][0] == "fsync"
    assert calls[swaps[1] + 1] == ("fsync", store.events)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here: " + mounted.stderr.decode(errors="replace").strip())
    try:
        store = log_at(disk)
        store.append(events(3))
        large = (event(n, payload={"text": os.urandom(50_000).hex()}) for n in range(100))
        with pytest.raises(StorageError, match="No space left") as caught:
            store.append(large)
        assert caught.value.exit_code == 69
        assert len(files.list_dir(f"{store.events}/segments")) == 1
        store.append(events(3, 3))
        assert seqs(store) == [0, 1, 2, 3, 4, 5]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
