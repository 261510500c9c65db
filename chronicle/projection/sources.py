"""Which sources are current, and which documents they hold: a fold of the `source.*` facts (design 4.2).

The fold is a value of append order alone. It is stored with the cursor of the tables, so an incremental rebuild reads no old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import intern
from typing import NamedTuple

import msgspec

from chronicle import identity
from chronicle.events.imported import Prefix, SourceRef, Stat

SEEN = "seen"
"""Not a fact: a receipt's note that the same bytes were met under another stat."""
JOURNAL = "events"
"""Format of a source that is a journal of EventRecords: it holds records, not documents."""


class Receipt(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What one key holds. `stat` is of the facts; `seen` the newest stat under which the same bytes were met again."""

    source_key: str
    root: str
    source_id: str
    stat: Stat
    seen: Stat | None = None

    def covers(self, stat: Stat) -> bool:
        """Whether a file with this stat needs no look at its bytes."""
        known = self.seen or self.stat
        return not known.racy and known.same_file_state(stat)


class KnownSource(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Content that the facts hold whole. `documents` and `size` (bytes) count its prefix too."""

    source_id: str
    format: str
    container: str
    forced: str | None = None
    """The format that was forced last; its copies win."""
    prefix: Prefix | None = None
    documents: int = 0
    size: int = 0
    keys: list[str] = []
    """Every key that ever held it, in order of first sight."""

    @property
    def first(self) -> int:
        """Locator of the first document that is its own, not its prefix's."""
        return self.prefix.documents if self.prefix else 0


class SourceFold(msgspec.Struct, kw_only=True):
    """State of the fold: what each key holds, what is known whole, and what was begun only."""

    current: dict[str, Receipt] = {}
    known: dict[str, KnownSource] = {}
    begun: dict[str, str] = {}
    """Source id -> key of readings that have no `source.closed` yet."""

    def apply(self, kind: str, ref: SourceRef) -> None:
        """Take in one `source.*` fact. What a reading was is said by its `source.closed`, wherever the others lie."""
        if kind == "source.opened":
            if ref.source_id not in self.known:
                self.begun[ref.source_id] = ref.source_key
            return
        if kind == SEEN:
            held = self.current.get(ref.source_key)
            if held is not None and held.source_id == ref.source_id:  # else another writer was faster
                held.seen = ref.stat
            return
        if kind == "source.closed":
            self._close(ref)
        known = self.known.get(ref.source_id)
        if known is not None and ref.source_key not in known.keys:
            known.keys.append(ref.source_key)
        self.current[ref.source_key] = Receipt(
            source_key=ref.source_key, root=intern(ref.root or ""), source_id=ref.source_id, stat=ref.stat or Stat(size=-1)
        )

    def _close(self, ref: SourceRef) -> None:
        self.begun.pop(ref.source_id, None)
        source = self.known.get(ref.source_id)
        if source is None:
            source = self.known[ref.source_id] = KnownSource(
                source_id=ref.source_id,
                format=intern(ref.format or ""),
                container=intern(ref.container or ""),
                prefix=ref.prefix,
                documents=ref.documents or 0,
                size=ref.size or 0,
            )
        if ref.forced:
            source.forced = source.format = ref.format or ""

    def complete(self, source_id: str) -> KnownSource | None:
        """The content with this identity, if the facts hold all of it."""
        return self.known.get(source_id)

    def live(self) -> dict[str, KnownSource]:
        """Current sources that are whole, by source id; journals hold no documents and are left out."""
        found: dict[str, KnownSource] = {}
        for receipt in self.current.values():
            source = self.known.get(receipt.source_id)
            if source is not None and source.format != JOURNAL and self._is_whole(source):
                found[source.source_id] = source
        return found

    def broken(self) -> list[str]:
        """Keys whose current source the facts do not hold, or not with all that it continues; sorted."""
        known = ((key, self.known.get(receipt.source_id)) for key, receipt in self.current.items())
        return sorted(key for key, source in known if source is None or not self._is_whole(source))

    def _is_whole(self, source: KnownSource) -> bool:
        """Whether every source that it continues is known; facts of strangers may name one that is not, or go in a circle."""
        seen = {source.source_id}
        while source.prefix is not None:
            before = self.known.get(source.prefix.source_id)
            if before is None or before.source_id in seen:
                return False
            seen.add(before.source_id)
            source = before
        return True

    def chain(self, source: KnownSource) -> list[tuple[str, int]]:
        """Where a source's documents lie: (source id, end locator) of its own ones, then of its prefixes."""
        links = [(source.source_id, source.documents)]
        if not self._is_whole(source):
            return links
        while source.prefix is not None:
            links.append((source.prefix.source_id, source.prefix.documents))
            source = self.known[source.prefix.source_id]
        return links

    def coverage(self, sources: Iterable[KnownSource] | None = None) -> dict[str, int]:
        """Documents that are live (or of `sources`): source id -> end locator. A source's own ones begin at its `first`."""
        ends: dict[str, int] = {}
        for source in self.live().values() if sources is None else sources:
            for source_id, end in self.chain(source):
                ends[source_id] = max(end, ends.get(source_id, 0))
        return ends


class Wanted(NamedTuple):
    """One document that is live, and the format whose copies win (None: the first complete copy)."""

    source_id: str
    locator: int
    forced: str | None


def wanted_documents(fold: SourceFold, coverage: dict[str, int]) -> dict[str, Wanted]:
    """Document id -> whose it is, for all documents of a coverage."""
    wanted: dict[str, Wanted] = {}
    for source_id, end in coverage.items():
        source = fold.known[source_id]
        for locator in range(source.first, end):
            wanted[identity.document_id(source_id, locator)] = Wanted(source_id, locator, source.forced)
    return wanted


def gained(fold: SourceFold, before: dict[str, int], after: dict[str, int]) -> dict[str, Wanted]:
    """Documents that `after` covers and `before` does not."""
    wanted: dict[str, Wanted] = {}
    for source_id, end in after.items():
        source = fold.known[source_id]
        for locator in range(max(source.first, before.get(source_id, 0)), end):
            wanted[identity.document_id(source_id, locator)] = Wanted(source_id, locator, source.forced)
    return wanted


def fold_all(facts: Iterable[tuple[str, SourceRef]], fold: SourceFold | None = None) -> SourceFold:
    """Fold (kind, payload.source) pairs in append order."""
    state = fold or SourceFold()
    for kind, ref in facts:
        state.apply(kind, ref)
    return state


def copy(fold: SourceFold) -> SourceFold:
    """An independent copy of a fold's state."""
    return msgspec.json.decode(msgspec.json.encode(fold), type=SourceFold)


def receipts_of(fold: SourceFold) -> Iterator[Receipt]:
    """Receipts as facts alone give them, in order of their keys."""
    for _, receipt in sorted(fold.current.items()):
        yield receipt
