"""Sources at the limits through ingest, rebuild and exact export, checked byte for byte, with the peak memory of each process."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.bench.report import Bar
from tests.bench.setting import Setting, chronicle

HEAD = b'{"schema_version":"ATIF-v1.7","session_id":"big","agent":{"name":"p","version":"1"},"steps":['
CASES = {"one step of 64 MiB": (2, 64 << 20), "a million steps": (1_000_000, 60), "nearly 2 GiB": (2_000, 1 << 20)}
"""Steps, and bytes of the message of each."""


def bars(setting: Setting) -> Iterator[Bar]:
    """One bar: case 80 of the conformance list at full size."""
    bar = Bar("Sources at the limits", "taken in, projected and given back byte for byte")
    for name, (count, size) in CASES.items():
        root = setting.folder("sizes")
        source, lake = root / "in/big.json", root / "lake"
        source.parent.mkdir()
        shrunk = (count, size // 100) if setting.quick and count < 1_000 else (count // (100 if setting.quick else 1), size)
        with source.open("wb") as file:
            file.writelines(steps(*shrunk))
        bar.turns.note(f"ingest {name}", chronicle("ingest", source, lake=lake))
        bar.turns.note(f"rebuild {name}", chronicle("rebuild", lake=lake))
        bar.turns.note(f"export {name}", chronicle("export", "--exact", "--to", root / "out", lake=lake))
        assert digest(root / "out/in/big.json") == digest(source), f"{name}: the export is not what came in"
        bar.figures[name] = f"{source.stat().st_size / 1e6:.0f} MB"
        shutil.rmtree(root)
    bar.met = True
    yield bar


def steps(count: int, size: int) -> Iterator[bytes]:
    """A document of `count` steps with messages of `size` bytes, in chunks."""
    yield HEAD
    noise = random.Random(7)
    filler = bytes(noise.choices(b"abcdefghijklmnop qrstuvwxyz", k=1 << 16)) * (size // (1 << 16) + 1)
    for number in range(1, count + 1):
        at = noise.randrange(1 << 15)
        source = b"user" if number == 1 else b"agent"
        comma = b"," if number > 1 else b""
        yield b'%b{"step_id":%d,"source":"%b","message":"%b"}' % (comma, number, source, filler[at : at + size])
    yield b"]}"


def digest(path: Path) -> str:
    """Of the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
