"""Quarantine: inputs that could not be read, with their bytes and the reason (design 4.2).

An entry is known by (source key, digest, locator). It is two files: the record `<id>.json`, and the bytes, `<id>.bin`.
"""

from __future__ import annotations

from typing import Self

import msgspec

from chronicle import identity
from chronicle.errors import NotFoundError
from chronicle.events.imported import Stat
from chronicle.layout import DatasetPaths, is_safe_segment
from chronicle.reports import QuarantinedSource
from chronicle.storage import files


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One input that could not be read. `locator` None: the whole source."""

    id: str
    source_key: str
    root: str
    source_id: str
    """Digest identity of the decompressed bytes; of the bytes as they lay where they do not decompress."""
    locator: int | None = None
    kind: str
    reason: str
    size: int
    """Bytes of the input as it lay."""
    stored: bool = True
    """Whether `<id>.bin` holds them."""
    stat: Stat | None = None
    format: str | None = None
    """The format that the user forced."""
    max_bytes: int = 0
    max_ratio: int = 0
    """Of one that is too large: the limits under which it was read."""
    container: str | None = None
    lead: bytes = b""
    """Of a member: the container's bytes before it."""
    tail: bytes = b""
    """Of a last member: what follows it."""
    quarantined_at_unix_ms: int = 0

    def summary(self, *, new: bool = False) -> QuarantinedSource:
        """The entry as reports name it."""
        return QuarantinedSource(
            id=self.id,
            source_key=self.source_key,
            locator=self.locator,
            kind=self.kind,
            reason=self.reason,
            size=self.size,
            new=new,
        )


def entry_id(source_key: str, source_id: str, locator: int | None) -> str:
    """Identity of an entry: 16 hex digits."""
    return identity.fingerprint(source_key, source_id, "" if locator is None else str(locator))[:16]


class Quarantine:
    """The quarantine of one dataset."""

    def __init__(self, paths: DatasetPaths) -> None:
        self._path = paths.quarantine
        self._entries: dict[str, Entry] | None = None
        self._by_key: dict[str, dict[str, None]] = {}
        """Source key -> ids of its entries."""

    @classmethod
    def of(cls, paths: DatasetPaths) -> Self:
        """The quarantine of a dataset that exists, with facts or without. Raises NotFoundError where it does not."""
        if not (files.exists(paths.ops) or files.exists(paths.events)):
            raise NotFoundError(
                f"dataset {paths.dataset!r} is not in {paths.lake}",
                hint="check --lake and --dataset; `chronicle list` shows what is there",
                dataset=paths.dataset,
            )
        return cls(paths)

    @property
    def entries(self) -> dict[str, Entry]:
        """Entries by id, in order of source key and locator."""
        if self._entries is None:
            names = [name for name in files.list_dir(self._path) if name.endswith(".json")]
            texts = files.read_all(self._path, names)
            found = [self._decoded(name, data or b"") for name, data in zip(names, texts, strict=True)]
            found.sort(key=lambda e: (e.source_key, -1 if e.locator is None else e.locator, e.id))
            self._entries = {entry.id: entry for entry in found}
            for entry in found:
                self._by_key.setdefault(entry.source_key, {})[entry.id] = None
        return self._entries

    def of_key(self, source_key: str) -> list[Entry]:
        """All entries of one source key."""
        entries = self.entries
        return [entries[each] for each in self._by_key.get(source_key, ())]

    def members_of(self, ends: dict[str, int]) -> list[Entry]:
        """Members, under any key, of the documents before `ends` (source id -> end locator)."""
        return [e for e in self.entries.values() if e.locator is not None and e.locator < ends.get(e.source_id, 0)]

    def add(self, entry: Entry, data: bytes | None) -> bool:
        """Store an entry and its bytes; False where it was there (only its stat is renewed)."""
        known = self.entries.get(entry.id)
        files.make_dirs(self._path)
        if known is None and data is not None:
            files.write_atomic(f"{self._path}/{entry.id}.bin", data)
        if known is not None:
            entry.quarantined_at_unix_ms = known.quarantined_at_unix_ms
        if known != entry:
            files.write_atomic(f"{self._path}/{entry.id}.json", msgspec.json.format(msgspec.json.encode(entry), indent=2))
            self.entries[entry.id] = entry
            self._by_key.setdefault(entry.source_key, {})[entry.id] = None
        return known is None

    def get(self, entry: str) -> Entry:
        """One entry by id or unambiguous beginning of one. Raises NotFoundError."""
        matches = [known for known in self.entries if known.startswith(entry)] if entry else []
        if len(matches) != 1 and entry not in self.entries:
            problem = "names several entries" if matches else "is not in quarantine"
            raise NotFoundError(f"{entry!r} {problem}", hint="see `chronicle quarantine list`", id=entry)
        return self.entries[entry if entry in self.entries else matches[0]]

    def data(self, entry: Entry) -> bytes | None:
        """The bytes of an entry as they lay; None where they were too large to keep."""
        return files.read(f"{self._path}/{entry.id}.bin") if entry.stored else None

    def drop(self, *names: str) -> list[Entry]:
        """Remove entries and their bytes, never a fact. Raises NotFoundError, and removes nothing, where `get` knows one not."""
        found = self.find(*names)
        for entry in found:
            files.remove(f"{self._path}/{entry.id}.json")
            files.remove(f"{self._path}/{entry.id}.bin")
            del self.entries[entry.id]
            del self._by_key[entry.source_key][entry.id]
        return found

    def find(self, *names: str) -> list[Entry]:
        """Entries as `get` finds them, each once. Raises NotFoundError."""
        return list({entry.id: entry for entry in map(self.get, names)}.values())

    def _decoded(self, name: str, data: bytes) -> Entry:
        from chronicle.errors import IntegrityError

        try:
            entry = msgspec.json.decode(data, type=Entry)
        except msgspec.MsgspecError as error:
            raise IntegrityError(f"{self._path}/{name} is not a quarantine record: {error}", hint="move the file away") from error
        if not is_safe_segment(entry.id) or f"{entry.id}.json" != name:
            raise IntegrityError(f"{self._path}/{name} names entry {entry.id!r}", hint="move the file away")
        return entry
