"""Rows of OpenAI messages (form A) and Storyline, both ways (openai_msg.md, "A. Row corpus")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from chronicle.errors import InputError
from chronicle.formats import jsontext
from chronicle.formats.document import Document
from chronicle.formats.jsontext import Json
from chronicle.formats.openai_shapes import Top, members_of
from chronicle.formats.story import StorylineDocument

_Answer = TypeVar("_Answer")


def look(text: bytes, ask: Callable[[Top], _Answer]) -> _Answer:
    """Ask about the top level of a JSON text."""
    text = text.strip()
    if text.startswith(b"["):
        return ask([text[a:b] for a, b in jsontext.elements(text, 0)])
    return ask(members_of(text))


def lines(text: bytes) -> list[Json]:
    """The values of JSON lines."""
    raise InputError("rows are not read yet")


def into(document: Document, source: Json, form: str) -> list[StorylineDocument]:
    """The stories of a document of rows."""
    raise InputError("rows are not read yet")


def made(stories: Sequence[StorylineDocument], form: str, marks: Mapping[str, list[str]]) -> Json:
    """The canonical document of rows."""
    raise InputError("rows are not written yet")
