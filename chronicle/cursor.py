"""How far the tables are, and of which log: kept beside them by whoever commits (design 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chronicle.events import mark as marks
from chronicle.events.mark import LogMark
from chronicle.projection.sources import SourceFold
from chronicle.storage import files

if TYPE_CHECKING:
    from chronicle.events.snapshot import LogSnapshot
    from chronicle.layout import DatasetPaths


_BEGIN_BYTES = 4096
_FIRST_OF_THE_REST = b',"fact_version":'
"""Stands behind what `MadeFrom` holds, and in no JSON string."""


class MadeFrom(msgspec.Struct, kw_only=True):
    """What a cursor says of the log: other logs may have as many facts, and the same versions."""

    generation: str
    """The commit of the tables that it belongs to."""
    fact_rows: int
    log: LogMark | None = None
    """The end of the log as it was; None where it had no rows."""
    first_event: str = ""
    """Event id of its first row."""

    def is_of(self, snapshot: LogSnapshot) -> bool:
        """Whether the tables were made from this log, as it is or as it was.

        Reads two rows where the segment at its end was merged since, else none.
        """
        if self.log is None:
            return self.fact_rows == 0
        ends = self.log, LogMark(self.log.segment, 1, self.first_event)
        return 0 < self.fact_rows <= snapshot.fact_rows and all(marks.is_of(end, snapshot) for end in ends)


class Cursor(MadeFrom, kw_only=True):
    """How far the tables are: the facts they hold, the state of the fold there, and the commit that they stand in."""

    fact_version: int
    recipe: str
    fold: SourceFold
    strays: list[str] = []
    """Documents with rows in the log whose source is not whole yet."""


def first_event(snapshot: LogSnapshot) -> str:
    """Event id of the first row of a log; empty where there is none. Raises IntegrityError where it does not read."""
    return (snapshot.take([0], ["event_id"])["event_id"][0].as_py() or "") if snapshot.fact_rows else ""


def made_from(paths: DatasetPaths, generation: str) -> MadeFrom | None:
    """From what a commit of the tables was made; None where nobody says, or it is said of another commit.

    Reads the beginning of the cursor only: its fold grows with the sources.
    """
    begin = files.read(paths.projection, _BEGIN_BYTES) or b""
    text, mark, _ = begin.partition(_FIRST_OF_THE_REST)
    try:
        found = msgspec.json.decode(text + b"}" if mark else files.read(paths.projection) or b"", type=MadeFrom)
    except msgspec.MsgspecError:
        return None
    return found if found.generation == generation else None
