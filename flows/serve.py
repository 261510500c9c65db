"""The pipeline as a served deployment: this process watches the schedule and starts one run at a time."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from prefect.schedules import Cron, Interval
from prefect.types.entrypoint import EntrypointType

from chronicle.options import PipelineOptions
from chronicle.settings import Schedule
from flows.pipeline import pipeline


def serve_pipeline(schedule: Schedule, options: PipelineOptions) -> None:
    """Serve until interrupted. A run that is due while another is at work waits for it."""
    seconds = schedule.interval_seconds
    when = Interval(timedelta(seconds=seconds)) if seconds else Cron(schedule.cron or "", timezone=schedule.timezone)
    pipeline.serve(
        name=schedule.name,
        schedule=when,
        parameters={"options": dataclasses.asdict(options)},
        limit=1,
        pause_on_shutdown=False,
        print_starting_message=False,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
