"""Versions of one Lance dataset: which there are, and taking away those that nobody needs (design 6, environment.md 8).

Lance removes a pinned version when a newer one exists that nobody published. So every version that must stay carries a tag
while others are taken away, and is opened and counted afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from chronicle.errors import IntegrityError, NotFoundError
from chronicle.storage import files, lanceio

_TAG = "chronicle-v"


def versions_of(uri: str) -> list[int]:
    """All versions of a dataset, oldest first; none where there is no dataset."""
    if not files.exists(uri):
        return []
    try:
        dataset = lanceio.open_latest(uri)
    except NotFoundError:  # only what a killed first writer left
        return []
    with lanceio.translated(uri, reading=True):
        return sorted(int(version["version"]) for version in dataset.versions())


def has_one_version(uri: str) -> bool:
    """Whether a dataset has a single version, by a look at one directory."""
    return sum(name.endswith(".manifest") for name in files.list_dir(f"{uri}/_versions")) <= 1


def bytes_of_versions(uri: str, gone: Collection[int]) -> int:
    """Bytes that only these versions need."""
    dataset = lanceio.open_latest(uri)
    with lanceio.translated(uri, reading=True):
        found = dataset.explain_cleanup_old_versions(versions=sorted(gone), error_if_tagged_old_versions=False)
        return int(found.stats.bytes_removed)


def remove_versions(uri: str, gone: Collection[int], kept: Collection[int]) -> int:
    """Take away some versions, never the newest, and the files that only they need; returns the bytes.

    `kept` are those that must stay: they are tagged before, and opened and counted before and after. Raises IntegrityError
    where one of them does not read.
    """
    counts = {version: _rows(uri, version) for version in sorted(kept)}
    dataset = lanceio.open_latest(uri)
    with lanceio.translated(uri, reading=False):
        tags = dataset.tags.list()
        for version in counts:
            if f"{_TAG}{version}" not in tags:
                dataset.tags.create(f"{_TAG}{version}", version)
        for version in gone:
            if f"{_TAG}{version}" in tags:
                dataset.tags.delete(f"{_TAG}{version}")
        stats: Any = dataset.cleanup_old_versions(versions=sorted(gone), error_if_tagged_old_versions=False)
    for version, rows in counts.items():
        if _rows(uri, version) != rows:
            raise IntegrityError(
                f"{uri}: version {version} lost rows while others were removed", hint="restore this dataset", path=uri
            )
    return int(stats.bytes_removed)


def _rows(uri: str, version: int) -> int:
    dataset = lanceio.open_version(uri, version)
    with lanceio.translated(uri, reading=True):
        return int(dataset.count_rows())
