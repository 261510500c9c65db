"""Events of imported documents and their sources, written and read back (design 4.2, events.md 6).

Writing puts a document's bytes into rows without re-serialising any of them: a part's text stands in
`payload_json` as it came. Members of `payload.document` beyond the table of events.md 6: `form`, `forced`, and `start`,
the number of bytes of `wire` that belong to the container and not to the document; `tail` of an opaque member is what
follows the last member of its container.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from chronicle import identity
from chronicle.events.nesting import are_shallow, is_shallow
from chronicle.events.row import Common, Run
from chronicle.formats import jsontext
from chronicle.formats.document import CutDocument, CutPart, CutSource, CutStory

SOURCE = "chronicle.import"
PRODUCER = "chronicle-import/1"
IMPORTER = "chronicle/1"
_RUN_BYTES = 1 << 20
"""Payload of rows that are made together: enough to pay, little beside a chunk of rows."""
_BESIDE = 400
"""Bytes of a part's row beside its envelope, its pointer and its text, about."""

DOCUMENT_KINDS = frozenset({"document.opened", "document.part", "document.chunk", "document.closed", "document.opaque"})
SOURCE_KINDS = frozenset({"source.opened", "source.closed", "source.bound"})

_json = msgspec.json.Encoder().encode


class Stat(msgspec.Struct, omit_defaults=True, gc=False):
    """What identifies one state of a file without opening it.

    Of a local file size, times (ns since 1970) and inode; of an object size, ETag, version and time of its last change.
    """

    size: int
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    racy: bool = False
    """Written so shortly before it was read that a later write may leave the same stat."""
    etag: str = ""
    """As the store says it, without quotes: opaque, never a digest."""
    version_id: str = ""
    """Blank where the bucket keeps no versions, and in listings, which do not say it."""
    last_modified: str = ""
    """UTC, whole seconds, ISO 8601."""

    def same_file_state(self, other: Stat) -> bool:
        """Whether both describe the same state of the same file."""
        if self.version_id and other.version_id and self.version_id != other.version_id:
            return False
        return self._state() == other._state()

    def _state(self) -> tuple[int, int, int, int, str, str]:
        return self.size, self.mtime_ns, self.ctime_ns, self.inode, self.etag, self.last_modified


class Prefix(msgspec.Struct):
    """The known source that a grown JSONL continues."""

    source_id: str
    documents: int
    size: int


