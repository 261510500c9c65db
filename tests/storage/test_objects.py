"""Compare-and-swap on a local disk. What all stores have in common is in tests/s3/test_objects.py."""

import os
import random

import pytest

from chronicle.errors import CommitStateUnknown, StorageError
from chronicle.storage import files
from chronicle.storage.objects import MISSING, LocalObject, update


@pytest.fixture
def target(tmp_path):
    return LocalObject(str(tmp_path / "deep/er/x.json"), "x.lock")


def test_only_the_object_and_its_lock_stay(target):
    assert target.swap(b"one", MISSING)
    assert target.swap(b"two", target.read()[1])
    assert files.list_dir(os.path.dirname(target.path)) == ["x.json", "x.lock"]


def test_update_writes_nothing_for_none(target):
    assert update(target, lambda data: (None, "same"), rng=random.Random(1)) == "same"
    assert target.read()[0] is None


def test_a_directory_that_does_not_sync_leaves_the_outcome_unknown(target, monkeypatch):
    target.swap(b"one", MISSING)

    def broken(path):
        raise StorageError(f"{path}: Input/output error")

    monkeypatch.setattr(files, "sync_dir", broken)
    with pytest.raises(CommitStateUnknown):
        target.swap(b"two", target.read()[1])
    assert target.read()[0] == b"two"
