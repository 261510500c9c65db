"""drain: a spool -> facts (design 4.6).

Whole journal files go into the log, some to a micro-batch; a file is removed only after the swap that shows its records.
A crash in between appends them again with the next drain: legal, and dropped by their `event_id`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chronicle import identity
from chronicle.discovery import check_alone
from chronicle.errors import InputError
from chronicle.events import frames
from chronicle.events.record import parse, timed
from chronicle.events.spool import EventSpool, SetAside
from chronicle.events.spoolfiles import OPEN, journal_files, spool_path
from chronicle.intake.journal import put_record
from chronicle.intake.receipts import Receipts, open_receipts
from chronicle.intake.sink import FactSink
from chronicle.options import DrainOptions
from chronicle.quarantine import Entry, Quarantine, entry_id
from chronicle.reports import DrainReport
from chronicle.storage import files

DRAIN_LOCK = "drain.lock"
_POLL_SECONDS = 0.05
TORN = "truncated"


class _Drain(msgspec.Struct):
    """State of one drain. Without a `spool` nothing is changed."""

    options: DrainOptions
    sink: FactSink
    report: DrainReport
    spool: EventSpool | None
    receipts: Receipts | None = None
    pending: list[str] = []
    """Files whose records wait for the next publish."""
    aside: list[tuple[Entry, bytes]] = []

    def take(self, name: str, data: bytes) -> None:
        """Put the records of one file into the micro-batch."""
        for piece in frames.pieces(data):
            if piece.kind == frames.RECORD:
                try:
                    self._put(piece.text)
                except InputError as error:
                    self._set_aside(name, piece.start, _now_set_aside(error.kind, error.message, piece.text))
            elif piece.kind == frames.ASIDE:
                self._set_aside(name, piece.start, _set_aside_of(piece.text))
            elif frames.is_torn(piece, len(data)):
                if not name.endswith(OPEN):  # that is only looked at: its writer may be at work
                    self._set_end_aside(name, piece)
            else:
                self._set_aside(name, piece.start, _damaged(piece))
        self.pending.append(name)
        self.report.files += 1
        if self.sink.pending_bytes >= self.options.batch_bytes:
            self.publish()

    def publish(self) -> None:
        """One micro-batch: show the records, then remove the files that held them."""
        self.sink.publish()
        if self.receipts is not None and self.spool is not None:
            self.receipts.flush(self.sink.mark)
        self._quarantine()
        if self.spool is not None and self.pending:
            self.spool.acknowledge(self.pending)
        self.pending.clear()

    def _put(self, text: bytes) -> None:
        record = timed(parse(text), _now_ms())
        for kind, ref in put_record(self.sink, record):
            if self.receipts is None:
                self.receipts = open_receipts(self.options.paths, dry_run=self.spool is None)
                self.report.warnings += self.receipts.warnings
            self.receipts.apply(kind, ref)
        self.report.records += 1
        self.report.bytes += len(text)

    def _set_end_aside(self, name: str, piece: frames.Piece) -> None:
        """What a killed writer left does not count; damage at the end of a file may have been a record."""
        if frames.is_cut_short(piece.text):
            self.report.torn += 1
            self._set_aside(name, piece.start, _now_set_aside(TORN, "its writer died before it was whole", piece.text))
        else:
            self._set_aside(name, piece.start, _damaged(piece))

    def _set_aside(self, name: str, offset: int, found: SetAside) -> None:
        root = Path(self.report.spool).as_uri()
        key = f"{root}/{name.partition('.')[0]}@{offset}"
        source_id = identity.source_id(found.data)
        entry = Entry(
            id=entry_id(key, source_id, None),
            source_key=key,
            root=root,
            source_id=source_id,
            kind=found.kind,
            reason=found.reason,
            size=len(found.data),
            quarantined_at_unix_ms=found.at_unix_ms,
        )
        self.aside.append((entry, found.data))

    def _quarantine(self) -> None:
        if not self.aside:
            return
        quarantine = Quarantine(self.options.paths)
        for entry, data in self.aside:
            new = quarantine.add(entry, data) if self.spool is not None else entry.id not in quarantine.entries
            self.report.quarantine.append(entry.summary(new=new))
            if entry.kind != TORN:
                self.report.quarantined_new += new
                self.report.quarantined_still += not new
        self.aside.clear()


def drain(options: DrainOptions) -> DrainReport:
    """Bring all that a spool holds now into the facts of a dataset, and remove it there.

    Safe beside producers and other drains. Raises NotFoundError or ConfigError (no spool there), StaleFence (the producer's
    fence is over), StorageError, ConflictError, CommitStateUnknown; whatever is raised, what is not in the log stays.
    """
    began = time.monotonic()
    check_alone(options.paths)
    report = DrainReport(dataset=options.paths.dataset, spool=spool_path(options.spool), dry_run=options.dry_run)
    if options.dry_run:
        _drain(options, report, None, journal_files(report.spool))
    else:
        with EventSpool(report.spool, create=False) as spool, _turn(spool.path, options.wait_seconds) as mine:
            if mine:
                spool.roll()
                _drain(options, report, spool, spool.closed())
            else:
                report.skipped = "another drain of this spool is at work"
    if report.torn:
        report.warnings.append(f"{report.torn} torn records at ends of files were cut off; their bytes are in quarantine")
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _drain(options: DrainOptions, report: DrainReport, spool: EventSpool | None, names: list[str]) -> None:
    with FactSink(options.paths, fence=options.fence, dry_run=spool is None) as sink:
        _, report.rows_before = sink.log()
        run = _Drain(options, sink, report, spool)
        for done, name in enumerate(names):
            data = files.read(f"{report.spool}/{name}")
            if data is not None:  # without the lock of a drain another one may be faster
                run.take(name, data)
            options.progress(done + 1, len(names))
        run.publish()
        report.segments = sink.segments
        report.fact_version, _ = sink.log()


@contextmanager
def _turn(spool: str, wait_seconds: float) -> Iterator[bool]:
    """Be the only drain of a spool; False where another one is at work for longer than one waits."""
    path = f"{spool}/{DRAIN_LOCK}"
    with files.translated(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _locked(descriptor, time.monotonic() + wait_seconds)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _now_set_aside(kind: str, reason: str, data: bytes) -> SetAside:
    return SetAside(kind=kind, reason=reason, at_unix_ms=_now_ms(), data=data)


def _damaged(piece: frames.Piece) -> SetAside:
    return _now_set_aside("unreadable", "damaged bytes of a journal file", piece.text)


def _set_aside_of(text: bytes) -> SetAside:
    try:
        return msgspec.json.decode(text, type=SetAside)
    except msgspec.MsgspecError as error:
        return _now_set_aside("unreadable", f"the spool's note does not read: {error}", text)
