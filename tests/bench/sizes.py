"""Sources at the limits through ingest, rebuild and exact export, checked byte for byte, with the peak memory of each process."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator

from tests.bench.report import Bar
from tests.bench.setting import Setting, chronicle, same_bytes

HEAD = b'{"schema_version":"ATIF-v1.7","session_id":"big","agent":{"name":"p","version":"1"},"steps":['
CASES = {
    "one step of 64 MiB": (2, 64 << 20),
    "100,000 steps": (100_000, 1_000),
    "a million steps": (1_000_000, 60),
    "1 GB": (1_000, 1_000_000),
    "nearly 2 GiB": (2_000, 1 << 20),
}
"""Steps, and bytes of the message of each."""
MORE_BYTES = 600 << 20


def bars(setting: Setting) -> Iterator[Bar]:
    """One bar: case 80 of the conformance list at full size."""
    bar = Bar("Sources at the limits", "taken in, projected and given back byte for byte in 1.5x of the source and 600 MiB")
    within: list[bool] = []
    for name, (count, size) in CASES.items():
        root = setting.folder("sizes")
        source, lake = root / "in/big.json", root / "lake"
        source.parent.mkdir()
        shrunk = (count, size // 100) if setting.quick and count < 1_000 else (count // (100 if setting.quick else 1), size)
        with source.open("wb") as file:
            file.writelines(steps(*shrunk))
        length = source.stat().st_size
        for verb, *arguments in (("ingest", source), ("rebuild",), ("export", "--exact", "--to", root / "out")):
            bar.turns.note(f"{verb} {name}", used := chronicle(verb, *arguments, lake=lake))
            within.append(used.peak_bytes <= 1.5 * length + MORE_BYTES)
        assert same_bytes(source.parent, root / "out"), f"{name}: the export is not what came in"
        bar.figures[name] = f"{length / 1e6:.0f} MB"
        shutil.rmtree(root)
    bar.met = setting.judged(all(within))
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
