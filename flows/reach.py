"""Is the user's own Prefect server there? Asked before a run, because Prefect's word for it is a long traceback."""

from __future__ import annotations

import contextlib
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from chronicle.errors import ConfigError, StorageError

PATIENCE_SECONDS = 30.0
"""For an answer of a busy server."""
_HERE = ("127.0.0.1", "localhost", "::1")


@contextlib.contextmanager
def reached(url: str) -> Iterator[None]:
    """Raise StorageError where nobody answers at a Prefect API URL, now or later; ConfigError where it is no URL."""
    place = urlsplit(url)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ConfigError(f"PREFECT_API_URL {url!r} is not a URL", hint="write it like http://127.0.0.1:4200/api, or unset it")
    _ask(url, place.hostname)
    import httpx  # Prefect loads it anyway

    try:
        yield
    except httpx.TransportError as error:
        raise _unreachable(url, str(error) or type(error).__name__) from error


def _ask(url: str, host: str) -> None:
    """Any answer will do: what it is worth is for Prefect to say."""
    proxies = [urllib.request.ProxyHandler({})] if host in _HERE else []
    try:
        urllib.request.build_opener(*proxies).open(f"{url.rstrip('/')}/health", timeout=PATIENCE_SECONDS).close()
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # somebody is there, and Prefect has its own settings of TLS
            raise _unreachable(url, str(getattr(reason, "strerror", None) or reason)) from error


def _unreachable(url: str, why: str) -> StorageError:
    return StorageError(
        f"the Prefect server at {url} is not reachable: {why}",
        hint="start it, or unset PREFECT_API_URL: then a temporary one is started and stopped by itself",
    )
