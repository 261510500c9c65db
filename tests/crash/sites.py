"""Where lakes of the crash matrix lie: copies of a prepared one, on disk or in an object store, and processes that die there."""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Protocol, TextIO
from urllib.parse import unquote

import msgspec

from chronicle.layout import DatasetPaths
from chronicle.materialize import materialize
from chronicle.options import MaterializeOptions
from chronicle.storage import files
from tests.crash.points import AFTER, BEFORE, CALM_BEAT_SECONDS, Counted, Job, Point, plain
from tests.lake import Lake
from tests.process import REPOSITORY, default_signals, environment
from tests.s3.proxy import Proxy, Request
from tests.s3.server import BUCKET, Server

OLD = timedelta(days=30)
"""Age of what a vacuum may remove."""
HASTY_LEASE_SECONDS = 0.8
_WRITES = {"PUT", "POST", "DELETE"}


class Ground(Lake):
    """A lake for one death; sources and spool are on the local disk."""

    def __init__(self, root: Path, lake: str, inbox: Path) -> None:
        super().__init__(root, inbox=inbox)
        root.mkdir(parents=True, exist_ok=True)
        self.paths = DatasetPaths(lake, "d")

    @property
    def spool(self) -> Path:
        """Its spool, if it has one."""
        return self.root / "spool"

    def written_markdown(self) -> dict[str, bytes]:
        """The AgenticMD files as they lie there."""
        names = [name for name in files.list_dir(self.paths.agenticmd) if not name.startswith(".")]
        return {name: files.read(f"{self.paths.agenticmd}/{name}") or b"" for name in names}

    def markdown(self) -> dict[str, bytes]:
        """The AgenticMD files, brought up to date first."""
        materialize(MaterializeOptions(paths=self.paths))
        return self.written_markdown()


@dataclass(frozen=True)
class Work:
    """What a process is to do on a ground."""

    arguments: list[str]
    function: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ran:
    """How a process ended, and what it was seen to do."""

    code: int
    text: str
    steps: list[tuple[str, int]]
    large: list[str]
    unexplained: list[str]


class Site(Protocol):
    """A place for lakes."""

    name: str

    def empty(self) -> Ground:
        """A lake with nothing in it."""
        ...

    def keep(self, name: str, ground: Ground, *, aged: bool = False) -> None:
        """Remember a lake as a state to start from. `aged`: what is retired in it is so for long."""
        ...

    def fresh(self, name: str) -> Ground:
        """A copy of a state."""
        ...

    def drop(self, ground: Ground) -> None:
        """Remove a lake."""
        ...

    def run(self, ground: Ground, work: Work, *, kill: Point | None = None, watching: bool = False) -> Ran:
        """Run a process to its end, or to its death. `watching`: say what it did.

        One that is neither to die nor watched is hasty: it does not wait for the dead as long as others do.
        """
        ...


class Forks:
    """Processes of `tests.crash.points`: so many at a time."""

    def __init__(self, count: int) -> None:
        self._free: queue.Queue[TextIO] = queue.Queue()
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/jobs")
            listener.listen()
            listener.settimeout(1)
            arguments = [sys.executable, "-m", "tests.crash.points", f"{folder}/jobs", str(count)]
            with default_signals():
                self._process = subprocess.Popen(arguments, env=environment(LANCE_LOG="error"), cwd=REPOSITORY)
            self._connections = [self._accepted(listener) for _ in range(count)]
        for connection in self._connections:
            self._free.put(connection.makefile("rw"))

    def _accepted(self, listener: socket.socket) -> socket.socket:
        """The next process that is ready. Fails as soon as none can be."""
        while self._process.poll() is None:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(None)
                return connection
        raise RuntimeError("the process that others are made of did not start: what it said stands above")

    def close(self) -> None:
        """End them."""
        while not self._free.empty():
            self._free.get().close()
        for connection in self._connections:
            connection.close()
        self._process.wait()

    @contextmanager
    def running(self, job: Job) -> Iterator[_Running]:
        """A process at work."""
        lines = self._free.get()
        try:
            print(msgspec.json.encode(job).decode(), file=lines, flush=True)
            running = _Running(int(lines.readline()))
            yield running
            running.code = int(lines.readline())
        finally:
            self._free.put(lines)


