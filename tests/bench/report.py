"""What a run of the benchmarks found, as JSON and as a Markdown table."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.measure import Turns
from tests.peer import PEER

PACKAGES = ("pylance", "pyarrow", "duckdb", "msgspec", "prefect")
NAME = "benchmarks"


@dataclass(slots=True)
class Bar:
    """One bar of design 12: what was wanted, what was measured side by side, and whether it holds."""

    name: str
    wanted: str
    turns: Turns = field(default_factory=Turns)
    figures: dict[str, Any] = field(default_factory=dict)
    """What is no time: ratios, bytes, requests, rows."""
    met: bool | None = None
    """None where it could not be judged here (no peer, no S3 server), or where sizes were small."""


def machine() -> dict[str, Any]:
    """The shape of the machine and the versions of what took part; no names."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    if PEER is not None:
        said = subprocess.run([PEER, "--version"], capture_output=True, text=True, check=True).stdout.split()
        versions["pchronicle"] = said[-1]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }


def document(bars: list[Bar], *, quick: bool, load: float) -> dict[str, Any]:
    """Everything as one JSON value. `load`: the load average before the first run."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "date": date,
        "quick": quick,
        "load_before": round(load, 2),
        "machine": machine(),
        "bars": [{**asdict(bar), "turns": bar.turns.said(), "date": date} for bar in bars],
    }


def with_others(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What was found, and the bars that were not measured this time as they stood, if the machine is of the same shape."""
    if before["machine"] != found["machine"] or before["quick"]:
        return found
    new = {bar["name"]: bar for bar in found["bars"]}
    bars = [new.pop(bar["name"], {"date": before["date"], **bar}) for bar in before["bars"]]
    return {**found, "bars": [*bars, *new.values()]}


def write(folder: Path, found: dict[str, Any]) -> None:
    """Write `benchmarks.json` and `benchmarks.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    if path.exists():
        found = with_others(found, json.loads(path.read_text()))
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (folder / f"{NAME}.md").write_text(markdown(found))


def markdown(found: dict[str, Any]) -> str:
    """The page for readers."""
    shape = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found["machine"].items())
    size = "A hundredth of the sizes: a check that everything runs, no measurement.\n\n" if found["quick"] else ""
    parts = [
        "# Benchmarks\n\n"
        "Made by `make bench`. What stands in one table ran in turns on one machine, with one warm-up turn that does not count;\n"
        "seconds are medians, with the fastest and the slowest run. CPU is that of a process and its children, memory the\n"
        "highest sum over its process tree.\n\n"
        f"{size}{found['date']}; {shape}; load before: {found['load_before']}.\n"
    ]
    return "".join(parts) + "".join(_section(bar, found["date"]) for bar in found["bars"])


def _section(bar: dict[str, Any], date: str) -> str:
    met = {True: "holds", False: "**does not hold**", None: "not judged"}[bar["met"]]
    when = "" if bar["date"] == date else f" Measured {bar['date']}."
    lines = [f"\n## {bar['name']}\n", f"Bar: {bar['wanted']}: {met}.{when}\n"]
    if bar["turns"]:
        lines += ["| | runs | seconds | from | to | CPU seconds | peak MiB |", "|---|---|---|---|---|---|---|"]
        for name, said in bar["turns"].items():
            cells = (said[key] for key in ("runs", "seconds", "from", "to", "cpu_seconds", "peak_mib"))
            lines.append(f"| {name} | {' | '.join(str(cell) if cell else '' for cell in cells)} |")
    if bar["figures"]:
        lines.append("")
        lines += (f"* {name.replace('_', ' ')}: {_said(value)}" for name, value in bar["figures"].items())
    return "\n".join(lines) + "\n"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
