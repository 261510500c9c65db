"""Every path of a lake (design 3), and the names that may become part of one.

Layer first, so that lifecycle rules and permissions can be set by prefix.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection

import msgspec

from chronicle.errors import IntegrityError, UsageError

_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_SAFE = (string.ascii_letters + string.digits + "._-").encode()

MANIFEST = "_manifest.json"
MANIFEST_LOCK = "_manifest.lock"
CURRENT = "CURRENT"
STORYLINE_LOCK = ".storyline-write.lock"
TABLES = ("runs", "steps", "tool_calls")


def is_safe_segment(name: str) -> bool:
    """Whether a name may become one path segment: `[A-Za-z0-9._-]{1,128}`, never `.` or `..`."""
    return bool(_SEGMENT.match(name)) and name not in {".", ".."}


def are_safe_segments(names: Collection[str]) -> bool:
    """`is_safe_segment` of all of them, in a fraction of the time where they are many."""
    if not names:
        return True
    lengths = list(map(len, names))
    if not 0 < min(lengths) <= max(lengths) <= 128 or "." in names or ".." in names:
        return False
    text = "".join(names)
    return text.isascii() and not text.encode().translate(None, _SAFE)


def check_id(name: str, what: str) -> str:
    """Return an id that came out of a file, or raise IntegrityError before anybody joins or deletes it."""
    if not is_safe_segment(name):
        raise IntegrityError(f"{what} {name!r} is not a safe path segment", hint="restore the file that names it", id=name)
    return name


def check_dataset(name: str) -> str:
    """Return a dataset name, or raise UsageError: segments of `[A-Za-z0-9._-]`, none `.`, `..` or ending in `.lance`."""
    segments = name.split("/")
    if not all(is_safe_segment(s) and not s.endswith(".lance") for s in segments):
        raise UsageError(
            f"dataset name {name!r} is not allowed",
            hint="use letters, digits, '.', '_' and '-', with '/' between segments, none of them '.', '..' or ending in '.lance'",
        )
    return name


class DatasetPaths(msgspec.Struct, frozen=True):
    """The places of one dataset. `lake` has no trailing slash."""

    lake: str
    dataset: str

    def __post_init__(self) -> None:
        check_dataset(self.dataset)

    @property
    def events(self) -> str:
        """The facts: `events.lance` with its manifest."""
        return f"{self.lake}/events/{self.dataset}/events.lance"

    @property
    def storyline(self) -> str:
        """Root of the three tables, with CURRENT."""
        return f"{self.lake}/storyline/{self.dataset}"

    @property
    def agenticmd(self) -> str:
        """Directory of the AgenticMD files and their `.index.json`."""
        return f"{self.lake}/agenticmd/{self.dataset}"

    @property
    def ops(self) -> str:
        """Everything an operator looks at."""
        return f"{self.lake}/ops/{self.dataset}"

    @property
    def receipts(self) -> str:
        """A fold of the source facts, for fast skips."""
        return f"{self.ops}/receipts.lance"

    @property
    def quarantine(self) -> str:
        """What could not be read, with the reason."""
        return f"{self.ops}/quarantine"

    @property
    def retired(self) -> str:
        """What may be deleted, and since when nobody can reach it."""
        return f"{self.ops}/retired"

    @property
    def reports(self) -> str:
        """One JSON for each finished verb."""
        return f"{self.ops}/reports"

    @property
    def projection(self) -> str:
        """Cursor of the tables."""
        return f"{self.ops}/projection.json"

    @property
    def run(self) -> str:
        """The run that is at work."""
        return f"{self.ops}/run.json"


def remedy(path: str) -> str:
    """What to do about data at a path that does not read: facts can only be restored, everything else be made again."""
    if "/events.lance" not in path:
        if "/receipts.lance" in path:
            return "make them anew from facts with `chronicle receipts rebuild`"
        if "/storyline/" in path:
            return "make the tables anew with `chronicle rebuild --full`"
    return "restore the files of this dataset"


def segment_path(events: str, segment_id: str) -> str:
    """Lance dataset of one segment of a log."""
    return f"{events}/segments/{check_id(segment_id, 'segment id')}.lance"


def going_path(events: str, segment_id: str) -> str:
    """Mark beside a segment that vacuum is about to remove: who sees it must not publish that segment any more."""
    return f"{events}/segments/.{check_id(segment_id, 'segment id')}.going"


def generation_path(storyline: str, generation: str, table: str) -> str:
    """Lance dataset of one table of one generation."""
    return f"{storyline}/generations/{check_id(generation, 'table generation')}/{table}.lance"


def last_state_path(storyline: str, generation: str) -> str:
    """What was visible last of a generation, written when another one takes its place."""
    return f"{storyline}/generations/{check_id(generation, 'table generation')}/last.json"


def objects_path(storyline: str) -> str:
    """Content-addressed blobs of a Storyline store."""
    return f"{storyline}/objects.lance"
