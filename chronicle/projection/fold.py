"""Fold of `document.*` facts: rows in append order -> whole documents (design 4.2, events.md 7).

Of a document the first copy counts that is complete and whose digest verifies; copies are never mixed, repeats change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from chronicle import identity
from chronicle.events.imported import DocumentRef, ImportedRecord, decode_record, part_bytes, wire_bytes
from chronicle.formats.document import Document, Part
from chronicle.projection.sources import Wanted

HELD_BYTES = 128 << 20
"""Payload of documents that are not whole yet; past it they are put off."""


class FactDocument(msgspec.Struct, frozen=True):
    """One live document as the facts hold it. `before` + value + `after` are its bytes in the source."""

    ordinal: int
    """Row number of the `document.opened` (or `document.opaque`) of the chosen copy."""
    source_id: str
    locator: int
    before: bytes
    value: Document | bytes
    """bytes: a member that no reader could read."""
    after: bytes

    def pieces(self) -> list[bytes]:
        """The document's bytes in its source, separators before it and, for the last one, after it included."""
        value = [self.value] if isinstance(self.value, bytes) else self.value.pieces()
        return [self.before, *value, self.after]


class _Copy(msgspec.Struct):
    ordinal: int = -1
    opened: DocumentRef | None = None
    wire: bytes = b""
    parts: dict[int, Part] = {}
    closed: DocumentRef | None = None
    end: bytes = b""
    strict: bool = True
    """No part came as text."""
    size: int = 0
    """Bytes of its rows."""

    def is_complete(self) -> bool:
        return self.closed is not None and self.opened is not None and len(self.parts) == self.closed.parts


