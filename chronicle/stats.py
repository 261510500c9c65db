"""list and stats: what a lake and a dataset hold, and whether what is derived is fresh (design 5.2, 8)."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from chronicle.discovery import Location, check_lake, expand_story_locations
from chronicle.errors import ChronicleError
from chronicle.freshness import FRESH, MISSING, STALE, freshness
from chronicle.health import health, lag_seconds, tables_written_ms
from chronicle.layout import DatasetPaths
from chronicle.materialize import Index, read_index
from chronicle.reports import Report
from chronicle.storage import files

if TYPE_CHECKING:
    from chronicle.events.log import LogSnapshot
    from chronicle.storyline.source import StorylineDataSource

class DatasetSummary(msgspec.Struct, kw_only=True):
    """One dataset of a lake. Counts of tables are None where there are none."""

    dataset: str
    fact_version: int = 0
    fact_rows: int = 0
    segments: int = 0
    stories: int | None = None
    steps: int | None = None
    tool_calls: int | None = None
    freshness: str = ""
    """Of the tables: `fresh`, `stale by <n> facts` or `missing`."""
    quarantined: int = 0
    bytes: int = 0
    """Of all files of the dataset, facts and derived."""
    error: str = ""
    """Why the dataset does not read; the counts are then 0."""


class LakeReport(Report, kw_only=True):
    """Datasets of a lake in order of their names."""

    verb: str = "list"
    lake: str = ""
    datasets: list[DatasetSummary] = []


class StatsReport(Report, kw_only=True):
    """What one dataset holds. Bytes as they lie; times in ms since 1970, None where there are no facts."""

    verb: str = "stats"
    fact_version: int = 0
    fact_rows: int = 0
    segments: int = 0
    sessions: int = 0
    first_unix_ms: int | None = None
    last_unix_ms: int | None = None
    ingested_unix_ms: int | None = None
    """When a source was last read."""
    tables_unix_ms: int | None = None
    """When the tables were last written."""
    lag_seconds: float | None = None
    """How much older the tables are than the newest facts; 0 where they are fresh, None where there are none."""
    kinds: dict[str, int] = {}
    """Facts by kind."""
    sources: int = 0
    """Source keys that hold something now."""
    sources_incomplete: int = 0
    """Readings that were begun and never ended."""
    formats: dict[str, int] = {}
    """Current sources by format."""
    freshness: str = ""
    """Of the tables: `fresh`, `stale by <n> facts` or `missing`."""
    stories: int | None = None
    steps: int | None = None
    tool_calls: int | None = None
    lints: dict[str, int] = {}
    """What is odd about the stories in the tables, by code."""
    markdown: str = ""
    """`fresh`, `stale` or `missing`."""
    markdown_files: int = 0
    quarantined: int = 0
    quarantine_kinds: dict[str, int] = {}
    bytes: dict[str, int] = {}
    """By layer: events, storyline, agenticmd, quarantine, and the rest of ops."""
    retired_bytes: int = 0
    """Of these, what nobody can reach any more."""
    hints: list[str] = []
    """What is not as well as it could be, and the command for it."""


def list_lake(lake: str) -> LakeReport:
    """Summarise every dataset below a lake; one that does not read is listed with its error.

    Reads manifests and metadata, no facts. Raises NotFoundError where the lake does not exist.
    """
    began = time.monotonic()
    check_lake(lake)
    report = LakeReport(lake=lake, datasets=[_summary(place) for place in expand_story_locations(lake)])
    report.warnings += (f"{dataset.dataset}: {dataset.error}" for dataset in report.datasets if dataset.error)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def stats(paths: DatasetPaths) -> StatsReport:
    """Count what a dataset holds. Reads three small columns of all facts.

    Raises NotFoundError where there is no such dataset, IntegrityError where its facts or tables do not read.
    """
    from chronicle import facts
    from chronicle.quarantine import Quarantine

    began = time.monotonic()
    snapshot = facts.pin(paths)
    counted, fold = snapshot.stats(), facts.source_fold(snapshot)
    known = (fold.known.get(receipt.source_id) for receipt in fold.current.values())
    report = StatsReport(
        dataset=paths.dataset,
        fact_version=snapshot.fact_version,
        fact_rows=counted.rows,
        segments=counted.segments,
        sessions=counted.sessions,
        first_unix_ms=counted.first_unix_ms,
        last_unix_ms=counted.last_unix_ms,
        ingested_unix_ms=counted.imported_unix_ms,
        tables_unix_ms=tables_written_ms(paths),
        kinds=counted.kinds,
        sources=len(fold.current),
        sources_incomplete=len(fold.begun),
        formats=dict(sorted(Counter(source.format for source in known if source is not None).items())),
        quarantine_kinds=dict(sorted(Counter(entry.kind for entry in Quarantine(paths).entries.values()).items())),
        bytes=_bytes(paths),
    )
    report.quarantined = sum(report.quarantine_kinds.values())
    _add_tables(report, paths, snapshot)
    _add_markdown(report, read_index(paths), snapshot)
    _add_health(report, paths)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _summary(place: Location) -> DatasetSummary:
    from chronicle.events.log import RawEventLanceStore

    summary = DatasetSummary(dataset=place.name)
    try:
        snapshot = RawEventLanceStore(place.events).snapshot()
        summary.fact_version, summary.fact_rows = snapshot.fact_version, snapshot.fact_rows
        summary.segments = len(snapshot.segments)
        source = _tables(place.storyline) if place.has_tables else None
        summary.freshness = freshness(source, snapshot, place.paths)
        if source is not None:
            counts = source.counts()
            summary.stories, summary.steps, summary.tool_calls = counts["runs"], counts["steps"], counts["tool_calls"]
        if place.paths is not None:
            names = files.list_dir(place.paths.quarantine)
            summary.quarantined = sum(name.endswith(".json") for name in names)
            summary.bytes = sum(_bytes(place.paths).values())
        else:
            summary.bytes = files.tree_bytes(place.events) + files.tree_bytes(place.storyline)
    except ChronicleError as error:
        return DatasetSummary(dataset=place.name, error=str(error))
    return summary


def _tables(storyline: str) -> StorylineDataSource:
    from chronicle.storyline.source import StorylineDataSource

    return StorylineDataSource.open(storyline)


def _bytes(paths: DatasetPaths) -> dict[str, int]:
    layers = {"events": paths.events, "storyline": paths.storyline, "agenticmd": paths.agenticmd}
    found = {layer: files.tree_bytes(path) for layer, path in layers.items()}
    found["quarantine"] = files.tree_bytes(paths.quarantine)
    found["ops"] = max(files.tree_bytes(paths.ops) - found["quarantine"], 0)
    return found


def _add_tables(report: StatsReport, paths: DatasetPaths, snapshot: LogSnapshot) -> None:
    from chronicle.storage import lanceio

    place = Location(paths.dataset, "lake", paths.events, paths.storyline)
    source = _tables(paths.storyline) if place.has_tables else None
    report.freshness = freshness(source, snapshot, paths)
    if source is None:
        return
    counts = source.counts()
    report.stories, report.steps, report.tool_calls = counts["runs"], counts["steps"], counts["tool_calls"]
    lints: Counter[str] = Counter()
    with lanceio.translated(paths.storyline, reading=True):
        for batch in source.runs.scanner(columns=["meta"], filter="meta IS NOT NULL").to_batches():
            for meta in batch["meta"].to_pylist():
                lints.update(_lints(meta))
    report.lints = dict(sorted(lints.items()))


class _Meta(msgspec.Struct):
    lints: dict[str, int] = {}


def _lints(meta: str) -> dict[str, int]:
    try:
        return msgspec.json.decode(meta, type=_Meta).lints
    except msgspec.MsgspecError:  # a store that somebody else wrote
        return {}


def _add_health(report: StatsReport, paths: DatasetPaths) -> None:
    found = health(paths, report)
    report.lag_seconds = lag_seconds(report)
    report.retired_bytes, report.hints = found.retired_bytes, found.hints


def _add_markdown(report: StatsReport, index: Index | None, snapshot: LogSnapshot) -> None:
    if index is None:
        report.markdown = MISSING
        return
    report.markdown_files = len(index.files)
    report.markdown = FRESH if index.is_of(snapshot) else STALE
