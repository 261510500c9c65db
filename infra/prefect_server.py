"""A temporary Prefect server for one command: quiet, without telemetry, gone when its parent is gone.

`environment()` must be in `os.environ` before anybody imports prefect; this module never imports it in the parent.
The server is this same module run as a script in a child process. It reads its standard input, a pipe that the
parent holds open: when the parent dies, however it dies, the pipe ends and so does the server. Its own output goes
to a log file, because what a server says while it shuts down is no concern of the user of a batch command.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from chronicle.errors import ConfigError

GRACE_SECONDS = 2.0
"""What a server has for writing down the last events of its flows."""
STARTUP_SECONDS = 180.0
"""How long a server may take: the first start on a busy machine migrates a new database."""


def state_home(env: Mapping[str, str]) -> Path:
    """Where Prefect keeps its database when the user has set no PREFECT_HOME: a state directory of our own."""
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "chronicle" / "prefect"


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Settings of Prefect that `env` leaves open: no telemetry, patience at start, few words on stderr."""
    level = "INFO" if env.get("CHRONICLE_DEBUG") else "CRITICAL"
    ours = {
        "PREFECT_HOME": str(state_home(env)),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(int(STARTUP_SECONDS)),
        "PREFECT_LOGGING_LEVEL": level,
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    }
    return {name: value for name, value in ours.items() if not env.get(name)}


def _server_environment(env: Mapping[str, str], services: bool) -> dict[str, str]:
    ours = {"PREFECT__SERVER_FINAL": "1", "PREFECT_SERVER_LOGGING_LEVEL": "ERROR"}
    if not services:
        ours |= {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT_UI_ENABLED": "0"}
    return {**env, **environment(env), **ours}


class TemporaryServer:
    """A server on a free port of 127.0.0.1, as a context manager: started at once, stopped on the way out.

    `url` is known from the start, so the slow import of prefect can run beside the slow start of the server;
    `wait_until_healthy` is what must come before the first flow. `services`: with the scheduler and the UI.
    """

    def __init__(self, env: Mapping[str, str], *, services: bool = False, timeout: float = STARTUP_SECONDS) -> None:
        self._env = _server_environment(env, services)
        self._timeout = timeout
        self._home = Path(self._env["PREFECT_HOME"])
        self._log = self._home / "server.log"
        self._open = contextlib.ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            self._turn = self._open.enter_context((self._home / "server.lock").open("w"))
            output = self._open.enter_context(self._log.open("wb"))
        except OSError as error:
            raise ConfigError(
                f"the Prefect home {self._home} cannot be written: {error.strerror}",
                hint="set PREFECT_HOME to a directory of yours",
            ) from error
        with self._open:
            fcntl.flock(self._turn, fcntl.LOCK_EX)  # two first starts must not migrate one database at once
            listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
            self._env["PREFECT_UI_API_URL"] = self.url
            self._process = subprocess.Popen(
                [sys.executable, "-m", "infra.prefect_server", str(listener.fileno())],
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is for the flow; the server stops after it
            )
            listener.close()
            self._open = self._open.pop_all()
        return self

    def wait_until_healthy(self) -> None:
        """Return when the server answers. Raises ConfigError when it ends or stays silent for `timeout` seconds."""
        deadline = time.monotonic() + self._timeout
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # 127.0.0.1 is behind no proxy
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), opener.open(f"{self.url}/health", timeout=5) as answer:
                if answer.status == 200:
                    fcntl.flock(self._turn, fcntl.LOCK_UN)
                    return
            time.sleep(0.1)
        words = self._log.read_text(errors="replace").strip().splitlines()
        raise ConfigError(
            f"the temporary Prefect server did not start: {words[-1] if words else 'no answer'}",
            hint=f"see {self._log}, or set PREFECT_API_URL to a server of yours, or use the plain verbs (chronicle ingest, …)",
        )

    def __exit__(self, *exc: object) -> None:
        with self._open:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _serve(descriptor: int) -> None:
    """Serve Prefect's API on an inherited socket until standard input ends."""
    import threading

    stopping = threading.Event()

    def watch_parent() -> None:
        sys.stdin.buffer.read()
        stopping.set()
        time.sleep(GRACE_SECONDS)
        os._exit(0)  # whatever the shutdown still waits for is of no use to anybody

    threading.Thread(target=watch_parent, daemon=True).start()

    import uvicorn
    from prefect.server.api.server import create_app

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or stopping.is_set()

    config = uvicorn.Config(create_app, factory=True, log_level="error", lifespan="on")
    Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
