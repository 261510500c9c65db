"""Where a lake or a source is: the one place that reads their URIs (design 3).

A path is text: nothing is percent-decoded. An object store's path keeps its URI, `s3://bucket/key`.
"""

from __future__ import annotations

import os.path
import re

from chronicle.errors import ConfigError, UsageError

S3 = "s3://"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z")


def is_s3(path: str) -> bool:
    """Whether a path names an object store."""
    return path.startswith(S3)


def lake_path(uri: str) -> str:
    """Return where a lake is, without a trailing slash: an absolute local path, or `s3://bucket/prefix`.

    Takes a plain path (relative ones count from the working directory), `file://` with an empty host or `localhost`, and
    `s3://`. Raises ConfigError for anything else, and for a prefix with empty, `.` or `..` segments.
    """
    if not uri or "\0" in uri:
        raise ConfigError(f"lake {uri!r} is not a path", hint="give a directory, e.g. --lake ./lake")
    match = _SCHEME.match(uri)
    if match is None:
        return os.path.abspath(uri)
    scheme = match.group(1).lower()
    rest = uri[match.end() :]
    if scheme == "s3":
        return _s3_lake(uri, rest)
    if scheme != "file":
        raise ConfigError(
            f"lake {uri!r}: {scheme}:// is not supported",
            hint="use a directory on a local disk, or s3://bucket/prefix",
            scheme=scheme,
        )
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise ConfigError(f"lake {uri!r} names the host {host!r}", hint="write file:///absolute/path")
    return os.path.abspath("/" + path.lstrip("/"))


def absolute(path: str) -> str:
    """A path as the working directory does not change it; that of an object store stays as it is."""
    return path if is_s3(path) else os.path.abspath(path)


def local_path(path: str, flag: str) -> str:
    """The absolute path of a flag that names a local place. Raises UsageError where it names another store."""
    match = _SCHEME.match(path)
    if match is not None:
        raise UsageError(f"{flag} {path} is not on a local disk", hint="name a directory, and copy it from there")
    return os.path.abspath(path)


def split_s3(path: str) -> tuple[str, str]:
    """(bucket, key) of an `s3://` path, the key empty for the bucket itself. Raises ConfigError where it names no bucket."""
    bucket, _, key = path.removeprefix(S3).partition("/")
    if not _BUCKET.match(bucket):
        raise ConfigError(f"{path!r} names no bucket", hint="write s3://bucket/prefix", path=path)
    return bucket, key


def _s3_lake(uri: str, rest: str) -> str:
    path = S3 + rest.rstrip("/")
    _, key = split_s3(path)
    if key and any(segment in {"", ".", ".."} for segment in key.split("/")):
        raise ConfigError(f"lake {uri!r} has an empty, '.' or '..' segment", hint="write s3://bucket/prefix")
    return path
