"""Several writers of one dataset at the same time, maintenance and rebuilds beside them, and what must hold afterwards.

Each run is one ingest of a few files of its own, published file by file. What a run acknowledged must be there before
anybody ingests again; what it did not acknowledge is there whole or not at all. Beside the ingests, producers write under
fences of their own: rows of one that was fenced out must never be seen.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chronicle.events.log import RawEventLanceStore
from chronicle.export import export
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.maintain import stock
from chronicle.options import ExportOptions, IngestOptions, VerifyOptions
from chronicle.verify import verify
from tests.lake import tree
from tests.laws.contents import atif
from tests.process import REPOSITORY, chronicle, default_signals, environment

WON_OR_LOST = {0, 73}

WRITER = """
import sys
from chronicle.errors import ConflictError
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
lake, inbox, *names = sys.argv[1:]
for name in names:
    options = IngestOptions(paths=DatasetPaths(lake, "d"), sources=(f"{name}={inbox}/{name}",), batch_bytes=1)
    try:
        ingest(options)
        print(0, name, flush=True)
    except ConflictError as error:
        print(error.exit_code, name, flush=True)
"""

PRODUCER = """
import random, sys, time
from chronicle.errors import ConflictError
from chronicle.events.log import EventWriterFence, RawEventLanceStore
from chronicle.events.record import parse
from chronicle.events.row import EventColumns, row_of
events, me, rounds, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
store, rng, until = RawEventLanceStore(events), random.Random(me), time.monotonic() + seconds
for number in range(rounds):
    if time.monotonic() > until:
        break
    name = f"{me}-{number}"
    columns = EventColumns()
    for seq in range(3):
        columns.add_row(row_of(parse(b'{"seq":%d,"source":"p","kind":"note","timestamp_unix_ms":1,"session_id":"%s","payload":{}}'
                                     % (seq, name.encode()))))
    try:
        with store.writer(EventWriterFence(store.manifest().active_writer.epoch + 1, name)) as writer:
            writer.write(columns.batch())
            time.sleep(rng.uniform(0, 0.2))
            writer.publish()
        print("shown", name, flush=True)
    except ConflictError as error:
        print(error.kind, name, flush=True)
"""


TENDER = """
import sys, time
from chronicle.errors import ConflictError
from chronicle.layout import DatasetPaths
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions, RebuildOptions
from chronicle.rebuild import rebuild
paths, until, rounds = DatasetPaths(sys.argv[1], "d"), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    tends = MaintainOptions(paths=paths, group=4, index_rows=20, retention_seconds=(7 * 86400, 0, 1, 0)[rounds % 4],
                            full=rounds % 4 == 3, index=rounds % 4 == 2, lease_seconds=2)
    for verb, options in ((maintain, tends), (rebuild, RebuildOptions(paths=paths, lease_seconds=2))):
        try:
            verb(options)
            print(verb.__name__, 0, flush=True)
        except ConflictError as error:
            print(verb.__name__, error.exit_code, flush=True)
    rounds += 1
