"""Where stories are: `expand_story_locations` finds every event log below a root (design 3).

A log is a directory named `events.lance` that holds `_manifest.json`; nothing else takes part, Markdown least of all.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from operator import attrgetter
from typing import Literal

import msgspec

from chronicle.errors import ConfigError, NotFoundError, UsageError
from chronicle.layout import CURRENT, MANIFEST, DatasetPaths
from chronicle.storage import files

LOG = "events.lance"
MAX_DEPTH = 32
MAX_DIRECTORIES = 1_000_000

_DERIVED = frozenset({"storyline", "agenticmd", "ops"})


class Location(msgspec.Struct, frozen=True):
    """One event log with the place of its tables, which need not exist."""

    name: str
    """Dataset of a lake, with the way to that lake before it where the root is not the lake; else the directory."""
    kind: Literal["lake", "run"]
    """`lake`: `events/<dataset>/events.lance`. `run`: `<agent>/<run>/events.lance`, as the peer lays it out."""
    events: str
    storyline: str
    paths: DatasetPaths | None = None
    """Where a dataset of a lake keeps the rest; None for a `run`."""

    @property
    def has_tables(self) -> bool:
        """Whether tables were ever committed."""
        return files.exists(f"{self.storyline}/{CURRENT}")


def expand_story_locations(root: str) -> list[Location]:
    """All event logs below a directory, sorted by name; none where there is no such directory.

    Does not follow links, enter Lance datasets, Storyline stores or hidden directories. Raises ConfigError for a tree that is
    deeper than MAX_DEPTH or has more than MAX_DIRECTORIES directories, and for one that cannot be listed.
    """
    return sorted((_location(root, relative) for relative in _logs(root)), key=attrgetter("name", "kind", "events"))


def check_lake(lake: str) -> None:
    """Raise NotFoundError where there is no lake."""
    if not files.exists(lake):
        raise NotFoundError(f"lake {lake} does not exist", hint="check --lake; `chronicle ingest` makes it", path=lake)


def places_with_tables(lake: str, dataset: str | None) -> tuple[list[Location], list[str]]:
    """The dataset that is named, else all of a lake that have tables, with a warning for those that have none.

    Raises NotFoundError where there is no such dataset, or none with tables.
    """
    if dataset is not None:
        return [_place(lake, dataset)], []
    places = expand_story_locations(lake)
    if not places:
        check_lake(lake)
        raise NotFoundError(f"{lake} holds no dataset", hint="check --lake; `chronicle ingest` makes a dataset")
    ready = [place for place in places if place.has_tables]
    if not ready:
        raise NotFoundError(f"no dataset of {lake} has tables", hint="run `chronicle rebuild`")
    missing = [place.name for place in places if not place.has_tables]
    return ready, [f"without tables, left out: {', '.join(missing)}; run `chronicle rebuild`"] if missing else []


def _place(lake: str, dataset: str) -> Location:
    paths = DatasetPaths(lake, dataset)
    place = Location(dataset, "lake", paths.events, paths.storyline, paths)
    if place.has_tables:
        return place
    known = {found.name: found for found in expand_story_locations(lake)}
    if dataset not in known:
        check_lake(lake)
        hint = f"known: {', '.join(known) or 'none'}"
        raise NotFoundError(f"dataset {dataset!r} is not in {lake}", hint=hint, dataset=dataset)
    if not known[dataset].has_tables:
        raise NotFoundError(f"dataset {dataset!r} has no tables yet", hint="run `chronicle rebuild`", dataset=dataset)
    return known[dataset]


def check_alone(paths: DatasetPaths) -> None:
    """Refuse a new dataset inside another one, or around others (design 3): their directories would mix.

    Looks at nothing where the dataset exists already. Raises UsageError.
    """
    if files.exists(f"{paths.events}/{MANIFEST}"):
        return
    segments = paths.dataset.split("/")
    around = ("/".join(segments[:at]) for at in range(1, len(segments)))
    others = [name for name in around if files.exists(f"{DatasetPaths(paths.lake, name).events}/{MANIFEST}")]
    others += (f"{paths.dataset}/{inside}" for inside in _logs(os.path.dirname(paths.events)))
    if others:
        raise UsageError(
            f"dataset {paths.dataset!r} cannot be made beside {others[0]!r}: no dataset lies inside another",
            hint="choose another --dataset",
            dataset=paths.dataset,
        )


def _logs(root: str) -> Iterator[str]:
    """Directories, relative to the root, in which an event log lies."""
    pending = [""]
    seen = 0
    while pending:
        at = pending.pop()
        seen += 1
        if seen > MAX_DIRECTORIES or at.count("/") >= MAX_DEPTH:
            raise ConfigError(
                f"{root} is too large a tree to look for datasets in", hint="give the lake itself, or a dataset", path=root
            )
        names = set(files.directories(os.path.join(root, at)))
        if LOG in names and files.exists(os.path.join(root, at, LOG, MANIFEST)):
            yield at
        in_lake = "events" in at.split("/")
        if "events" in names and not in_lake:
            names -= _DERIVED  # the other layers of a lake hold no log
        for name in names:
            below = f"{at}/{name}" if at else name
            is_hidden = name.startswith(".") and not in_lake  # a dataset's name may begin with a dot
            if not is_hidden and not name.endswith(".lance") and not files.is_file(os.path.join(root, below, CURRENT)):
                pending.append(below)


def _location(root: str, relative: str) -> Location:
    segments = relative.split("/") if relative else []
    at = segments.index("events") if "events" in segments[:-1] else -1
    if at >= 0:
        try:
            paths = DatasetPaths(os.path.join(root, *segments[:at]), "/".join(segments[at + 1 :]))
        except UsageError:  # a directory that no dataset of ours can have
            pass
        else:
            return Location("/".join([*segments[:at], paths.dataset]), "lake", paths.events, paths.storyline, paths)
    return Location(relative or ".", "run", os.path.join(root, relative, LOG), os.path.join(root, relative, "storyline"))
