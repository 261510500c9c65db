"""The pipeline as a served deployment: this process watches the schedule and starts one run at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from datetime import timedelta
from types import FrameType

from prefect.schedules import Cron, Interval
from prefect.types.entrypoint import EntrypointType

from chronicle.commandline.console import say
from chronicle.options import PipelineOptions
from chronicle.settings import Schedule
from flows.pipeline import pipeline


def serve_pipeline(schedule: Schedule, options: PipelineOptions) -> bool:
    """Serve until SIGINT or SIGTERM, and return whether it was SIGINT.

    A run that is due while another is at work waits for it. A run that is at work at the end is stopped.
    """
    seconds = schedule.interval_seconds
    when = Interval(timedelta(seconds=seconds)) if seconds else Cron(schedule.cron or "", timezone=schedule.timezone)
    with _interruptible() as came, contextlib.suppress(KeyboardInterrupt):
        pipeline.serve(
            name=schedule.name,
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