class SourceRef(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`payload.source` of a `source.*` event."""

    source_id: str
    source_key: str
    root: str | None = None
    stat: Stat | None = None
    format: str | None = None
    container: str | None = None
    forced: bool = False
    importer: str | None = None
    cut: str | None = None
    prefix: Prefix | None = None
    documents: int | None = None
    size: int | None = None
    digest: str | None = None


class DocumentRef(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`payload.document` of a `document.*` event."""

    id: str
    copy: str
    format: str | None = None
    form: str | None = None
    forced: bool = False
    source_id: str | None = None
    source_key: str | None = None
    locator: int | None = None
    container: str | None = None
    importer: str | None = None
    cut: str | None = None
    ingested_at_unix_ms: int | None = None
    start: int = 0
    part: int | None = None
    role: str | None = None
    pointer: str | None = None
    offset: int | None = None
    parts: int | None = None
    size: int | None = None
    digest: str | None = None
    reason: str | None = None


class _Base64(msgspec.Struct):
    base64: str


class ImportedPayload(msgspec.Struct, kw_only=True):
    """`payload` of a `document.*` or `source.*` event."""

    document: DocumentRef | None = None
    source: SourceRef | None = None
    wire: str | _Base64 = ""
    lead: str | _Base64 = ""
    tail: str | _Base64 = ""
    value: msgspec.Raw = msgspec.Raw(b"")
    text: str | None = None
    base64: str | None = None


class ImportedRecord(msgspec.Struct, kw_only=True):
    """What the fold needs of a record: its kind and payload."""

    kind: str
    payload: ImportedPayload


decode_record = msgspec.json.Decoder(ImportedRecord).decode
"""bytes or str of `payload_json` -> ImportedRecord; raises msgspec.MsgspecError for records of another shape."""


class ImportContext(NamedTuple):
    """What all events of one reading of a source share."""

    source_id: str
    source_key: str
    root: str
    stat: Stat
    attempt: str
    now_ms: int
    forced: bool
    digest: str = ""
    """BLAKE3 hex digest of the bytes that are cut, where somebody has it already."""


class Extent(NamedTuple):
    """Of a whole source, its prefix included: documents, decompressed bytes, BLAKE3 hex digest."""

    documents: int
    size: int
    digest: str


class RowSink(Protocol):
    """Takes rows one by one."""

    def add(self, seq: int, event_id: str | None, timestamp_ms: int, kind: str, pieces: Sequence[bytes], common: Common) -> None:
        """Take one row; `pieces` joined are its payload_json."""


class RunSink(RowSink, Protocol):
    """Takes many rows at a time, too (`events.row.EventColumns`, or what wraps it)."""

    def extend(self, run: Run) -> None:
        """Take some rows."""


def wire_json(data: bytes) -> bytes:
    """A wire or lead member: a JSON string, or {"base64": ...} where the bytes are not UTF-8."""
    return _short_wire_json(data) if len(data) <= 64 else _wire_json(data)


def _wire_json(data: bytes) -> bytes:
    try:
        return _json(data.decode("utf-8"))
    except UnicodeDecodeError:
        return _json({"base64": base64.b64encode(data).decode("ascii")})


_short_wire_json = lru_cache(maxsize=4096)(_wire_json)


def wire_bytes(member: str | _Base64) -> bytes:
    """The bytes that `wire_json` was given."""
    return member.encode("utf-8") if isinstance(member, str) else base64.b64decode(member.base64)


def part_bytes(payload: ImportedPayload) -> bytes:
    """Source text of a part or an opaque member, from whichever of its three members it stands in."""
    if payload.text is not None:
        return payload.text.encode("utf-8")
    if payload.base64 is not None:
        return base64.b64decode(payload.base64)
    return bytes(payload.value)


def put_opened(sink: RowSink, context: ImportContext, cut: CutSource, prefix: Prefix | None) -> None:
    """`source.opened`: a reading of a source begins."""
    _put_source(sink, "source.opened", _reading(context, cut, prefix), context)


def put_closed(sink: RowSink, context: ImportContext, cut: CutSource, prefix: Prefix | None, extent: Extent) -> SourceRef:
    """`source.closed`: all documents of the source are in the log. Says all of the reading again, so it stands alone."""
    ref = _reading(context, cut, prefix)
    ref.documents, ref.size, ref.digest = extent
    _put_source(sink, "source.closed", ref, context)
    return ref


def put_bound(sink: RowSink, context: ImportContext) -> SourceRef:
    """`source.bound`: known bytes are at this key now."""
    ref = SourceRef(source_id=context.source_id, source_key=context.source_key, root=context.root, stat=context.stat)
    _put_source(sink, "source.bound", ref, context)
    return ref


def _put_source(sink: RowSink, kind: str, ref: SourceRef, context: ImportContext) -> None:
    event = identity.source_event_id(kind, ref.source_key, ref.source_id, context.attempt)
    head = _json(
        {
            "event_id": event,
            "run_id": ref.source_id,
            "trace_id": ref.source_id,
            "timestamp_unix_ms": context.now_ms,
            "producer": PRODUCER,
            "seq": 0,
            "source": SOURCE,
            "kind": kind,
        }
    )
    pieces = (head[:-1], b',"payload":{"degraded":true,"source":', _json(ref), b"}}")
    sink.add(0, event, context.now_ms, kind, pieces, Common(SOURCE, trace_id=ref.source_id))


def _reading(context: ImportContext, cut: CutSource, prefix: Prefix | None) -> SourceRef:
    return SourceRef(
        source_id=context.source_id,
        source_key=context.source_key,
        root=context.root,
        stat=context.stat,
        format=cut.format,
        container=cut.container,
        forced=context.forced,
        importer=IMPORTER,
        cut=identity.CUT_RULES,
        prefix=prefix,
    )


class _Writer:
    """Rows of one copy of one document."""

    def __init__(self, sink: RunSink, context: ImportContext, source: bytes, cut: CutSource, document: CutDocument) -> None:
        self._sink = sink
        self._context = context
        self._source = source
        self._cut = cut
        self._document = document
        self.id = identity.document_id(context.source_id, document.locator)
        self.copy = identity.copy_id(self.id, document.format or "opaque", context.attempt)
        self._event_ids = identity.event_ids(self.id, self.copy)
        self._envelopes = [self._envelope(story) for story in document.stories]
        self._shallow = False
        """Whether all parts are known to be strict and not too deep for a value."""

    def _envelope(self, story: CutStory) -> tuple[Common, bytes]:
        """What all rows of a story share: columns, and the JSON of their envelope members."""
        story_id = identity.story_id(self.id, story.discriminator)
        session = jsontext.plain(story.session_id or story_id)
        agent = jsontext.plain(story.agent_id) if story.agent_id else None
        members: dict[str, str] = {
            "run_id": jsontext.plain(story.run_id or session),
            "trace_id": self.id,
            "storyline_id": story_id,
            "producer": PRODUCER,
            "source": SOURCE,
            "session_id": session,
        }
        if agent is not None:
            members["agent_id"] = agent
        common = Common(SOURCE, agent_id=agent, session_id=session, trace_id=self.id)
        return common, _json(members)[:-1]

    def _put(self, kind: str, seq: int, body: tuple[bytes, ...]) -> None:
        """A row of the document itself."""
        common, envelope = self._envelopes[0]
        (event,) = self._event_ids((seq,))
        at_ms = self._context.now_ms
        head = b'%b,"event_id":"%b","timestamp_unix_ms":%d,"seq":%d,"kind":"%b","payload":{"degraded":true,"document":' % (
            envelope,
            event.encode(),
            at_ms,
            seq,
            kind.encode(),
        )
        self._sink.add(seq, event, at_ms, kind, (head, *body, b"}}"), common)

    def _ref(self) -> DocumentRef:
        context, document = self._context, self._document
        return DocumentRef(
            id=self.id,
            copy=self.copy,
            format=document.format or None,
            form=document.form or None,
            forced=context.forced,
            source_id=context.source_id,
            source_key=context.source_key,
            locator=document.locator,
            container=self._cut.container,
            importer=IMPORTER,
            cut=identity.CUT_RULES,
            ingested_at_unix_ms=context.now_ms,
        )

    def opaque(self, tail: bytes) -> None:
        """The only row of a member that cannot be read."""
        document, source = self._document, self._source
        ref = self._ref()
        ref.size, ref.reason = document.end - document.start, document.fault
        member = source[document.start : document.end]
        wire = wire_json(source[document.lead : document.start])
        body: tuple[bytes, ...] = (_json(ref), b',"wire":', wire, _text_member(member))
        if tail:
            body += (b',"tail":', wire_json(tail))
        self._put("document.opaque", 0, body)

    def rows(self, tail: bytes) -> None:
        """opened, the parts, closed."""
        document, source = self._document, self._source
        at = document.parts[0].start if document.parts else document.start
        ref = self._ref()
        ref.start = document.start - document.lead
        self._put("document.opened", 0, (_json(ref), b',"wire":', wire_json(source[document.lead : at])))
        self._shallow = document.strict and are_shallow(source, document.parts)
        number = 1
        for parts in self._runs():
            self._parts(number, parts, at)
            number, at = number + len(parts), parts[-1].end
        value = source[document.start : document.end]
        digest = (len(value) == len(source) and self._context.digest) or identity.digest(value)
        close = DocumentRef(id=self.id, copy=self.copy, parts=len(document.parts), size=len(value), digest=digest)
        wire = wire_json(source[at : document.end] + tail)
        self._put("document.closed", number, (_json(close), b',"wire":', wire))

    def _parts(self, first: int, parts: Sequence[CutPart], at: int) -> None:
        """Rows of parts of one story; what leads to the first begins at `at`."""
        source, view, begin = self._source, memoryview(self._source), self._document.start
        common, head = self._part_head(parts[0].story)
        numbers = range(first, first + len(parts))
        event_ids = self._event_ids(numbers)
        times = [self._context.now_ms if (ms := instant_ms(part.timestamp)) is None else ms for part in parts]
        payloads = []
        for number, part, event, at_ms in zip(numbers, parts, event_ids, times, strict=True):
            start, end = part.start, part.end
            pointer, lead = _json(part.pointer), wire_json(source[at:start])
            filled = head % (event.encode(), at_ms, number, number, pointer, start - begin, lead)
            if self._shallow or self._is_value(source[start:end]):
                payloads.append(b"".join((filled, b',"value":', view[start:end], b"}}")))
            else:
                payloads.append(b"".join((filled, _text_member(source[start:end]), b"}}")))
            at = end
        self._sink.extend(Run("document.part", common, numbers, event_ids, times, payloads))

    def _runs(self) -> Iterator[Sequence[CutPart]]:
        """Neighbours of one story, some at a time."""
        parts, begin, beside = self._document.parts, 0, 0
        for at, part in enumerate(parts):
            first = parts[begin]
            if at > begin and (part.story != first.story or part.end - first.start + (at - begin + 1) * beside > _RUN_BYTES):
                yield parts[begin:at]
                begin = at
            if at == begin:
                beside = len(self._envelopes[part.story][1]) + len(part.pointer) + _BESIDE
        if begin < len(parts):
            yield parts[begin:]

    def _part_head(self, story: int) -> tuple[Common, bytes]:
        """Columns that a story's parts share, and the form of their rows up to the text of the part."""
        common, envelope = self._envelopes[story]
        document = b'"document":{"id":"%b","copy":"%b"' % (self.id.encode(), self.copy.encode())
        return common, (
            envelope.replace(b"%", b"%%")
            + b',"event_id":"%b","timestamp_unix_ms":%d,"seq":%d,"kind":"document.part","payload":{"degraded":true,'
            + document
            + b',"part":%d,"role":"step","pointer":%b,"offset":%d},"lead":%b'
        )

    def _is_value(self, text: bytes) -> bool:
        return is_shallow(text) if self._document.strict else jsontext.is_strict(text)


def put_document(sink: RunSink, context: ImportContext, source: bytes, cut: CutSource, index: int) -> int:
    """Write all rows of document `index` of a cut source; `source` holds the bytes that the cut's ranges refer to.

    Returns the number of rows.
    """
    document = cut.documents[index]
    tail = source[document.end :] if index == len(cut.documents) - 1 else b""
    writer = _Writer(sink, context, source, cut, document)
    if document.fault:
        writer.opaque(tail)
        return 1
    writer.rows(tail)
    return len(document.parts) + 2


def _text_member(data: bytes) -> bytes:
    try:
        return b',"text":' + _json(data.decode("utf-8"))
    except UnicodeDecodeError:
        return b',"base64":' + _json(base64.b64encode(data).decode("ascii"))


_MAX_MS = 253_402_300_799_999  # the last millisecond of year 9999


def instant_ms(timestamp: str | None) -> int | None:
    """ms since 1970 of a time stamp text, naive ones read as UTC; None where it does not parse or fit."""
    if not timestamp:
        return None
    try:
        parsed = datetime.fromisoformat(timestamp)
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        at_ms = int(parsed.timestamp() * 1000 + 0.5)
    except (ValueError, OverflowError):
        return None
    return at_ms if 0 <= at_ms <= _MAX_MS else None
