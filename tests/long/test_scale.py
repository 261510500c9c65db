"""A log of five million rows, and one of a million: what an append costs there, what maintenance and replay cost.

Counts, memory and requests are asserted. Times are kept as ratios of what ran in turns, and no test looks at them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chronicle.events.log import RawEventLanceStore
from chronicle.events.maintenance import INDEX_ROWS, INDEXED, index_name
from chronicle.events.row import COLUMNS, SCHEMA
from chronicle.facts import payloads
from chronicle.intake.receipts import Receipts
from chronicle.layout import DatasetPaths
from chronicle.options import QueryOptions
from chronicle.query import query
from chronicle.rowdigest import RowDigest
from tests import biglog, peer
from tests.bench.measure import Turns, Used, run, timed
from tests.events.helpers import events
from tests.lake import tree
from tests.laws.contents import atif
from tests.long import evidence
from tests.process import command
from tests.s3 import server as weed
from tests.s3.proxy import proxy

pytestmark = pytest.mark.long

ROWS, SOURCES = 5_000_000, 50_000
DESCRIPTORS = 10_000
MILLION = 1_000_000
MOST_BYTES = 600 << 20
TURNS = 9
WORDS = " ".join(["hinge", "screw", "plate", "drawing", "garden", "door"] * 6)
TEXTS = "CAST(sum(length(message_value)) AS BIGINT) AS texts"
COUNTS = f"SELECT count(*) AS n, count(DISTINCT session_id) AS sessions, {TEXTS} FROM steps"
FACTS = "SELECT kind, count(*) AS n FROM dataset.events GROUP BY kind"


def call(*arguments: object, **settings: object) -> Used:
    """One call of the command as a cold process; it must succeed."""
    return run(command(*arguments), settings=settings)


def ratios(turns: Turns, one: str) -> dict[str, Any]:
    """What the measurements say, each with its ratio to the median of `one`."""
    base = turns.median(one)
    return {name: {**said, "ratio": round(turns.median(name) / base, 3)} for name, said in turns.said().items()}


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    """What the tests of this module measured; written when they are done."""
    collected: dict[str, Any] = {}
    yield collected
    if collected.keys() == {"append", "requests_of_one_ingest", "million_rows"}:
        evidence.keep("scale", collected)


@pytest.fixture(scope="module")
def five_millions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake whose only log has five million rows of fifty thousand sources."""
    root = tmp_path_factory.mktemp("five")
    paths = DatasetPaths(str(root / "lake"), "d")
    steps = ROWS // SOURCES - biglog.ROWS_BESIDE_STEPS
    assert biglog.fill(paths, sources=SOURCES, steps=steps, sources_a_segment=SOURCES // 10) == ROWS
    yield root
    shutil.rmtree(root)


def new_files(folder: Path) -> Iterator[Path]:
    """Small files, each of its own content."""
    folder.mkdir()
    for number in range(10**6):
        source = folder / f"{number:06}.json"
        source.write_bytes(atif(f"new-{number}", 10))
        yield source


def ingest_once(lake: Callable[[], Path], sources: Iterator[Path]) -> Used:
    """Ingest one new file by a cold process."""
    return call("ingest", next(sources), "--lake", lake(), "--dataset", "d", "--json")


def append_once(lake: Callable[[], Path]) -> Used:
    """Append a few records by the library."""
    store = RawEventLanceStore(DatasetPaths(str(lake()), "d").events)
    return timed(lambda: store.append(events(10)))


def test_one_append(five_millions: Path, found: dict[str, Any], tmp_path: Path) -> None:
    """Into five million rows, into as many rows in ten thousand segments, and into nothing."""
    crowded = tmp_path / "crowded"
    paths = DatasetPaths(str(crowded), "d")
    biglog.fill(paths, sources=ROWS // DESCRIPTORS // 100, steps=96, sources_a_segment=SOURCES)
    manifest = biglog.multiply(RawEventLanceStore(paths.events), DESCRIPTORS)
    assert (len(manifest.segments), manifest.fact_rows) == (DESCRIPTORS, ROWS)
    numbers, sources = iter(range(10**6)), new_files(tmp_path / "in")
    lakes: dict[str, Callable[[], Path]] = {
        "empty": lambda: tmp_path / f"empty{next(numbers)}",
        "five_million_rows": lambda: five_millions / "lake",
        "ten_thousand_segments": lambda: crowded,
    }
    held = DatasetPaths(str(five_millions / "lake"), "d")
    before = len(Receipts(held).all())
    by_command = Turns().take({name: partial(ingest_once, at, sources) for name, at in lakes.items()}, turns=TURNS)
    by_library = Turns().take({name: partial(append_once, at) for name, at in lakes.items()}, turns=3 * TURNS)
    found["append"] = {
        "rows": ROWS,
        "receipts": before,
        "segments": DESCRIPTORS,
        "ingest_of_one_file": ratios(by_command, "empty"),
        "append_by_the_library": ratios(by_library, "empty"),
    }
    assert RawEventLanceStore(held.events).manifest().fact_rows > ROWS
    assert len(Receipts(held).all()) == before + TURNS + 1


def test_requests_of_one_append(five_millions: Path, found: dict[str, Any], tmp_path: Path) -> None:
    """The same log in an object store, beside a new one: requests of one ingest of one file."""
    with weed.running(tmp_path) as store, proxy(store) as gate:
        client, files = store.client(), tree(five_millions / "lake")
        with ThreadPoolExecutor(8) as pool:
            puts = [pool.submit(client.put, weed.BUCKET, f"five/{name}", data) for name, data in files.items()]
        for put in puts:
            put.result()
        counts: dict[str, dict[str, int]] = {}
        for name in ("empty", "five"):
            source = tmp_path / f"{name}.json"
            source.write_bytes(atif(f"s3-{name}", 10))
            for lake in (f"warm-{name}", name):  # the first one asks whether the store keeps conditions
                gate.log.clear()
                variables = store.environment(gate.endpoint)
                call("ingest", source, "--lake", f"s3://{weed.BUCKET}/{lake}", "--dataset", "d", "--json", **variables)
            counts[name] = {
                "facts": sum("events.lance" in path for _, path in gate.log),
                "receipts": sum("receipts" in path for _, path in gate.log),
                "all": len(gate.log),
            }
    found["requests_of_one_ingest"] = counts
    # A new log has no segment to find and no receipts to read: that is all that may differ.
    assert abs(counts["five"]["facts"] - counts["empty"]["facts"]) <= 4
    assert counts["five"]["all"] <= counts["empty"]["all"] + 20


def asked(paths: DatasetPaths) -> dict[str, Any]:
    """Counts of facts and tables, by ourselves and by the peer."""
    with query(QueryOptions(lake=paths.lake, dataset="d", sql=COUNTS)) as result:
        ours = [row for batch in result.batches() for row in batch.to_pylist()]
    kinds = RawEventLanceStore(paths.events).stats().kinds
    if peer.PEER is not None:
        assert peer.query(paths.storyline, COUNTS) == ours
        assert {row["kind"]: row["n"] for row in peer.query(paths.events, FACTS)} == kinds
    return {"steps": ours, "kinds": kinds, "asked_the_peer_too": peer.PEER is not None}


def replays(paths: DatasetPaths) -> list[Used]:
    """The replays of some sessions, each by a store that knows nothing yet; the first one does not count."""

    def once(number: int) -> None:
        rows = list(RawEventLanceStore(paths.events).replay(biglog.session(number)))
        assert len(rows) == 98, "all of the document, nothing of its source"

    return [timed(partial(once, number)) for number in range(5, MILLION // 100, 997)][1:]


def weighed(paths: DatasetPaths) -> tuple[str, int]:
    """Digest of all rows in their order, and bytes of their payloads."""
    digest, size = RowDigest(SCHEMA), 0
    for _, batch in RawEventLanceStore(paths.events).snapshot().scan(COLUMNS):
        digest.add(batch)
        size += sum(map(len, payloads(batch["payload_json"])))
    return digest.hexdigest(), size


def are_indexed(paths: DatasetPaths) -> bool:
    """Whether every segment of some size has its indices in the version that readers open."""
    snapshot = RawEventLanceStore(paths.events).snapshot()
    large = [at for at, segment in enumerate(snapshot.segments) if segment.rows >= INDEX_ROWS]
    indices = [snapshot.dataset(at).describe_indices() for at in large]
    return all({index.name for index in each} == set(map(index_name, INDEXED)) for each in indices)


def test_maintenance_and_replay_of_a_million_rows(found: dict[str, Any], tmp_path: Path) -> None:
    """Tables, merges and indices of a million rows in bounded memory; the same rows and counts before and after."""
    paths = DatasetPaths(str(tmp_path / "lake"), "d")
    biglog.fill(paths, sources=MILLION // 100, steps=96, sources_a_segment=160, words=WORDS)
    where = ("--lake", tmp_path / "lake", "--dataset", "d", "--json")
    ran = {"rebuild": call("rebuild", *where)}
    before, rows = asked(paths), weighed(paths)
    turns = Turns({"without_index": replays(paths)})
    verbs = {"maintain": ("maintain",), "maintain_full": ("maintain", "--full", "--retention", "0")}
    for name, verb in verbs.items():
        ran[name] = call(*verb, *where)
        turns.taken[f"after_{name}"] = replays(paths)
        assert (asked(paths), weighed(paths)) == (before, rows)
        assert are_indexed(paths)
    assert len(RawEventLanceStore(paths.events).manifest().segments) == 1
    assert max(each.peak_bytes for each in ran.values()) < MOST_BYTES
    found["million_rows"] = {
        "rows": MILLION,
        "payload_bytes": rows[1],
        "counts": before,
        "peak_mib": {name: each.peak_bytes >> 20 for name, each in ran.items()},
        "seconds": {name: round(each.seconds, 1) for name, each in ran.items()},
        "replay_of_one_session": ratios(turns, "without_index"),
    }
