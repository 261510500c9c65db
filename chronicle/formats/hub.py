"""The hub: every format to Storyline and back (seed RFC-0001, formats/storyline.md 1 and 9)."""

from __future__ import annotations

from chronicle import identity
from chronicle.formats.document import CutDocument, CutSource, Document, Part


def document_of(source: bytes, cut: CutSource, document: CutDocument, source_id: str) -> Document:
    """A document of a source, put together from its byte ranges."""
    parts = []
    end = first = document.parts[0].start if document.parts else document.end
    for part in document.parts:
        parts.append(Part(part.pointer, source[end : part.start], source[part.start : part.end]))
        end = part.end
    return Document(
        format=document.format,
        form=document.form,
        id=identity.document_id(source_id, document.locator),
        opening=source[document.start : first],
        parts=parts,
        closing=source[end : document.end],
        source_id=source_id,
        container=cut.container,
        locator=document.locator,
    )
