"""Taking, leaving and writing down a pipeline run, as tasks."""

from __future__ import annotations

from chronicle.reports import keep
from chronicle.runlock import RunLock, take_run
from tasks.lift import lift

take = lift(take_run, "take-run")
release = lift(RunLock.release, "release-run")
keep_report = lift(keep, "keep-report")
