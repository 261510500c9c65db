"""Taking runs out of a lake in an object store gives what a local lake gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronicle.export import export
from chronicle.find import find
from chronicle.layout import DatasetPaths
from chronicle.maintain import maintain
from chronicle.options import ExportOptions, FindOptions, MaintainOptions, ReportOptions
from chronicle.report import report
from chronicle.stats import stats
from tests.lake import Lake, tree
from tests.laws.contents import CONTENTS
from tests.s3.conftest import Place
from tests.s3.test_lake import RemoteLake


@pytest.fixture
def lakes(tmp_path: Path, place: Place) -> list[Lake]:
    found = [Lake(tmp_path / "local", inbox=tmp_path / "local/in"), RemoteLake(tmp_path / "remote", place)]
    for lake in found:
        for number, data in enumerate(CONTENTS[:12]):
            lake.put(f"{number}.json", data)
        lake.ingest(allow_quarantine=True)
        lake.rebuild()
    return found


def test_exports_answers_and_pages_are_the_same(lakes: list[Lake], tmp_path: Path) -> None:
    def both(ask: Callable[[DatasetPaths], Any]) -> None:
        local, remote = (ask(lake.paths) for lake in lakes)
        assert local == remote
        assert local

    def exported(options: dict[str, Any]) -> Callable[[DatasetPaths], Any]:
        def ask(paths: DatasetPaths) -> Any:
            out = tmp_path / "out"
            shutil.rmtree(out, ignore_errors=True)
            export(ExportOptions(paths=paths, to=str(out), **options))
            return tree(out)

        return ask

    for format in ("atif", "agenticmd", "parquet"):
        both(exported({"format": format, "where": "session_id LIKE 's%'"}))
    for step in range(2):
        both(lambda paths: list(find(FindOptions(lake=paths.lake, dataset="d", text="message 3")).rows))
        if not step:
            for lake in lakes:
                maintain(MaintainOptions(paths=lake.paths, compact=False, vacuum=False))
    both(lambda paths: [hint for hint in stats(paths).hints if "bytes" not in hint])
    both(lambda paths: report(ReportOptions(lake=paths.lake, dataset="d", to=str(tmp_path / "r.html"), overwrite=True)).runs)
