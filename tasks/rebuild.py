"""Facts -> tables, as one task."""

from __future__ import annotations

from chronicle.rebuild import rebuild as run
from tasks.lift import lift

rebuild = lift(run, "rebuild")
