"""Processes that stand still before a call of theirs, for as long as somebody likes, and go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.process import REPOSITORY, environment

STOPPED = """
import importlib, os, signal, sys
place, left, *arguments = sys.argv[1:]
module, _, name = place.partition(":")
owner, _, method = name.rpartition(".")
holder = importlib.import_module(module)
holder = getattr(holder, owner) if owner else holder
real, left = getattr(holder, method), int(left)
def stopping(*given, **named):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    return real(*given, **named)
setattr(holder, method, stopping)
"""
COMMAND = (
    STOPPED
    + """
from chronicle.commandline.command import main
from flows.cli import app
sys.exit(main(app, arguments))
"""
)
SHOW = "chronicle.events.log:EventWriter._show"
"""An ingest is about to show a segment."""
COMMIT = "chronicle.storyline.store:_HeldLease.commit"
"""A writer of tables is about to swap CURRENT; APPENDING: to write into a table, CURSOR: has swapped it."""
APPENDING = "chronicle.storage.lanceio:append"
CURSOR = "chronicle.rebuild:_Rebuild._commit"
REPLACE = "chronicle.events.maintenance:swap"
"""A maintenance is about to replace segments."""


@contextmanager
def stopped(code: str, place: str, *arguments: object, call: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A process that stands still before this call of a function; the block may `wake` it."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, place, str(call), *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment(CHRONICLE_LEASE_SECONDS=1, CHRONICLE_LIMITS_BATCH_BYTES=1),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while state(process) not in "TZ":
            time.sleep(0.02)
        assert state(process) == "T", process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def state(process: subprocess.Popen[str]) -> str:
    """One letter: T is stopped, Z is done."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def wake(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Let it go on to its end; exit code and standard error."""
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err
