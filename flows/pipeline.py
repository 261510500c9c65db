"""The pipeline: ingest -> rebuild -> materialize -> verify what this run touched, one run at a time for a dataset."""

import time
from typing import Any, TypeVar, cast

from prefect import Flow, flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from chronicle.options import PipelineOptions
from chronicle.reports import IngestReport, PipelineReport, RebuildReport, Report
from chronicle.runlock import RunRecord
from flows.artifact import publish
from flows.ingest import ingest
from flows.materialize import materialize
from flows.rebuild import rebuild
from flows.states import finished, tell
from flows.verify import verify
from tasks.run import keep_report, release, take

SomeReport = TypeVar("SomeReport", bound=Report)


@flow(name="pipeline", on_completion=[tell], on_failure=[tell], on_crashed=[tell])
def pipeline(options: PipelineOptions) -> PipelineReport:
    """Bring a dataset up to date with its sources."""
    report = PipelineReport(dataset=options.dataset, run_id=str(flow_run.id), dry_run=options.dry_run)
    began = time.monotonic()
    lock = None if options.dry_run else take(options.paths, report.run_id)
    if isinstance(lock, RunRecord):
        report.skipped = f"run {lock.run_id} is at work"
        return finished(report)
    try:
        carry_out(options, report)
    finally:
        if lock is not None:
            release(lock)
    report.seconds = round(time.monotonic() - began, 3)
    if not options.dry_run:
        keep_report(report, options.paths)
    publish(report)
    return finished(report)


def carry_out(options: PipelineOptions, report: PipelineReport) -> None:
    """The steps in order. An ingest that fails ends the run; a derived step that fails is named and the others go on.

    The pipeline's own heartbeat says that the process lives; at the end of each step Prefect would wait a second for another one.
    """
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        report.ingest = ingest(options)
        report.rebuild = derived(report, rebuild, options)
        report.materialize = derived(report, materialize, options)
        report.verify = derived(report, verify, options, first_new_row(report.ingest, report.rebuild))


def first_new_row(ingested: IngestReport, rebuilt: RebuildReport | None) -> int:
    """Where the facts begin that this run wrote or brought into the tables."""
    return min(ingested.rows_before, rebuilt.rows_before) if rebuilt else ingested.rows_before


def derived(report: PipelineReport, step: Flow[..., SomeReport], *arguments: Any) -> SomeReport | None:
    """The report of a derived step; None where it failed, which `report.failures` then tells."""
    state = cast(State[SomeReport], step(*arguments, return_state=True))
    if state.is_completed():
        return state.result()
    failure = state.result(raise_on_failure=False)
    report.failures[step.name] = str(failure) or type(failure).__name__
    return None
