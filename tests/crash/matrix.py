"""Every durable step of every verb as the last thing that a process does.

`Matrix.count` runs a scenario undisturbed and learns its steps; `Matrix.strike` kills a process at one of them while a reader
looks on, runs the same command again, and compares all that the lake shows.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chronicle.errors import InputError, IntegrityError, NotFoundError
from chronicle.events.vacuum import directories
from chronicle.ingest import ingest
from chronicle.intake import sources as intake
from chronicle.intake.receipts import list_receipts
from chronicle.layout import CURRENT, MANIFEST
from chronicle.maintain import maintain
from chronicle.options import IngestOptions, MaintainOptions
from chronicle.quarantine import Quarantine
from chronicle.storage import files
from chronicle.storyline.maintenance import generations
from chronicle.storyline.store import StorylineLanceStore
from tests import spoolkills
from tests.crash.points import AFTER, BEFORE, INSIDE, INSIDES, Point, produce
from tests.crash.sites import Ground, Ran, Site, Work
from tests.kills import Contents, Reader, tables
from tests.laws.contents import atif, chat, chats, child, rows

READER_PAUSES = {"disk": 0.02, "s3": 1.0}
BATCH_BYTES = 2000
TURNS = 9
ALIKE = 2
_OF_AN_INDEX = re.compile(r"/generations/gen/(\w+\.lance/)(_transactions|_versions)/|/(_indices/id/.*)")
PRODUCE = "tests.crash.points:produce"
FIRST = {
    "a.json": atif("s0", 4, subagent_trajectories=[child("child", 2)]),
    "b.json": atif("s1", 3),
    "c.jsonl": chats(range(3)),
    "rows.json": rows(2),
}
LATER = {"b.json": atif("s1", 5), "c.jsonl": chats(range(5)), "d.json": atif("s0", 3), "e.json": FIRST["a.json"]}
BAD = {
    "broken.json": atif("s8", 3)[:-9],
    "fine.json": atif("s9", 2),
    "later.json": atif("tomorrow", 2),
    "mixed.jsonl": chat(100) + b"\n{broken\n" + chat(102) + b"\n",
    "some.jsonl": chats(range(200, 203)),
}
PIECES = {f"p{number}.json": atif(f"p{number}", 3 + number % 3) for number in range(5)}
STORED = {*FIRST.values(), *LATER.values(), *BAD.values(), *PIECES.values()}


@dataclass(frozen=True)
class Scenario:
    """One verb on one state."""

    name: str
    verb: tuple[str, ...]
    start: str
    """Name of the state (`States`)."""
    sources: str = ""
    """Directory of sources below the inbox; for `ingest`."""
    code: int = 0
    """Of the process, and of the one that is run again."""
    code_when_done: int = 0
    """Of the one that is run again, where the dead one had done all."""
    breaks_readers: bool = False
    """Without retention a reader of an older snapshot may find it gone."""
    keeps_facts: bool = False
    """No row changes, and `fact_version` does not move."""

    def work(self, ground: Ground) -> Work:
        """What its process does."""
        lake = ["--lake", ground.paths.lake, "--dataset", "d"]
        settings = {"CHRONICLE_LIMITS_BATCH_BYTES": str(BATCH_BYTES)}
        if self.verb == ("produce",):
            return Work([str(ground.spool), str(ground.root / "told"), str(TURNS), str(time.monotonic_ns())], PRODUCE)
        given = list(self.verb)
        if given[0] == "ingest":
            given.append(str(ground.inbox / self.sources))
        if given[0] == "drain":
            given.append(str(ground.spool))
        if given[:2] == ["quarantine", "drop"]:
            given.append((ground.root / "entry").read_text())
        return Work([*given, *lake], None, settings)


SCENARIOS = [
    Scenario("ingest-first", ("ingest",), "nothing", "in"),
    Scenario("ingest-again", ("ingest",), "built", "in"),
    Scenario("ingest-quarantine", ("ingest",), "built", "bad", code=65),
    Scenario("rebuild-first", ("rebuild",), "facts"),
    Scenario("rebuild-incremental", ("rebuild",), "grown"),
    Scenario("rebuild-full", ("rebuild", "--full"), "grown"),
    Scenario("materialize-first", ("materialize",), "facts"),
    Scenario("materialize-again", ("materialize",), "grown"),
    Scenario("maintain", ("maintain",), "pieces", keeps_facts=True),
    Scenario("maintain-vacuum", ("maintain", "--vacuum"), "garbage", keeps_facts=True),
    Scenario("maintain-full", ("maintain", "--full", "--retention", "0"), "garbage", breaks_readers=True, keeps_facts=True),
    Scenario("receipts-rebuild", ("receipts", "rebuild"), "grown", keeps_facts=True),
    Scenario("quarantine-retry", ("quarantine", "retry"), "bad", code=65),
    Scenario("quarantine-drop", ("quarantine", "drop"), "bad", code_when_done=66, keeps_facts=True),
    Scenario("drain", ("drain",), "spooled"),
    Scenario("spool-append", ("produce",), "nothing"),
]


@dataclass
class Tally:
    """What the deaths of one scenario came to."""

    points: int = 0
    killed: int = 0
    inside: int = 0
    """Of `points`: in the middle of a step that changes much."""
    runs: int = 0
    reruns_ok: int = 0
    reads: int = 0
    torn_reads: int = 0
    acknowledged: int = 0
    """Rows and records that were visible or told of at a death; none was lost."""
    duplicates: int = 0
    left: Counter[str] = field(default_factory=Counter)
    """Files that nobody needs and a vacuum does not remove."""

    def said(self) -> dict[str, Any]:
        """Plain values for a report."""
        return vars(self) | {"left": dict(self.left)}


class Matrix:
    """All states on one site, and what each scenario comes to without a death."""

    def __init__(self, site: Site, inbox: Path) -> None:
        self.site = site
        self._inbox = inbox
        self._counts: dict[str, tuple[int, ...]] = {}
        self._ends: dict[str, _Shown] = {}
        self._lock = threading.Lock()

    def prepare(self, *names: str) -> None:
        """Make the states that some scenarios start from. Not beside anything else: readers are blinded for a moment."""
        wanted = {scenario.start for scenario in SCENARIOS if scenario.name in names}
        _put(self._inbox / "in", FIRST)
        _put(self._inbox / "bad", BAD)
        self._keep("nothing", self.site.empty())
        if wanted & {"built", "grown", "bad"}:
            built = self.site.empty()
            _ingest(built, "in")
            built.rebuild()
            built.markdown()
            self._keep("built", built)
        if "bad" in wanted:
            self._keep("bad", self._bad())
        _put(self._inbox / "in", LATER)
        for name, earlier in (("grown", "built"), ("facts", "nothing")):
            if name in wanted:
                ground = self.site.fresh(earlier)
                _ingest(ground, "in")
                self._keep(name, ground)
        if wanted & {"pieces", "garbage"}:
            self._keep("pieces", self._pieces())
        if "garbage" in wanted:
            self._keep("garbage", self._garbage(), aged=True)
        if "spooled" in wanted:
            self._keep("spooled", self._spooled())

    def _keep(self, name: str, ground: Ground, *, aged: bool = False) -> None:
        has_tables = StorylineLanceStore(ground.paths.storyline).current() is not None
        self._counts[name] = tuple(table.num_rows for table in tables(ground).values()) if has_tables else ()
        self.site.keep(name, ground, aged=aged)

    def _bad(self) -> Ground:
        """A lake with entries of which some can be read now."""
        ground = self.site.fresh("built")
        with _blind():
            _ingest(ground, "bad")
        ground.rebuild()
        ground.markdown()
        entries = Quarantine(ground.paths).entries.values()
        (ground.root / "entry").write_text(next(entry.id for entry in entries if entry.source_key.endswith("broken.json")))
        return ground

    def _pieces(self) -> Ground:
        """Many small runs that nobody tidied up."""
        ground = self.site.empty()
        _put(self._inbox / "pieces", PIECES)
        for name in PIECES:
            _ingest(ground, f"pieces/{name}")
            ground.rebuild()
        ground.markdown()
        return ground

    def _garbage(self) -> Ground:
        """Merged and indexed; what that retired lies there, and what killed writers left."""
        ground = self.site.fresh("pieces")
        maintain(MaintainOptions(paths=ground.paths, group=4, index_rows=20))
        segments = f"{ground.paths.events}/segments"
        _copy_tree(
            f"{segments}/{ground.store.manifest().segments[-1].id}.lance",
            f"{segments}/e9-00000000-0000-4000-8000-000000000000.lance",
        )
        current = StorylineLanceStore(ground.paths.storyline).current()
        assert current is not None
        known = f"{ground.paths.storyline}/generations"
        _copy_tree(f"{known}/{current.committed.table_generation}", f"{known}/gen-1-1-1")
        maintain(MaintainOptions(paths=ground.paths, compact=False, index=False))
        return ground

    def _spooled(self) -> Ground:
        """A spool with several files, one with a torn end, beside a lake."""
        ground = self.site.fresh("facts") if "facts" in self._counts else self.site.empty()
        produce(str(ground.spool), str(ground.root / "told"), str(TURNS))
        (newest,) = ground.spool.glob("*.open")
        with newest.open("ab") as file:
            file.write(newest.read_bytes()[:20])
        return ground

    def count(self, scenario: Scenario) -> list[Point]:
        """Run it undisturbed; all moments at which it can die. A step that happens outside of all that is counted fails."""
        ground = self.site.fresh(scenario.start)
        ran = self.site.run(ground, scenario.work(ground), watching=True)
        assert ran.code == scenario.code, ran.text
        assert ran.unexplained == []
        self._ends[scenario.name] = self._finished(scenario, ground)
        self.site.drop(ground)
        return _points(scenario, ran)

    def _finished(self, scenario: Scenario, ground: Ground) -> _Shown:
        """What a lake shows after a scenario, all layers brought up to it."""
        texts: list[bytes] = []
        if scenario.start in ("nothing", "spooled") and ground.spool.exists():
            texts = spoolkills.drained(ground.spool, ground.paths.lake)
        written = ground.written_markdown()
        if ground.store.exists() and scenario.verb[0] != "rebuild":
            ground.rebuild()
        return _Shown.of(ground, written if scenario.verb[0] == "materialize" else {}, texts)

    def strike(self, scenario: Scenario, point: Point, tally: Tally) -> None:
        """Kill a process there, run the command again, and compare."""
        ground = self.site.fresh(scenario.start)
        end = self._ends[scenario.name]
        allowed = {self._counts[scenario.start], end.counts}
        reader = _Looker(ground, allowed, STORED, pause=READER_PAUSES[self.site.name])
        reader.forgives = scenario.breaks_readers
        before = _Facts.of(ground)
        with reader.at_work():
            blow = self.site.run(ground, scenario.work(ground), kill=point)
            assert blow.code in (-signal.SIGKILL, scenario.code), f"{point}: {blow.text}"
            seen = _Facts.of(ground)
            again = self.site.run(ground, scenario.work(ground))
        assert again.code in (scenario.code, scenario.code_when_done or scenario.code), f"{point}: {again.text}"
        reader.look(closely=scenario.verb[0] in ("rebuild", "maintain"))
        assert reader.torn == [], f"{point}: {reader.torn}"
        after = _Facts.of(ground)
        assert after.texts[: len(seen.texts)] == seen.texts, f"{point}: a fact that was visible is gone"
        if scenario.keeps_facts:
            assert after == before, f"{point}: facts changed"
        duplicates = self._check(scenario, ground, end, point)
        left = self._tidied(ground) if self.site.name == "disk" else []
        acknowledged = len(seen.texts) + len(_told(ground))
        self.site.drop(ground)
        with self._lock:
            tally.points += 1
            tally.killed += blow.code != scenario.code
            tally.inside += point.moment.startswith(INSIDE)
            tally.runs += 2
            tally.reruns_ok += 1
            tally.reads += reader.reads
            tally.acknowledged += acknowledged
            tally.duplicates += duplicates
            tally.left.update(left)

    def _check(self, scenario: Scenario, ground: Ground, end: _Shown, point: Point) -> int:
        told = spoolkills.Told()
        told.take(b"".join(line + b"\n" for line in _told(ground)))
        found = self._finished(scenario, ground)
        assert found.contents == end.contents, f"{point}: contents"
        assert found.markdown == end.markdown, f"{point}: markdown"
        assert found.quarantine == end.quarantine, f"{point}: quarantine"
        assert found.receipts == end.receipts, f"{point}: receipts"
        if told.lines:
            return spoolkills.check([text for text in found.texts if b'"note"' in text], told)
        if found.contents is not None and (self.site.name == "disk" or scenario.verb[0] == "rebuild"):
            before = tables(ground)
            assert ground.rebuild(full=True).mode == "full"
            assert tables(ground) == before, f"{point}: a full rebuild has other rows"
            current = StorylineLanceStore(ground.paths.storyline).current()
            assert current is not None
            assert current.lease is None, f"{point}: a lease is left"
        if scenario.verb[0] == "ingest":
            idle = _ingest(ground, scenario.sources)
            assert (idle.files_opened, idle.events) == (0, 0), f"{point}: {idle}"
        return 0

    def _tidied(self, ground: Ground) -> list[str]:
        """Files that are still there for nobody when a vacuum has removed all that it can."""
        if not ground.store.exists():
            return []
        for path in (ground.root / "lake").rglob("*"):
            if path.suffix in (".tmp", ".bin"):
                os.utime(path, (0, 0))
        maintain(MaintainOptions(paths=ground.paths, compact=False, index=False, retention_seconds=0))
        assert sorted(directories(ground.paths.events)) == sorted(each.id for each in ground.store.manifest().segments)
        assert len(generations(ground.paths.storyline)) <= 1
        found = [name for _, _, names in os.walk(ground.root / "lake") for name in names]
        entries = {name.removesuffix(".json") for name in found if name.endswith(".json")}
        lost = [name for name in found if name.endswith(".bin") and name.removesuffix(".bin") not in entries]
        return [name for name in found if name.endswith((".tmp", ".going"))] + lost


class _Looker(Reader):
    """A reader that has to begin anew where nothing is kept for it, and what it looked at was replaced meanwhile."""

    asks = False
    forgives = False

    def look(self, *, closely: bool = False) -> None:
        pinned = self._visible()
        try:
            super().look(closely=closely)
        except (NotFoundError, IntegrityError):
            if not self.forgives or self._visible() == pinned:
                raise

    def _visible(self) -> list[bytes | None]:
        paths = self._lake.paths
        return [files.read(f"{paths.events}/{MANIFEST}"), files.read(f"{paths.storyline}/{CURRENT}")] if self.forgives else []


@dataclass(frozen=True)
class _Facts:
    """Rows of the log, in their order."""

    texts: list[bytes]
    version: int

    @classmethod
    def of(cls, ground: Ground) -> _Facts:
        if not ground.store.exists():
            return cls([], 0)
        snapshot = ground.store.snapshot()
        return cls([record.text for _, record in snapshot.replay()], snapshot.fact_version)


@dataclass(frozen=True)
class _Shown:
    """All that a dataset shows."""

    contents: Contents | None
    markdown: dict[str, bytes]
    """As the verb left it."""
    quarantine: list[tuple[str, str, bytes | None]]
    """(last part of the source key, kind, bytes) of each entry."""
    receipts: dict[str, str]
    texts: list[bytes]

    @classmethod
    def of(cls, ground: Ground, markdown: dict[str, bytes], texts: list[bytes]) -> _Shown:
        quarantine = Quarantine(ground.paths)
        return cls(
            Contents.of(ground) if ground.store.exists() else None,
            markdown,
            [(one.source_key.rpartition("/")[2], one.kind, quarantine.data(one)) for one in quarantine.entries.values()],
            {one.source_key: one.source_id for one in list_receipts(ground.paths)} if ground.store.exists() else {},
            texts,
        )

    @property
    def counts(self) -> tuple[int, ...]:
        return self.contents.counts if self.contents is not None else ()


def _points(scenario: Scenario, ran: Ran) -> list[Point]:
    """All moments. Where Lance writes the same kind of file for one index after the other, those of the first two; of the
    question whether a store can be trusted, which every process asks, those of one scenario."""
    seen: Counter[str] = Counter()
    found, inside = [], []
    for name, number in ran.steps:
        alike = _OF_AN_INDEX.search(name)
        kind = "".join(part for part in alike.groups() if part) if alike and scenario.verb[0] == "maintain" else ""
        seen[kind] += 1
        if (kind and seen[kind] > ALIKE) or (name.endswith("/probe") and scenario.name != "ingest-first"):
            continue
        found += [Point(name, number, moment) for moment in (BEFORE, AFTER)]
        if name in ran.large and "sync_tree" not in name:
            inside += [Point(name, number, f"{INSIDE}:{at}") for at in INSIDES]
    return found + inside


def _told(ground: Ground) -> list[bytes]:
    path = ground.root / "told"
    return path.read_bytes().splitlines() if path.exists() else []


def _put(folder: Path, contents: dict[str, bytes]) -> None:
    """Write sources that are old enough for their times to tell when they change."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        then = (1_700_000_000 + len(data)) * 10**9 + 1  # whole seconds alone look like a coarse clock: such files are read again
        os.utime(folder / name, ns=(then, then))
    time.sleep(0.03)


def _ingest(ground: Ground, sources: str) -> Any:
    return ingest(IngestOptions(paths=ground.paths, sources=(str(ground.inbox / sources),), batch_bytes=BATCH_BYTES))


def _copy_tree(source: str, to: str) -> None:
    for name in files.list_dir(source):
        data = None if name in files.directories(source) else files.read(f"{source}/{name}")
        if data is None:
            _copy_tree(f"{source}/{name}", f"{to}/{name}")
        else:
            files.make_dirs(to)
            files.write_atomic(f"{to}/{name}", data)


@contextlib.contextmanager
def _blind() -> Iterator[None]:
    """A reader that does not know some shapes yet."""
    module: Any = intake
    real = module.cut

    def blind(source: bytes, **options: Any) -> Any:
        if b"tomorrow" in source:
            raise InputError("a shape of tomorrow", kind="unsupported:later")
        found = real(source, **options)
        for document in found.documents if b"chat-201" in source else ():
            if document.locator == 1:
                document.fault, document.reason, document.parts = "member:unsupported:later", "not yet", ()
        return found

    module.cut = blind
    try:
        yield
    finally:
        module.cut = real
