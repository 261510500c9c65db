"""Are facts, tables and Markdown what they should be: one task."""

from __future__ import annotations

from chronicle.verify import verify as run
from tasks.lift import lift

verify = lift(run, "verify")
