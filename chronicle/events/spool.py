"""EventSpool: a local write-ahead journal for producers that cannot wait for the lake (design 4.6).

`append` returns when its records are on the disk, with their `seq` and `event_id` in them. Threads that append at the
same time share one fsync; processes that do take turns. `chronicle drain` brings the records into a log.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec

from chronicle.errors import ChronicleError, InputError, StorageError
from chronicle.events import frames
from chronicle.events.record import EventRecord, complete, parse, with_members
from chronicle.events.sequence import MAX_SEQ
from chronicle.events.spoolfiles import SpoolFiles, spool_path

LONGEST_PAUSE = 0.05
_LONGEST_NUMBER = 19

Given = EventRecord | bytes | Mapping[str, Any]
"""A record as producers hand it in: parsed, its JSON text, or a mapping that becomes one."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class SpoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a spool, and what its records say where they say nothing themselves."""

    max_bytes: int = 1 << 30
    """Bytes of all journal files; an append that would go beyond waits, then fails."""
    roll_bytes: int = 16 << 20
    """A journal file is closed before it grows beyond."""
    timeout: float = 0.0
    """Seconds that an append waits for room."""
    session_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was handed in and is no EventRecord. It goes to quarantine with the drain."""

    kind: str
    """As in `record.parse`."""
    reason: str
    at_unix_ms: int
    data: bytes


class Appended(msgspec.Struct, frozen=True):
    """What one append brought to the disk. `records` have their final text; in the order in which they were given."""

    records: tuple[EventRecord, ...]
    set_aside: tuple[SetAside, ...]


class _Draft(msgspec.Struct):
    """A record that may lack its number. `at`: where its text has a 0 instead, if that place is known."""

    text: bytes
    session: str | None
    seq: int | None
    at: int | None = None

    def numbered(self, seq: int) -> bytes:
        """The text with its number."""
        if self.seq is not None:
            return self.text
        if self.at is None:
            return with_members(self.text, {"seq": seq})
        return b"%s%d%s" % (self.text[: self.at], seq, self.text[self.at + 1 :])


class _Entry(msgspec.Struct, eq=False):
    """One append on its way to the disk."""

    drafts: list[_Draft]
    aside: list[SetAside]
    size: int
    """Bytes of its frames, at most."""
    texts: list[bytes] = []
    refused: list[SetAside] = []
    error: ChronicleError | None = None
    done: bool = False
    leads: bool = False
    """Whether its thread writes the group."""
    turn: threading.Lock = msgspec.field(default_factory=threading.Lock)
    """Locked until the entry is done or leads."""

    def end(self, error: ChronicleError | None = None) -> None:
        """Say how it ended, once."""
        if not self.done:
            self.error, self.done = error, True


class EventSpool:
    """A spool in a directory of its own, for any number of threads and processes."""

    def __init__(self, path: str, options: SpoolOptions | None = None, *, create: bool = True) -> None:
        """Open the spool, or make it. `warnings` tells what a crash left.

        Raises ConfigError (another directory, not writable), NotFoundError (`create` is false), UsageError (no local one),
        StorageError.
        """
        self.path = spool_path(path)
        self.options = options or SpoolOptions()
        self._files = SpoolFiles(self.path, self.options.roll_bytes, create=create)
        self._turn = threading.Lock()
        """Held by the thread that uses the files."""
        self._state = threading.Lock()
        """Of the two below."""
        self._queue: list[_Entry] = []
        self._led = False

    @property
    def warnings(self) -> list[str]:
        """What was wrong with the files that it found."""
        return self._files.warnings

    def append(self, *records: Given, timeout: float | None = None) -> Appended:
        """Bring records to the disk, in their order; those that are none are set aside there.

        A record keeps its `seq`, or gets the next one of its session; it gets an `event_id` where it has none, and what
        `record.complete` fills in. A producer's own state may advance when this has returned, not before.

        Raises StorageError: `spool-full` (transient: the bound is reached or the disk is full, and stayed so for `timeout`
        seconds), else as the disk says; InputError (`too-large`) for what can never fit.
        """
        entry = self._entry(records)
        deadline = time.monotonic() + (self.options.timeout if timeout is None else timeout)
        while True:
            self._commit(entry)
            if entry.error is None:
                return Appended(tuple(map(parse, entry.texts)), (*entry.aside, *entry.refused))
            left = deadline - time.monotonic()
            if entry.error.kind != "spool-full" or left <= 0:
                raise entry.error
            entry.error, entry.done, entry.leads = None, False, False
            time.sleep(min(LONGEST_PAUSE, left))

    def roll(self) -> None:
        """Close the file that takes records, if it holds any: then a drain may have it."""
        with self._held():
            self._files.roll()

    def closed(self) -> list[str]:
        """Names of the files that a drain may have, oldest first."""
        return self._files.closed()

    def read(self, name: str) -> bytes:
        """The frames of one file. Raises NotFoundError."""
        return self._files.read(name)

    def acknowledge(self, names: Sequence[str]) -> None:
        """Remove closed files: what they hold is in the log for good. Numbers go on above theirs."""
        with self._held():
            self._files.acknowledge(names)

    def close(self) -> None:
        """Let go of the files; what was appended stays."""
        with self._turn:
            self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._turn, self._files.locked():
            yield

    def _entry(self, records: Sequence[Given]) -> _Entry:
        drafts: list[_Draft] = []
        aside: list[SetAside] = []
        for given in records:
            text = _text(given)
            try:
                drafts.append(self._draft(text))
            except InputError as error:
                aside.append(SetAside(kind=error.kind, reason=error.message, at_unix_ms=_now_ms(), data=text))
        size = sum(len(draft.text) + frames.OVERHEAD + _LONGEST_NUMBER for draft in drafts)
        size += sum(len(_aside_frame(one)) for one in aside)
        if size > min(self.options.max_bytes, frames.MAX_TEXT):
            raise InputError(
                f"{size} bytes never fit into the spool {self.path} ({self.options.max_bytes})",
                hint="append fewer records at once, or raise max_bytes",
                kind="too-large",
            )
        return _Entry(drafts, aside, size)

    def _draft(self, text: bytes) -> _Draft:
        """What is written of a record but for its number. Raises InputError where it is none."""
        text = text.strip(b" \t\r\n")
        options = self.options
        has_seq = _has_seq(text)
        record = parse(text if has_seq else with_members(text, {"seq": 0}))
        if record.event_id is None:
            record = parse(with_members(record.text, {"event_id": uuid.uuid4().hex}))
        record = complete(
            record, now_ms=_now_ms(), session_id=options.session_id, agent_id=options.agent_id, run_id=options.run_id
        )
        if has_seq:
            return _Draft(record.text, record.session_id, record.seq)
        before = text[:-1] + b',"seq":'
        known = record.text.startswith(before + b"0,")
        return _Draft(record.text, record.session_id, None, len(before) if known else None)

    def _commit(self, entry: _Entry) -> None:
        """Write an entry with all others that wait for the disk. One thread leads, the others sleep until theirs is done."""
        entry.turn = threading.Lock()
        entry.turn.acquire()
        with self._state:
            self._queue.append(entry)
            entry.leads, self._led = not self._led, True
        if not entry.leads:
            self._wait(entry)
            if entry.done:
                return
        group: list[_Entry] = []
        try:
            with self._held():
                group = self._take()
                self._settle(group)
        except ChronicleError as error:
            group = group or self._take()
            for one in group:
                one.end(self._said(error))
        finally:
            self._hand_over(group or self._take())

    def _take(self) -> list[_Entry]:
        with self._state:
            group, self._queue = self._queue, []
        return group

    def _wait(self, entry: _Entry) -> None:
        """Sleep until the entry is done, or leads."""
        try:
            entry.turn.acquire()
        except BaseException:
            with self._state:
                if entry in self._queue:
                    self._queue.remove(entry)
            if entry.leads:
                self._hand_over([])
            raise

    def _hand_over(self, group: list[_Entry]) -> None:
        """Wake those whose entry is done, and one that leads on if more have come meanwhile."""
        for one in (one for one in group if not one.done):  # an interrupt: the records may be there or not
            one.end(StorageError(f"an append to {self.path} was interrupted", hint="append again", transient=True))
        with self._state:
            following = self._queue[:1]
            self._led = bool(following)
            for one in following:
                one.leads = True
        for one in (*group, *following):
            one.turn.release()

    def _settle(self, group: list[_Entry]) -> None:
        room = self.options.max_bytes - self._files.bytes
        if room < sum(entry.size for entry in group):
            room = self.options.max_bytes - self._files.measure()
        admitted: list[_Entry] = []
        for entry in group:
            if entry.size > room:
                entry.end(self._full(f"the spool {self.path} holds its {self.options.max_bytes} bytes", "drain it"))
            else:
                admitted.append(entry)
                room -= entry.size
        used: list[tuple[str | None, int]] = []
        data = b"".join(self._framed(admitted, used))
        if data:
            self._files.write(data, used)
        for entry in admitted:
            entry.end()

    def _framed(self, entries: list[_Entry], used: list[tuple[str | None, int]]) -> Iterator[bytes]:
        """Frames of entries in order. Numbers are given here, and count when they are on the disk."""
        ahead: dict[str | None, int] = {}
        for entry in entries:
            entry.texts, entry.refused = [], []
            yield from map(_aside_frame, entry.aside)
            for draft in entry.drafts:
                following = ahead.get(draft.session, self._files.numbers.following(draft.session))
                seq = following if draft.seq is None else draft.seq
                if seq > MAX_SEQ:
                    reason = f"session {draft.session!r} has no seq left"
                    entry.refused.append(SetAside(kind="member:invalid", reason=reason, at_unix_ms=_now_ms(), data=draft.text))
                    yield _aside_frame(entry.refused[-1])
                    continue
                ahead[draft.session] = max(following, seq + 1)
                used.append((draft.session, seq))
                entry.texts.append(draft.numbered(seq))
                yield frames.frame(frames.RECORD, entry.texts[-1])

    def _said(self, error: ChronicleError) -> ChronicleError:
        """A full disk in the words of a full spool; others as they are, one instance an append."""
        if error.kind == "storage-full":
            return self._full(error.message, "free some space, or drain it")
        return type(error)(error.message, hint=error.hint, kind=error.kind, **error.context)

    def _full(self, message: str, hint: str) -> StorageError:
        return StorageError(message, hint=f"{hint} and append again", kind="spool-full", path=self.path, transient=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(given: Given) -> bytes:
    """The JSON text of what was handed in; of a mapping that has none what Python shows of it."""
    if isinstance(given, EventRecord):
        return given.effective_text()
    if isinstance(given, bytes):
        return given
    try:
        return msgspec.json.encode(given)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return repr(given).encode("utf-8", "backslashreplace")


def _has_seq(text: bytes) -> bool:
    try:
        return bytes(_decode_members(text).get("seq", msgspec.Raw(b"null"))) != b"null"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True  # no record: parse says why


def _aside_frame(one: SetAside) -> bytes:
    return frames.frame(frames.ASIDE, msgspec.json.encode(one))
