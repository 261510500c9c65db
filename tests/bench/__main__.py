"""The benchmarks: `make bench`, or `python -m tests.bench [GROUP …] [--quick] [--turns N] [--to DIR]`.

Each bar of the design is measured side by side in one run: ours, the floor that Python has, and the peer where it does the same
work. Groups: peer, writing, large, store, growth, sizes; `speed` stands for the first four. With every group the result replaces
docs/benchmarks.md and .json; with fewer, or with --quick, it is printed, and written only where --to says; bars that stand there
and were not measured are kept, with their date. --quick: a hundredth of the sizes, and no bar judged.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import growth, large, report, sizes, store, writing
from tests.bench.report import Bar
from tests.bench.setting import Setting
from tests.process import REPOSITORY

SPEED: dict[str, Callable[[Setting], Iterator[Bar]]] = {
    "peer": writing.beside_the_peer,
    "writing": writing.bars,
    "large": large.bars,
    "store": store.bars,
}
PACKAGES = ("chronicle", "flows", "tasks", "infra")
GROUPS = {**SPEED, "growth": growth.bars, "sizes": sizes.bars}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*GROUPS, "speed", []], help="groups of bars; all where none is named")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the sizes, one turn")
    parser.add_argument("--turns", type=int, default=5, help="how often each is run, after a warm-up")
    parser.add_argument("--to", type=Path, help="directory for benchmarks.md and benchmarks.json")
    options = parser.parse_args()
    parts = set(options.parts or GROUPS) | (SPEED.keys() if "speed" in options.parts else set())
    # As an installed package is: where Python may not write bytecode, every process would compile our modules anew.
    subprocess.run([sys.executable, "-m", "compileall", "-q", *PACKAGES], cwd=REPOSITORY, check=True)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        setting = Setting(Path(folder), options.quick, 1 if options.quick else options.turns)
        found = report.document(list(_measured(setting, parts)), quick=options.quick, load=load)
    print(report.markdown(found))
    is_whole = parts >= GROUPS.keys() and not options.quick
    if options.to or is_whole:
        report.write(options.to or REPOSITORY / "docs", found)


def _measured(setting: Setting, parts: set[str]) -> Iterator[Bar]:
    began = time.monotonic()
    for name, bars in GROUPS.items():
        for bar in bars(setting) if name in parts else ():
            print(f"{time.monotonic() - began:7.1f} s  {bar.name}", flush=True)
            yield bar


if __name__ == "__main__":
    main()
