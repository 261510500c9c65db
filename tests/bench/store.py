"""Bars of an object store: requests of a micro-batch, and time beside the local disk. SeaweedFS on this machine."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator, Mapping

import pytest

from tests import biglog
from tests.bench.measure import Used, run, together
from tests.bench.report import Bar
from tests.bench.setting import Setting, chronicle
from tests.laws.contents import atif
from tests.s3.proxy import Proxy, proxy
from tests.s3.server import BUCKET, Server, binary, running

SEGMENTS = 1_000


def bars(setting: Setting) -> Iterator[Bar]:
    """All bars of this group, one after the other; none where the server is not installed."""
    try:
        binary()
    except pytest.skip.Exception:
        return
    with running(setting.folder("weed")) as server:
        yield beside_the_disk(setting, server)
        with proxy(server) as gate:
            yield requests(setting, server, gate)


def beside_the_disk(setting: Setting, server: Server) -> Bar:
    """Ingest and rebuild of the corpus into the store and onto the disk; the store lies on that disk too."""
    root, lakes = setting.folder("disk"), itertools.count()

    def once(lake: str, variables: Mapping[str, str]) -> Used:
        ingested = chronicle("ingest", setting.corpus(), lake=lake, **variables)
        return together(ingested, chronicle("rebuild", lake=lake, **variables))

    def on_disk() -> Used:
        shutil.rmtree(root / "lake", ignore_errors=True)
        return once(str(root / "lake"), {})

    def in_store() -> Used:
        return once(f"s3://{BUCKET}/disk-{next(lakes)}", server.environment())

    turns = setting.take({"local disk": on_disk, "object store": in_store})
    ratio = turns.median("object store") / turns.median("local disk")
    bar = Bar("Ingest and rebuild in an object store", "at most 1.5x of the local disk", turns, {"to_the_disk": round(ratio, 2)})
    bar.met = setting.judged(ratio <= 1.5)
    return bar


def requests(setting: Setting, server: Server, gate: Proxy) -> Bar:
    """Requests of one ingest of one file, into a log of few and of many segments; none of them can be opened."""
    root = setting.folder("requests")
    counts: dict[str, dict[str, int]] = {}
    pieces = {10: (8, 2), SEGMENTS: (512, 256, 128, 64, 32, 8)}
    for segments in pieces:
        lake = f"requests-{segments}"
        manifest = f"{lake}/events/d/events.lance/_manifest.json"
        server.client().put(BUCKET, manifest, biglog.announced(segments))
        run([sys.executable, "-m", "tests.biglog", f"s3://{BUCKET}/{lake}", *pieces[segments]], settings=server.environment())
        source = root / f"{segments}.json"
        source.write_bytes(atif(str(segments), 10))
        gate.log.clear()
        chronicle("ingest", source, lake=f"s3://{BUCKET}/{lake}", **server.environment(gate.endpoint))
        counts[f"{segments}_segments"] = counted(gate)
    few, many = counts.values()
    bar = Bar("Requests of a micro-batch", "counted, stated, and not growing with the log", figures=dict(counts))
    bar.met = setting.judged(many["facts"] == few["facts"])
    return bar


def counted(gate: Proxy) -> dict[str, int]:
    """Requests since the log was cleared, by what they were for."""
    paths = [path for _, path in gate.log]
    facts, receipts = sum("events.lance" in path for path in paths), sum("receipts" in path for path in paths)
    return {"facts": facts, "receipts": receipts, "all": len(paths)}
