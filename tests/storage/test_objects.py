"""Compare-and-swap: nobody's change is lost."""

import os
import random
import subprocess
import sys

import pytest

from chronicle.errors import CommitStateUnknown, PublicationChanged, StorageError
from chronicle.storage import files, objects
from chronicle.storage.objects import MISSING, LocalObject, update

INCREMENT = """
import random, sys
from chronicle.storage.objects import LocalObject, update
counter = LocalObject(sys.argv[1], "counter.lock")
def more(data):
    return str(int(data or b"0") + 1).encode(), None
for _ in range(50):
    update(counter, more, rng=random.Random(), attempts=10_000)
"""


@pytest.fixture
def target(tmp_path):
    return LocalObject(str(tmp_path / "deep/er/x.json"), "x.lock")


def test_create_replace_and_lose(target):
    data, missing = target.read()
    assert (data, missing) == (None, MISSING)
    assert target.swap(b"one", missing)
    assert not target.swap(b"other", missing)
    data, token = target.read()
    assert data == b"one"
    assert target.swap(b"two", token)
    assert not target.swap(b"three", token)
    assert target.read()[0] == b"two"
    assert files.list_dir(os.path.dirname(target.path)) == ["x.json", "x.lock"]


def test_update_writes_nothing_for_none(target):
    assert update(target, lambda data: (None, "same"), rng=random.Random(1)) == "same"
    assert target.read()[0] is None


def test_update_sees_what_the_winner_wrote(target):
    target.swap(b"0", MISSING)

    def change(data):
        if data == b"0":
            assert target.swap(b"10", target.read()[1])
        return data + b"!", data

    assert update(target, change, rng=random.Random(1), sleep=lambda s: None) == b"10"
    assert target.read()[0] == b"10!"


def test_update_gives_up_after_its_attempts(target):
    pauses = []

    def change(data):
        target.swap(str(len(pauses)).encode() + b"x", target.read()[1])
        return b"mine", None

    with pytest.raises(PublicationChanged):
        update(target, change, rng=random.Random(1), attempts=5, sleep=pauses.append)
    assert len(pauses) == 5
    assert max(pauses) <= objects.LONGEST_PAUSE


def test_a_directory_that_does_not_sync_leaves_the_outcome_unknown(target, monkeypatch):
    target.swap(b"one", MISSING)

    def broken(path):
        raise StorageError(f"{path}: Input/output error")

    monkeypatch.setattr(files, "sync_dir", broken)
    with pytest.raises(CommitStateUnknown):
        target.swap(b"two", target.read()[1])
    assert target.read()[0] == b"two"


def test_eight_processes_lose_no_increment(tmp_path):
    path = str(tmp_path / "counter")
    children = [subprocess.Popen([sys.executable, "-c", INCREMENT, path]) for _ in range(8)]
    assert [child.wait(timeout=120) for child in children] == [0] * 8
    assert files.read(path) == b"400"
