"""Facts -> tables."""

from prefect import flow

from chronicle.options import PipelineOptions
from chronicle.reports import RebuildReport
from flows.states import finished
from tasks.rebuild import rebuild as rebuild_batch


@flow(name="rebuild")
def rebuild(options: PipelineOptions) -> RebuildReport:
    """Facts -> tables."""
    return finished(rebuild_batch(options.rebuild()))
