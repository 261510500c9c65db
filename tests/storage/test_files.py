"""Atomic files and the one translation of OSError."""

import errno
import os
import pickle
import stat
import subprocess
import sys

import pytest

from chronicle.errors import ConfigError, NotFoundError, StorageError
from chronicle.storage import files
from chronicle.storage.local import NewFile

RECORD_ORDER = """
import os, sys
calls = []
def note(name, real):
    def call(first, *rest, **named):
        where = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
        calls.append((name, where))
        return real(first, *rest, **named)
    return call
os.fsync = note("fsync", os.fsync)
os.replace = note("replace", os.replace)
"""


def recorded(code: str, *arguments: str) -> list[tuple[str, str]]:
    """Run code in a child and return its fsync and replace calls in order."""
    script = RECORD_ORDER + code + "\nfor name, where in calls: print(name, where)"
    out = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True).stdout
    return [tuple(line.split(" ", 1)) for line in out.splitlines()]


def test_write_read_remove(tmp_path):
    path = str(tmp_path / "x.json")
    assert files.read(path) is None
    assert not files.exists(path)
    files.write_atomic(path, b"one")
    files.write_atomic(path, b"two", durable=False)
    assert files.read(path) == b"two"
    assert files.list_dir(str(tmp_path)) == ["x.json"]
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o600 == 0o600
    files.remove(path)
    files.remove(path)
    assert files.list_dir(str(tmp_path / "none")) == []


def test_private_mode(tmp_path):
    path = str(tmp_path / "journal")
    files.write_atomic(path, b"", mode=0o600)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_bytes_reach_the_disk_before_the_name(tmp_path):
    path = str(tmp_path / "x.json")
    calls = recorded("from chronicle.storage import files; files.write_atomic(sys.argv[1], b'data')", path)
    assert [name for name, _ in calls] == ["fsync", "replace", "fsync"]
    assert calls[0][1] == calls[1][1]
    assert calls[0][1].startswith(f"{tmp_path}/.x.json.")
    assert calls[2][1] == str(tmp_path)


def test_new_directories_are_synced_into_their_parents(tmp_path):
    calls = recorded("from chronicle.storage import files; files.make_dirs(sys.argv[1])", str(tmp_path / "a/b"))
    assert calls == [("fsync", str(tmp_path)), ("fsync", str(tmp_path / "a"))]


def test_a_tree_is_synced_from_its_leaves_to_its_parent(tmp_path):
    (tmp_path / "t/sub").mkdir(parents=True)
    (tmp_path / "t/sub/f").write_bytes(b"x")
    (tmp_path / "t/g").write_bytes(b"x")
    calls = recorded("from chronicle.storage import files; files.sync_tree(sys.argv[1])", str(tmp_path / "t"))
    order = [os.path.relpath(where, tmp_path) for _, where in calls]
    assert order == ["t/sub/f", "t/sub", "t/g", "t", "."]


def test_only_what_was_written_since_is_synced(tmp_path):
    (tmp_path / "t/sub").mkdir(parents=True)
    for name in ("sub/old", "sub/grown", "old"):
        (tmp_path / "t" / name).write_bytes(b"x")
    code = """
from chronicle.storage import files
from chronicle.storage.local import NewFile
known = files.file_states(sys.argv[1])
open(sys.argv[1] + "/sub/grown", "a").write("y")
open(sys.argv[1] + "/new", "w").write("z")
files.sync_tree(sys.argv[1], known)
"""
    order = [os.path.relpath(where, tmp_path) for _, where in recorded(code, str(tmp_path / "t"))]
    assert order == ["t/sub/grown", "t/sub", "t/new", "t", "."]


def test_a_failed_write_leaves_no_temporary_file(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "full").write_bytes(b"")
    with pytest.raises(ConfigError):
        files.write_atomic(str(tmp_path / "x"), b"data")
    assert files.list_dir(str(tmp_path)) == ["x"]


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, StorageError, 69),
        (errno.EDQUOT, StorageError, 69),
        (errno.EIO, StorageError, 69),
        (errno.EACCES, ConfigError, 78),
        (errno.EPERM, ConfigError, 78),
        (errno.EROFS, ConfigError, 78),
        (errno.ENOTDIR, ConfigError, 78),
        (errno.ENOENT, NotFoundError, 66),
    ],
)
def test_translation(number, kind, code):
    with pytest.raises(kind) as caught, files.translated("/the/path"):
        raise OSError(number, os.strerror(number))
    error = caught.value
    assert error.exit_code == code
    assert "/the/path" in str(error)
    assert error.hint
    assert isinstance(error.__cause__, OSError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.context) == (str(error), error.context)


def test_a_full_disk_is_not_transient_and_a_busy_one_is():
    assert not files.from_oserror(OSError(errno.ENOSPC, "full"), "/x").transient
    assert files.from_oserror(OSError(errno.EAGAIN, "busy"), "/x").transient


def test_our_errors_pass_untranslated():
    ours = StorageError("already said", hint="so")
    with pytest.raises(StorageError) as caught, files.translated("/outer"), files.translated("/inner"):
        raise ours
    assert caught.value is ours


def test_a_file_where_a_directory_should_be(tmp_path):
    (tmp_path / "lake").write_bytes(b"")
    for act in (lambda p: files.make_dirs(p), lambda p: files.read(p), lambda p: files.exists(p), lambda p: files.list_dir(p)):
        with pytest.raises(ConfigError):
            act(str(tmp_path / "lake" / "events"))


def test_trees(tmp_path):
    (tmp_path / "t/sub").mkdir(parents=True)
    (tmp_path / "t/sub/f").write_bytes(b"12345")
    (tmp_path / "keep").write_bytes(b"")
    (tmp_path / "t/link").symlink_to(tmp_path / "keep")
    assert files.tree_bytes(str(tmp_path / "t/sub")) == 5
    files.remove_tree(str(tmp_path / "t"))
    files.remove_tree(str(tmp_path / "t"))
    assert files.list_dir(str(tmp_path)) == ["keep"]


def test_a_file_in_pieces_appears_whole_or_not_at_all(tmp_path):
    whole, given_up, empty = (NewFile(str(tmp_path / name)) for name in ("whole", "given-up", "empty"))
    for piece in (b"one", b" ", b"two"):
        whole.add(piece)
        given_up.add(piece)
        assert not (tmp_path / "whole").exists()
    whole.finish()
    given_up.discard()
    empty.finish()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"whole": b"one two", "empty": b""}
    with pytest.raises(NotFoundError):
        NewFile(str(tmp_path / "nowhere" / "x")).add(b"")
