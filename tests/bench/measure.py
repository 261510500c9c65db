"""What a process costs: seconds, CPU seconds of it and its children, and the peak memory of the whole tree."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process import environment

EVERY_SECONDS = 0.02
"""How often the memory of a tree is looked at."""


@dataclass(frozen=True, slots=True)
class Used:
    """What one process used, from its start to its end."""

    seconds: float
    cpu_seconds: float
    """Of the process and of all children that it waited for."""
    peak_bytes: int
    """Highest sum of resident memory over the process and all below it; pages that they share count for each."""
    out: bytes = field(default=b"", repr=False)


class Failed(Exception):
    """A process that is to be measured did not end well."""


def run(command: Sequence[object], *, cwd: Path | None = None, settings: Mapping[str, object] | None = None) -> Used:
    """Run a command to its end in an environment without settings of ours but the given ones. Raises Failed."""
    words = list(map(str, command))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        child = subprocess.Popen(
            words, cwd=cwd, env=environment(**(settings or {})), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        watch = _Watch(child.pid)
        watch.start()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        watch.stop()
        out.seek(0), err.seek(0)
        if child.returncode:
            raise Failed(f"{' '.join(words)} ended with {child.returncode}: {err.read().decode(errors='replace')[-2000:]}")
        return Used(seconds, usage.ru_utime + usage.ru_stime, watch.peak_bytes, out.read())


class _Watch(threading.Thread):
    """Looks at the memory of a process tree until told to stop.

    `ru_maxrss` would not do: between fork and exec a child counts the pages of its parent, and of several children it knows
    the largest only.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._stopped = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            alone = not (below := _children(self._root))
            total = _kilobytes(self._root, b"VmHWM:" if alone else b"VmRSS:") + sum(map(_tree_kilobytes, below))
            self.peak_bytes = max(self.peak_bytes, total << 10)

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        self.join()


def tree_bytes(root: int) -> int:
    """Resident memory of a process and all below it now."""
    return _tree_kilobytes(root) << 10


def _tree_kilobytes(process: int) -> int:
    return _kilobytes(process, b"VmRSS:") + sum(map(_tree_kilobytes, _children(process)))


def _children(process: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{process}/task"):
            found += map(int, Path(f"/proc/{process}/task/{task}/children").read_bytes().split())
    except OSError:  # it has ended meanwhile
        pass
    return found


def _kilobytes(process: int, name: bytes) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_bytes()
    except OSError:
        return 0
    _, found, rest = status.partition(name)
    return int(rest.split(None, 1)[0]) if found else 0


@dataclass(slots=True)
class Turns:
    """Measurements of several things, taken in turns so that a slow moment of the machine meets all of them."""

    taken: dict[str, list[Used]] = field(default_factory=dict)

    def note(self, name: str, used: Used) -> None:
        """Keep one measurement."""
        self.taken.setdefault(name, []).append(used)

    def take(self, work: Mapping[str, Callable[[], Used | None]], *, turns: int, warm_up: int = 1) -> Turns:
        """Do each work `warm_up + turns` times, in turns, and keep all but the warm-up. None: it cannot be done here."""
        for turn in range(warm_up + turns):
            for name, once in work.items():
                used = once()
                if used is not None and turn >= warm_up:
                    self.note(name, used)
        return self

    def join(self, other: Turns) -> None:
        """Add what was measured elsewhere."""
        self.taken |= other.taken

    def median(self, name: str) -> float:
        """Median of the seconds."""
        return statistics.median(used.seconds for used in self.taken[name])

    def peak_mib(self) -> int:
        """The highest memory of all."""
        return max(each.peak_bytes for used in self.taken.values() for each in used) >> 20

    def said(self) -> dict[str, dict[str, Any]]:
        """Each with its number of runs, median and spread of its seconds, median of its CPU seconds and highest memory."""
        return {
            name: {
                "runs": len(used),
                "seconds": round(statistics.median(each.seconds for each in used), 4),
                "from": round(min(each.seconds for each in used), 4),
                "to": round(max(each.seconds for each in used), 4),
                "cpu_seconds": round(statistics.median(each.cpu_seconds for each in used), 4),
                "peak_mib": max(each.peak_bytes for each in used) >> 20,
            }
            for name, used in self.taken.items()
        }


def timed(work: Callable[[], object]) -> Used:
    """Seconds and CPU seconds of a call in this process; its memory is not told apart."""
    cpu, began = time.process_time(), time.perf_counter()
    work()
    return Used(time.perf_counter() - began, time.process_time() - cpu, 0)


def together(first: Used, *others: Used) -> Used:
    """Several processes, one after the other, as one piece of work."""
    parts = (first, *others)
    return Used(
        sum(each.seconds for each in parts), sum(each.cpu_seconds for each in parts), max(each.peak_bytes for each in parts)
    )
