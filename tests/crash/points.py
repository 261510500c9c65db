"""Processes that die at a chosen step of their work: `python -m tests.crash.points SOCKET COUNT` forks one for each job.

A step is a call that changes a file or directory below one of the roots of the job, or brings one to the disk: the functions
of `os`, whole `remove_tree` and `sync_tree`, and every call of Lance that writes. They are wrapped in the process that is to
die, from outside: the product does not know. A fork saves the imports, so that thousands of deaths are affordable.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

BEFORE, AFTER, INSIDE = "before", "after", "inside"
INSIDES = (1, 2)
"""Of a step that changes much: it dies at so many changes that can be seen."""

HASTY_BEAT_SECONDS = 0.15
CALM_BEAT_SECONDS = 600.0
"""Of who is counted or killed: requests that come by the clock are not the same in the next run."""
NOTE = {"source": "test", "kind": "note", "payload": {}}

_NAMES = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"(e\d+|compact)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "id"),
        (r"gen-\d+-\d+-\d+", "gen"),
        (r"\.[0-9a-f]{16}\.tmp", ".tmp"),
        (r"\.chronicle-probe-[0-9a-f]+", "probe"),
        (r"\d{8}T\d{6}Z-([a-z-]+)-[0-9a-f]{6}", r"\1"),
        (r"(?<=quarantine/)(\.?)[0-9a-f]{16}", r"\1entry"),
        (r"[0-9a-f]{40,}", "file"),
        (r"18446744073709551(\d{3})", lambda found: f"v{615 - int(found[1])}"),
    )
]
_PATHS = {"replace": 1, "rename": 1, "unlink": 0, "remove": 0, "rmdir": 0, "mkdir": 0, "truncate": 0, "link": 1, "symlink": 1}
"""Functions of `os`, and which argument is the path that they change."""
_DESCRIPTORS = ("fsync", "fdatasync", "ftruncate", "write", "pwrite")
_WHOLE = ("remove_tree", "sync_tree")
_OF_DATASET = [
    "delete",
    "restore",
    "create_scalar_index",
    "create_index",
    "cleanup_old_versions",
    "update",
    "merge",
    "insert",
    "add_columns",
    "drop_columns",
    "alter_columns",
    "update_config",
    "replace_schema_metadata",
    "replace_field_metadata",
    "merge_insert",
    "truncate_table",
]
_OF_TAGS = ("create", "delete", "update")
_OF_OPTIMIZER = ("optimize_indices", "compact_files")


class Point(msgspec.Struct, frozen=True):
    """A moment at which a process dies: at the `number`-th step (or request) of this name."""

    name: str
    number: int
    moment: str
    """`before`, `after`, or `inside:<n>`."""

    def __str__(self) -> str:
        return f"{self.moment} {self.name} #{self.number}"


class Job(msgspec.Struct, kw_only=True):
    """What a process is to do."""

    arguments: list[str]
    """Of the command; or, with `function`, of a Python function."""
    roots: list[str] = []
    kill: Point | None = None
    steps: str | None = None
    """File for the names of the steps, and for changes that no step explains."""
    out: str
    function: str | None = None
    """`module:name` of what is called instead of the command; its number is the exit code."""
    environment: dict[str, str] = {}
    is_hasty: bool = False
    """Takes locks over from the dead sooner than anybody else: a test has no time to wait."""


class Counted(msgspec.Struct, kw_only=True):
    """What an undisturbed process did."""

    steps: list[tuple[str, int]]
    """(name, number among those of that name) of the steps, in their order."""
    large: list[str]
    """Names of steps that change much at once."""
    unexplained: list[str]
    """Changes below the roots that happened outside of all steps."""


def plain(path: str) -> str:
    """A path without what is different in every run."""
    for pattern, name in _NAMES:
        path = pattern.sub(name, path)
    return path


@dataclass
class _Active:
    """The step that a thread is in."""

    name: str
    number: int
    inner: int = 0


class Steps:
    """Counts steps, and ends the process at the chosen one."""

    def __init__(self, roots: list[str], chosen: Point | None, watching: bool) -> None:
        self._roots = [os.path.realpath(root) for root in roots]
        self._chosen = chosen
        self._counts: Counter[str] = Counter()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._at_work = 0
        self._watching = watching
        self._state = self._look() if watching else {}
        self.taken: list[tuple[str, int]] = []
        self.large: set[str] = set()
        self.unexplained: list[str] = []

    def below(self, path: Any) -> str | None:
        """The path below a root, without what changes; None for another one."""
        try:
            text = os.path.abspath(os.fsdecode(path))
        except TypeError:
            return None
        parent = os.path.realpath(os.path.dirname(text))
        text = os.path.join(parent, os.path.basename(text))
        for root in self._roots:
            if text == root or text.startswith(f"{root}/"):
                return plain(text[len(root) :].lstrip("/") or ".")
        return None

    def step(self, name: str, call: Callable[[], Any], large: str | None = None) -> Any:
        """Make a call that is a step; inside of another one it is a part of that. `large`: where its changes can be seen."""
        outer = getattr(self._local, "active", None)
        if outer is not None:
            result = call()
            outer.inner += 1
            if outer.inner in INSIDES:
                self._at(outer.name, outer.number, f"{INSIDE}:{outer.inner}")
            return result
        with self._lock:
            self._counts[name] += 1
            active = _Active(name, self._counts[name])
            self._compare(name)
            self._at_work += 1
        self._at(name, active.number, BEFORE)
        self._local.active = active
        try:
            with self._seen(active, large):
                result = call()
        finally:
            self._local.active = None
            with self._lock:
                self._at_work -= 1
                if not self._at_work and self._watching:
                    self._state = self._look()
        self._at(name, active.number, AFTER)
        with self._lock:
            self.taken.append((name, active.number))
            if large is not None or active.inner:
                self.large.add(name)
        return result

    def finish(self) -> Counted:
        """What was counted."""
        with self._lock:
            self._compare("the end")
        return Counted(steps=self.taken, large=sorted(self.large), unexplained=self.unexplained)

    def _at(self, name: str, number: int, moment: str) -> None:
        if self._chosen == Point(name, number, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    def _seen(self, active: _Active, large: str | None) -> Any:
        """Watch a place while a call works there, and die at the chosen change."""
        chosen = self._chosen
        wanted = chosen is not None and (chosen.name, chosen.number) == (active.name, active.number)
        if large is None or chosen is None or not wanted or not chosen.moment.startswith(INSIDE):
            return nullcontext()
        return _Watch(large, int(chosen.moment.partition(":")[2]))

    def _compare(self, name: str) -> None:
        if not self._watching or self._at_work:
            return
        now = self._look()
        changed = {path for path in self._state.keys() | now.keys() if self._state.get(path) != now.get(path)}
        self.unexplained += (f"before {name}: {path}" for path in sorted(changed))
        self._state = now

    def _look(self) -> dict[str, tuple[int, int]]:
        """What lies below the roots. What is written to a temporary file is nobody's until it has its name."""
        found = {}
        for root in self._roots:
            for folder, folders, names in os.walk(root):
                for name in (*folders, *names):
                    path = os.path.join(folder, name)
                    with suppress(FileNotFoundError):
                        state = os.lstat(path)
                        is_plain = name in names and not name.endswith(".tmp")
                        found[path] = (state.st_size, state.st_mtime_ns) if is_plain else (0, 0)
        return found


