"""doctor on a local disk; object stores are looked at in tests/s3."""

from functools import partial
from pathlib import Path

import pytest

from chronicle.doctor import DoctorReport, finding_of
from chronicle.errors import ChronicleError, ConfigError, NotFoundError, StorageError
from chronicle.storage import checks as checks_module
from tests.command import chronicle


def checks(lake: object) -> tuple[int, dict[str, bool]]:
    done = chronicle("doctor", "--lake", lake, "--json")
    return done.code, {one["check"]: one["ok"] for one in done.json["findings"]}


def test_a_lake_that_will_be_made(tmp_path: Path) -> None:
    assert checks(tmp_path / "a/b") == (0, {"lake": True, "writable": True})
    assert list(tmp_path.iterdir()) == []


def test_a_lake_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("x")
    for lake in (tmp_path / "lake", tmp_path / "lake/below"):
        assert chronicle("doctor", "--lake", lake, "--json").code == 78


def test_hints_stand_where_something_is_wrong_and_never_lead_back_here(tmp_path: Path) -> None:
    good = checks_module.Check("clock", True, "agrees", "set the clock")
    bad = checks_module.Check("clock", False, "is off", "set the clock")
    assert [finding_of(check).hint for check in (good, bad)] == ["", "set the clock"]

    def refused() -> str:
        raise ConfigError("403", hint="check keys with `chronicle doctor`")

    assert checks_module.tried("reachable", refused, "check the keys").hint == "check the keys"


def test_a_store_that_is_away_and_one_that_is_full_end_otherwise_than_what_needs_the_operator() -> None:
    def code(*errors: ChronicleError) -> int:
        def fails(error: ChronicleError) -> str:
            raise error

        checks = [checks_module.tried("reachable", partial(fails, error), "look") for error in errors]
        return DoctorReport(findings=[finding_of(check) for check in checks]).exit_code()

    away, full = StorageError("no answer", transient=True), StorageError("full", kind="storage-full")
    assert (code(), code(away), code(full), code(away, full)) == (0, 69, 69, 69)
    assert [code(ConfigError("403")), code(NotFoundError("no bucket")), code(away, ConfigError("403"))] == [78, 78, 78]


def test_an_object_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    done = chronicle("doctor", "--lake", "s3://bucket/lake", "--json")
    assert done.code == chronicle("list", "--lake", "s3://bucket/lake", "--json").code == 69
    assert [(one["check"], one["code"]) for one in done.json["findings"]] == [("credentials", 0), ("reachable", 69)]


def test_versions_are_told(tmp_path: Path) -> None:
    versions = chronicle("doctor", "--lake", tmp_path, "--json").json["versions"]
    assert {"python", "chronicle", "pylance", "botocore"} <= versions.keys()
    assert "missing" not in versions.values()
