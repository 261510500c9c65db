"""A file that grows a little every day costs what it grows by; `make test-long PART=growth` takes a month."""

from __future__ import annotations

from pathlib import Path

from tests.growing import grow


def test_eight_days(tmp_path: Path) -> None:
    found = grow(tmp_path, days=8, lines=100, seed=7)
    print(found)
    assert found["lines_last"] == 107
