"""A few writers at once; `make test-long PART=race` lets eight write for a minute."""

from __future__ import annotations

import time
from pathlib import Path

from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
from tests.races import Race
from tests.s3.conftest import Place


def test_writers_maintenance_and_fenced_out_producers(place: Place, tmp_path: Path) -> None:
    race = Race(tmp_path, f"{place.uri}/lake", files=2)
    with race.writers(1, 1, "first"):
        pass  # the log is there
    with race.producers(1, 6, 60.0), race.writers(2, 3) as processes:
        rounds = 0
        while rounds < 2 or any(process.poll() is None for process in processes):
            maintain(MaintainOptions(paths=race.paths, group=2, index=False, retention_seconds=3600.0 * (rounds % 2)))
            rounds += 1
            time.sleep(0.2)
    found = race.check()
    assert found["runs_by_exit_code"]["0"] > 1
    assert found["publications"] >= found["files_acknowledged"]
