"""Ten thousand runs taken out in every way: memory does not grow with them, and nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import measure
from tests.long import evidence
from tests.process import command

pytestmark = pytest.mark.long

FEW, MANY = 1_000, 10_000
SPARE_BYTES = 120 << 20
"""Far less than nine thousand runs of the corpus hold."""
TEXT = "word " * 800


def documents(count: int) -> Iterator[bytes]:
    """ATIF documents of about 20 KB, one a line."""
    for number in range(count):
        steps = [
            {"step_id": n, "source": "agent", "message": f"{number} {TEXT}", "is_copied_context": n == 1, "llm_call_count": n % 2}
            for n in range(1, 6)
        ]
        agent = {"name": f"agent-{number % 7}", "version": "1"}
        body = {"schema_version": "ATIF-v1.7", "session_id": f"s{number}", "agent": agent, "steps": steps}
        yield json.dumps(body, separators=(",", ":")).encode()


def lake(root: Path, count: int) -> tuple[object, ...]:
    """A lake with so many runs in one source of JSON lines; the flags that name it."""
    source = root / "runs.jsonl"
    source.write_bytes(b"".join(line + b"\n" for line in documents(count)))
    where = ("--lake", root / "lake", "--dataset", "d")
    measure.run(command("ingest", source, *where))
    measure.run(command("rebuild", *where))
    return where


WAYS: dict[str, tuple[object, ...]] = {
    "sources": ("--format", "atif"),
    "other format": ("--format", "openai_msg"),
    "files": ("--format", "storyline", "--where", "true"),
    "lines": ("--format", "atif", "--where", "agent_id <> 'agent-3'"),
    "training": ("--format", "openai_msg", "--skip-copied", "--skip-zero-llm"),
    "markdown": ("--format", "agenticmd"),
    "parquet": ("--format", "parquet"),
}


def test_memory_is_flat_and_nothing_is_lost(tmp_path: Path) -> None:
    lakes = {count: lake(tmp_path / str(count), count) for count in (FEW, MANY) if not (tmp_path / str(count)).mkdir()}
    used: dict[str, dict[str, float]] = {}
    for way, flags in WAYS.items():
        peaks = {}
        for count, where in lakes.items():
            to = tmp_path / f"{way}-{count}"
            target = f"{to}.jsonl" if way in ("lines", "training") else to
            taken = measure.run(command("export", *flags, "--to", target, *where))
            report = json.loads(taken.out)
            due = sum(number % 7 != 3 for number in range(count)) if way == "lines" else count
            assert report["stories"] == due
            assert report["turns_left_out"] == (3 * count if way == "training" else 0)
            peaks[count] = taken.peak_bytes
            used[f"{way} {count}"] = {"seconds": round(taken.seconds, 2), "peak_mb": taken.peak_bytes >> 20}
        assert peaks[MANY] < peaks[FEW] + SPARE_BYTES, way
    assert (tmp_path / f"sources-{MANY}/{MANY}/runs.jsonl").read_bytes() == (tmp_path / str(MANY) / "runs.jsonl").read_bytes()
    lines = Path(f"{tmp_path}/lines-{MANY}.jsonl").read_bytes().splitlines()
    assert lines == [line for number, line in enumerate(documents(MANY)) if number % 7 != 3]
    assert len(list((tmp_path / f"files-{MANY}").iterdir())) == MANY
    evidence.keep("export", {"runs": [FEW, MANY], "used": used})
