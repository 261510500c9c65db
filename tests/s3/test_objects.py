"""Compare-and-swap behaves the same on a local disk and in an object store."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.errors import ConfigError, PublicationChanged
from chronicle.storage import files, objects, s3
from chronicle.storage.objects import MISSING, AtomicObject, atomic_object, update
from tests.s3.conftest import Place
from tests.s3.server import BUCKET

INCREMENT = """
import os, random, sys
import chronicle.storage.s3session  # once, before the processes part
from chronicle.storage.objects import atomic_object, update
def more(data):
    return str(int(data or b"0") + 1).encode(), None
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        counter = atomic_object(sys.argv[1], "counter.lock")
        for _ in range(50):
            update(counter, more, rng=random.Random(), attempts=10_000)
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""


@pytest.fixture(params=["local", "s3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    root = str(tmp_path) if request.param == "local" else request.getfixturevalue("place").uri
    return f"{root}/deep/er/x y [1]+%41#.json"


@pytest.fixture
def target(path: str) -> AtomicObject:
    return atomic_object(path, "x.lock")


def test_create_replace_and_lose(target: AtomicObject) -> None:
    data, missing = target.read()
    assert (data, missing) == (None, MISSING)
    assert target.swap(b"one", missing)
    assert not target.swap(b"other", missing)
    data, token = target.read()
    assert data == b"one"
    assert target.swap(b"two", token)
    assert not target.swap(b"three", token)
    assert target.read()[0] == b"two"


def test_what_was_removed_is_no_state_to_build_on(target: AtomicObject) -> None:
    target.swap(b"one", MISSING)
    token = target.read()[1]
    files.remove(target.path)
    assert not target.swap(b"two", token)
    assert target.read() == (None, MISSING)


def test_empty_bytes_are_a_state(target: AtomicObject) -> None:
    assert target.swap(b"", MISSING)
    data, token = target.read()
    assert data == b""
    assert token != MISSING
    assert target.swap(b"one", token)


def test_update_sees_what_the_winner_wrote(target: AtomicObject) -> None:
    target.swap(b"0", MISSING)

    def change(data: bytes | None) -> tuple[bytes, bytes | None]:
        if data == b"0":
            assert target.swap(b"10", target.read()[1])
        return (data or b"") + b"!", data

    assert update(target, change, rng=random.Random(1), sleep=lambda s: None) == b"10"
    assert target.read()[0] == b"10!"


def test_update_gives_up_after_its_attempts(target: AtomicObject) -> None:
    pauses: list[float] = []

    def change(data: bytes | None) -> tuple[bytes, None]:
        target.swap(str(len(pauses)).encode() + b"x", target.read()[1])
        return b"mine", None

    with pytest.raises(PublicationChanged):
        update(target, change, rng=random.Random(1), attempts=4, sleep=pauses.append)
    assert len(pauses) == 4
    assert max(pauses) <= getattr(target, "longest_pause", objects.LONGEST_PAUSE)


def test_eight_processes_lose_no_increment(path: str) -> None:
    assert subprocess.run([sys.executable, "-c", INCREMENT, path], timeout=250).returncode == 0
    assert files.read(path) == b"400"


def test_files_behave_alike(path: str) -> None:
    root = path.rpartition("/deep")[0]
    assert (files.read(path), files.exists(path), files.modified(path), files.is_file(path)) == (None, False, None, False)
    assert (files.list_dir(f"{root}/deep"), files.tree_bytes(f"{root}/deep")) == ([], 0)
    files.make_dirs(os.path.dirname(path))
    files.write_atomic(path, b"one")
    files.replace_file(path, b"two!")
    files.write_atomic(f"{root}/deep/z", b"")
    assert (files.read(path), files.exists(path), files.is_file(path)) == (b"two!", True, True)
    assert files.modified(path) is not None
    assert (files.exists(f"{root}/deep"), files.is_file(f"{root}/deep"), files.exists(f"{root}/dee")) == (True, False, False)
    assert files.list_dir(f"{root}/deep") == ["er", "z"]
    assert files.directories(f"{root}/deep") == ["er"]
    assert files.tree_bytes(f"{root}/deep") == 4
    files.move(path, f"{root}/deep/y")
    files.move(path, f"{root}/deep/none")
    assert (files.read(path), files.read(f"{root}/deep/y")) == (None, b"two!")
    files.remove(path)
    files.remove(f"{root}/deep/z")
    files.remove_tree(f"{root}/deep")
    files.remove_tree(f"{root}/deep")
    assert not files.exists(f"{root}/deep")


def test_a_tree_that_was_removed_is_not_listed(place: Place) -> None:
    """SeaweedFS keeps the folders of objects that are gone; what a folder holds again stays."""
    for name in ("gone/deep/er/x", "gone/flat", "gone2/x", "kept/deep/x"):
        place.put(f"tree/{name}", b"1")
    root = f"{place.uri}/tree"
    place.client.delete(BUCKET, f"{place.prefix}/tree/gone2/x")
    files.remove_tree(f"{root}/gone")
    assert files.list_dir(root) == ["gone2", "kept"], "this store keeps folders"
    files.remove_tree(f"{root}/gone2")
    assert files.list_dir(root) == ["kept"]
    s3._remove_folders(place.client, BUCKET, f"{place.prefix}/tree/kept/")
    assert place.get("tree/kept/deep/x") == b"1"


def test_names_of_the_store_are_checked(place: Place) -> None:
    with pytest.raises(ConfigError):
        files.read("s3://")
