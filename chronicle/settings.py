"""Settings: flags win over `CHRONICLE_*` environment variables, these over `--config FILE.toml` (design 8).

This module knows the last two; the command line lays its flags over them. A variable is named for its place in the
file: `lake` is CHRONICLE_LAKE, `max_ratio` in `[limits]` is CHRONICLE_LIMITS_MAX_RATIO. Unknown names in a file are
refused; unknown variables are not ours to judge. msgspec does the checking, because it is loaded anyway: every verb
would pay half a second for pydantic-settings.
"""

from __future__ import annotations

import datetime
import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from chronicle.errors import ConfigError, UsageError
from chronicle.layout import DatasetPaths

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)\Z")
_LONGEST_INTERVAL = 366 * 86400.0
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of what one source may be, and the size of a micro-batch."""

    max_source_bytes: _Positive = 2 << 30
    """Bytes of one source after decompression."""
    max_ratio: _Positive = 200
    """Decompressed size by compressed size."""
    batch_bytes: _Positive = 256 << 20
    """Source bytes of one micro-batch."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When `chronicle serve` starts the pipeline: `cron` or `interval`, not both."""

    name: str = "pipeline"
    cron: str | None = None
    """Five fields, e.g. `0 2 * * *`."""
    timezone: str = "UTC"
    """Of the cron fields."""
    interval: str | float | None = None
    """Seconds, or a number with s, m, h or d: `15m`."""

    @property
    def interval_seconds(self) -> float | None:
        """The interval in seconds. Raises ConfigError where it is not a duration."""
        if self.interval is None:
            return None
        seconds = duration(str(self.interval))
        if not seconds or seconds > _LONGEST_INTERVAL:
            raise ConfigError(
                f"schedule.interval {self.interval!r} is not a duration from moments to a year", hint="write 900, 15m, 12h or 1d"
            )
        return seconds


class S3(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach an object store, over what the AWS_* variables say. Keys are not for a file: environment or profile."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False
    """Ask without keys."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a verb may be told besides its own flags."""

    lake: str | None = None
    dataset: str | None = None
    sources: tuple[str, ...] = ()
    """Sources of `run` and `serve` when none is named."""
    format: str | None = None
    workers: _Positive = 1
    allow_quarantine: bool = False
    reasoning: bool = False
    """Whether Markdown shows reasoning."""
    lease_seconds: Annotated[float, msgspec.Meta(ge=0, le=366 * 86400.0)] = 60.0
    """How long the lease of a table writer must stand still before another takes over, where no lock says more."""
    retention: str | float = "7d"
    """How long `maintain` keeps what nobody can reach any more: seconds, or a number with s, m, h or d."""
    single_writer: bool = False
    """Nobody else ever writes to this lake: a store without conditional writes is taken."""
    limits: Limits = Limits()
    s3: S3 = S3()
    schedule: Schedule = Schedule()

    def retention_seconds(self) -> float:
        """The retention in seconds. Raises ConfigError where it is not a duration."""
        seconds = duration(str(self.retention))
        if seconds is None:
            raise ConfigError(f"retention {self.retention!r} is not a duration", hint="write 7d, 12h, 30m or 0")
        return seconds

    def lake_path(self) -> str:
        """The lake as an absolute path. Raises UsageError when none is given."""
        from chronicle.storage.uri import lake_path

        if not self.lake:
            raise UsageError(
                "no lake is given", hint='add --lake DIR, set CHRONICLE_LAKE, or write `lake = "DIR"` in the --config file'
            )
        return lake_path(self.lake)

    def paths(self) -> DatasetPaths:
        """Places of the dataset. Raises UsageError when the lake or the dataset is not given or its name is not allowed."""
        lake = self.lake_path()
        if not self.dataset:
            raise UsageError(
                "no dataset is given",
                hint='add --dataset NAME, set CHRONICLE_DATASET, or write `dataset = "NAME"` in the --config file',
            )
        return DatasetPaths(lake, self.dataset)


def load(config: str | None, env: Mapping[str, str], **flags: Any) -> Settings:
    """Settings of a file (or of CHRONICLE_CONFIG), the environment and flags; a flag that is None was not given.

    Raises ConfigError where one of them is not what it should be.
    """
    config = config or env.get("CHRONICLE_CONFIG")
    values = _read(config) if config else {}
    _check(values, config or "", strict=True)
    _merge(values, _from_environment(env))
    for name, value in flags.items():
        if value is not None:
            values[name] = value
    return _check(values, "CHRONICLE_* variables", strict=False)


def _check(values: dict[str, Any], where: str, *, strict: bool) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}", hint="correct the setting; docs/operators.md lists them") from error


def _read(config: str) -> dict[str, Any]:
    import tomllib

    try:
        with Path(config).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{config}: {error.strerror}", hint="name a readable TOML file after --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{config} is not TOML: {error}", hint="correct the file") from error


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        name = f"CHRONICLE_{field.encode_name.upper()}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            inner = [f.encode_name for f in msgspec.structs.fields(field.type)]
            section = {key: env[f"{name}_{key.upper()}"] for key in inner if env.get(f"{name}_{key.upper()}")}
            if section:
                found[field.encode_name] = section
        elif env.get(name):
            found[field.encode_name] = shlex.split(env[name]) if field.encode_name == "sources" else env[name]
    return found


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def duration(text: str) -> float | None:
    """Seconds of `90`, `90s`, `15m`, `12h`, `7d`; None where the text is no duration."""
    match = _DURATION.match(text.strip())
    seconds = float(match.group(1)) * _UNIT_SECONDS[match.group(2)] if match else math.inf
    return seconds if math.isfinite(seconds) else None


def instant_ns(text: str, now_ns: int) -> int:
    """An instant in ns since 1970: an ISO 8601 date or time (UTC where it names no zone), or a duration before `now_ns`.

    A duration has a unit here: digits alone may be a date. Raises UsageError for anything else.
    """
    seconds = None if text.strip()[-1:].isdecimal() else duration(text)
    if seconds is not None:
        return now_ns - int(seconds * 1e9)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a time", hint="write 2026-01-31, 2026-01-31T12:00:00Z, or a duration before now such as 24h"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    since_epoch = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since_epoch // datetime.timedelta(microseconds=1)) * 1000
