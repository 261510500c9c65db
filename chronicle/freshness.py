"""Whether tables were made from all facts of their log (design 5.2)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from chronicle.cursor import made_from
from chronicle.errors import ChronicleError
from chronicle.plural import counted

if TYPE_CHECKING:
    from chronicle.discovery import Location
    from chronicle.events.log import LogSnapshot
    from chronicle.layout import DatasetPaths
    from chronicle.storyline.current import Snapshot
    from chronicle.storyline.source import StorylineDataSource

FRESH = "fresh"
STALE = "stale"
MISSING = "missing"


def freshness(source: StorylineDataSource | None, snapshot: LogSnapshot, paths: DatasetPaths | None) -> str:
    """Whether tables were made from all facts of a log: `fresh`, `stale by <n> facts` or `missing`.

    Just `stale` where nobody can say by how much: the tables do not say what they were made from, or from more than this, or
    from another log that had the same name (`rebuild` asks the same). A lake may move, so the place of the log does not count.
    """
    return MISSING if source is None else _freshness(source.snapshot, snapshot, paths)


def freshness_of(paths: DatasetPaths) -> str:
    """The same of a dataset as it lies now, without a look at its tables; empty where that does not read."""
    from chronicle.events.log import RawEventLanceStore
    from chronicle.storyline.store import StorylineLanceStore

    log = RawEventLanceStore(paths.events)
    try:
        current = StorylineLanceStore(paths.storyline).current()
        if current is None or not log.exists():
            return MISSING
        return _freshness(current.committed, log.snapshot(), paths)
    except ChronicleError:  # it is said by whoever needs it
        return ""


def _freshness(tables: Snapshot, snapshot: LogSnapshot, paths: DatasetPaths | None) -> str:
    lineage = tables.projection
    lineage_source = lineage.source if lineage is not None else None
    if lineage_source is None or lineage_source.fact_rows is None:
        return STALE
    cursor = made_from(paths, tables.generation) if paths is not None else None
    if cursor is not None and not cursor.is_of(snapshot):
        return STALE
    if (lineage_source.fact_version, lineage_source.fact_rows) == (snapshot.fact_version, snapshot.fact_rows):
        return FRESH
    behind = snapshot.fact_rows - lineage_source.fact_rows
    return f"{STALE} by {counted(behind, 'fact')}" if behind > 0 else STALE


def stale_tables(opened: Iterable[tuple[Location, StorylineDataSource]]) -> list[str]:
    """One sentence about tables that were not made from all facts, and by how much; none where all are fresh."""
    from chronicle.events.log import RawEventLanceStore

    stale = []
    for place, source in opened:
        with suppress(ChronicleError):  # tables without a log that reads are still tables
            found = freshness(source, RawEventLanceStore(place.events).snapshot(), place.paths)
            if found != FRESH:
                stale.append(f"{place.name} ({found})")
    return [not_from_all_facts(stale)] if stale else []


def not_from_all_facts(stale: Iterable[str]) -> str:
    """What is said of datasets, `name (freshness)`, whose tables are behind."""
    return f"not from all facts: {', '.join(stale)}; run `chronicle rebuild`"
