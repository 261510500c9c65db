"""The pipeline as a served deployment: this process watches the schedule and starts one run at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from datetime import timedelta
from types import FrameType

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Cron, Interval
from prefect.types.entrypoint import EntrypointType

from chronicle import identity
from chronicle.commandline.console import say
from chronicle.options import PipelineOptions
from chronicle.settings import Schedule
from flows.pipeline import pipeline


def serve_pipeline(schedule: Schedule, options: PipelineOptions) -> bool:
    """Serve until SIGINT or SIGTERM, and return whether it was SIGINT.

    A run that is due while another is at work waits for it. A run that is at work at the end is stopped. What was due before
    is not made up for: it would run with the options of that time.
    """
    name = deployment_name(schedule, options)
    seconds = schedule.interval_seconds
    when = Interval(timedelta(seconds=seconds)) if seconds else Cron(schedule.cron or "", timezone=schedule.timezone)
    with _interruptible() as came, contextlib.suppress(KeyboardInterrupt):
        _forget_queued(name)
        pipeline.serve(
            name=name,
            schedule=when,
            parameters={"options": dataclasses.asdict(options)},
            limit=1,
            pause_on_shutdown=False,
            print_starting_message=False,
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
    if not came:
        say("stopped: no run starts any more")
    return bool(came)


def deployment_name(schedule: Schedule, options: PipelineOptions) -> str:
    """Name of a schedule at Prefect: two lakes or datasets whose schedules have one name are two deployments."""
    return f"{schedule.name}-{identity.fingerprint(options.lake, options.dataset)[:8]}"


def _forget_queued(name: str) -> None:
    """Remove the runs that the schedule of an earlier process has queued. What somebody asked for by hand stays."""
    with get_client(sync_client=True) as client:
        try:
            deployment = client.read_deployment_by_name(f"{pipeline.name}/{name}")
        except ObjectNotFound:
            return
        waiting = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])))
        of_this = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
        while found := client.read_flow_runs(flow_run_filter=waiting, deployment_filter=of_this):
            queued = [run for run in found if run.auto_scheduled]
            for run in queued:
                with contextlib.suppress(ObjectNotFound):  # another process has served it meanwhile
                    client.delete_flow_run(run.id)
            if not queued:
                return


@contextlib.contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Signals that came: SIGINT is told at once and stops the runner as SIGTERM does, a second one breaks it off.

    Left alone Prefect swallows it, and takes longer. Where SIGINT was ignored from the start, it stays so.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        say("interrupted: no run starts any more")
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _stop)  # until the runner has set its own
    if before[0] is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
