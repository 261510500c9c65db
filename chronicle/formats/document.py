"""A document in pieces: what a cutter finds in a source, and what the facts hold of it (design 4.2, events.md 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from chronicle.identity import CUT_RULES

_Item = TypeVar("_Item")


class CutPart(msgspec.Struct, frozen=True, order=True, gc=False):
    """One part of a document: its byte range in the source and whose it is."""

    start: int
    end: int
    pointer: str
    """JSON Pointer of the part inside its document, e.g. `/steps/4`."""
    story: int
    """Index into `CutDocument.stories`."""
    timestamp: str | None = None
    """The part's own time stamp text, where it has one that is a string."""


class CutStory(msgspec.Struct):
    """A trajectory that a document holds: the root first, then embedded ones in pre-order."""

    discriminator: str = ""
    """`` for the root; the JSON Pointer of an embedded trajectory; the session id of a session of row form A."""
    session_id: str | None = None
    """Effective session as far as the bytes say: own, else inherited, else the trajectory id; None: use the story id."""
    agent_id: str | None = None
    run_id: str | None = None


class CutDocument(msgspec.Struct):
    """One top-level value of a source, or a member of a container."""

    format: str
    form: str
    locator: int
    lead: int
    """Where the container's bytes before the document begin; the previous document ends here."""
    start: int
    end: int
    """The document's own value is `source[start:end]`."""
    parts: Sequence[CutPart] = ()
    stories: Sequence[CutStory] = msgspec.field(default_factory=lambda: [CutStory()])
    strict: bool = True
    """Whether every part is JSON that any reader takes, apart from its nesting."""
    fault: str = ""
    """Quarantine kind (`member:<kind>`) of a member that cannot be read: stored as `document.opaque`."""
    reason: str = ""
    invalid: str = ""
    """`invalid:<rule>`: readable and stored, but refused by the seeds: not projected, and in quarantine."""


class CutSource(msgspec.Struct):
    """A whole source in documents. Their ranges and leads, and what follows the last, cover it without a gap."""

    format: str
    container: str
    """`object`, `array`, `jsonl` or `concatenated`."""
    documents: list[CutDocument]
    size: int
    reason: str = ""
    """Why the source was taken for this format, for people."""


class Part(NamedTuple):
    """One part as the facts give it back."""

    pointer: str
    lead: bytes
    text: bytes


class Document(msgspec.Struct, frozen=True, dict=True):
    """A document put together again from its pieces; `text` is byte for byte the value that came in."""

    format: str
    form: str
    id: str
    opening: bytes
    """The document's own bytes before its first part."""
    parts: list[Part]
    closing: bytes
    source_id: str = ""
    container: str = "object"
    locator: int = 0
    cut: str = CUT_RULES
    """Version of the rules by which it was cut into parts."""
    strict: bool = True
    """Whether every part is known to be JSON that any reader takes."""

    def drain(self) -> Iterator[bytes]:
        """The texts of its parts in order; it holds none any more once it has been given."""
        return (part.text for part in drained(self.parts))

    def pieces(self) -> list[bytes]:
        """The document's own bytes, in pieces."""
        pieces = [self.opening]
        for part in self.parts:
            pieces += (part.lead, part.text)
        pieces.append(self.closing)
        return pieces

    def take_text(self) -> bytes:
        """The document's own bytes; it has no parts afterwards."""
        text = b"".join(self.pieces())
        self.parts.clear()
        return text

    @cached_property
    def text(self) -> bytes:
        """The document's own bytes."""
        return b"".join(self.pieces())

    @cached_property
    def skeleton(self) -> bytes:
        """The document with its parts and the commas between them taken out: every part array is empty."""
        pieces = [self.opening]
        pieces += [part.lead for part in self.parts if part.lead.strip() != b","]
        pieces.append(self.closing)
        return b"".join(pieces)


def drained(items: list[_Item]) -> Iterator[_Item]:
    """The items in order; the list is without each as soon as it is given, and empty in the end."""
    items.reverse()
    while items:
        yield items.pop()
