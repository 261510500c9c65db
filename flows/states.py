"""How a report becomes the final state of a flow run: Completed, with a name that says what an operator must look at."""

from __future__ import annotations

from typing import TypeVar, cast

from prefect.states import Completed

from chronicle.reports import DrainReport, IngestReport, PipelineReport, Report

SomeReport = TypeVar("SomeReport", bound=Report)


def finished(report: SomeReport) -> SomeReport:
    """Completed with the report as its data, named by the worst that it tells.

    Typed as what a caller of the flow gets: Prefect ends the run in a state that a flow returns, and hands on its data.

    `Incomplete`: something derived failed, the facts are good. `Quarantine`: inputs could not be read.
    `Differences`: verify found some. `Skipped`: another run or drain was at work.
    """
    name, message = _name(report), f"exit code {report.exit_code()}"
    return cast(SomeReport, Completed(name=name, message=message, data=report))


def _name(report: Report) -> str:
    if isinstance(report, PipelineReport | DrainReport) and report.skipped:
        return "Skipped"
    if report.exit_code() == 70:
        return "Incomplete"
    first = report.ingest if isinstance(report, PipelineReport) else report
    if isinstance(first, IngestReport | DrainReport) and first.quarantined_new + first.quarantined_still:
        return "Quarantine"
    return "Differences" if report.exit_code() else "Completed"
