"""Facts -> AgenticMD, as one task."""

from __future__ import annotations

from chronicle.materialize import materialize as run
from tasks.lift import lift

materialize = lift(run, "materialize")