@dataclass
class _Running:
    pid: int
    code: int = 0


class Disk:
    """Lakes in directories below one."""

    name = "disk"

    def __init__(self, root: Path, inbox: Path, forks: Forks) -> None:
        self._root = root
        self._inbox = inbox
        self._forks = forks
        self._numbers = itertools.count()

    def empty(self) -> Ground:
        root = self._root / f"ground-{next(self._numbers)}"
        return Ground(root, str(root / "lake"), self._inbox)

    def keep(self, name: str, ground: Ground, *, aged: bool = False) -> None:
        shutil.copytree(ground.root, self._root / name)
        if aged:
            for record in Path(self._root / name / "lake/ops/d/retired").glob("*.json"):
                then = record.stat().st_mtime - OLD.total_seconds()
                os.utime(record, (then, then))

    def fresh(self, name: str) -> Ground:
        ground = self.empty()
        shutil.copytree(self._root / name, ground.root, dirs_exist_ok=True)
        return ground

    def drop(self, ground: Ground) -> None:
        shutil.rmtree(ground.root)

    def run(self, ground: Ground, work: Work, *, kill: Point | None = None, watching: bool = False) -> Ran:
        roots = [str(ground.root / "lake"), str(ground.spool)]
        return run_job(self._forks, ground, work, roots, kill, watching=watching)


def run_job(
    forks: Forks,
    ground: Ground,
    work: Work,
    roots: list[str],
    kill: Point | None,
    wire: Watched | None = None,
    *,
    watching: bool = False,
    is_hasty: bool = False,
) -> Ran:
    """One process; `wire` is told its id."""
    out, steps = ground.root / "out.txt", ground.root / "steps.json"
    job = Job(
        arguments=work.arguments,
        function=work.function,
        environment=work.environment,
        roots=roots,
        kill=kill,
        steps=str(steps) if watching else None,
        out=str(out),
        is_hasty=is_hasty,
    )
    with forks.running(job) as running:
        if wire is not None:
            wire.learn(running.pid)
    counted = Counted(steps=[], large=[], unexplained=[])
    if steps.exists():
        counted = msgspec.json.decode(steps.read_bytes(), type=Counted)
        steps.unlink()
    text = out.read_text(errors="replace") if out.exists() else ""
    return Ran(running.code, text, counted.steps, counted.large, counted.unexplained)


class Watched:
    """The requests of one process, by the prefix that they are about."""

    def __init__(self, prefix: str, chosen: Point | None, aged: set[str]) -> None:
        self._prefix = prefix
        self._chosen = chosen
        self.aged = aged
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._known = threading.Event()
        self._process = -1
        self.dead = False
        self.taken: list[tuple[str, int]] = []

    def learn(self, pid: int) -> None:
        """Whose requests these are. The descriptor stays that process's when its id has gone to another one."""
        with suppress(ProcessLookupError):
            self._process = os.pidfd_open(pid)
        self._known.set()

    def forget(self) -> None:
        """The process has ended; a request that is still on its way kills nobody."""
        with self._lock:
            if self._process >= 0:
                os.close(self._process)
            self._process = -1

    def begins(self, request: Request, body: bytes) -> tuple[str, int] | None:
        """Count a request that writes, and give its name; None for one that does not. The process may be dead afterwards."""
        if request.method not in _WRITES:
            return None
        path = unquote(request.path.partition("?")[0])
        at = path.find(self._prefix)
        name = f"{request.method} {plain(path[at + len(self._prefix) + 1 :]) if at >= 0 else 'many'}"
        with self._lock:
            self._counts[name] += 1
            number = self._counts[name]
        self._at(name, number, BEFORE)
        return name, number

    def ends(self, step: tuple[str, int], status: int) -> None:
        """A request was answered by the store."""
        if status < 300:
            with self._lock:
                self.taken.append(step)
            self._at(*step, AFTER)

    def _at(self, name: str, number: int, moment: str) -> None:
        if self._chosen == Point(name, number, moment):
            self._known.wait()
            self.dead = True
            with self._lock, suppress(ProcessLookupError):
                if self._process >= 0:
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)


