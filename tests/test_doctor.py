"""doctor on a local disk; object stores are looked at in tests/s3."""

from pathlib import Path

from chronicle.doctor import finding_of
from chronicle.errors import ConfigError
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


def test_versions_are_told(tmp_path: Path) -> None:
    versions = chronicle("doctor", "--lake", tmp_path, "--json").json["versions"]
    assert {"python", "chronicle", "pylance", "s3fs"} <= versions.keys()
    assert "missing" not in versions.values()
