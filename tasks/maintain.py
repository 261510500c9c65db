"""Compact, index and vacuum, as one task."""

from __future__ import annotations

from chronicle.maintain import maintain as run
from tasks.lift import lift

maintain = lift(run, "maintain")