class ObjectStore:
    """Lakes below prefixes of an object store; requests of the processes go through a proxy that may kill them."""

    name = "s3"

    def __init__(self, root: Path, inbox: Path, forks: Forks, server: Server, proxy: Proxy) -> None:
        self._root = root
        self._inbox = inbox
        self._forks = forks
        self._client = server.client()
        self._environment = server.environment(proxy.endpoint)
        self._numbers = itertools.count()
        self._kept: dict[str, dict[str, bytes]] = {}
        self._aged: set[str] = set()
        self._watched: dict[str, Watched] = {}
        self._plain = proxy.forward
        proxy.forward = self._forward  # type: ignore[method-assign]

    def empty(self) -> Ground:
        number = f"c{next(self._numbers):05}-{os.getpid()}"
        return Ground(self._root / number, f"s3://{BUCKET}/{number}/lake", self._inbox)

    def keep(self, name: str, ground: Ground, *, aged: bool = False) -> None:
        prefix = f"{ground.root.name}/"
        keys = [one.key for one in self._client.objects(BUCKET, prefix)]
        self._kept[name] = {key[len(prefix) :]: self._client.get(BUCKET, key)[0] for key in keys}
        shutil.copytree(ground.root, self._root / name)
        if aged:
            self._aged.add(name)

    def fresh(self, name: str) -> Ground:
        ground, kept = self.empty(), self._kept[name]
        shutil.copytree(self._root / name, ground.root, dirs_exist_ok=True)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: self._client.put(BUCKET, f"{ground.root.name}/{one[0]}", one[1]), kept.items()))
        (ground.root / "aged").write_text("\n".join(kept) if name in self._aged else "")
        return ground

    def drop(self, ground: Ground) -> None:
        keys = [one.key for one in self._client.objects(BUCKET, f"{ground.root.name}/")]
        self._client.delete_all(BUCKET, keys)
        shutil.rmtree(ground.root)

    def run(self, ground: Ground, work: Work, *, kill: Point | None = None, watching: bool = False) -> Ran:
        aged = ground.root / "aged"
        names = {name for name in aged.read_text().splitlines() if "/retired/" in name} if aged.exists() else set()
        on_wire = kill is not None and kill.name.partition(" ")[0] in _WRITES
        watched = self._watched[ground.root.name] = Watched(ground.root.name, kill if on_wire else None, names)
        is_hasty = kill is None and not watching
        lease = {"CHRONICLE_LEASE_SECONDS": str(HASTY_LEASE_SECONDS if is_hasty else CALM_BEAT_SECONDS)}
        work = Work(work.arguments, work.function, work.environment | self._environment | lease)
        roots = [str(ground.spool)] if ground.spool.exists() else []
        local = None if on_wire else kill
        ran = run_job(self._forks, ground, work, roots, local, watched, watching=watching, is_hasty=is_hasty)
        watched.forget()
        return replace(ran, steps=watched.taken + ran.steps)

    def _forward(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        watched = self._whose(request, body)
        if watched is None:
            return self._plain(request, body)
        if watched.dead:
            return 503, [], b""
        step = watched.begins(request, body)
        if watched.dead:
            return 503, [], b""
        status, headers, data = self._plain(request, body)
        if step is not None:
            watched.ends(step, status)
        if request.method == "HEAD" and any(request.path.endswith(name) for name in watched.aged):
            headers = [(name, _aged(value) if name.lower() == "last-modified" else value) for name, value in headers]
        return status, headers, data

    def _whose(self, request: Request, body: bytes) -> Watched | None:
        path = unquote(request.path)
        for prefix, watched in list(self._watched.items()):
            if prefix in path or prefix.encode() in body:
                return watched
        return None


def _aged(value: str) -> str:
    then = datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC) - OLD
    return format_datetime(then, usegmt=True)