class _Watch:
    """Ends the process when a directory has changed so many times; at the end of the block at the latest."""

    def __init__(self, path: str, changes: int) -> None:
        self._path = path
        self._changes = changes

    def __enter__(self) -> None:
        self._known = self._look()
        threading.Thread(target=self._wait, daemon=True).start()

    def __exit__(self, *rest: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _look(self) -> set[tuple[str, int]]:
        found = set()
        for folder, folders, names in os.walk(self._path):
            found |= {(os.path.join(folder, name), 0) for name in folders}
            for name in names:
                with suppress(FileNotFoundError):
                    found.add((os.path.join(folder, name), os.lstat(os.path.join(folder, name)).st_size))
        return found

    def _wait(self) -> None:
        while self._changes:
            now = self._look()
            if now != self._known:
                self._known = now
                self._changes -= 1
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)


def install(steps: Steps) -> None:
    """Wrap all that writes."""
    install_os(steps)
    local = importlib.import_module("chronicle.storage.local")
    for name in _WHOLE:
        _wrap(steps, local, name, lambda *given, **named: given[0])
    lance = importlib.import_module("chronicle.storage.lanceio").lance()
    dataset = sys.modules["lance.dataset"]
    _wrap(steps, lance.fragment, "write_fragments", lambda data, uri, *rest, **named: uri, large=True)
    _wrap(steps, lance.LanceDataset, "commit", lambda uri, *rest, **named: uri, large=True, static=True)
    for name in _OF_DATASET:
        _wrap(steps, lance.LanceDataset, name, lambda self, *rest, **named: self.uri, large=True)
    for name in _OF_TAGS:
        _wrap(steps, dataset.Tags, name, lambda self, *rest, **named: self._ds.uri)
    for name in _OF_OPTIMIZER:
        _wrap(steps, dataset.DatasetOptimizer, name, lambda self, *rest, **named: self._dataset.uri, large=True)


def _wrap(steps: Steps, where: Any, name: str, place: Callable[..., Any], *, large: bool = False, static: bool = False) -> None:
    real = getattr(where, name)
    word = f"{where.__name__.rpartition('.')[2]}.{name}"

    @wraps(real)
    def wrapped(*given: Any, **named: Any) -> Any:
        path = place(*given, **named)
        below = steps.below(path)
        if below is None:
            return real(*given, **named)
        return steps.step(f"{word} {below}", lambda: real(*given, **named), path if large else None)

    setattr(where, name, staticmethod(wrapped) if static else wrapped)


