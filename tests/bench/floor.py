"""The floor of the speed bars: `python -m tests.bench.floor CORPUS SCRATCH`.

The least that Python does to bring JSON files into Lance: read, parse and dump each step again, one table, one write; one process
and one thread, no check, no sync to the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lance
import orjson
import pyarrow as pa


def main(corpus: str, scratch: str) -> None:
    """Read `corpus/*.json` and write `scratch/floor.lance` anew."""
    documents = [orjson.loads(path.read_bytes()) for path in sorted(Path(corpus).glob("*.json"))]
    sessions, steps = [], []
    for document in documents:
        for step in document["steps"]:
            sessions.append(document["session_id"])
            steps.append(orjson.dumps(step).decode())
    table = pa.table({"session_id": sessions, "payload_json": steps})
    lance.write_dataset(table, f"{scratch}/floor.lance", mode="overwrite", data_storage_version="2.1")


if __name__ == "__main__":
    main(*sys.argv[1:3])
