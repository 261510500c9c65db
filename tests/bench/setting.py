"""What all groups of bars share: where they work, how large, how often, and how they call who takes part."""

from __future__ import annotations

import filecmp
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench import corpus
from tests.bench.measure import Turns, Used, run
from tests.peer import PEER

CHRONICLE = str(Path(sys.executable).with_name("chronicle"))


@dataclass(slots=True)
class Setting:
    """One run of the benchmarks, in the directory `root`."""

    root: Path
    quick: bool
    turns: int

    def size(self, full: int) -> int:
        """So many, or a hundredth of it (20 at least) in a quick run."""
        return max(20, full // 100) if self.quick else full

    def judged(self, holds: bool) -> bool | None:
        """Whether a bar holds; a quick run says nothing about it."""
        return None if self.quick else holds

    def take(self, work: Mapping[str, Callable[[], Used | None]], times: int = 1) -> Turns:
        """Do each work in turns, `times` as often as a bar is measured in general; quick runs do it once and have no warm-up."""
        return Turns().take(work, turns=1 if self.quick else times * self.turns, warm_up=0 if self.quick else 1)

    def folder(self, name: str) -> Path:
        """A new empty directory."""
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def corpus(self) -> Path:
        """The corpus of the speed bars, made at the first call."""
        path = self.root / "corpus"
        if not path.exists():
            corpus.write(path, self.size(corpus.DOCUMENTS))
        return path


def chronicle(verb: str, *arguments: object, lake: object, dataset: str = "d", **settings: object) -> Used:
    """One verb as a cold process."""
    words = [CHRONICLE, verb, *arguments, "--lake", lake, "--dataset", dataset]
    return run(words if verb == "query" else [*words, "--json"], settings=settings)


def peer_import(source: Path, to: Path) -> Used | None:
    """The peer's import of a directory into a store of its own, with the indices that it builds; None where it is not there."""
    if PEER is None:
        return None
    shutil.rmtree(to, ignore_errors=True)
    beside = to.parent / f"{to.name}.beside"  # it leaves a log and a journal where it was started
    beside.mkdir(parents=True, exist_ok=True)
    return run([PEER, "import", "--from", source, "-o", "storyline", "--to", to], cwd=beside)


def same_bytes(source: Path, export: Path) -> bool:
    """Whether an exact export of the directory `source` alone holds the same files with the same bytes."""
    came, went = (
        {str(file.relative_to(root)): file for file in root.rglob("*") if file.is_file()}
        for root in (source, export / source.name)
    )
    return came.keys() == went.keys() and all(filecmp.cmp(file, went[name], shallow=False) for name, file in came.items())


def tree_bytes(path: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
