"""Eight ingests of one dataset at any time, for a minute, in an object store and on a local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.long import evidence
from tests.races import Race
from tests.s3.server import BUCKET, running

pytestmark = pytest.mark.long

WRITERS, SECONDS, FILES = 8, 60.0, 5


def race(root: Path, lake: str) -> dict[str, Any]:
    run = Race(root, lake, FILES)
    with run.writers(1, 1, "first"):
        pass  # the log is there
    with run.producers(1, 10**6, SECONDS), run.tended(SECONDS):
        run.commands(WRITERS, SECONDS)
    assert run.codes[0] > WRITERS
    assert run.verbs["maintain 0"] > 1
    assert {"shown", "stale-fence"} <= set(run.produced.values())
    return {"writers": WRITERS, "seconds": SECONDS, "files_of_a_run": FILES, **run.check()}


def test_on_a_local_disk(tmp_path: Path) -> None:
    evidence.keep("race-disk", race(tmp_path, str(tmp_path / "lake")))


def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    with running(tmp_path / "store") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        evidence.keep("race-s3", race(tmp_path, f"s3://{BUCKET}/lake"))
