"""Compact, index, vacuum."""

from prefect import flow

from chronicle.options import PipelineOptions
from chronicle.reports import MaintainReport
from flows.states import finished
from tasks.maintain import maintain as maintain_batch


@flow(name="maintain")
def maintain(options: PipelineOptions) -> MaintainReport:
    """Merge, index and tidy up a dataset."""
    return finished(maintain_batch(options.maintain()))
