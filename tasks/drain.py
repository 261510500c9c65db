"""A spool -> facts, as one task."""

from __future__ import annotations

from chronicle.drain import drain as run
from tasks.lift import lift

drain = lift(run, "drain")
