"""The drain as a flow: the same as the verb, and a state that says what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.events.spool import EventSpool
from chronicle.options import PipelineOptions
from chronicle.reports import DrainReport

pytestmark = pytest.mark.xdist_group("prefect")


def test_drain_ends_in_a_state_that_tells(prefect_api: str, tmp_path: Path) -> None:
    from flows.drain import drain
    from flows.states import finished

    record = {"source": "test", "kind": "note", "payload": 1}
    with EventSpool(str(tmp_path / "spool")) as spool:
        spool.append(record, b"no record", record)
        options = PipelineOptions(lake=str(tmp_path / "lake"), dataset="d")
        state = drain(options, spool.path, return_state=True)
    assert (state.name, state.result().records, state.result().exit_code()) == ("Quarantine", 2, 65)
    assert finished(DrainReport(records=2)).name == "Completed"  # type: ignore[attr-defined]
    assert finished(DrainReport(skipped="another drain")).name == "Skipped"  # type: ignore[attr-defined]
