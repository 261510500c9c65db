"""Sources -> facts."""

from prefect import flow

from chronicle.options import PipelineOptions
from chronicle.reports import IngestReport
from flows.states import finished
from tasks.ingest import ingest as ingest_batch


@flow(name="ingest")
def ingest(options: PipelineOptions) -> IngestReport:
    """Sources -> facts."""
    return finished(ingest_batch(options.ingest()))
