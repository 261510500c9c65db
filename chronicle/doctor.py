"""doctor: can work be done on this lake? Credentials, conditional writes, clock, versions, before any work (design 8)."""

from __future__ import annotations

import platform
import time
from importlib import metadata

import msgspec

from chronicle.reports import Report
from chronicle.storage import checks

LIBRARIES = ("chronicle", "pylance", "pyarrow", "duckdb", "msgspec", "prefect", "botocore")


class Finding(msgspec.Struct, kw_only=True):
    """One thing that was looked at."""

    check: str
    ok: bool
    detail: str
    hint: str = ""
    """What to do, where it is not ok."""
    code: int = 0
    """Exit code of a verb that meets this; 0 where it is ok."""


class DoctorReport(Report, kw_only=True):
    """What was looked at, and the versions of what does the work."""

    verb: str = "doctor"
    lake: str = ""
    endpoint: str = ""
    """Of an object store."""
    findings: list[Finding] = []
    versions: dict[str, str] = {}

    def exit_code(self) -> int:
        """78 when something needs the operator, 69 when the store only cannot be reached or is full."""
        return max((finding.code for finding in self.findings), default=0)


def doctor(lake: str) -> DoctorReport:
    """Look at a lake's store. Writes one small object or file where the lake is to be, and removes it.

    A lake that does not exist yet is no fault. Raises nothing for what it finds: the report tells.
    """
    began = time.monotonic()
    report = DoctorReport(lake=lake, endpoint=checks.endpoint(lake), versions=_versions())
    for check in checks.store(lake):
        report.findings.append(finding_of(check))
        if not check.ok:
            report.warnings.append(f"{check.name}: {check.detail}; {check.hint}")
    report.seconds = round(time.monotonic() - began, 3)
    return report


def finding_of(check: checks.Check) -> Finding:
    """A check as the report tells it: with a hint and an exit code only where it is not ok."""
    if check.ok:
        return Finding(check=check.name, ok=True, detail=check.detail)
    return Finding(check=check.name, ok=False, detail=check.detail, hint=check.hint, code=check.code)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
