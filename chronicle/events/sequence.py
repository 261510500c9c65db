"""Which `seq` a session of a spool gets next. Pure.

Bounded: sessions that were quiet the longest are forgotten, and the highest number among them becomes a floor for every
session that is not known. So a session that comes back goes on above its old numbers, with a gap.
"""

from __future__ import annotations

import hashlib
from typing import Self

import msgspec

MAX_SESSIONS = 1_000
"""Sessions whose number is kept."""
MAX_SEQ = 2**63 - 1
_ODD = 2**53
"""A session with numbers above is never forgotten: nobody else should have to count from there."""
_LONG_NAME = 128


class Sequence(msgspec.Struct):
    """The numbers of all sessions, and the number of the newest journal file."""

    version: int = 1
    file: int = 0
    floor: int = 0
    next: dict[str, int] = {}

    def following(self, session: str | None) -> int:
        """The number that the session's next record gets; over `MAX_SEQ` when there is none left."""
        return self.next.get(_key(session), self.floor)

    def saw(self, session: str | None, seq: int) -> None:
        """Take note of a number that was used."""
        key = _key(session)
        self.next[key] = max(self.next.pop(key, self.floor), seq + 1)
        if len(self.next) > 2 * MAX_SESSIONS:
            self._forget()

    def merge(self, other: Sequence) -> None:
        """Know what the other one knows too. What one of them forgot lies under its floor."""
        merged = {
            key: max(self.next.get(key, self.floor), other.next.get(key, other.floor)) for key in {**other.next, **self.next}
        }
        self.file, self.floor, self.next = max(self.file, other.file), max(self.floor, other.floor), merged

    def kept(self) -> Self:
        """What is written to the disk."""
        self._forget()
        return self

    def _forget(self) -> None:
        quiet = [key for key, following in self.next.items() if following <= _ODD]
        for key in quiet[: max(len(self.next) - MAX_SESSIONS, 0)]:
            self.floor = max(self.floor, self.next.pop(key))


def _key(session: str | None) -> str:
    if session is None or len(session) <= _LONG_NAME:
        return session or ""
    return f"#{hashlib.sha256(session.encode()).hexdigest()}"
