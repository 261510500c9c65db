"""Are the sources that a run touched what they should be, in every layer?"""

from prefect import flow

from chronicle.options import PipelineOptions
from chronicle.reports import VerifyReport
from flows.states import finished
from tasks.verify import verify as verify_batch


@flow(name="verify")
def verify(options: PipelineOptions, since_row: int) -> VerifyReport:
    """Compare facts, tables and Markdown of the touched sources."""
    return finished(verify_batch(options.verify(since_row)))
