"""What takes long or only prints numbers: `make bench`, or `python -m tests.bench sizes|speed [--quick]`.

sizes: sources at the limits (a document of a million steps, one step of 64 MiB, a file of nearly 2 GiB) through ingest, rebuild
and exact export, checked byte for byte, with the peak memory of each process. speed: ingest and rebuild of a generated corpus
beside the peer's import.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.peer import PEER

HEAD = b'{"schema_version":"ATIF-v1.7","session_id":"big","agent":{"name":"p","version":"1"},"steps":['


def steps(count: int, size: int) -> Iterator[bytes]:
    """A document of `count` steps with messages of `size` bytes, in chunks."""
    yield HEAD
    rnd = random.Random(7)
    filler = bytes(rnd.choices(b"abcdefghijklmnop qrstuvwxyz", k=1 << 16)) * (size // (1 << 16) + 1)
    for number in range(1, count + 1):
        at = rnd.randrange(1 << 15)
        source = b"user" if number == 1 else b"agent"
        comma = b"," if number > 1 else b""
        yield b'%b{"step_id":%d,"source":"%b","message":"%b"}' % (comma, number, source, filler[at : at + size])
    yield b"]}"


def verb(*arguments: str) -> tuple[float, int]:
    """Run a verb as a process of its own; (seconds, peak MiB)."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("chronicle")), *arguments, "--json"]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with {child.returncode}: {said.read().decode()}")
    return time.perf_counter() - began, usage.ru_maxrss // 1024


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def sizes(root: Path, *, quick: bool) -> None:
    """Case 80 of the conformance list at full size."""
    shrink = 100 if quick else 1
    cases: dict[str, tuple[int, int]] = {
        "one step of 64 MiB": (2, (64 << 20) // shrink),
        "a million steps": (1_000_000 // shrink, 60),
        "nearly 2 GiB": (2_000 // shrink, 1_048_576),
    }
    print("| source | MB | ingest s | MiB | rebuild s | MiB | export s | MiB |\n|---|---|---|---|---|---|---|---|")
    for name, (count, size) in cases.items():
        source, lake, out = root / "in" / "big.json", root / "lake", root / "out"
        source.parent.mkdir(parents=True, exist_ok=True)
        with source.open("wb") as file:
            file.writelines(steps(count, size))
        where = ("--lake", str(lake), "--dataset", "d")
        cells = [verb("ingest", str(source), *where), verb("rebuild", *where)]
        cells.append(verb("export", "--exact", "--to", str(out), *where))
        assert digest(out / "in" / "big.json") == digest(source), f"{name}: the export is not what came in"
        numbers = " | ".join(f"{seconds:.1f} | {peak}" for seconds, peak in cells)
        print(f"| {name} | {source.stat().st_size / 1e6:.0f} | {numbers} |", flush=True)
        shutil.rmtree(root)


def corpus(root: Path, files: int) -> None:
    """Small ATIF files of random words."""
    rnd = random.Random(7)
    words = ["".join(rnd.choices("abcdefghijklmnopqrstuvwxyz", k=rnd.randint(2, 10))) for _ in range(5_000)]
    root.mkdir(parents=True)
    for number in range(files):
        made = []
        for step in range(1, rnd.randint(8, 40)):
            arguments = {"command": " ".join(rnd.choices(words, k=20))}
            call = {"tool_call_id": f"c{step}", "function_name": "bash", "arguments": arguments}
            result = {"source_call_id": f"c{step}", "content": " ".join(rnd.choices(words, k=200))}
            head = {"step_id": step, "timestamp": f"2026-10-01T00:{step:02d}:00.000Z", "source": "agent"}
            text = " ".join(rnd.choices(words, k=60))
            made.append({**head, "message": text, "tool_calls": [call], "observation": {"results": [result]}})
        body = {"schema_version": "ATIF-v1.6", "session_id": f"s{number}", "agent": {"name": "b", "version": "1"}, "steps": made}
        (root / f"s{number}.json").write_text(json.dumps(body))


def speed(root: Path, *, quick: bool) -> None:
    """Ours beside the peer's import of the same files, run in turns."""
    files = 100 if quick else 2_000
    corpus(root / "in", files)
    runs: dict[str, list[float]] = {"chronicle ingest + rebuild": [], "pchronicle import": []}
    for turn in range(1 if quick else 3):
        lake = root / f"lake{turn}"
        where = ("--lake", str(lake), "--dataset", "d")
        runs["chronicle ingest + rebuild"].append(verb("ingest", str(root / "in"), *where)[0] + verb("rebuild", *where)[0])
        if PEER is not None:
            began = time.perf_counter()
            command = [PEER, "import", "--from", str(root / "in"), "-o", "storyline", "--to", str(root / f"peer{turn}")]
            subprocess.run(command, capture_output=True, check=True, cwd=root)
            runs["pchronicle import"].append(time.perf_counter() - began)
    size = sum(path.stat().st_size for path in (root / "in").iterdir()) / 1e6
    print(f"{files} files, {size:.0f} MB")
    for name, seconds in runs.items():
        if seconds:
            median = statistics.median(seconds)
            print(f"{name}: median {median:.2f} s of {len(seconds)}, {min(seconds):.2f} to {max(seconds):.2f}")
    ours, peer = (statistics.median(seconds) if seconds else 0.0 for seconds in runs.values())
    if peer:
        print(f"ratio {peer / ours:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("sizes", "speed"))
    parser.add_argument("--quick", action="store_true", help="a hundredth of the sizes")
    options = parser.parse_args()
    parts: dict[str, Callable[..., None]] = {"sizes": sizes, "speed": speed}
    for name, part in parts.items():
        if options.part in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder) / "work", quick=options.quick)


if __name__ == "__main__":
    main()
