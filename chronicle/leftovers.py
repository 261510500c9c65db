"""Files that a killed process left beside the data, and nobody will ever use (design 6).

Temporary files of a write that did not come to its rename, and bytes in quarantine without the record that names them. Both
have a name that no second process gives, so their own age says how long nobody has needed them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from chronicle.layout import DatasetPaths
from chronicle.storage import files
from chronicle.vacuum import Vacuum

SHORTEST_SECONDS = 3600.0
"""Younger ones may be a living writer's, whatever the retention."""

_BYTES = re.compile(r"([0-9a-f]{16})\.bin\Z")


def remove_leftovers(paths: DatasetPaths, begin: Callable[[], Vacuum]) -> None:
    """Remove what is as old as the retention, and an hour at least; `begin` gives a pass where there is anything."""
    found = list(_leftovers(paths))
    if not found:
        return
    vacuum = begin()
    retention = max(vacuum.retention_seconds, SHORTEST_SECONDS)
    for path in found:
        since = files.modified(path)
        if since is None:
            continue
        if vacuum.now - since >= retention:
            vacuum.remove_file(path.removeprefix(f"{paths.lake}/"), path)
        else:
            vacuum.report.waiting += 1


def _leftovers(paths: DatasetPaths) -> Iterator[str]:
    folders = (paths.events, f"{paths.events}/segments", paths.storyline, paths.ops, paths.retired, paths.reports)
    for folder in folders:
        yield from (f"{folder}/{name}" for name in files.list_dir(folder) if files.TEMPORARY.match(name))
    names = files.list_dir(paths.quarantine)
    known = {name.removesuffix(".json") for name in names}
    for name in names:
        found = _BYTES.match(name)
        if files.TEMPORARY.match(name) or (found and found[1] not in known):
            yield f"{paths.quarantine}/{name}"
