"""A dataset that nobody maintained for two hundred, and for a thousand runs of one file each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.long import evidence
from tests.test_maintain import check_many_small_runs

pytestmark = pytest.mark.long


@pytest.mark.parametrize("runs", [200, 1000])
def test_many_small_runs(tmp_path: Path, runs: int) -> None:
    found: dict[str, Any] = {}
    check_many_small_runs(tmp_path, runs, found.update)
    evidence.keep(f"maintain-{runs}", {"runs": runs, **found})
