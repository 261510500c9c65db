"""How many requests work takes: counted at a proxy, ours and Lance's alike. They do not grow with the log."""

from __future__ import annotations

from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
from tests import biglog
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.proxy import Proxy

A_BATCH_OF_FACTS = 9
"""Is the segment new: list. Lance: 3 lists, data, transaction, version. The manifest: GET and PUT."""
A_BATCH_OF_RECEIPTS = 15
"""The lock: 2 GET, 2 PUT. Is there a dataset, which is its version: 3. Lance's append: 8."""
A_PIECE = 1
"""Small pieces of receipts are written again with what lies behind them: a GET for each, of as many as a log2 says at most."""


def requests_of_a_batch(place: Place, between: Proxy, paths: DatasetPaths, name: str) -> tuple[int, int]:
    """Of the second of two micro-batches of one run: (for facts, for all else of the lake)."""
    for half in "ab":
        place.put(f"{name}/{half}.json", atif(f"{name}{half}", 3))
    between.log.clear()
    report = ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/{name}",), batch_bytes=1))
    assert report.segments == 2
    batch = [path for _, path in between.log if "/lake/" in path or "%2Flake%2F" in path]
    lock = [at for at, path in enumerate(batch) if ".receipts.lock" in path]
    assert len(lock) == 8
    second = batch[lock[3] + 1 :][: lock[7] - lock[3]]
    facts = [path for path in second if "events.lance" in path]
    return len(facts), len(second) - len(facts)


def test_requests_of_a_micro_batch_do_not_grow_with_the_log(place: Place, between: Proxy) -> None:
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    counts = [requests_of_a_batch(place, between, paths, f"in{number}") for number in range(4)]
    assert {facts for facts, _ in counts} == {counts[0][0]}
    assert counts[0][0] <= A_BATCH_OF_FACTS
    assert max(receipts for _, receipts in counts) <= A_BATCH_OF_RECEIPTS + 3 * A_PIECE, "2 ** 3 batches"


def test_a_run_without_news_asks_little(place: Place, between: Proxy) -> None:
    for number in range(20):
        place.put(f"in/{number}.json", atif(f"s{number}", 2))
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    options = IngestOptions(paths=paths, sources=(f"{place.uri}/in",))
    ingest(options)
    between.log.clear()
    assert ingest(options).files_opened == 0
    assert {method for method, _ in between.log} <= {"GET", "HEAD"}
    assert len(between.log) <= 18, "not one for each object"


def requests_of_a_run(place: Place, between: Proxy, segments: int, pieces: list[int]) -> tuple[int, int]:
    """Of one run over one new file, in a log of so many segments with receipts in such pieces: (for facts, for receipts)."""
    lake = f"lake{segments}"
    paths = DatasetPaths(f"{place.uri}/{lake}", "d")
    place.put(f"{lake}/events/d/events.lance/_manifest.json", biglog.announced(segments))
    biglog.receive(paths, pieces)
    place.put(f"in{segments}/a.json", atif(f"s{segments}", 3))
    between.log.clear()
    report = ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/in{segments}/a.json",)))
    assert (report.ingested, report.fact_version) == (1, segments + 1)
    facts = [path for _, path in between.log if "events.lance" in path]
    return len(facts), len([path for _, path in between.log if "receipts" in path])


def test_requests_of_a_run_do_not_grow_with_the_log(place: Place, between: Proxy) -> None:
    small, large = [8, 2], [512, 256, 128, 64, 32, 8]
    few = requests_of_a_run(place, between, sum(small), small)
    many = requests_of_a_run(place, between, sum(large), large)
    print("requests of a run over one file, for (facts, receipts):", {sum(small): few, sum(large): many})
    assert many[0] == few[0]
    assert many[1] - few[1] <= 2 * (len(large) - len(small)), "two for each piece, of which there are log2 of the runs"
