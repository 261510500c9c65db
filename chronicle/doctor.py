"""doctor: can work be done on this lake? Credentials, conditional writes, clock, versions, before any work (design 8)."""

from __future__ import annotations

import platform
import time
from importlib import metadata

import msgspec

from chronicle.reports import Report
from chronicle.storage import checks

LIBRARIES = ("chronicle", "pylance", "pyarrow", "duckdb", "msgspec", "prefect", "fsspec", "s3fs", "aiobotocore", "botocore")


class Finding(msgspec.Struct, kw_only=True):
    """One thing that was looked at."""

    check: str
    ok: bool
    detail: str
    hint: str = ""
    """What to do, where it is not ok."""


class DoctorReport(Report, kw_only=True):
    """What was looked at, and the versions of what does the work."""

    verb: str = "doctor"
    lake: str = ""
    endpoint: str = ""
    """Of an object store."""
    findings: list[Finding] = []
    versions: dict[str, str] = {}

    def exit_code(self) -> int:
        """78 when something needs the operator."""
        return 0 if all(finding.ok for finding in self.findings) else 78


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
    """A check as the report tells it: with a hint only where it is not ok."""
    return Finding(check=check.name, ok=check.ok, detail=check.detail, hint="" if check.ok else check.hint)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