"""


@dataclass
class Race:
    """One race, and what was told by those who ran it."""

    root: Path
    lake: str
    files: int
    """Of one run."""
    codes: Counter[int] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Runs that lost, and may be there in part."""
    produced: dict[str, str] = field(default_factory=dict)
    """What came of each batch under a producer's fence: `shown`, or the kind of the conflict."""
    verbs: Counter[str] = field(default_factory=Counter)
    """Maintenances and rebuilds by name and exit code."""
    faults: list[str] = field(default_factory=list)

    @property
    def paths(self) -> DatasetPaths:
        return DatasetPaths(self.lake, "d")

    @property
    def inbox(self) -> Path:
        return self.root / "in"

    def contents(self, name: str) -> dict[str, bytes]:
        """The files of a run."""
        return {f"{name}/{number}.json": atif(f"{name}-{number}", 2 + number) for number in range(self.files)}

    def put(self, name: str) -> str:
        """Write the files of a run; returns its SOURCE."""
        for path, data in self.contents(name).items():
            (self.inbox / path).parent.mkdir(parents=True, exist_ok=True)
            (self.inbox / path).write_bytes(data)
        return f"{name}={self.inbox / name}"

    def told(self, name: str, code: int, error: str = "") -> None:
        """Take down how a run ended."""
        self.codes[code] += 1
        (self.acknowledged if code == 0 else self.others).append(name)
        if code not in WON_OR_LOST:
            self.faults.append(f"{name} ended with {code}: {error[-2000:]}")

    def check(self) -> dict[str, Any]:
        """Compare the dataset with what was told, before and after one more ingest; returns counts."""
        assert self.faults == []
        out = self.root / "out"
        export(ExportOptions(paths=self.paths, to=str(out), exact=True))
        found = tree(out)
        expected = {path: data for name in self.acknowledged for path, data in self.contents(name).items()}
        lost = [path for path, data in expected.items() if found.get(path) != data]
        assert lost == []
        known = {path: data for name in self.acknowledged + self.others for path, data in self.contents(name).items()}
        assert {path: data for path, data in found.items() if known.get(path) != data} == {}, "whole, or not there"
        self._check_produced()
        assert verify(VerifyOptions(paths=self.paths)).differences == []
        again = ingest(IngestOptions(paths=self.paths, sources=tuple(f"{n}={self.inbox / n}" for n in self.acknowledged)))
        assert (again.unchanged, again.files_opened, again.events) == (len(expected), 0, 0)
        manifest = RawEventLanceStore(self.paths.events).manifest()
        return {
            "runs_by_exit_code": {str(code): count for code, count in sorted(self.codes.items())},
            "files_acknowledged": len(expected),
            "files_lost": len(lost),
            "files_of_lost_runs_that_are_whole": len(found) - len(expected),
            "batches_of_producers": dict(Counter(self.produced.values())),
            "other_verbs_by_exit_code": dict(sorted(self.verbs.items())),
            "epochs_taken": manifest.active_writer.epoch,
            "manifests": manifest.revision,
            "publications": manifest.fact_version,
            "segments_left": len(manifest.segments),
            "pieces_of_receipts": stock(self.paths).fragments["receipts"],
        }

    def _check_produced(self) -> None:
        notes = (record for _, record in RawEventLanceStore(self.paths.events).replay() if record.kind == "note")
        rows = Counter(record.session_id for record in notes)
        assert rows == {name: 3 for name, outcome in self.produced.items() if outcome == "shown"}

    @contextmanager
    def producers(self, count: int, rounds: int, seconds: float) -> Iterator[None]:
        """Producers with fences of their own at work; the block waits for them at its end."""
        started = [self._start(PRODUCER, self.paths.events, f"p{number}", rounds, seconds) for number in range(count)]
        yield
        for process in started:
            for outcome, name in _lines(process):
                self.produced[name] = outcome

    @contextmanager
    def writers(self, count: int, runs: int, prefix: str = "w") -> Iterator[list[subprocess.Popen[str]]]:
        """Processes that ingest one run after the other; the block waits for them at its end."""
        names = [[f"{prefix}{number}r{run}" for run in range(runs)] for number in range(count)]
        for name in (name for some in names for name in some):
            self.put(name)
        started = [self._start(WRITER, self.lake, self.inbox, *some) for some in names]
        yield started
        for process in started:
            for code, name in _lines(process):
                self.told(name, int(code))

    def commands(self, writers: int, seconds: float) -> None:
        """So many calls of `chronicle ingest` at any time, for so long."""
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self._ingest_on, args=(number, until)) for number in range(writers)]
        with default_signals():  # only the main thread may set them
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _ingest_on(self, writer: int, until: float) -> None:
        run = 0
        while time.monotonic() < until:
            name = f"w{writer}r{run}"
            where = ("--lake", self.lake, "--dataset", "d", "--json")
            done = chronicle("ingest", self.put(name), *where, CHRONICLE_LIMITS_BATCH_BYTES=1)
            self.told(name, done.code, done.err)
            run += 1

    @contextmanager
    def tended(self, seconds: float) -> Iterator[None]:
        """Maintenance, with and without retention, and rebuilds, one after the other, for so long."""
        process = self._start(TENDER, self.lake, seconds)
        yield
        self.verbs.update(f"{verb} {code}" for verb, code in _lines(process))

    def _start(self, code: str, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=REPOSITORY,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _lines(process: subprocess.Popen[str]) -> list[list[str]]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return [line.split() for line in out.splitlines()]
