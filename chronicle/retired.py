"""What may be deleted, and since when nobody can reach it: `ops/<dataset>/retired/` (design 6).

A record is written before the swap that drops a thing, and on first sight of what a killed writer left. Its age is that of its
file, by the clock of the store; the data itself is never asked for a time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Literal

import msgspec

from chronicle.layout import is_safe_segment
from chronicle.storage import files

Kind = Literal["segment", "generation", "versions"]

_CLOCK = ".clock"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One thing: a segment of the log, a generation of the tables, or versions of one Lance dataset."""

    kind: Kind
    name: str
    """Segment id, generation, or what `versions` are of."""
    versions: tuple[int, ...] = ()
    was_visible: bool = False
    """A manifest or CURRENT named it once; else it is a leftover of a writer that never showed it."""

    @property
    def file(self) -> str:
        """Name of its file."""
        last = f"-{max(self.versions)}" if self.versions else ""
        return f"{self.kind}-{_UNSAFE.sub('_', self.name)}{last}.json"


class Noted(msgspec.Struct, frozen=True):
    """A record as it lies in the store, and when it was written (seconds since 1970, the store's clock)."""

    record: Record
    file: str
    since: float


class Retired:
    """The records of one dataset."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def note(self, records: Iterable[Record]) -> None:
        """Write records; one that is there already begins anew."""
        written = False
        for record in records:
            if not written:
                files.make_dirs(self.folder)
                written = True
            files.write_atomic(f"{self.folder}/{record.file}", msgspec.json.encode(record))

    def noted(self, *kinds: Kind) -> list[Noted]:
        """Records of some kinds. Files that are none of ours, or name what must not become a path, are passed over."""
        found = []
        for name in files.list_dir(self.folder):
            if name.startswith(kinds) and name.endswith(".json"):
                path = f"{self.folder}/{name}"
                data, since = files.read(path), files.modified(path)
                record = _decoded(data)
                if record is not None and record.file == name and since is not None:
                    found.append(Noted(record, name, since))
        return found

    def forget(self, noted: Noted) -> None:
        """Remove a record: its thing is gone, or can be reached."""
        files.remove(f"{self.folder}/{noted.file}")

    def now(self, *, dry_run: bool = False) -> float:
        """What the clock of the store says (seconds since 1970); a dry run writes nothing and takes that of this machine."""
        if dry_run:
            return time.time()
        files.make_dirs(self.folder)
        path = f"{self.folder}/{_CLOCK}"
        files.write_atomic(path, b"", durable=False)
        return files.modified(path) or time.time()


def _decoded(data: bytes | None) -> Record | None:
    try:
        record = msgspec.json.decode(data or b"", type=Record)
    except msgspec.MsgspecError:
        return None
    return record if all(map(is_safe_segment, record.name.split("/"))) else None
