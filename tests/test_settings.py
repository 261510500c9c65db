"""Flags over environment over file; nothing odd is taken silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle import settings
from chronicle.errors import ConfigError, UsageError

CONFIG = """
lake = "from-file"
dataset = "from/file"
sources = ["a", "b c"]
workers = 3
[limits]
max_ratio = 10
[schedule]
interval = "15m"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "c.toml"
    path.write_text(CONFIG)
    return str(path)


def test_flags_win_over_environment_over_file(config: str) -> None:
    env = {"CHRONICLE_DATASET": "from-env", "CHRONICLE_WORKERS": "5", "CHRONICLE_LIMITS_MAX_RATIO": "20"}
    found = settings.load(config, env, workers=7, lake=None)
    assert found.lake == "from-file"
    assert found.dataset == "from-env"
    assert found.workers == 7
    assert found.limits.max_ratio == 20
    assert found.limits.batch_bytes == settings.Limits().batch_bytes
    assert found.sources == ("a", "b c")
    assert found.schedule.interval_seconds == 900


def test_config_may_come_from_the_environment(config: str) -> None:
    env = {"CHRONICLE_CONFIG": config, "CHRONICLE_SOURCES": "x 'y z'", "CHRONICLE_ALLOW_QUARANTINE": "true"}
    found = settings.load(None, env)
    assert found.sources == ("x", "y z")
    assert found.allow_quarantine is True


@pytest.mark.parametrize(
    "text", ["nonsense = 1", "[limits]\nspeed = 2", "workers = 'many'", "workers", "[schedule]\ncron = 3", "lake = 5"]
)
def test_wrong_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.toml"):
        settings.load(str(path), {})


def test_missing_file_and_wrong_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        settings.load(str(tmp_path / "none.toml"), {})
    with pytest.raises(ConfigError, match="workers"):
        settings.load(None, {"CHRONICLE_WORKERS": "many"})
    with pytest.raises(ConfigError, match="interval"):
        _ = settings.Schedule(interval="soon").interval_seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("LEASE_SECONDS", value) for value in ("nan", "inf", "-1", "1e300")),
        *((name, "0") for name in ("WORKERS", "LIMITS_MAX_SOURCE_BYTES", "LIMITS_MAX_RATIO", "LIMITS_BATCH_BYTES")),
    ],
)
def test_numbers_out_of_bounds_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.rpartition("LIMITS_")[2].lower()):
        settings.load(None, {f"CHRONICLE_{name}": value})


def test_lake_and_dataset_must_be_given() -> None:
    with pytest.raises(UsageError, match="--lake"):
        settings.load(None, {}).paths()
    with pytest.raises(UsageError, match="--dataset"):
        settings.load(None, {"CHRONICLE_LAKE": "x"}).paths()
    with pytest.raises(UsageError, match="not allowed"):
        settings.load(None, {}, lake="x", dataset="../y").paths()


def test_a_lake_is_absolute_whatever_its_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spelling in ("lake", "./lake/", f"file://{tmp_path}/lake"):
        assert settings.load(None, {}, lake=spelling).lake_path() == f"{tmp_path}/lake"


DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", DAY),
        ("1970-01-02T00:00:00Z", DAY),
        ("1970-01-02T02:00:00+02:00", DAY),
        ("1970-01-01T00:00:00.000001", 1000),
        ("1d", 9 * DAY),
        ("24h", 9 * DAY),
        ("90s", 10 * DAY - 90 * 10**9),
        ("19700102", DAY),
    ],
)
def test_instants(text: str, expected: int) -> None:
    assert settings.instant_ns(text, 10 * DAY) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "1w", "2026-13-01", "90", "2026", f"{'9' * 400}d"])
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(UsageError):
        settings.instant_ns(text, 0)
