"""The process of a query ends with its caller, and leaves nothing behind (design 8)."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from chronicle.errors import ChronicleError, NotFoundError, UsageError
from chronicle.sql.process import Channel, run
from chronicle.sql.sandbox import Bounds
from tests.process import REPOSITORY, start
from tests.sql.test_query import story, tabled

ENDLESS = "SELECT count(*) FROM range(100000000) a, range(10000000)"


def say(channel: Channel, words: str) -> str:
    channel.note(words)
    return words.upper()


def fail(channel: Channel) -> None:
    raise NotFoundError("not here", hint="look there", kind="special")


def vanish(channel: Channel, sent: int) -> None:
    os.kill(os.getpid(), sent)


def leave(channel: Channel) -> None:
    os._exit(3)


def linger(channel: Channel) -> None:
    channel.watch(0.1)
    time.sleep(60)


@pytest.fixture
def tests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


@pytest.mark.usefixtures("tests_are_found")
def test_what_it_says_comes_back() -> None:
    notes: list[str] = []
    assert run(f"{__name__}:say", "word", bounds=Bounds(), note=notes.append) == "WORD"
    assert notes == ["word"]
    with pytest.raises(NotFoundError) as caught:
        run(f"{__name__}:fail", bounds=Bounds(), note=notes.append)
    assert (str(caught.value), caught.value.kind) == ("not here; look there", "special")


@pytest.mark.usefixtures("tests_are_found")
def test_whatever_becomes_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="ended by SIGSEGV"):
        run(f"{__name__}:vanish", signal.SIGSEGV, bounds=Bounds(), note=print)
    with pytest.raises(ChronicleError, match="ended with code 3") as caught:
        run(f"{__name__}:leave", bounds=Bounds(), note=print)
    assert caught.value.kind == "bug"
    with pytest.raises(UsageError, match="stopped after 7 seconds"):
        run(f"{__name__}:linger", bounds=Bounds(seconds=7), note=print)
    assert not list(tmp_path.iterdir())


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux alone tells who is whose child")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_ends_with_its_caller(tmp_path: Path, sent: signal.Signals) -> None:
    tabled(tmp_path, "d", story("s"))
    caller = start("query", ENDLESS, "--lake", tmp_path, TMPDIR=tmp_path)
    until = time.monotonic() + 60
    while not (found := children(caller.pid)) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(caller.pid, sent) if sent is signal.SIGINT else caller.send_signal(sent)
    _, said = caller.communicate(timeout=60)
    assert caller.returncode == (-sent if sent is signal.SIGKILL else 128 + sent)
    assert said.count(b"\n") == (sent is signal.SIGINT)
    while any(map(runs, found)) and time.monotonic() < until:
        time.sleep(0.02)
    assert [runs(pid) for pid in found] == [False]
    if sent is not signal.SIGKILL:
        assert not list(tmp_path.glob("chronicle-query-*"))
