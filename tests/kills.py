"""Verbs that are killed at any moment: what is left must be whole, and a plain re-run must go through.

`Killing` makes a corpus in two states ("before": what an earlier day left; "after": files new, changed, grown and gone
back) and knows from undisturbed runs what the lake has to hold in the end. `strike` then kills one real process, looks
at what is visible, runs the same command again and compares everything.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from chronicle import facts
from chronicle.errors import NotFoundError
from chronicle.exports.sources import exact_sources
from chronicle.layout import TABLES
from chronicle.options import QueryOptions, VerifyOptions
from chronicle.query import query
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from chronicle.verify import verify
from tests.lake import Lake
from tests.laws.contents import atif, chats, child, rows
from tests.process import Done, chronicle, start

MOST_TRIES = 3
"""Of one moment: a process that was done before the blow is tried again, with the duration it really took."""

PAUSE_SECONDS = 0.4
"""Of a reader between two looks: the machine is needed for what it looks at."""

COUNTS = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM steps), (SELECT count(*) FROM tool_calls)"


@dataclass(frozen=True)
class Kind:
    """What is killed. `start`: the state of the lake before it."""

    name: str
    verb: tuple[str, ...]
    start: str
    """`nothing`, `before` (facts, tables and Markdown of the first state), `grown` (these, and the facts of the second),
    or `facts` (the facts of the second state alone)."""
    kills: int
    """In the long test: fifty of each verb that matters."""


KINDS = [
    Kind("ingest-first", ("ingest",), "nothing", 25),
    Kind("ingest-again", ("ingest",), "before", 25),
    Kind("rebuild-incremental", ("rebuild",), "grown", 20),
    Kind("rebuild-first", ("rebuild",), "facts", 15),
    Kind("rebuild-full", ("rebuild", "--full"), "grown", 15),
    Kind("materialize", ("materialize",), "grown", 10),
]


@dataclass(frozen=True)
class Contents:
    """All that a lake shows."""

    exact: dict[str, bytes]
    rows: dict[str, pa.Table]
    markdown: dict[str, bytes]

    @classmethod
    def of(cls, lake: Lake) -> Contents:
        return cls(lake.exact(), without_ordinals(tables(lake)), lake.markdown())

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(self.rows[name].num_rows for name in TABLES)


def tables(lake: Lake) -> dict[str, pa.Table]:
    """The three tables, in an order that does not depend on what was appended before."""
    source = StorylineDataSource.open(lake.paths.storyline)
    keys = {"runs": "document_id", "steps": "turn_ordinal", "tool_calls": "step_id"}
    order = {name: [("document_id", "ascending"), (key, "ascending"), ("call_index", "ascending")] for name, key in keys.items()}
    return {
        name: getattr(source, name).to_table().combine_chunks().sort_by(order[name][: 3 if name == "tool_calls" else 2])
        for name in TABLES
    }


def without_ordinals(rows: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Rows as they are whatever was appended before them."""
    return rows | {"runs": rows["runs"].drop_columns(["storage_ordinal"])}


@dataclass(frozen=True)
class Span:
    """Seconds after its start at which an undisturbed process first changed the lake, and ended."""

    begun: float
    ended: float

    def moment(self, fraction: float, *, at_work: bool) -> float:
        """Seconds from the start, or from the beginning of the work, to this part of the whole, or of the work."""
        return fraction * (max(0.0, self.ended - self.begun) if at_work else self.ended)


@dataclass
class Tally:
    """What happened to the kills of one kind."""

    moments: int = 0
    tries: int = 0
    at_work: int = 0
    """Processes that the blow ended (exit code -9)."""
    was_done: int = 0
    left_traces: int = 0
    """Of `at_work`: something in the lake had changed already."""
    took_over: int = 0
    """Of `at_work`: the lease of a table writer stayed behind."""
    segments_left: Counter[int] = field(default_factory=Counter)
    """Segments that were visible after the blow, and how often."""
    reads: int = 0
    spans: list[Span] = field(default_factory=list)
    """As measured, the last one counts."""

    def said(self) -> dict[str, Any]:
        """Plain values for a report."""
        plain = {key: value for key, value in vars(self).items() if key not in ("segments_left", "spans")}
        return plain | {
            "segments_visible_after_kill": {str(key): self.segments_left[key] for key in sorted(self.segments_left)},
            "undisturbed_seconds": [round(span.ended, 2) for span in self.spans],
        }


