"""Logs of any size, made of the parts that ingest is made of but without files: a hundred thousand rows in about a second."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from chronicle import identity
from chronicle.events import imported
from chronicle.events.imported import Extent, ImportContext, SourceRef, Stat
from chronicle.events.log import RawEventLanceStore
from chronicle.events.manifest import ActiveWriter, Manifest, Segment, encode
from chronicle.events.mark import LogMark
from chronicle.events.record import EventRecord, parse
from chronicle.formats.cut import cut
from chronicle.intake import receipts
from chronicle.intake.receipts import Receipts
from chronicle.intake.sink import FactSink
from chronicle.layout import MANIFEST, DatasetPaths, segment_path

STARTED_MS = 1_767_323_045_678
ROWS_BESIDE_STEPS = 4
"""Of a source: opened and closed, of the source and of its document."""


def session(number: int) -> str:
    """Session of the source with this number."""
    return f"session-{number:07}"


def document(number: int, steps: int, words: str = "") -> bytes:
    """An ATIF document of small steps."""
    step = b'{"step_id":%d,"source":"agent","message":"m%d %b"}'
    made = b",".join(step % (at, at, words.encode()) for at in range(1, steps + 1))
    head = b'{"schema_version":"ATIF-v1.7","session_id":"%b","agent":{"name":"a","version":"1"},"steps":['
    return head % session(number).encode() + made + b"]}"


def fill(paths: DatasetPaths, *, sources: int, steps: int, sources_a_segment: int, first: int = 0, words: str = "") -> int:
    """Append so many sources of one document each, with their receipts; returns the rows of the log."""
    held = Receipts(paths)
    with FactSink(paths) as sink:
        for number in range(first, first + sources):
            data = document(number, steps, words)
            found = cut(data, name="x.json")
            context = ImportContext(
                source_id=identity.source_id(data),
                source_key=f"exports/{number // 1000:04}/{session(number)}.json",
                root="exports",
                stat=Stat(size=len(data), mtime_ns=number, ctime_ns=number, inode=number),
                attempt=f"{number:032x}",
                now_ms=STARTED_MS,
                forced=False,
            )
            imported.put_opened(sink, context, found, None)
            imported.put_document(sink, context, data, found, 0)
            extent = Extent(1, len(data), identity.digest(data))
            held.apply("source.closed", imported.put_closed(sink, context, found, None, extent))
            if (number - first + 1) % sources_a_segment == 0:
                sink.publish()
                held.flush(sink.mark)
        sink.publish()
        held.flush(sink.mark)
        return sink.log()[1]


def multiply(store: RawEventLanceStore, times: int) -> Manifest:
    """Show each segment so often, under names of its own: links to the same files, written by nobody again. On a local disk."""

    def repeated(manifest: Manifest | None) -> Manifest:
        assert manifest is not None
        segments = list(manifest.segments)
        for number in range(1, times):
            for known in manifest.segments:
                copy = f"copy{number}-{known.id}"
                _link(Path(segment_path(store.events, known.id)), Path(segment_path(store.events, copy)))
                segments.append(Segment(copy, known.version, known.rows, known.level, known.sealed))
        rows = sum(segment.rows for segment in segments)
        return Manifest(manifest.revision + 1, manifest.fact_version + times, rows, manifest.active_writer, tuple(segments))

    return store.change(repeated)


def _link(source: Path, target: Path) -> None:
    for folder, _, names in os.walk(source):
        below = target / Path(folder).relative_to(source)
        below.mkdir(parents=True)
        for name in names:
            os.link(Path(folder) / name, below / name)


def announced(segments: int, rows_a_segment: int = 500) -> bytes:
    """The manifest of a log of so many segments, of which none need be there for somebody who only appends."""
    found = tuple(Segment(f"e1-{number:08}", 1, rows_a_segment, 0, True) for number in range(segments))
    return encode(Manifest(segments + 1, segments, segments * rows_a_segment, ActiveWriter(1, "gone"), found))


def announce(paths: DatasetPaths, segments: int, rows_a_segment: int = 500) -> None:
    """Put such a manifest on the local disk."""
    folder = Path(paths.events)
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_bytes(announced(segments, rows_a_segment))


def receive(paths: DatasetPaths, pieces: Sequence[int]) -> None:
    """Receipts of that many sources that nobody ever stored, as of a log that was announced, piece by piece; each is smaller
    than the one before."""
    first = 0
    for rows in pieces:
        refs = [_receipt(number) for number in range(first, first + rows)]
        receipts._write(paths, [("source.closed", ref) for ref in refs], LogMark(f"e1-{0:08}", 1, ""))
        first += rows


def _receipt(number: int) -> SourceRef:
    content = identity.digest(session(number).encode())
    return SourceRef(
        source_id=content[:32],
        source_key=f"elsewhere/{session(number)}.json",
        root="elsewhere",
        stat=Stat(size=1, mtime_ns=number),
        format="atif",
        container="object",
        documents=1,
        size=1,
        digest=content,
    )


def records(count: int) -> list[EventRecord]:
    """Records of a live producer."""
    text = '{"event_id":"e%d","timestamp_unix_ms":%d,"producer":"p","seq":%d,"source":"p","kind":"llm.request","payload":{}}'
    return [parse((text % (number, STARTED_MS + number, number)).encode()) for number in range(count)]


if __name__ == "__main__":  # python -m tests.biglog LAKE ROWS...: `receive` by a process with an environment of its own
    receive(DatasetPaths(sys.argv[1], "d"), [int(rows) for rows in sys.argv[2:]])
