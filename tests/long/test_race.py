"""Eight ingests of one dataset at any time, for a minute, in an object store and on a local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions
from chronicle.storage import files, lanceio
from tests.laws.contents import atif
from tests.long import evidence
from tests.races import Race
from tests.s3.proxy import proxy
from tests.s3.server import BUCKET, running

pytestmark = pytest.mark.long

WRITERS, SECONDS, FILES = 8, 60.0, 5


def race(root: Path, lake: str) -> dict[str, Any]:
    run = Race(root, lake, FILES)
    with run.writers(1, 1, "first"):
        pass  # the log is there
    with run.producers(1, 10**6, SECONDS), run.tended(SECONDS):
        run.commands(WRITERS, SECONDS)
    assert run.codes[0] > WRITERS
    assert run.verbs["maintain 0"] > 0
    assert {"shown", "stale-fence"} <= set(run.produced.values())
    return {"writers": WRITERS, "seconds": SECONDS, "files_of_a_run": FILES, **run.check()}


def test_on_a_local_disk(tmp_path: Path) -> None:
    evidence.keep("race-disk", race(tmp_path, str(tmp_path / "lake")))


def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    with running(tmp_path / "store") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        evidence.keep("race-s3", race(tmp_path, f"s3://{BUCKET}/lake"))


@pytest.mark.parametrize("ingests", [300])
def test_many_small_ingests_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ingests: int) -> None:
    """What receipts take and cost when nobody maintains them."""
    with running(tmp_path) as server, proxy(server) as gate:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        client, paths = server.client(), DatasetPaths(f"s3://{BUCKET}/lake", "d")
        for number in range(ingests):
            client.put(BUCKET, f"in/{number:04}.json", atif(f"s{number}", 2))
            ingest(IngestOptions(paths=paths, sources=(f"N=s3://{BUCKET}/in/{number:04}.json",)))
        idle = IngestOptions(paths=paths, sources=(f"N=s3://{BUCKET}/in",))
        report = ingest(idle)
        assert (report.unchanged, report.files_opened) == (ingests, 0)
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.endpoint)
        ingest(idle)
        gate.log.clear()
        ingest(idle)
        pieces = len(lanceio.open_latest(paths.receipts).get_fragments())
        assert pieces <= ingests.bit_length()
        found = {
            "ingests": ingests,
            "bytes_of_receipts": files.tree_bytes(paths.receipts),
            "pieces_of_receipts": pieces,
            "idle_ingest": {"seconds": report.seconds, "requests": len(gate.log)},
        }
    evidence.keep("receipts-s3", found)
