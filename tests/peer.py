"""The real `pchronicle`, where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(sys.executable).with_name("pchronicle")
PEER = shutil.which("pchronicle") or (str(_BESIDE) if _BESIDE.exists() else None)

needed = [
    pytest.mark.peer,
    pytest.mark.skipif(PEER is None, reason="the pchronicle binary is not installed (pip install --no-deps persisting)"),
]
"""`pytestmark` of a module that needs the binary."""


def peer(*arguments: object, cwd: Path | None = None) -> str:
    """What one call says on stdout; it must succeed."""
    done = subprocess.run([str(PEER), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def query(dataset: object, sql: str) -> list[Any]:
    """Rows of one query."""
    return [json.loads(line) for line in peer("query", dataset, "--sql", sql, "--format", "jsonl").splitlines()]
