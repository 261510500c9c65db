"""Where a lake is: the one place that reads a lake URI (design 3)."""

from __future__ import annotations

import os.path
import re

from chronicle.errors import ConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def lake_path(uri: str) -> str:
    """Return the absolute local path of a lake, without a trailing slash.

    Takes a plain path (relative ones count from the working directory) and `file://` with an empty host or
    `localhost`. A path is text: nothing is percent-decoded. Raises ConfigError for anything else.
    """
    if not uri or "\0" in uri:
        raise ConfigError(f"lake {uri!r} is not a path", hint="give a directory, e.g. --lake ./lake")
    match = _SCHEME.match(uri)
    if match is None:
        return os.path.abspath(uri)
    scheme = match.group(1).lower()
    if scheme != "file":
        raise ConfigError(
            f"lake {uri!r}: {scheme}:// is not supported by this version yet",
            hint="use a directory on a local disk",
            scheme=scheme,
        )
    host, slash, path = uri[match.end() :].partition("/")
    if host not in {"", "localhost"} or not slash:
        raise ConfigError(f"lake {uri!r} names the host {host!r}", hint="write file:///absolute/path")
    return os.path.abspath("/" + path.lstrip("/"))
