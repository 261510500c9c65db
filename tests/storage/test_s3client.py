"""What a client makes of servers that do not answer as they should, by real sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronicle.errors import ConfigError
from chronicle.storage import s3client, s3session
from chronicle.storage.s3client import Client
from chronicle.storage.s3config import S3Options
from chronicle.storage.s3errors import S3Error

Behaviour = Callable[[socket.socket], None]


@contextmanager
def server(*behaviours: Behaviour) -> Iterator[int]:
    """A port on 127.0.0.1 where the connections, one after the other, are treated so, and all that follow like the last."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for number in range(1_000):
            try:
                connection, _ = listener.accept()
                with connection:
                    behaviours[min(number, len(behaviours) - 1)](connection)
            except OSError:
                if listener.fileno() < 0:
                    return

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def client(port: int, scheme: str = "http") -> Client:
    return Client(S3Options(endpoint=f"{scheme}://127.0.0.1:{port}", region="us-east-1", key="k", secret="s"))


def request(connection: socket.socket) -> bytes:
    """One request, with a body of one byte where it has any."""
    came = b""
    while b"\r\n\r\n" not in came or (came.startswith(b"PUT") and came.endswith(b"\r\n\r\n")):
        piece = connection.recv(65536)
        if not piece:
            return b""
        came += piece
    return came


def reset(connection: socket.socket) -> None:
    request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def closed(connection: socket.socket) -> None:
    request(connection)


def closed_at_once(connection: socket.socket) -> None:
    connection.recv(1)


def plain(connection: socket.socket) -> None:
    connection.recv(64)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def page(connection: socket.socket) -> None:
    """What some server of the web says to everything."""
    body = b"<html>" if request(connection).startswith(b"GET") else b""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def short(connection: socket.socket) -> None:
    request(connection)
    head = b"HTTP/1.1 200 OK\r\nETag: x\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 10\r\n\r\n"
    connection.sendall(head + b"half")


@pytest.mark.parametrize("behaviour", [reset, closed])
def test_a_write_whose_answer_is_cut_off_may_have_landed(behaviour: Behaviour) -> None:
    with server(behaviour) as port, pytest.raises(S3Error) as caught:
        client(port).put("bucket", "key", b"1")
    assert caught.value.kind == "cut", "never 'unreached', which says that nothing was sent"
    assert caught.value.transient


def test_a_write_over_a_kept_connection_that_breaks_is_sent_once() -> None:
    came: list[bytes] = []

    def one_answer(connection: socket.socket) -> None:
        came.append(request(connection))
        connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n')
        came.append(request(connection))

    with server(one_answer) as port:
        store = client(port)
        assert store.put("bucket", "first", b"1") == '"x"'
        with pytest.raises(S3Error) as caught:
            store.put("bucket", "second", b"1")
    assert caught.value.kind == "cut"
    assert [line.split()[1] for line in came] == [b"/bucket/first", b"/bucket/second"]


def test_half_an_object_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3client, "_FIRST_PAUSE", 0.001)
    with server(short) as port, pytest.raises(S3Error) as caught:
        client(port).get("bucket", "key")
    assert caught.value.kind == "cut"


def test_a_server_that_hangs_up_in_the_middle_of_tls_is_cut_off() -> None:
    with server(closed_at_once) as port, pytest.raises(S3Error) as caught:
        client(port, "https").put("bucket", "key", b"1")
    assert caught.value.kind == "cut"


def test_a_server_without_tls_is_a_wrong_setting() -> None:
    with server(plain) as port, pytest.raises(ConfigError) as caught:
        client(port, "https").put("bucket", "key", b"1")
    assert "WRONG_VERSION_NUMBER" in str(caught.value)


def test_a_server_that_is_no_object_store_is_a_wrong_setting() -> None:
    with server(page) as port:
        with pytest.raises(ConfigError, match="no LastModified"):
            client(port).head("b", "k")
        with pytest.raises(ConfigError, match="no LastModified"):
            client(port).get("b", "k")
        with pytest.raises(S3Error) as caught:
            client(port).put("b", "k", b"x")
    assert (caught.value.kind, caught.value.code) == ("cut", "NoETag")


def test_nothing_was_sent_to_whom_nobody_reached() -> None:
    with server(closed) as port:
        pass
    with pytest.raises(S3Error) as caught:
        client(port).put("bucket", "key", b"1")
    assert caught.value.kind == "unreached"


def test_half_of_a_pair_of_keys_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError):
        Client(S3Options(endpoint="http://127.0.0.1:9", region="us-east-1", key="k")).put("bucket", "key", b"1")


def test_services_that_give_keys_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role of a profile or of a cluster asks them."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for service in ("sts", "sso", "sso-oidc"):
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
        made = s3session.session().create_client(service, region_name="us-east-1", **keys)
        assert made.meta.service_model.service_name == service
