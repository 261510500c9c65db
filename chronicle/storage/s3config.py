"""How to reach an object store: the usual `AWS_*` variables, and ours, which win (design 8).

Keys come from the environment or a profile only, never from a settings file, and are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_REGION = "us-east-1"
_YES = frozenset({"1", "true", "yes", "on"})
_ENDPOINTS = ("CHRONICLE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""The last one is the peer's, and Lance reads it too: both halves must speak to one server."""

_configured: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class S3Options:
    """Endpoint and credentials. None: what the AWS libraries find by themselves (a profile, a role of the machine)."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False
    single_writer: bool = False
    """The user says that nobody else writes: a store without conditional writes is taken."""
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


def configure(**values: str | bool | None) -> None:
    """Let settings of this process win over its environment: endpoint, region, profile, anonymous, single_writer.

    A value that is None, or False, says nothing.
    """
    _configured.clear()
    for name, value in values.items():
        if value:
            variable = "CHRONICLE_SINGLE_WRITER" if name == "single_writer" else f"CHRONICLE_S3_{name.upper()}"
            _configured[variable] = "true" if value is True else str(value)


def exported() -> dict[str, str]:
    """What `configure` was told, as variables for child processes."""
    return dict(_configured)


def options(env: Mapping[str, str] | None = None) -> S3Options:
    """The options that hold now. `env`: instead of the environment and what `configure` was told."""
    env = {**os.environ, **_configured} if env is None else env
    return S3Options(
        endpoint=_first(env, *_ENDPOINTS),
        region=_first(env, "CHRONICLE_S3_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"),
        profile=_first(env, "CHRONICLE_S3_PROFILE", "AWS_PROFILE"),
        anonymous=env.get("CHRONICLE_S3_ANONYMOUS", "").lower() in _YES,
        single_writer=env.get("CHRONICLE_SINGLE_WRITER", "").lower() in _YES,
        key=_first(env, "AWS_ACCESS_KEY_ID") if not env.get("CHRONICLE_S3_PROFILE") else None,
        secret=_first(env, "AWS_SECRET_ACCESS_KEY") if not env.get("CHRONICLE_S3_PROFILE") else None,
        token=_first(env, "AWS_SESSION_TOKEN") if not env.get("CHRONICLE_S3_PROFILE") else None,
    )


def _first(env: Mapping[str, str], *names: str) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)
