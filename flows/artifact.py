"""What a run leaves behind in Prefect's UI: its report, as Markdown."""

from __future__ import annotations

import re

from prefect.artifacts import create_markdown_artifact

from chronicle import reports


def publish(report: reports.PipelineReport) -> None:
    """Put a pipeline's report beside its flow run, under a key made of the dataset's name."""
    key = re.sub("[^a-z0-9]+", "-", report.dataset.lower()).strip("-")
    create_markdown_artifact(markdown(report), key=f"chronicle-{key}", description=f"chronicle run of {report.dataset}")


def markdown(report: reports.PipelineReport) -> str:
    """A sentence on each step, then the whole report."""
    lines = [f"# {report.dataset}", "", report.skipped or f"exit code {report.exit_code()}", ""]
    lines += [f"* **{step}** failed: {reason}" for step, reason in report.failures.items()]
    fence = "````"
    return "\n".join([*lines, f"{fence}json", reports.encode(report).decode().replace(fence, ""), fence, ""])
