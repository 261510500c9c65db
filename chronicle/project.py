"""Projecting documents: facts -> hub stories, one odd document at a time (design 5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from chronicle.errors import ChronicleError, InputError
from chronicle.formats import hub
from chronicle.formats.cut import cut
from chronicle.formats.document import Document
from chronicle.formats.story import StorylineDocument
from chronicle.identity import CUT_RULES
from chronicle.projection.fold import FactDocument

_ODD_DOCUMENT = (ChronicleError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError)
"""What the projection of a document may raise: it fails that document alone, the facts are good."""

BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8: it is none of the text's, but stands before it in many files."""

Stories = tuple[int, list[StorylineDocument]]
"""(storage_ordinal, stories of one document, the root first)."""


class Projector(msgspec.Struct):
    """Projects documents and keeps count of what is odd."""

    lints: dict[str, int] = {}
    failed: list[str] = []
    """Documents that could not be projected, with the reason."""

    def stories(self, documents: Iterable[FactDocument]) -> Iterator[Stories]:
        """Stories of each document that can be projected."""
        for document in documents:
            if isinstance(document.value, Document):
                found = self._project(document.value, document.before)
                if found:
                    yield document.ordinal, found

    def _project(self, document: Document, before: bytes) -> list[StorylineDocument]:
        try:
            stories = hub.into(document if document.cut == CUT_RULES else _recut(document))
        except InputError as error:
            self._lint(error.kind)
            return []
        except _ODD_DOCUMENT as error:
            if isinstance(error, ChronicleError) and error.kind == "too-deep":
                self._lint(error.kind)
            else:
                self.failed.append(f"document {document.id}: {error}")
            return []
        if before.startswith(BOM):
            stories[0].lints["byte-order-mark"] = 1
        for story in stories:
            for code, count in story.lints.items():
                self._lint(code, count)
        return stories

    def _lint(self, code: str, count: int = 1) -> None:
        self.lints[code] = self.lints.get(code, 0) + count


def _recut(document: Document) -> Document:
    """The same document in parts by our own rules; another version of them cut it."""
    text = document.take_text()
    found = cut(text, format=document.format)
    parts = hub.document_of(text, found, found.documents[0], document.source_id)
    return replace(parts, id=document.id, container=document.container, locator=document.locator, form=document.form)
