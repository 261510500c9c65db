"""A small lake to try laws on: files in a directory, the verbs, and what they left, as plain values."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from chronicle.events.log import RawEventLanceStore
from chronicle.events.record import EventRecord, parse
from chronicle.export import export
from chronicle.ingest import ingest
from chronicle.layout import TABLES, DatasetPaths
from chronicle.materialize import materialize
from chronicle.options import ExportOptions, IngestOptions, MaterializeOptions, RebuildOptions
from chronicle.rebuild import rebuild
from chronicle.reports import IngestReport, RebuildReport
from chronicle.storyline.source import StorylineDataSource
from tests.laws.contents import atif

ORDER = {
    "runs": ("storage_ordinal", "document_id"),
    "steps": ("document_id", "turn_ordinal"),
    "tool_calls": ("document_id", "step_id", "call_index"),
}


class Lake:
    """A lake in `root/lake`, sources in `root/in`. Verbs run in this process."""

    def __init__(self, root: Path, dataset: str = "d", inbox: Path | None = None) -> None:
        self.root = root
        self.inbox = inbox or root / "in"
        self.inbox.mkdir(parents=True, exist_ok=True)
        self.paths = DatasetPaths(str(root / "lake"), dataset)
        self._clock = 1_700_000_000
        self._written = 0.0

    @classmethod
    def of_two(cls, root: Path) -> Lake:
        """One with two stories of three turns, `a` and `b`, in facts and tables."""
        lake = cls(root)
        for name in ("a", "b"):
            lake.put(f"{name}.json", atif(name, 3))
        lake.ingest()
        lake.rebuild()
        return lake

    @property
    def store(self) -> RawEventLanceStore:
        return RawEventLanceStore(self.paths.events)

    def put(self, name: str, data: bytes) -> None:
        """Write a source file; each write has a modification time of its own, long ago."""
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._clock += 1
        os.utime(path, ns=(self._clock * 10**9 + 1, self._clock * 10**9 + 1))
        self._written = time.monotonic()

    def ingest(self, **options: Any) -> IngestReport:
        """Ingest the inbox, once its files are older than the clock's grain (else they are digested once more next time)."""
        time.sleep(max(0.0, self._written + 0.03 - time.monotonic()))
        return ingest(IngestOptions(paths=self.paths, sources=(str(self.inbox),), **options))

    def rebuild(self, *, full: bool = False) -> RebuildReport:
        return rebuild(RebuildOptions(paths=self.paths, full=full))

    def exact(self) -> dict[str, bytes]:
        """Relative path -> bytes of the exact export."""
        out = self.root / "exact"
        shutil.rmtree(out, ignore_errors=True)
        export(ExportOptions(paths=self.paths, to=str(out), exact=True))
        return tree(out)

    def exported(self, format: str) -> dict[str, bytes]:
        """Relative path -> bytes of an export of one format."""
        out = self.root / f"out-{format}"
        shutil.rmtree(out, ignore_errors=True)
        export(ExportOptions(paths=self.paths, to=str(out), format=format))
        return tree(out)

    def markdown(self) -> dict[str, bytes]:
        """Name -> bytes of the AgenticMD files, brought up to date first."""
        materialize(MaterializeOptions(paths=self.paths))
        return {name: data for name, data in tree(Path(self.paths.agenticmd)).items() if not name.startswith(".")}

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of the three tables, in the order of design 5.2."""
        source = StorylineDataSource.open(self.paths.storyline)
        return {
            name: sorted(getattr(source, name).to_table().to_pylist(), key=lambda row: [row[key] for key in ORDER[name]])
            for name in TABLES
        }

    def records(self) -> list[EventRecord]:
        """All facts in append order."""
        return [record for _, record in self.store.replay()]

    def append(self, records: list[bytes]) -> None:
        """Append facts as they are."""
        self.store.append(map(parse, records))


def tree(root: Path) -> dict[str, bytes]:
    """Relative path -> bytes of all files below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
