"""A way to the store that goes wrong in ways that real ones do: conditions forgotten, answers lost, somebody in between."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.s3.server import KEY, SECRET, Server

_CONDITIONS = {"if-match", "if-none-match"}
_NOT_FORWARDED = {"connection", "transfer-encoding", "authorization", "host", "expect", "accept-encoding"}


@dataclass
class Request:
    """What came in."""

    method: str
    path: str
    """With its query, percent-encoded as it came."""
    headers: dict[str, str]
    """Names in lower case."""


@dataclass
class Proxy:
    """A proxy at work. Requests are signed anew, so that headers can be taken away."""

    server: Server
    endpoint: str = ""
    forgets_conditions: bool = False
    loses: Callable[[Request], bool] = lambda request: False
    """Whether the answer to a request is lost, after the store has given it."""
    before: Callable[[Request], None] = lambda request: None
    """Called before a request goes to the store."""
    log: list[tuple[str, str]] = field(default_factory=list)
    """(method, path) of each request."""
    lost: int = 0

    def reset(self) -> None:
        """Behave as a new one."""
        self.forgets_conditions, self.lost = False, 0
        self.loses, self.before = (lambda request: False), (lambda request: None)
        self.log = []
        self.__dict__.pop("forward", None)

    def forward(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        if self.forgets_conditions and request.method in {"PUT", "POST"}:
            headers = {name: value for name, value in headers.items() if name not in _CONDITIONS}
        signed = AWSRequest(request.method, self.server.endpoint + request.path, headers, body)
        S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(signed)
        connection = http.client.HTTPConnection(urlsplit(self.server.endpoint).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request(request.method, request.path, body, dict(signed.headers.items()))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()


@contextlib.contextmanager
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of a server, on a port of its own."""
    chosen = Proxy(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else head and body of an answer are 40 ms apart

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            chosen.log.append((self.command, self.path))
            chosen.before(request)
            status, headers, data = chosen.forward(request, body)
            if chosen.loses(request):
                chosen.lost += 1
                self.close_connection = True
                self.connection.close()
                return
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                    self.send_header(name, value)
            length = {name.lower(): value for name, value in headers}.get("content-length", str(len(data)))
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

        def finish(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                super().finish()

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is no news."""

    listener = Quiet(("127.0.0.1", 0), Handler)
    chosen.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield chosen
    finally:
        listener.shutdown()
        listener.server_close()
