"""Knowing a log again: who keeps something derived from a log notes how far it read, and asks later whether this is that log.

Rows are only ever added at the end, and merging keeps their order. So a log is the one that was read if the last row of what was
read still has its event id; the id of a segment is never given twice and says the same without reading a row. So a log that was
restored from an older backup, or begun anew under the same name, is found out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chronicle.errors import IntegrityError, NotFoundError

if TYPE_CHECKING:
    from chronicle.events.snapshot import LogSnapshot


class LogMark(msgspec.Struct, frozen=True):
    """A place in a log: the end of a segment."""

    segment: str
    rows: int
    """Rows of the log up to there."""
    event_id: str
    """Of the last of them; empty where it has none."""


def mark_of(snapshot: LogSnapshot) -> LogMark | None:
    """The end of a log; None where it has no rows. Raises IntegrityError where the last one does not read."""
    if not snapshot.fact_rows:
        return None
    return LogMark(snapshot.segments[-1].id, snapshot.fact_rows, _event_id(snapshot, snapshot.fact_rows))


def is_of(mark: LogMark, snapshot: LogSnapshot) -> bool:
    """Whether a mark was made in this log. A row is read only where its segment was merged since; of one that does not
    read nobody can say that it is another."""
    if mark.segment in (segment.id for segment in snapshot.segments):
        return True
    if not 0 < mark.rows <= snapshot.fact_rows:
        return False
    try:
        return _event_id(snapshot, mark.rows) == mark.event_id
    except (IntegrityError, NotFoundError):
        return True


def _event_id(snapshot: LogSnapshot, rows: int) -> str:
    return snapshot.take([rows - 1], ["event_id"])["event_id"][0].as_py() or ""
