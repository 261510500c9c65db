"""SQL over a lake of twenty datasets and a million steps, in bounded memory, beside the peer on one of the twenty."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions, RebuildOptions
from chronicle.rebuild import rebuild
from chronicle.storyline.source import StorylineDataSource
from tests.long import evidence
from tests.peer import PEER
from tests.process import command, environment

pytestmark = pytest.mark.long

DATASETS, FILES, STEPS, SEED = 20, 2_100, 24, 7
MEMORY_MB, OVERHEAD_MB = 500, 512
MEASURE = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.call(sys.argv[1:], stderr=subprocess.DEVNULL)
seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
told = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss // 1024}
sys.exit(code or sys.stderr.write(json.dumps(told)) * 0)
"""
"""A small process between: memory of the tests would be counted as that of what they start."""
STATEMENTS = {
    "count": "SELECT source, count(*) AS n FROM steps GROUP BY source",
    "tokens": "SELECT source, sum(json_number(metrics, '/prompt_tokens'))::BIGINT AS n FROM steps GROUP BY source",
    "words": "SELECT source, sum(length(message_value))::BIGINT AS n FROM steps GROUP BY source",
}
PEERS = STATEMENTS | {
    "tokens": "SELECT source, sum(json_get_int(metrics, 'prompt_tokens')) AS n FROM steps GROUP BY source",
    "words": "SELECT source, sum(length(message_value)) AS n FROM steps GROUP BY source",
}


def write_corpus(folder: Path) -> None:
    """ATIF files of about 55 KB with words, calls, results and metrics."""
    noise = random.Random(SEED)
    words = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=noise.randint(2, 10))) for _ in range(5_000)]
    folder.mkdir(parents=True)
    for number in range(FILES):
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": " ".join(noise.choices(words, k=60))}]
        for step in range(2, STEPS + 1):
            call = {
                "tool_call_id": f"c{step}",
                "function_name": "bash",
                "arguments": {"command": " ".join(noise.choices(words, k=20))},
            }
            result = {"source_call_id": f"c{step}", "content": " ".join(noise.choices(words, k=200))}
            head = {"step_id": step, "timestamp": f"2026-10-01T00:{step:02d}:00.000Z", "source": "agent"}
            spent = {"prompt_tokens": noise.randrange(100_000), "completion_tokens": noise.randrange(2_000)}
            text = " ".join(noise.choices(words, k=60))
            steps.append({**head, "message": text, "tool_calls": [call], "observation": {"results": [result]}, "metrics": spent})
        body = {"schema_version": "ATIF-v1.6", "session_id": f"s{number}", "agent": {"name": "b", "version": "1"}, "steps": steps}
        (folder / f"s{number}.json").write_text(json.dumps(body))


def make_lake(lake: Path, corpus: Path) -> DatasetPaths:
    """One dataset by ingest and rebuild, copied until there are twenty."""
    first = DatasetPaths(str(lake), "d00")
    ingest(IngestOptions(paths=first, sources=(str(corpus),)))
    rebuild(RebuildOptions(paths=first))
    for number in range(1, DATASETS):
        for layer in ("events", "storyline"):
            shutil.copytree(lake / layer / "d00", lake / layer / f"d{number:02d}")
    return first


def timed(arguments: list[str], turns: int = 3) -> tuple[dict[str, int], dict[str, Any]]:
    """Answers by source, and seconds and peak memory of the process with all below it, over some runs."""
    told = []
    for _ in range(turns):
        done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, env=environment(), check=True)
        told.append(json.loads(done.stderr.splitlines()[-1]))
    rows = map(json.loads, done.stdout.splitlines())
    middle = {name: round(statistics.median(each[name] for each in told), 3) for name in ("seconds", "cpu_seconds")}
    answers = {row["source"]: row.get("n") or 0 for row in rows}
    return answers, {**middle, "peak_mb": max(each["peak_mb"] for each in told)}


def warm(source: StorylineDataSource, sql: str, turns: int = 9) -> dict[str, float]:
    """Seconds of a statement in a process that has asked before: on the clock, and of all processors."""
    taken, used = [], []
    for _ in range(turns + 1):
        began, before = time.perf_counter(), time.process_time()
        source.sql(sql).to_table()
        taken.append(time.perf_counter() - began)
        used.append(time.process_time() - before)
    return {"seconds": round(statistics.median(taken[1:]), 3), "cpu_seconds": round(statistics.median(used[1:]), 3)}


def test_a_million_steps(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in")
    lake, store = tmp_path / "lake", tmp_path / "peer"
    first = make_lake(lake, tmp_path / "in")
    if PEER is not None:
        peer = [PEER, "import", "--from", str(tmp_path / "in"), "-o", "storyline", "--to", str(store)]
        subprocess.run(peer, capture_output=True, check=True, cwd=tmp_path, timeout=1_800)
    source = StorylineDataSource.open(first.storyline)
    found: dict[str, Any] = {"datasets": DATASETS, "steps": DATASETS * source.counts()["steps"], "memory_mb": MEMORY_MB}
    found["load"] = round(os.getloadavg()[0], 1)
    assert found["steps"] >= 1_000_000
    for name, sql in STATEMENTS.items():
        ask = [*command("query", sql, "--lake", lake, "--memory", f"{MEMORY_MB}MB", "--quiet")]
        everything, all_told = timed(ask)
        answers, told = timed([*ask, "--dataset", "d00"])
        assert everything == {who: DATASETS * count for who, count in answers.items()}
        assert all_told["peak_mb"] < MEMORY_MB + OVERHEAD_MB
        found[name] = {"lake": all_told, "dataset": told, "dataset_warm_in_python": warm(source, sql)}
        if PEER is not None:
            theirs, found[name]["pchronicle"] = timed([PEER, "query", str(store), "--sql", PEERS[name], "--format", "jsonl"])
            if name != "words":  # it stores messages without their quotes
                assert theirs == answers
    evidence.keep("query", found, seed=SEED)
    shutil.rmtree(lake)
