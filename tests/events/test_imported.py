"""Rows of documents on their way to the log."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from chronicle import identity
from chronicle.events import imported
from chronicle.events.imported import ImportContext, Stat
from chronicle.events.row import Common, Run
from chronicle.formats.cut import cut


class _Runs:
    """A sink that keeps runs of rows."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def add(self, seq: int, event_id: str | None, timestamp_ms: int, kind: str, pieces: Sequence[bytes], common: Common) -> None:
        """Rows of the document itself are not looked at."""

    def extend(self, run: Run) -> None:
        """Keep a run."""
        self.runs.append(run)


@pytest.mark.parametrize(("session", "steps"), [("s" * 100_000, 100), ("s", 20_000)])
def test_rows_made_together_are_bounded_by_what_they_hold_not_by_the_source(session: str, steps: int) -> None:
    """Each row repeats the session id twice; a source of 100 kB would else become gigabytes at once."""
    document = {"schema_version": "ATIF-v1.7", "session_id": session, "agent": {"name": "a"}, "steps": [{}] * steps}
    source = json.dumps(document).encode()
    sink = _Runs()
    context = ImportContext(identity.source_id(source), "key", "", Stat(size=len(source)), "0", 0, False)
    imported.put_document(sink, context, source, cut(source), 0)
    assert sum(len(run.payloads) for run in sink.runs) == steps
    assert [seq for run in sink.runs for seq in run.seqs] == list(range(1, steps + 1))
    assert max(sum(map(len, run.payloads)) for run in sink.runs) <= 1 << 20