class DocumentFold(msgspec.Struct):
    """Feed it rows in append order; it gives back each wanted document once, as soon as it is whole.

    Where rows of very many documents lie among each other it lets go of them, and `put_off` says which to read again.
    """

    wanted: dict[str, Wanted]
    """Documents still to give back: each is taken out when it is given."""
    keep_opaque: bool = False
    """Give back unreadable members too (exact export)."""
    rows_read: int = 0
    corrupt: list[str] = []
    """Documents of which a complete copy does not verify."""
    strays: set[str] = set()
    """Ids of documents that were met and are not wanted, or not any more."""
    held_bytes: int = HELD_BYTES
    """The most payload to hold of documents that are not whole yet; one document may have more."""
    _copies: dict[str, dict[str, _Copy]] = {}
    _held: int = 0
    _put_off: dict[str, int] = {}
    """Document id -> bytes of its rows."""
    _opaque: dict[str, FactDocument] = {}

    def feed(self, rows: Iterable[tuple[int, str, str, bytes]]) -> Iterator[FactDocument]:
        """(row number, kind, trace_id, payload_json) of `document.*` rows -> documents that became whole."""
        for ordinal, kind, trace_id, payload in rows:
            if trace_id not in self.wanted:
                self.strays.add(trace_id)
                continue
            if trace_id in self._put_off:
                self._put_off[trace_id] += len(payload)
                continue
            self.rows_read += 1
            found = self._take(ordinal, kind, trace_id, payload)
            if found is not None:
                del self.wanted[trace_id]
                yield found
            elif self._held > self.held_bytes and len(self._copies) > 1:
                self._put_off.update((each, _size(copies)) for each, copies in self._copies.items())
                self._let_go()

    def put_off(self) -> Iterator[list[str]]:
        """Documents that were let go of, so many at a time as may be held: feed all rows of those, then go on."""
        groups: list[list[str]] = []
        room = 0
        for document_id, size in self._put_off.items():
            if size > room or not groups:
                groups.append([])
                room = self.held_bytes
            groups[-1].append(document_id)
            room -= size
        self._put_off = {}
        for few in groups:
            self._let_go()  # all rows of these were there: what is not whole now never will be
            yield few

    def _let_go(self) -> None:
        self._copies.clear()
        self._held = 0

    def finish(self) -> Iterator[FactDocument]:
        """Unreadable members that no retry superseded; call it after the last row."""
        for document_id, found in self._opaque.items():
            if self.wanted.pop(document_id, None) is not None:
                yield found

    @property
    def incomplete(self) -> list[str]:
        """Wanted documents that were not found whole, sorted."""
        opaque = set() if self.keep_opaque else set(self._opaque)
        return sorted(self.wanted.keys() - opaque)

    def _take(self, ordinal: int, kind: str, document_id: str, payload: bytes) -> FactDocument | None:
        try:
            record = decode_record(payload)
        except msgspec.MsgspecError:
            return None
        ref = record.payload.document
        if ref is None or ref.id != document_id:
            return None
        if kind == "document.opaque":
            self._take_opaque(ordinal, document_id, record)
            return None
        copies = self._copies.setdefault(document_id, {})
        copy = copies.get(ref.copy) or copies.setdefault(ref.copy, _Copy())
        copy.size += len(payload)
        self._held += len(payload)
        if kind == "document.part" and ref.part is not None:
            copy.strict = copy.strict and record.payload.text is None and record.payload.base64 is None
            copy.parts[ref.part] = Part(ref.pointer or "", wire_bytes(record.payload.lead), part_bytes(record.payload))
        elif kind == "document.opened" and copy.opened is None:
            copy.ordinal, copy.opened, copy.wire = ordinal, ref, wire_bytes(record.payload.wire)
        elif kind == "document.closed":
            copy.closed, copy.end = ref, wire_bytes(record.payload.wire)
        return self._whole(document_id, ref.copy, copy) if copy.is_complete() else None

    def _take_opaque(self, ordinal: int, document_id: str, record: ImportedRecord) -> None:
        payload, wanted = record.payload, self.wanted[document_id]
        if document_id not in self._opaque:
            self._opaque[document_id] = FactDocument(
                ordinal=ordinal,
                source_id=wanted.source_id,
                locator=wanted.locator,
                before=wire_bytes(payload.wire),
                value=part_bytes(payload) if self.keep_opaque else b"",
                after=wire_bytes(payload.tail),
            )

    def _whole(self, document_id: str, copy_id: str, copy: _Copy) -> FactDocument | None:
        wanted = self.wanted[document_id]
        assert copy.opened is not None
        if wanted.forced is not None and copy.opened.format != wanted.forced:
            return None
        found = _assemble(document_id, copy, wanted)
        if found is None:
            self.corrupt.append(document_id)
            self._held -= self._copies[document_id].pop(copy_id).size
        else:
            self._held -= _size(self._copies.pop(document_id))
        return found


def _size(copies: dict[str, _Copy]) -> int:
    return sum(copy.size for copy in copies.values())


def _assemble(document_id: str, copy: _Copy, wanted: Wanted) -> FactDocument | None:
    """The document of a complete copy; None where a part number is missing or the digest does not verify."""
    opened, closed = copy.opened, copy.closed
    assert opened is not None
    assert closed is not None
    numbers = range(1, len(copy.parts) + 1)
    if closed.size is None or not all(number in copy.parts for number in numbers):
        return None
    parts = [copy.parts[number] for number in numbers]
    opening = copy.wire[opened.start :]
    inside = len(opening) + sum(len(part.lead) + len(part.text) for part in parts)
    end = closed.size - inside
    if end < 0:
        return None
    document = Document(
        format=opened.format or "",
        form=opened.form or "",
        id=document_id,
        opening=opening,
        parts=parts,
        closing=copy.end[:end],
        source_id=wanted.source_id,
        container=opened.container or "object",
        locator=wanted.locator,
        cut=opened.cut or "",
        strict=copy.strict,
    )
    if identity.digest_of(document.pieces()) != closed.digest:
        return None
    return FactDocument(
        ordinal=copy.ordinal,
        source_id=wanted.source_id,
        locator=wanted.locator,
        before=copy.wire[: opened.start],
        value=document,
        after=copy.end[end:],
    )
