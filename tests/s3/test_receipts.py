"""Receipts in an object store, where the lock is a lease that its holder may sleep through."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from chronicle.errors import ConflictError
from chronicle.events.imported import SourceRef, Stat
from chronicle.ingest import ingest
from chronicle.intake import receipts
from chronicle.intake.receipts import Receipts, list_receipts, rebuild_receipts
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
from chronicle.storage import lanceio
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.proxy import Proxy

INGESTS = 14


def append(paths: DatasetPaths, number: int) -> str:
    """Append one receipt; the kind of the error where another writer won."""
    ref = SourceRef(source_id=f"{number:032x}", source_key=f"in/{number}", stat=Stat(size=number))
    try:
        receipts._write(paths, [("source.closed", ref)])
    except ConflictError as error:
        return error.kind
    return ""


def test_a_lock_that_was_lost_loses_no_receipt(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of all who think that they hold it stay, or their writer is told."""

    @contextmanager
    def nobody_excluded(paths: object) -> Iterator[None]:
        yield

    paths = DatasetPaths(f"{place.uri}/lake", "d")
    append(paths, 0)
    monkeypatch.setattr(receipts, "receipts_lock", nobody_excluded)
    numbers = range(1, 21)
    with ThreadPoolExecutor(4) as pool:
        kinds = dict(zip(numbers, pool.map(append, [paths] * len(numbers), numbers), strict=True))
    assert set(kinds.values()) <= {"", "commit-conflict"}
    stored = sorted(int(held.source_key.partition("/")[2]) for held in Receipts(paths).all())
    assert stored == [0, *(number for number, kind in kinds.items() if not kind)]


def test_a_run_without_news_asks_as_little_after_many_small_ones(place: Place, between: Proxy) -> None:
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    for number in range(INGESTS):
        place.put(f"in/{number:02}.json", atif(f"s{number}", 2))
        ingest(IngestOptions(paths=paths, sources=(f"N={place.uri}/in/{number:02}.json",)))
    assert len(lanceio.open_latest(paths.receipts).get_fragments()) <= 4
    between.log.clear()
    report = ingest(IngestOptions(paths=paths, sources=(f"N={place.uri}/in",)))
    assert (report.unchanged, report.files_opened) == (INGESTS, 0)
    assert len(between.log) <= 24
    assert list_receipts(paths) == rebuild_receipts(paths)
