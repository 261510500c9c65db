"""A spool -> facts."""

from prefect import flow

from chronicle.options import PipelineOptions
from chronicle.reports import DrainReport
from flows.states import finished
from tasks.drain import drain as drain_batch


@flow(name="drain")
def drain(options: PipelineOptions, spool: str) -> DrainReport:
    """What live producers have written -> facts."""
    return finished(drain_batch(options.drain(spool)))
