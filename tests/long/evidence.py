"""What a long test found, kept as JSON in docs/evidence: counts, seed and commit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.process import REPOSITORY

FOLDER = REPOSITORY / "docs/evidence"


def keep(part: str, found: dict[str, Any], *, seed: int | None = None) -> Path:
    """Write `docs/evidence/<date>-<part>.json` and print it."""
    body = {
        "part": part,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "seed": seed,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        **found,
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{body['date'][:10]}-{part}.json"
    text = json.dumps(body, indent=1, ensure_ascii=False)
    path.write_text(text + "\n")
    print(text)
    return path


def _commit() -> str:
    """The commit that was tested; `+changes` where the code was not all committed."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "chronicle", "flows", "tasks", "infra")
    return git("rev-parse", "HEAD") + ("+changes" if changed else "")
