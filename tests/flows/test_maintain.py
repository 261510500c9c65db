"""The maintain flow under a real Prefect."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.options import PipelineOptions
from chronicle.reports import MaintainReport
from tests.lake import Lake
from tests.laws.contents import atif

pytestmark = pytest.mark.xdist_group("prefect")


def test_maintain_as_a_flow(prefect_api: str, tmp_path: Path) -> None:
    from flows.maintain import maintain

    lake = Lake(tmp_path)
    for number in range(8):
        lake.put(f"{number}.json", atif(f"s{number}", 2))
        lake.ingest()
    options = PipelineOptions(lake=lake.paths.lake, dataset="d", retention_seconds=0)
    state = maintain(options, return_state=True)
    report = state.result()
    assert isinstance(report, MaintainReport)
    assert (state.name, report.after.segments) == ("Completed", {"1": 1})
    assert len(report.removed) == 8 + 1
    assert report.after.segment_directories == 1
