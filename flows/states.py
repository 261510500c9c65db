"""How a report becomes the final state of a flow run: Completed, with a name that says what an operator must look at."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed

from chronicle.commandline.console import say, verified
from chronicle.plural import counted
from chronicle.reports import DrainReport, IngestReport, PipelineReport, Report

SomeReport = TypeVar("SomeReport", bound=Report)


def finished(report: SomeReport) -> SomeReport:
    """Completed with the report as its data, named by the worst that it tells.

    Typed as what a caller of the flow gets: Prefect ends the run in a state that a flow returns, and hands on its data.

    `Incomplete`: something derived failed, the facts are good. `Quarantine`: inputs could not be read.
    `Differences`: verify found some. `Skipped`: another run or drain was at work.
    """
    return cast(SomeReport, Completed(name=_name(report), message=_message(report), data=report))


def tell(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Say on stderr how a run of a deployment ended; every other run has a caller who gets its report."""
    if flow_run.deployment_id is not None:
        say(f"{state.timestamp:%Y-%m-%dT%H:%M:%SZ} run {flow_run.name} {state.name}: {state.message}")


def _message(report: Report) -> str:
    code = f"exit code {report.exit_code()}"
    if not isinstance(report, PipelineReport):
        return code
    if report.skipped:
        return report.skipped
    parts = []
    if report.ingest is not None:
        found = report.ingest
        bad = found.quarantined_new + found.quarantined_still
        parts.append(
            f"{counted(found.sources, 'source')}, {found.ingested} new, {found.unchanged} unchanged, {bad} in quarantine"
        )
    if report.materialize is not None:
        parts.append(f"{counted(report.materialize.written, 'Markdown file')} written")
    if report.verify is not None:
        parts.append(verified(msgspec.to_builtins(report.verify), part=True))
    parts += [f"{step} failed: {reason}" for step, reason in report.failures.items()]
    return "; ".join([*parts, code])


def _name(report: Report) -> str:
    if isinstance(report, PipelineReport | DrainReport) and report.skipped:
        return "Skipped"
    if report.exit_code() == 70:
        return "Incomplete"
    first = report.ingest if isinstance(report, PipelineReport) else report
    if isinstance(first, IngestReport | DrainReport) and first.quarantined_new + first.quarantined_still:
        return "Quarantine"
    return "Differences" if report.exit_code() else "Completed"
