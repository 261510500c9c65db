"""Facts -> AgenticMD."""

from prefect import flow

from chronicle.options import PipelineOptions
from chronicle.reports import MaterializeReport
from flows.states import finished
from tasks.materialize import materialize as materialize_batch


@flow(name="materialize")
def materialize(options: PipelineOptions) -> MaterializeReport:
    """Facts -> AgenticMD."""
    return finished(materialize_batch(options.materialize()))
