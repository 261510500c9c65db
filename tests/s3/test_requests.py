"""How many requests work takes: counted at a proxy, ours and Lance's alike. They do not grow with the log."""

from __future__ import annotations

from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.proxy import Proxy

A_BATCH_OF_FACTS = 10
"""Is the segment new: HEAD and list. Lance: 3 lists, data, transaction, version. The manifest: GET and PUT."""
A_BATCH_OF_RECEIPTS = 16
"""The lock: 2 GET, 2 PUT. Is there a dataset, which is its version: 4. Lance's append: 8."""
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
