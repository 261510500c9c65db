"""What an append costs does not depend on the log that it goes to; `make test-long PART=scale` takes five million rows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chronicle.errors import IntegrityError
from chronicle.ingest import ingest
from chronicle.intake.receipts import Receipts, list_receipts
from chronicle.options import IngestOptions
from chronicle.storage import lanceio
from tests import biglog
from tests.events.helpers import events
from tests.lake import Lake
from tests.laws.contents import atif
from tests.process import command, environment


def test_an_append_needs_no_segment_that_was_there(tmp_path: Path) -> None:
    """A thousand segments that the manifest names and nobody can open."""
    lake = Lake(tmp_path)
    biglog.announce(lake.paths, 1000)
    biglog.receive(lake.paths, [512, 256, 128, 64, 32, 8])
    report = lake.store.append(events(3))
    assert (report.rows, report.fact_version) == (3, 1001)
    lake.put("a.json", atif("s", 3))
    done = lake.ingest()
    assert (done.ingested, done.fact_version, done.files_opened) == (1, 1002, 1)
    assert lake.ingest().files_opened == 0
    manifest = lake.store.manifest()
    assert (len(manifest.segments), manifest.fact_rows) == (1002, 500_003 + done.events)


def opened(lake: Lake) -> int:
    """Files and directories of the lake that an ingest of one new file opens."""
    lake.put("a.json", atif("s", 3))
    trace = lake.root / "trace"
    words = command("ingest", lake.inbox, "--lake", lake.paths.lake, "--dataset", "d", "--json")
    strace = ["strace", "--follow-forks", "--trace=open,openat", "--output", str(trace)]
    subprocess.run([*strace, *words], env=environment(), capture_output=True, check=True)
    lines = trace.read_text(errors="replace").splitlines()
    return sum(f'"{lake.paths.lake}/' in line and " ENOENT " not in line for line in lines)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_an_ingest_opens_as_many_files_in_a_large_log(tmp_path: Path) -> None:
    counts = {}
    for segments, pieces in ((10, [8, 2]), (1000, [512, 256, 128, 64, 32, 8])):
        lake = Lake(tmp_path / str(segments))
        biglog.announce(lake.paths, segments)
        biglog.receive(lake.paths, pieces)
        counts[segments] = opened(lake)
    print("opened:", counts)
    assert counts[1000] - counts[10] <= 4 * (6 - 2), "only the pieces of the receipts, log2 of the runs"
    assert counts[10] > 30


def test_the_pieces_of_receipts_are_as_many_as_the_logarithm_of_the_runs(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(24):
        lake.put(f"{number:02}.json", atif(f"s{number}", 2))
        ingest(IngestOptions(paths=lake.paths, sources=(f"in={lake.inbox / f'{number:02}.json'}",)))
        pieces = lanceio.open_latest(lake.paths.receipts).get_fragments()
        assert 2 ** (len(pieces) - 1) <= number + 1
    assert len(list_receipts(lake.paths)) == 24


def test_only_what_is_asked_for_is_decoded(tmp_path: Path) -> None:
    """A receipt that does not read is met by whoever asks for it, and by nobody else."""
    lake = Lake(tmp_path)
    biglog.receive(lake.paths, [100])
    rows = lanceio.open_latest(lake.paths.receipts).to_table().to_pylist()
    rows[7]["source"] = "{"
    batch = lanceio.open_latest(lake.paths.receipts).to_table().from_pylist(rows).to_batches()[0]
    shutil.rmtree(lake.paths.receipts)
    lanceio.create(lake.paths.receipts, batch.schema, [batch])
    held = Receipts(lake.paths)
    assert held.get(rows[8]["source_key"]) is not None
    assert held.known(rows[8]["source_id"]) is not None
    for ask in (lambda: held.get(rows[7]["source_key"]), held.all):
        with pytest.raises(IntegrityError, match="receipts rebuild"):
            ask()
