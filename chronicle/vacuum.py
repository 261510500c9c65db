"""Removing what nobody can reach, and has not been able to for the retention (design 6).

Two kinds of things: directories of which one is named by a manifest or CURRENT and others are not, and versions of one Lance
dataset. What is unreachable gets a record on first sight; what can be reached loses one that it may have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Self

import msgspec

from chronicle.reports import MaintainReport, Removed
from chronicle.retired import Kind, Noted, Record, Retired
from chronicle.storage import files, versions


class Vacuum(msgspec.Struct):
    """One pass over one layer of a dataset."""

    retired: Retired
    retention_seconds: float
    report: MaintainReport
    dry_run: bool
    now: float
    """What the clock of the store said after the layer was changed (seconds since 1970)."""
    noted_versions: dict[str, list[Noted]]
    """Records of versions by what they are of; those of names that nobody asked for stay in it."""

    @classmethod
    def begin(cls, retired: Retired, retention_seconds: float, report: MaintainReport) -> Self:
        """A pass that begins now."""
        noted: dict[str, list[Noted]] = {}
        for each in retired.noted("versions"):
            noted.setdefault(each.record.name, []).append(each)
        now = retired.now(dry_run=report.dry_run)
        return cls(retired, retention_seconds, report, report.dry_run, now, noted)

    def finish(self, is_mine: Callable[[str], bool]) -> None:
        """Remove records of versions of datasets that are not there any more."""
        for name, noted in self.noted_versions.items():
            for each in noted if is_mine(name) and not self.dry_run else ():
                self.retired.forget(each)

    def due(self, kind: Kind, unreachable: Iterable[str], reachable: Collection[str]) -> list[Noted]:
        """Of directories that nobody can reach those that are old enough; the others get a record, or wait with theirs.

        Records of what can be reached, or is gone, are removed.
        """
        left = set(unreachable)
        found = []
        for noted in self.retired.noted(kind):
            if noted.record.name in left and noted.record.name not in reachable:
                left.remove(noted.record.name)
                found.append(noted)
            elif not self.dry_run:
                self.retired.forget(noted)
        return self._old(found, [Record(kind=kind, name=name) for name in sorted(left - set(reachable))])

    def _old(self, found: list[Noted], unseen: list[Record]) -> list[Noted]:
        if not self.dry_run:
            # A record from the future was written under a clock that was wrong: it would wait until then.
            self.retired.note([*unseen, *(noted.record for noted in found if noted.since > self.now)])
        found = found + [Noted(record, record.file, self.now) for record in unseen]
        old = [noted for noted in found if self.now - noted.since >= self.retention_seconds]
        self.report.waiting += len(found) - len(old)
        return old

    def remove_directory(self, noted: Noted, path: str) -> None:
        """Remove a directory that is due, then its record."""
        size = files.tree_bytes(path)
        if not self.dry_run:
            files.remove_tree(path)
            self.retired.forget(noted)
        self._removed(Removed(kind=noted.record.kind, name=noted.record.name, bytes=size))

    def remove_file(self, name: str, path: str) -> None:
        """Remove one file that a killed process left."""
        size = len(files.read(path) or b"")
        if not self.dry_run:
            files.remove(path)
        self._removed(Removed(kind="file", name=name, bytes=size))

    def versions(self, name: str, uri: str, pinned: Collection[int]) -> None:
        """Remove versions of a dataset that are due; the pinned ones, the newest and all younger ones stay, and are checked."""
        noted = self.noted_versions.pop(name, [])
        if not noted and versions.has_one_version(uri):
            return
        there = versions.versions_of(uri)
        loose = set(there[:-1]) - set(pinned)
        seen: set[int] = set()
        usable = []
        for each in noted:
            covered = set(each.record.versions)
            if covered & loose and not covered & set(pinned):
                usable.append(each)
                seen |= covered
            elif not self.dry_run:
                self.retired.forget(each)
        unseen = tuple(sorted(loose - seen))
        old = self._old(usable, [Record(kind="versions", name=name, versions=unseen)] if unseen else [])
        gone = sorted({version for each in old for version in each.record.versions} & loose)
        if gone:
            self._remove_versions(name, uri, gone, set(there) - set(gone))
            for each in old if not self.dry_run else ():
                self.retired.forget(each)

    def _remove_versions(self, name: str, uri: str, gone: list[int], kept: set[int]) -> None:
        size = versions.bytes_of_versions(uri, gone) if self.dry_run else versions.remove_versions(uri, gone, kept)
        self._removed(Removed(kind="versions", name=name, versions=gone, bytes=size))

    def _removed(self, removed: Removed) -> None:
        self.report.removed.append(removed)
        self.report.removed_bytes += removed.bytes
