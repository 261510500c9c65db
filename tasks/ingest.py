"""Sources -> facts, as one task."""

from __future__ import annotations

from chronicle.ingest import ingest as run
from tasks.lift import lift

ingest = lift(run, "ingest")
