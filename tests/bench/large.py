"""Bars of large logs and of reading: an append to a large log, one session out of a million, an aggregate beside the peer."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from chronicle.events.log import RawEventLanceStore
from chronicle.layout import DatasetPaths
from chronicle.options import QueryOptions
from chronicle.query import query
from tests import biglog
from tests.bench.measure import Used, run, timed
from tests.bench.report import Bar
from tests.bench.setting import Setting, chronicle, peer_import
from tests.laws.contents import atif
from tests.peer import PEER

ROWS_A_SOURCE = 100
COMMAND, LIBRARY, THEIRS = "chronicle query, a new process", "the same by the library, warm", "pchronicle query"
_STEPS = ROWS_A_SOURCE - biglog.ROWS_BESIDE_STEPS
AGGREGATE = (
    "SELECT source, count(*) AS n, avg(length(message_value)) AS mean, max(length(reasoning_content)) AS longest "
    "FROM steps GROUP BY source ORDER BY source"
)


def bars(setting: Setting) -> Iterator[Bar]:
    """All bars of this group, one after the other."""
    yield one_append(setting)
    yield one_session(setting)
    yield aggregate(setting)


def one_append(setting: Setting) -> Bar:
    """Ingest of one new small file by a cold process, and an append by the library: into much, and into nothing."""
    rows, root = setting.size(5_000_000), setting.folder("append")
    large = DatasetPaths(str(root / "large"), "d")
    sources = rows // ROWS_A_SOURCE
    biglog.fill(large, sources=sources, steps=_STEPS, sources_a_segment=max(1, sources // 10))
    numbers = itertools.count()
    (root / "in").mkdir()

    def new_file() -> Path:
        path = root / "in" / f"{next(numbers)}.json"
        path.write_bytes(atif(path.name, 10))
        return path

    def empty() -> Path:
        return root / f"empty-{next(numbers)}"

    def ingest(lake: Callable[[], Path]) -> Used:
        return chronicle("ingest", new_file(), lake=lake())

    lakes = {"into an empty log": empty, f"into {rows:,} rows": lambda: Path(large.lake)}
    turns = setting.take({f"ingest {name}": partial(ingest, lake) for name, lake in lakes.items()}, 3)
    turns.join(setting.take({f"append {name}": partial(append, lake) for name, lake in lakes.items()}, 20))
    into = list(lakes)
    ratios = {verb: turns.median(f"{verb} {into[1]}") / turns.median(f"{verb} {into[0]}") for verb in ("ingest", "append")}
    figures = {"rows": rows, "receipts": sources, "ratio": {verb: round(ratio, 2) for verb, ratio in ratios.items()}}
    shutil.rmtree(root)
    met = setting.judged(max(ratios.values()) <= 1.3)
    return Bar("One append into a log of 5 million rows", "at most 1.3x of one into an empty log", turns, figures, met)


def append(lake: Callable[[], Path]) -> Used:
    """Ten records by the library, in this process."""
    store = RawEventLanceStore(DatasetPaths(str(lake()), "d").events)
    return timed(lambda: store.append(biglog.records(10)))


def one_session(setting: Setting) -> Bar:
    """Replay of one session, with and without index, each by a store that has nothing open yet."""
    rows, root = setting.size(1_000_000), setting.folder("session")
    plain, indexed = (DatasetPaths(str(root / name), "d") for name in ("plain", "indexed"))
    sources = rows // ROWS_A_SOURCE
    biglog.fill(plain, sources=sources, steps=_STEPS, sources_a_segment=max(1, sources // 64))
    shutil.copytree(plain.lake, indexed.lake)
    maintained = chronicle("maintain", lake=indexed.lake)
    numbers = itertools.cycle(range(1, sources, max(1, sources // 100)))

    def replay(paths: DatasetPaths) -> Used:
        number = next(numbers)
        return timed(lambda: list(RawEventLanceStore(paths.events).replay(biglog.session(number))))

    work = {"indexed": partial(replay, indexed), "without index": partial(replay, plain)}
    turns = setting.take(work, 5)
    turns.note("maintain", maintained)
    figures = {"rows": rows, "rows_of_a_session": _STEPS + 2, "maintain_peak_mib": maintained.peak_bytes >> 20}
    shutil.rmtree(root)
    met = setting.judged(turns.median("indexed") < 0.1)
    return Bar("Replay of one session out of 1 million rows", "under 100 ms with the index", turns, figures, met)


def aggregate(setting: Setting) -> Bar:
    """One aggregate over the steps of the corpus: by the library in a process that is warm, which the bar is about; by our
    command, which pays for the start of Python too; and by the peer's command over its own store."""
    source, root = setting.corpus(), setting.folder("aggregate")
    lake = root / "lake"
    chronicle("ingest", source, lake=lake)
    chronicle("rebuild", lake=lake)
    peer_import(source, root / "store")

    def asked() -> None:
        with query(QueryOptions(lake=str(lake), dataset="d", sql=AGGREGATE)) as result:
            assert sum(batch.num_rows for batch in result.batches()) == 3

    def theirs() -> Used | None:
        return None if PEER is None else run([PEER, "query", root / "store", "--sql", AGGREGATE, "--format", "jsonl"])

    ours = partial(chronicle, "query", AGGREGATE, "--format", "jsonl", lake=lake)
    work: dict[str, Callable[[], Used | None]] = {COMMAND: ours, LIBRARY: lambda: timed(asked), THEIRS: theirs}
    turns = setting.take(work, 3)
    bar = Bar("SQL aggregate over the steps of the corpus", "not slower than `pchronicle query` on its own store", turns)
    if PEER is not None:
        ratios = {name: turns.median(name) / turns.median(THEIRS) for name in (COMMAND, LIBRARY)}
        bar.figures = {"to_the_peer": {name: round(ratio, 2) for name, ratio in ratios.items()}}
        bar.met = setting.judged(ratios[LIBRARY] <= 1)
    return bar
