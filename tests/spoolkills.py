"""Producers and drains that are killed: what was acknowledged must reach the log, in order, no number used twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from chronicle.drain import drain
from chronicle.events.log import RawEventLanceStore
from chronicle.layout import DatasetPaths
from chronicle.options import DrainOptions
from tests.events.spools import held
from tests.process import REPOSITORY

PRODUCER = """
import os, sys, threading
from chronicle.events.spool import EventSpool, SpoolOptions
path, run = sys.argv[1:3]
spool = EventSpool(path, SpoolOptions(roll_bytes=int(sys.argv[3])))
def work(session):
    for turn in range(10**9):
        records = [{"source": "test", "kind": "note", "session_id": session, "event_id": f"{run}-{session}-{turn}-{n}",
                    "payload": "x" * (turn * 37 % 400)} for n in range(1 + turn % 3)]
        done = spool.append(*records)
        os.write(1, "".join(f"{session} {r.seq} {r.event_id}\\n" for r in done.records).encode())
for number in range(3):
    threading.Thread(target=work, args=(f"s{number}",)).start()
"""

DRAIN = """
import os, signal, sys
from chronicle.drain import drain
from chronicle.layout import DatasetPaths
from chronicle.options import DrainOptions
spool, lake, call, count, when = sys.argv[1:6]
real, left = getattr(os, call), int(count)
def dying(*given, **named):
    global left
    left -= 1
    if left == 0 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    done = real(*given, **named)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
setattr(os, call, dying)
os.write(1, b"ready\\n")
drain(DrainOptions(paths=DatasetPaths(lake, "d"), spool=spool, batch_bytes=int(sys.argv[6])))
"""


class Told:
    """What producers were told: (session, seq, event id) of each append that returned."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, str]] = []

    def take(self, output: bytes) -> int:
        """Take in what a producer wrote; a line that was not written whole tells nothing. How many there were."""
        lines = [line.split() for line in output.decode().split("\n")[:-1]]
        self.lines += [(session, int(seq), event) for session, seq, event in lines]
        return len(lines)


def killed_producer(spool: Path, run: int, seconds: float, told: Told, roll_bytes: int = 20_000) -> int:
    """Let a producer of three threads work for a while and kill it. How many records it was told of."""
    arguments = [sys.executable, "-c", PRODUCER, str(spool), str(run), str(roll_bytes)]
    child = subprocess.Popen(arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    rest, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors.decode()
    return told.take(first + rest)


def killed_drain(spool: Path, lake: Path, call: str, count: int, when: str) -> int:
    """Drain in a process that kills itself before or after the count-th call of a function of `os`."""
    arguments = [sys.executable, "-c", DRAIN, str(spool), str(lake), call, str(count), when, "2000"]
    done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def drain_until(spool: Path, lake: Path, seconds: float | None) -> float | None:
    """Drain in a process and kill it so many seconds after it began its work; how long it worked if it came to its end."""
    arguments = [sys.executable, "-c", DRAIN, str(spool), str(lake), "replace", "0", "never", "100000"]
    child = subprocess.Popen(arguments, cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    began = time.monotonic()
    try:
        assert child.wait(timeout=seconds) == 0
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return None
    finally:
        child.stdout.close()
    return time.monotonic() - began


def drained(spool: Path, lake: Path | str) -> list[bytes]:
    """Drain what is left; the texts of the whole log."""
    paths = DatasetPaths(str(lake), "d")
    report = drain(DrainOptions(paths=paths, spool=str(spool)))
    assert report.exit_code() == 0, report.quarantine
    assert held(spool) == []
    return [record.text for _, record in RawEventLanceStore(paths.events).replay()]


def check(texts: list[bytes], told: Told) -> int:
    """All that was told is in the log, in order and under its number. How many rows are duplicates."""
    firsts: dict[str, bytes] = {}
    for text in texts:
        event = json.loads(text)["event_id"]
        assert firsts.setdefault(event, text) == text, "a duplicate is the same record"
    numbers: dict[str, list[int]] = defaultdict(list)
    places: dict[str, tuple[int, int]] = {}
    for place, text in enumerate(firsts.values()):
        record = json.loads(text)
        numbers[record["session_id"]].append(record["seq"])
        places[record["event_id"]] = place, record["seq"]
    for session, found in numbers.items():
        assert found == sorted(set(found)), f"{session}: no number twice, none goes back"
        order = [places[event] for where, _, event in told.lines if where == session]
        assert order == sorted(order)
    assert all(places[event][1] == seq for _, seq, event in told.lines)
    return len(texts) - len(firsts)
