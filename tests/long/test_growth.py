"""Thirty daily runs over a file that grows by one percent a day."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.growing import grow
from tests.long import evidence

pytestmark = pytest.mark.long

SEED = 20_260_203


def test_thirty_days(tmp_path: Path) -> None:
    evidence.keep("growth", grow(tmp_path, days=30, lines=2_000, seed=SEED), seed=SEED)
