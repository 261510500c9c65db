"""Spools for tests: what is in one, a stand-in for a drain, and deaths at any system call."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chronicle.events import frames
from chronicle.events.record import EventRecord, parse
from chronicle.events.spool import EventSpool
from chronicle.events.spoolfiles import journal_files

CALLS = ("write", "fsync", "rename", "replace", "unlink", "ftruncate")


def note(session="s", **members):
    """A record as a producer hands it in, without a number."""
    return {"source": "test", "kind": "note", "session_id": session, "payload": {"text": "hällo"}, **members}


def held(path: Path) -> list[EventRecord]:
    """All whole records in the files of a spool, in their order."""
    found = []
    for name in journal_files(str(path)):
        data = (path / name).read_bytes()
        found += [parse(piece.text) for piece in frames.pieces(data) if piece.kind == frames.RECORD]
    return found


def empty(spool: EventSpool) -> list[bytes]:
    """Take all out as a drain does; the texts of the records."""
    spool.roll()
    names = spool.closed()
    texts = [piece.text for name in names for piece in frames.pieces(spool.read(name)) if piece.kind == frames.RECORD]
    spool.acknowledge(names)
    return texts


class Dead(BaseException):
    """The process ends here."""


@contextmanager
def dying(at: int, share: float = 0.5, safe: dict[int, int] | None = None) -> Iterator[list[str]]:
    """Let the `at`-th call that changes the disk be the last: a write comes through in part, others not at all.

    `at` 0: nobody dies. Gives the names of the calls that were made; `safe` gets inode -> bytes that an fsync has covered.
    """
    made: list[str] = []
    real = {name: getattr(os, name) for name in CALLS}

    def wrapped(name):
        def call(first, *rest, **named):
            if at and len(made) >= at:
                raise Dead  # nothing more happens in a dead process
            made.append(name)
            if len(made) != at:
                if name == "fsync" and safe is not None:
                    state = os.fstat(first)
                    safe[state.st_ino] = state.st_size
                return real[name](first, *rest, **named)
            if name == "write":
                real[name](first, bytes(rest[0])[: int(len(rest[0]) * share)])
            raise Dead

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))
    try:
        yield made
    except Dead:
        pass
    finally:
        for name in CALLS:
            setattr(os, name, real[name])


def power_cut(path: str, safe: dict[int, int], share: float) -> None:
    """Take back a part of what no fsync has covered; what is left of it may be zeros."""
    for name in journal_files(path):
        file = f"{path}/{name}"
        state = os.stat(file)
        whole = min(safe.get(state.st_ino, 0), state.st_size)
        os.truncate(file, whole + int((state.st_size - whole) * share))
        if share > 0.5:
            os.truncate(file, whole + int((state.st_size - whole) * (share - 0.5)))
            os.truncate(file, state.st_size)


def ids(texts: list[bytes]) -> list[str]:
    """The event ids of records."""
    return [json.loads(text)["event_id"] for text in texts]
