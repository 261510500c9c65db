"""One real S3 server for all tests of a process; a prefix of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chronicle.storage import probe, s3config
from chronicle.storage.s3client import Client
from tests.s3.proxy import Proxy, proxy
from tests.s3.server import BUCKET, Server, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.s3)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("weed")) as found:
        yield found


@pytest.fixture(scope="session")
def client(server: Server) -> Client:
    return server.client()


@pytest.fixture(scope="session")
def gate(server: Server) -> Iterator[Proxy]:
    with proxy(server) as found:
        yield found


@dataclass(frozen=True)
class Place:
    """A prefix of one test."""

    client: Client
    prefix: str

    @property
    def uri(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    def put(self, name: str, data: bytes) -> None:
        self.client.put(BUCKET, f"{self.prefix}/{name}", data)

    def get(self, name: str) -> bytes:
        return self.client.get(BUCKET, f"{self.prefix}/{name}")[0]

    def names(self, below: str = "") -> list[str]:
        at = len(self.prefix) + 1
        return [one.key[at:] for one in self.client.objects(BUCKET, f"{self.prefix}/{below}")]


@pytest.fixture
def place(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    s3config.configure()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "CHRONICLE_S3_ENDPOINT", "CHRONICLE_SINGLE_WRITER"):
        monkeypatch.delenv(name, raising=False)
    yield Place(client, f"t-{uuid.uuid4().hex[:12]}")
    s3config.configure()


@pytest.fixture
def between(place: Place, gate: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """A proxy through which this process speaks to the store, for the first time."""
    gate.reset()
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.endpoint)
    monkeypatch.setattr(probe, "_trusted", set())
    return gate
