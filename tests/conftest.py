"""What tests of one process share: a real Prefect server in a home of its own, sample exports, processes that can die."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.prefect_server import TemporaryServer, environment
from tests.crash.sites import Forks


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert "prefect" not in sys.modules, "its settings are read when it is imported"
    kept = dict(os.environ)
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    os.environ.update(environment(os.environ))
    with TemporaryServer(os.environ) as server:
        os.environ["PREFECT_API_URL"] = server.url
        os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"
        import flows.pipeline  # noqa: F401

        server.wait_until_healthy()
        yield server.url
    os.environ.clear()
    os.environ.update(kept)


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from infra.samples import write

    directory = tmp_path_factory.mktemp("exports")
    write(directory)
    return directory


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    found = Forks(3)
    yield found
    found.close()
