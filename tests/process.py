"""The command as a process of its own, as users and schedulers start it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
TIME_LIMIT = 240.0
"""Seconds that a child may take, on a busy machine too."""


@dataclass(frozen=True)
class Done:
    """What a process left: exit code (negative: the signal that ended it), standard output, standard error, duration."""

    code: int
    out: bytes
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(*arguments: object) -> list[str]:
    """The command line of a call."""
    return [sys.executable, "-m", "flows.cli", *map(str, arguments)]


def environment(**more: object) -> dict[str, str]:
    """The environment of a call: this one without settings of chronicle, and what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHRONICLE_")}
    return kept | {name: str(value) for name, value in more.items()}


@contextmanager
def default_signals() -> Iterator[None]:
    """Let children that start in here listen to signals, also where a script started the tests with `&` or nohup."""
    ignored = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def running(arguments: list[str], *, limit: float = TIME_LIMIT, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens to signals, in a group of its own that is gone at the end.

    After `limit` seconds the group is killed, so that no read of its output and no wait for it lasts longer.
    """
    with default_signals():
        process = subprocess.Popen(arguments, start_new_session=True, **options)

    def kill() -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    watch = threading.Timer(limit, kill)
    watch.start()
    try:
        with process:
            try:
                yield process
            finally:
                kill()
    finally:
        watch.cancel()


def start(*arguments: object, cwd: Path = REPOSITORY, **settings: object) -> subprocess.Popen[bytes]:
    """Start a call in a process group of its own; its output is piped."""
    with default_signals():
        return subprocess.Popen(
            command(*arguments),
            env=environment(**settings),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def chronicle(*arguments: object, after: float | None = None, sent: int = signal.SIGKILL, **settings: Any) -> Done:
    """Run a call to its end; `after`: send a signal to its process group after so many seconds, if it still runs."""
    began = time.monotonic()
    process = start(*arguments, **settings)
    try:
        out, err = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, sent)
        out, err = process.communicate()
    return Done(process.returncode, out, err.decode(), time.monotonic() - began)