class Reader:
    """Reads the facts and tables of a lake again and again on a thread of its own; keeps what was not whole."""

    asks = True
    """Asks by SQL each time, which takes a process; else story by story."""

    def __init__(self, lake: Lake, allowed: set[tuple[int, ...]], stored: set[bytes], *, pause: float = PAUSE_SECONDS) -> None:
        self._lake = lake
        self._pause = pause
        self._allowed = allowed
        self._stored = stored
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.reads = 0
        self.torn: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._done.set()
            self._thread.join()

    def _read(self) -> None:
        while not self._done.wait(self._pause):
            try:
                self.look()
            except Exception as error:  # whatever a reader meets is what the test is about
                self.torn.append("".join(traceback.format_exception(error)))
                return

    def look(self, *, closely: bool = False) -> None:
        """Read once: the tables by SQL or story by story, the facts source by source; `closely`: the tables in both ways."""
        self.reads += 1
        self._look_at_tables(closely)
        self._look_at_facts()

    def _look_at_tables(self, closely: bool) -> None:
        if StorylineLanceStore(self._lake.paths.storyline).current() is None:
            return
        source = StorylineDataSource.open(self._lake.paths.storyline)
        seen = {tuple(source.counts()[name] for name in TABLES)}
        if closely or self.asks:
            with query(QueryOptions(lake=self._lake.paths.lake, dataset=self._lake.paths.dataset, sql=COUNTS)) as result:
                seen |= {tuple(row.values()) for batch in result.batches() for row in batch.to_pylist()}
        if closely or not self.asks:
            seen.add(self._told(source))
        if not seen <= self._allowed:
            self.torn.append(f"tables of {seen}, whole states are {self._allowed}")

    def _told(self, source: StorylineDataSource) -> tuple[int, ...]:
        stories = list(source.stories())
        turns = [turn for story in stories for turn in story.turns]
        return len(stories), len(turns), sum(len(turn.tool_calls or ()) for turn in turns)

    def _look_at_facts(self) -> None:
        try:
            snapshot = facts.pin(self._lake.paths)
        except NotFoundError:
            return
        fold = facts.source_fold(snapshot)
        for source_id, data in exact_sources(snapshot, fold, fold.live()):
            if data is None or b"".join(data) not in self._stored:
                self.torn.append(f"source {source_id} is visible and not whole")