def install_os(steps: Steps) -> None:
    """Wrap the functions of `os` that change files and directories, or bring them to the disk."""
    for name, at in _PATHS.items():
        _wrap_path(steps, name, at)
    for name in _DESCRIPTORS:
        _wrap(steps, os, name, lambda descriptor, *rest, **named: _path_of(descriptor))
    real = os.open

    @wraps(real)
    def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        below = steps.below(path) if flags & os.O_CREAT and not os.path.exists(path) else None
        if below is None:
            return real(path, flags, *rest, **named)
        made: int = steps.step(f"os.create {below}", lambda: real(path, flags, *rest, **named))
        return made

    os.open = opened


def _wrap_path(steps: Steps, name: str, at: int) -> None:
    def place(*given: Any, **named: Any) -> Any:
        folder = named.get("dir_fd")
        return given[at] if folder is None else os.path.join(_path_of(folder), os.fsdecode(given[at]))

    _wrap(steps, os, name, place)


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def small_bounds() -> None:
    """Bounds of maintenance for lakes of a few rows."""
    from chronicle import maintain as verb

    real = verb.maintain
    verb.maintain = lambda options: real(replace(options, group=4, index_rows=20))


def produce(spool: str, told: str, count: str, run: str = "0") -> int:
    """A producer: appends records, some at a time, and writes down what it was told. The files of the spool roll often."""
    from chronicle.events.spool import EventSpool, SpoolOptions

    with EventSpool(spool, SpoolOptions(roll_bytes=900)) as target, Path(told).open("ab", buffering=0) as acknowledged:
        for turn in range(int(count)):
            records = [dict(NOTE, session_id=f"s{turn % 2}", event_id=f"{run}-{turn}-{number}") for number in range(1 + turn % 2)]
            done = target.append(*records)
            acknowledged.write("".join(f"{r.session_id} {r.seq} {r.event_id}\n" for r in done.records).encode())
    return 0


def _carry_out(job: Job) -> int:
    from chronicle import cli
    from chronicle.commandline import command
    from chronicle.storage import lease

    os.environ.update(job.environment)
    small_bounds()
    lease.BEAT_SECONDS = HASTY_BEAT_SECONDS if job.is_hasty else CALM_BEAT_SECONDS
    steps = Steps(job.roots, job.kill, job.steps is not None)
    install(steps)
    if job.function is not None:
        module, _, name = job.function.partition(":")
        code = int(getattr(importlib.import_module(module), name)(*job.arguments))
    else:
        code = command.main(cli.app, job.arguments)
    if job.steps is not None:
        counted = msgspec.json.encode(steps.finish())
        Path(job.steps).write_bytes(counted)
    return code


def _become(job: Job) -> None:
    """In the new process: never returns."""
    code = 99
    try:
        out = os.open(job.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = _carry_out(job)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _import_all() -> None:
    import warnings

    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    verbs = "ingest rebuild materialize maintain drain retry quarantine verify"
    below = "intake.receipts events.spool storage.s3 storage.lease"
    for name in (
        "chronicle.storage.s3session",
        "pyarrow.compute",
        "chronicle.cli",
        "chronicle.commandline.command",
        *(f"chronicle.{name}" for name in f"{verbs} {below}".split()),
    ):
        importlib.import_module(name)
    importlib.import_module("chronicle.storage.lanceio").lance()
    _read_models()


def _read_models() -> None:
    """Let all processes have the descriptions of S3, which take longer to read than most of them live."""
    loaders = importlib.import_module("botocore.loaders")
    loaders.JSONFileLoader.load_file = lru_cache(maxsize=64)(loaders.JSONFileLoader.load_file)
    loaders.JSONFileLoader.__eq__ = lambda one, other: isinstance(other, type(one))
    loaders.JSONFileLoader.__hash__ = lambda one: 0
    s3session, s3config = (importlib.import_module(f"chronicle.storage.{name}") for name in ("s3session", "s3config"))
    s3session.client(s3config.S3Options(key="-", secret="-"), "us-east-1")


def serve(path: str, count: int) -> None:
    """Import once, then let so many processes take jobs at a time, each from a connection of its own to the socket."""
    _import_all()
    for _ in range(count):
        if not os.fork():
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                _take_jobs(connection)
            os._exit(0)
    for _ in range(count):
        os.wait()


def _take_jobs(connection: socket.socket) -> None:
    """Jobs come one a line; each is answered with the process id, and with the exit code when it is over."""
    with connection.makefile("rw") as lines:
        for line in lines:
            pid = os.fork()
            if not pid:
                connection.close()
                _become(msgspec.json.decode(line, type=Job))
            print(pid, file=lines, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=lines, flush=True)


if __name__ == "__main__":
    # Under its own name, so that the functions of jobs find the same module.
    importlib.import_module("tests.crash.points").serve(sys.argv[1], int(sys.argv[2]))
