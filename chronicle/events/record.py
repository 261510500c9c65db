"""EventRecord: one logical fact, its JSON text as it came and the envelope read out of it (events.md 1)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from chronicle.errors import InputError
from chronicle.formats import jsontext

INT64_MAX = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The known top-level members of a record; unknown ones stay in its text."""

    seq: int
    source: str
    kind: str
    payload: msgspec.Raw
    event_id: str | None = None
    run_id: str | None = None
    attempt_id: str | None = None
    storyline_id: str | None = None
    turn_id: str | None = None
    timestamp_unix_ms: int | None = None
    producer: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    parent_uuid: str | None = None
    trace_id: str | None = None
    call_id: str | None = None
    subagent_id: str | None = None
    parent_agent_id: str | None = None
    branch: str | None = None
    parent_call_id: str | None = None


class _PayloadModel(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw(b"")


_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_payload = msgspec.json.Decoder(_PayloadModel).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class EventRecord(msgspec.Struct, frozen=True):
    """A fact. `text` is the whole record in UTF-8 JSON, byte for byte as its producer sent it.

    `session_id` and `agent_id` are those of the physical row where the record was replayed (they win over the
    producer's claim, which stays in `envelope`), else the claim.
    """

    text: bytes
    envelope: Envelope
    session_id: str | None
    agent_id: str | None

    @property
    def seq(self) -> int:
        """Set by the producer; may repeat."""
        return self.envelope.seq

    @property
    def kind(self) -> str:
        """Kind of the event (events.md 3)."""
        return self.envelope.kind

    @property
    def source(self) -> str:
        """Component that saw the event."""
        return self.envelope.source

    @property
    def event_id(self) -> str | None:
        """Opaque identity; the store neither checks nor indexes it."""
        return self.envelope.event_id

    @property
    def timestamp_unix_ms(self) -> int | None:
        """Instant of the event in ms since 1970."""
        return self.envelope.timestamp_unix_ms

    @property
    def payload(self) -> bytes:
        """JSON text of the payload as it came."""
        return bytes(self.envelope.payload)

    @property
    def model(self) -> str | None:
        """`payload.model` where it is a string."""
        return payload_model(self.envelope.payload)

    def effective_text(self) -> bytes:
        """The text with the physical session and agent in it: what a replay into another log must carry."""
        envelope = self.envelope
        changes = {}
        if self.session_id != envelope.session_id:
            changes["session_id"] = self.session_id
        if self.agent_id != envelope.agent_id:
            changes["agent_id"] = self.agent_id
        return with_members(self.text, changes) if changes else self.text


def parse(text: bytes) -> EventRecord:
    """Read one record from its JSON text.

    Raises InputError: `member:encoding` (not UTF-8), `member:unreadable` (not strict JSON), `member:invalid` (seq,
    source, kind or payload missing, blank source or kind, seq or timestamp_unix_ms beyond int64, an id that is no string).
    """
    text = text.strip(b" \t\r\n")
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"record is not UTF-8 at byte {error.start}", kind="member:encoding") from error
    try:
        envelope = _decode_envelope(text)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"record is not strict JSON: {error}", kind="member:unreadable") from error
    if jsontext.is_deeper(text, jsontext.MAX_DEPTH):
        raise InputError(f"record nests deeper than {jsontext.MAX_DEPTH} levels", kind="member:unreadable")
    _check(envelope)
    return EventRecord(text, envelope, envelope.session_id, envelope.agent_id)


def _check(envelope: Envelope) -> None:
    if not envelope.source.strip() or not envelope.kind.strip():
        raise _invalid("source and kind must not be blank")
    if not 0 <= envelope.seq <= INT64_MAX:
        raise _invalid(f"seq {envelope.seq} is not in 0 … 2^63-1")
    at = envelope.timestamp_unix_ms
    if at is not None and not -INT64_MAX <= at <= INT64_MAX:
        raise _invalid(f"timestamp_unix_ms {at} is beyond int64")


def _invalid(reason: str) -> InputError:
    return InputError(f"record is not an EventRecord: {reason}", kind="member:invalid")


def payload_model(payload: msgspec.Raw | bytes) -> str | None:
    """`model` of a payload where the payload is an object and its model a string, else None."""
    try:
        model = bytes(_decode_payload(payload).model)
    except msgspec.DecodeError:
        return None
    return msgspec.json.decode(model, type=str) if model.startswith(b'"') else None


def complete(
    record: EventRecord,
    *,
    now_ms: int,
    session_id: str | None = None,
    agent_id: str | None = None,
    run_id: str | None = None,
) -> EventRecord:
    """Fill in what a live producer left out, as the peer's writer does (physical.md 1.4); the rest of the text stays.

    run_id (else the session), storyline_id (the session), session_id, agent_id, producer (the source), and
    timestamp_unix_ms from `timestamp`, else `now_ms`.
    """
    envelope = record.envelope
    session = envelope.session_id or session_id
    fills: dict[str, str | int | None] = {
        "run_id": envelope.run_id or run_id or session,
        "storyline_id": envelope.storyline_id or session,
        "session_id": session,
        "agent_id": envelope.agent_id or agent_id,
        "producer": envelope.producer or envelope.source,
    }
    changes = {name: value for name, value in fills.items() if value is not None and getattr(envelope, name) != value}
    return parse(with_members(record.text, changes | _instant(envelope, now_ms)))


def timed(record: EventRecord, now_ms: int) -> EventRecord:
    """Fill in timestamp_unix_ms alone, without which a row cannot be read: from `timestamp`, else `now_ms`."""
    if record.envelope.timestamp_unix_ms is not None:
        return record
    return parse(with_members(record.text, _instant(record.envelope, now_ms)))


def _instant(envelope: Envelope, now_ms: int) -> dict[str, str | int | None]:
    if envelope.timestamp_unix_ms is not None:
        return {}
    parsed = unix_ms(envelope.timestamp) if envelope.timestamp else None
    return {"timestamp_unix_ms": now_ms if parsed is None else parsed}


def unix_ms(timestamp: str) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 text, rounded down; None where it is none (no zone, no such date)."""
    try:
        parsed = datetime.fromisoformat(timestamp)
        return None if parsed.tzinfo is None else (parsed - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def with_members(text: bytes, changes: Mapping[str, str | int | None]) -> bytes:
    """Set top-level members of a record's text (None: take it out). New ones go to the end, so other bytes stay."""
    if not changes:
        return text
    members = _decode_members(text)
    if not members.keys() & changes.keys() and members:
        added = b"".join(b"," + _encode(key) + b":" + _encode(value) for key, value in changes.items() if value is not None)
        return text.rstrip(b" \t\r\n")[:-1] + added + b"}"
    merged = {key: bytes(value) for key, value in members.items()}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _encode(value)
    return b"{" + b",".join(_encode(key) + b":" + value for key, value in merged.items()) + b"}"
