"""What is not as well as it could be in a dataset, and what to do about it (design 6, 8). Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chronicle.layout import CURRENT, DatasetPaths
from chronicle.options import MaintainOptions
from chronicle.plural import be, counted
from chronicle.reports import MaintainReport
from chronicle.storage import files

if TYPE_CHECKING:
    from chronicle.stats import StatsReport


class Health(msgspec.Struct):
    """Findings about a dataset."""

    retired_bytes: int = 0
    """What nobody can reach any more, and lies there still."""
    hints: list[str] = []
    """What to do, with the command."""


def tables_written_ms(paths: DatasetPaths) -> int | None:
    """When the tables were last written, by the clock of the store (ms since 1970); None where there are none."""
    moment = files.modified(f"{paths.storyline}/{CURRENT}")
    return None if moment is None else int(moment * 1000)


def lag_seconds(report: StatsReport) -> float | None:
    """How much older the tables are than the newest facts: 0 where they are fresh, None where there are none."""
    if report.tables_unix_ms is None:
        return None
    newest = report.ingested_unix_ms if report.ingested_unix_ms is not None else report.last_unix_ms
    if report.freshness == "fresh" or newest is None:
        return 0.0
    return max(0, newest - report.tables_unix_ms) / 1000


def health(paths: DatasetPaths, report: StatsReport) -> Health:
    """Look at what a maintenance would do, and at what the counts of a dataset say."""
    from chronicle.maintain import maintain

    plan = maintain(MaintainOptions(paths=paths, dry_run=True, retention_seconds=0.0))
    found = Health(retired_bytes=plan.removed_bytes)
    found.hints += _of_counts(report)
    found.hints += _of_plan(plan)
    return found


def _of_counts(report: StatsReport) -> list[str]:
    hints = []
    if report.freshness != "fresh":
        hints.append(f"the tables are {report.freshness}: run `chronicle rebuild`")
    if report.markdown == "stale":
        hints.append("the AgenticMD files are stale: run `chronicle materialize`")
    if report.sources_incomplete:
        hints.append(f"{counted(report.sources_incomplete, 'source')} begun and never ended: run `chronicle ingest` again")
    trouble = report.quarantined - report.quarantine_kinds.get("empty", 0)
    if trouble:
        hints.append(f"{counted(trouble, 'input')} {be(trouble)} in quarantine: see `chronicle quarantine list`")
    return hints


def _of_plan(plan: MaintainReport) -> list[str]:
    hints = []
    if plan.merged:
        before = sum(len(merged.segments) for merged in plan.merged)
        hints.append(f"{before} small segments can become {len(plan.merged)}: run `chronicle maintain --compact`")
    if plan.rewritten:
        hints.append(f"{', '.join(plan.rewritten)} lie in many pieces: run `chronicle maintain --compact`")
    if plan.indexed:
        count = len(plan.indexed)
        hints.append(f"{counted(count, 'index', 'indices')} {be(count)} missing or behind: run `chronicle maintain --index`")
    if plan.removed:
        hints.append(f"{plan.removed_bytes} bytes cannot be reached any more: `chronicle maintain --vacuum` removes what is old")
    return hints
