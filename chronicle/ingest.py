"""ingest: sources -> facts (design 2, 4.2, 4.4).

List, skip what a receipt or a quarantine entry covers, read, cut, append in micro-batches, note receipts after each publish.
What cannot be read goes to quarantine with its bytes; its neighbours are committed.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from chronicle.errors import UsageError
from chronicle.events.imported import Stat
from chronicle.intake.reading import ChangedWhileRead, Limits, SourceBytes, UnreadableSource, read_source, unpack
from chronicle.intake.sources import Intake, Source, begin
from chronicle.options import IngestOptions
from chronicle.plural import counted
from chronicle.reports import IngestReport
from chronicle.storage.listing import SourceFile, list_sources

_AHEAD_BYTES = 2 << 20
"""Source bytes that each reader may be ahead of the cutter: what was read just now is still in the processor's cache."""
_LEAST_AHEAD_BYTES = 64 << 10
"""What a file counts at least: what is kept of one while it waits weighs more than its bytes where it is small."""
_GROUP_BYTES = 1 << 20
"""Files that are read in one go: to hand over each alone would cost more than to read it."""
_OBJECTS_AT_ONCE = 16
"""Objects of a store that is far away are read side by side, whatever `workers` says: the way takes the time."""

_Read = SourceBytes | ChangedWhileRead | UnreadableSource


def ingest(options: IngestOptions) -> IngestReport:
    """Bring sources into the facts of a dataset.

    Raises NotFoundError (a source does not exist), ConfigError, StorageError, ConflictError, CommitStateUnknown.
    What was published before stays published; a later run goes on from there.
    """
    began = time.monotonic()
    listing = list_sources(options.sources, options.paths.lake)
    run = begin(options)
    run.report.ignored = listing.ignored
    run.report.warnings += listing.warnings
    listed = len(listing.files)
    files = deque(file for file in listing.files if _is_in_window(file, options))
    listing.files.clear()
    run.report.sources = len(files) + listing.stdin
    if listed and not files:
        run.report.warnings.append(f"of {counted(listed, 'source')} none was modified in the time of --since and --until")
    with run.sink:
        _take_files(run, files)
        if listing.stdin:
            _take_stdin(run)
        run.publish()
    run.report.segments = run.sink.segments
    run.report.fact_version, _ = run.sink.log()
    run.report.seconds = round(time.monotonic() - began, 3)
    return run.report


def _is_in_window(file: SourceFile, options: IngestOptions) -> bool:
    since, until = options.since_ns, options.until_ns
    return (since is None or file.mtime_ns >= since) and (until is None or file.mtime_ns < until)


def _take_files(run: Intake, files: deque[SourceFile]) -> None:
    options = run.options
    total = sum(file.size for file in files)
    done = 0
    for file, read in _read_ahead(run, files):
        if read is not None:
            run.report.files_opened += 1
        if isinstance(read, SourceBytes):
            run.take(Source(file.key, file.root, read))
        elif isinstance(read, ChangedWhileRead):
            run.report.changed_while_read.append(file.key)
            run.report.warnings.append(f"{file.key}: changed while it was read; the next run takes it")
        elif read is not None:
            run.set_unreadable_aside(file.key, file.root, read)
        done += file.size
        options.progress(done, total)


def _read_ahead(run: Intake, files: deque[SourceFile]) -> Iterator[tuple[SourceFile, _Read | None]]:
    """Each file in order, with what was read of it; None where it is covered. Few bytes wait.

    Empties `files`: of very many, those that are done would weigh more than what comes of them.
    """
    limits = Limits(run.options.max_source_bytes, run.options.max_ratio)
    waiting: deque[tuple[list[SourceFile], int, Future[list[_Read]] | None]] = deque()
    ahead = 0
    are_far = any(file.etag for file in files)
    workers = max(run.options.workers, _OBJECTS_AT_ONCE if are_far else 1)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="chronicle-read") as readers:
        try:
            for group, size in _grouped(run, files, 1 if are_far else _GROUP_BYTES):
                waiting.append((group, size, readers.submit(_read_group, group, limits) if size else None))
                ahead += size
                while waiting and (ahead > workers * _AHEAD_BYTES or waiting[0][2] is None):
                    ready, size, reading = waiting.popleft()
                    ahead -= size
                    yield from zip(ready, reading.result() if reading else [None], strict=True)
            for ready, _, reading in waiting:
                yield from zip(ready, reading.result() if reading else [None], strict=True)
        finally:
            readers.shutdown(wait=True, cancel_futures=True)


def _grouped(run: Intake, files: deque[SourceFile], most: int) -> Iterator[tuple[list[SourceFile], int]]:
    """Files in order, some at a time, with the bytes that they take while they wait; 0 for those that are covered."""
    group: list[SourceFile] = []
    size = 0
    while files:
        file = files.popleft()
        if run.is_covered(file):
            if group:
                yield group, size
                group, size = [], 0
            yield [file], 0
            continue
        group.append(file)
        size += max(file.size, _LEAST_AHEAD_BYTES)
        if size >= most:
            yield group, size
            group, size = [], 0
    if group:
        yield group, size


def _read_group(files: Sequence[SourceFile], limits: Limits) -> list[_Read]:
    found: list[_Read] = []
    for file in files:
        try:
            found.append(read_source(file, limits))
        except (ChangedWhileRead, UnreadableSource) as error:
            found.append(error)
    return found


def _take_stdin(run: Intake) -> None:
    limits = Limits(run.options.max_source_bytes, run.options.max_ratio)
    raw = sys.stdin.buffer.read(limits.max_bytes + 1)
    if len(raw) > limits.max_bytes:
        raise UsageError(f"standard input holds more than {limits.max_bytes} bytes", hint="raise max_source_bytes")
    try:
        data = unpack(raw, Stat(size=len(raw)), limits)
    except UnreadableSource as error:
        run.set_unreadable_aside(f"stdin:{error.source_id}", "stdin:", error)
        return
    run.take(Source(f"stdin:{data.source_id}", "stdin:", data))