class Killing:
    """A corpus, the states a lake may start from, and what it must hold in the end."""

    def __init__(self, root: Path, *, files: int, steps: int, batch_bytes: int) -> None:
        self.root = root
        self.ends: dict[str, Contents] = {}
        self._batch_bytes = batch_bytes
        self._settings = {"CHRONICLE_LIMITS_BATCH_BYTES": batch_bytes}
        self._inbox = Lake(root / "corpus")
        self._number = 0
        before, after = corpus(files, steps), corpus(files, steps, later=True)
        self._stored = {*before.values(), *after.values()}
        self._prepare(before, after)

    def _prepare(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        """The lakes to start from, and the undisturbed ends."""
        for name, data in before.items():
            self._inbox.put(name, data)
        lake = self._lake("before")
        lake.ingest(batch_bytes=self._batch_bytes)
        lake.rebuild()
        self.before = Contents.of(lake)
        for name, data in after.items():
            if data != before.get(name):
                self._inbox.put(name, data)
        for name, earlier in (("grown", "before"), ("facts", "nothing")):
            self._lake(name, earlier).ingest(batch_bytes=self._batch_bytes)
            lake = self._lake(f"end-{name}", name)
            lake.rebuild()
            self.ends[name] = Contents.of(lake)
            assert self.ends[name].exact == {f"in/{name}": data for name, data in (before | after).items()}

    def _lake(self, name: str, earlier: str = "nothing") -> Lake:
        lake = Lake(self.root / name, inbox=self._inbox.inbox)
        if earlier != "nothing":
            shutil.copytree(self.root / earlier / "lake", lake.root / "lake")
        return lake

    def call(self, kind: Kind, lake: Lake) -> Done:
        """One call of the real command."""
        return chronicle(*self._arguments(kind, lake), **self._settings)

    def _kill(self, kind: Kind, lake: Lake, after: float, *, at_work: bool) -> Done:
        """One call that is killed so many seconds after its start (`at_work`: after it first changed the lake), if it runs."""
        if not at_work:
            return chronicle(*self._arguments(kind, lake), after=after, **self._settings)
        began = time.monotonic()
        process = start(*self._arguments(kind, lake), **self._settings)
        if self._seen_at_work(process, lake):
            time.sleep(after)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Done(process.returncode, out, err.decode(), time.monotonic() - began)

    def _seen_at_work(self, process: subprocess.Popen[bytes], lake: Lake) -> bool:
        untouched = fingerprint(lake.root)
        while process.poll() is None:
            if fingerprint(lake.root) != untouched:
                return True
            time.sleep(0.005)
        return False

    def _arguments(self, kind: Kind, lake: Lake) -> list[object]:
        sources = [lake.inbox] if kind.verb[0] == "ingest" else []
        return [*kind.verb, *sources, "--lake", lake.paths.lake, "--dataset", "d"]

    def span(self, kind: Kind) -> Span:
        """When the verb begins to change the lake and when it ends, now and undisturbed."""
        lake = self._fresh(kind)
        began = time.monotonic()
        with start(*self._arguments(kind, lake), **self._settings) as process:
            self._seen_at_work(process, lake)
            begun = time.monotonic() - began
            process.communicate()
        assert process.returncode == 0
        shutil.rmtree(lake.root)
        return Span(begun, time.monotonic() - began)

    def _fresh(self, kind: Kind) -> Lake:
        self._number += 1
        return self._lake(f"{kind.name}-{self._number}", kind.start)

    def strike(self, kind: Kind, fraction: float, tally: Tally, *, at_work: bool = False) -> None:
        """Kill the verb after this part of its duration (`at_work`: of its time at work), and compare everything.

        A process that was quicker than expected is no kill: its lake is checked all the same, and the moment tried
        again, with what it took as the duration.
        """
        tally.moments += 1
        for _ in range(MOST_TRIES):
            lake = self._fresh(kind)
            tally.tries += 1
            if self._strike_once(kind, lake, fraction, tally, at_work):
                return

    def _strike_once(self, kind: Kind, lake: Lake, fraction: float, tally: Tally, at_work: bool) -> bool:
        end = self.ends["facts" if kind.start in ("nothing", "facts") else "grown"]
        reader = Reader(lake, {self.before.counts, end.counts}, self._stored)
        untouched = fingerprint(lake.root)
        with reader.at_work():
            blow = self._kill(kind, lake, tally.spans[-1].moment(fraction, at_work=at_work), at_work=at_work)
            assert blow.code in (0, -signal.SIGKILL), blow.err
            hit = blow.code != 0
            self._note(lake, hit, fingerprint(lake.root) != untouched, tally)
            reader.look(closely=True)
            again = self.call(kind, lake)
        assert again.code == 0, again.err
        assert not reader.torn, reader.torn
        tally.reads += reader.reads
        if not hit:
            begun, ended = tally.spans[-1].begun, tally.spans[-1].ended
            shorter = begun + fraction * (ended - begun) if at_work else blow.seconds
            tally.spans.append(Span(begun, min(shorter, ended)))
        self.check(lake, end)
        shutil.rmtree(lake.root)
        return hit

    def _note(self, lake: Lake, hit: bool, changed: bool, tally: Tally) -> None:
        tally.at_work += hit
        tally.was_done += not hit
        if hit:
            current = StorylineLanceStore(lake.paths.storyline).current()
            tally.left_traces += changed
            tally.took_over += current is not None and current.lease is not None
            tally.segments_left[len(lake.store.manifest().segments) if lake.store.exists() else 0] += 1

    def check(self, lake: Lake, end: Contents) -> None:
        """After the re-run: everything is there, nothing is left to do, no lease stays behind."""
        idle = lake.ingest()
        assert (idle.files_opened, idle.events, idle.exit_code()) == (0, 0, 0)
        lake.rebuild()
        incremental = tables(lake)
        found = Contents(lake.exact(), without_ordinals(incremental), lake.markdown())
        assert found.exact == end.exact
        assert found.rows == end.rows
        assert found.markdown == end.markdown
        report = verify(VerifyOptions(paths=lake.paths))
        assert (report.differences, report.freshness, report.exit_code()) == ([], "fresh", 0)
        assert (report.sources, report.stories) == (len(end.exact), end.counts[0])
        assert lake.rebuild(full=True).mode == "full"
        assert tables(lake) == incremental
        current = StorylineLanceStore(lake.paths.storyline).current()
        assert current is not None
        assert current.lease is None


def fingerprint(root: Path) -> set[tuple[str, int, int]]:
    """Name, size and modification time of every file below a directory."""
    found = set()
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError):
                state = os.stat(path)
                found.add((path, state.st_size, state.st_mtime_ns))
    return found


def corpus(files: int, steps: int, *, later: bool = False) -> dict[str, bytes]:
    """Files of several shapes, no two with the same bytes.

    Later some are new, every fifth has another length, the JSONL files grew, and one lost lines.
    """
    made = {}
    for number in range(files + (files // 10 if later else 0)):
        longer = later and number % 5 == 0
        more = {"subagent_trajectories": [child(f"child-{number}", 3)]} if number % 4 == 0 else {}
        made[f"atif/{number:04}.json"] = atif(f"s{number}", steps + number % 3 + longer, **more)
    for number in range(max(files // 10, 2)):
        first = 1000 * number
        made[f"chats/{number:04}.jsonl"] = chats(range(first, first + steps // 4 + (5 if later else 0)))
    made["chats/cut.jsonl"] = chats(range(900_000, 900_000 + steps // 4 - (3 if later else 0)))
    made["rows.json"] = rows(6 if later else 4)
    return made
