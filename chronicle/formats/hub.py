"""The hub: every format to Storyline and back (seed RFC-0001, formats/storyline.md 1 and 9).

into_storyline(format, input)     -> stories
from_storyline(format, stories)   -> a whole file
convert(from, to, input)          =  from_storyline(to, into_storyline(from, input))
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from chronicle import identity
from chronicle.errors import InputError, ProjectionError, UsageError
from chronicle.formats import atif, carrier, jsontext, openai_msg, storyline
from chronicle.formats.cut import cut
from chronicle.formats.document import CutDocument, CutSource, Document, Part
from chronicle.formats.oddity import oddities
from chronicle.formats.shape import check_depth
from chronicle.formats.story import Origin, StorylineDocument
from chronicle.formats.storyline import Profile

FORMATS = ("atif", "openai_msg", "storyline")
"""What can be read into stories and written from them."""

Carry = Literal["carry", "drop"]

_INTO = {"atif": atif.into, "openai_msg": openai_msg.into, "storyline": storyline.into}
_LATER = ("actf", "agenticmd")


def into_storyline(format: str, input: bytes | str) -> list[StorylineDocument]:
    """All stories of a file: document by document, the root first, then embedded ones in pre-order.

    Raises UsageError for a format that is not read, InputError (kinds of design 4.2) for a file or a member of it
    that cannot be read or must be rejected, ProjectionError for nesting beyond 1,000.
    """
    check_format(format)
    source = input.encode("utf-8", "surrogatepass") if isinstance(input, str) else input
    found = cut(source, format=format)
    source_id = identity.source_id(source)
    stories: list[StorylineDocument] = []
    for document in found.documents:
        kind = document.fault or document.invalid
        if kind:
            raise InputError(
                f"document {document.locator} of the input: {document.reason if document.fault else kind}",
                hint="repair or remove it, then convert again",
                kind=kind,
                locator=document.locator,
            )
        stories += into(document_of(source, found, document, source_id))
    return stories


def from_storyline(
    format: str,
    stories: Sequence[StorylineDocument],
    *,
    profile: Profile = "seed",
    residual: Carry = "carry",
    container: str | None = None,
) -> bytes:
    """A whole file of stories, in the container form (object, array, JSONL) in which they came.

    `container` is for stories of another format, which have none of this one; several in an `object` become an array.
    Raises UsageError for a format that is not written and for no story.
    """
    check_format(format)
    if not stories:
        raise UsageError("there is no story to write")
    if format == "storyline":
        texts = storyline.documents(stories, profile=profile, residual=residual)
        return _contained(texts, _container([story.origin for story in stories], format) or container, format)
    found, origins = [], []
    for group in grouped(stories, format):
        texts, origin = _document(format, group, residual)
        found += texts
        origins.append(origin)
    return _contained(found, _container(origins, format) or container, format)


def document_texts(
    format: str, stories: Sequence[StorylineDocument], *, profile: Profile = "seed", residual: Carry = "carry"
) -> list[bytes]:
    """The values that a file of this format holds for the stories of one document; one for all where it embeds them.

    Raises UsageError for a format that is not written and for no story.
    """
    check_format(format)
    if not stories:
        raise UsageError("there is no story to write")
    if format == "storyline":
        return storyline.documents(stories, profile=profile, residual=residual)
    return _document(format, stories, residual)[0]


def convert(from_: str, to: str, input: bytes | str, *, profile: Profile = "seed", residual: Carry = "carry") -> bytes:
    """A file of one format as a file of another, through Storyline."""
    check_format(to)
    return from_storyline(to, into_storyline(from_, input), profile=profile, residual=residual)


def into(document: Document) -> list[StorylineDocument]:
    """The stories of one document, which has no parts afterwards: its text and its turns need not be held at the same time.

    Raises what the reader of its format raises, UsageError where there is none.
    """
    check_format(document.format)
    for text in (document.skeleton, *(() if document.strict else (part.text for part in document.parts))):
        check_depth(text)
    odd = oddities(document)
    stories = _INTO[document.format](document)
    for index, story in enumerate(stories):
        if story.origin is not None:
            story.origin.index = index
    for code, count in odd.items():
        stories[0].lints[code] = count
    return stories


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
        strict=document.strict and not any(jsontext.is_deeper(part.text, jsontext.MAX_DEPTH) for part in parts),
    )


def check_format(format: str) -> None:
    """Raise UsageError for a name that the hub does not take, with the reason."""
    if format in FORMATS:
        return
    known = f"formats: {', '.join(FORMATS)}"
    if format == "events":
        raise UsageError(
            "events are kept in Lance only and are not converted as text",
            hint="use events_to_storyline and storyline_to_events, or `chronicle replay`",
        )
    if format in _LATER:
        raise UsageError(f"the format {format} is not supported yet", hint=known)
    raise UsageError(f"there is no format named {format!r}", hint=known)


# --- documents of a file ------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """What stands before, between and after the values of a file."""

    before: bytes
    between: bytes
    after: bytes


def frame(container: str | None, several: bool) -> Frame:
    """The frame of a container form; several values never stand in an `object`, but in an array."""
    if container == "concatenated":
        # On lines of their own compact values would be JSON lines.
        return Frame(b"", b" ", b"\n")
    if container == "jsonl":
        return Frame(b"", b"\n", b"\n")
    return Frame(b"[", b",", b"]") if container == "array" or several else Frame(b"", b"", b"")


def _document(format: str, group: Sequence[StorylineDocument], residual: Carry) -> tuple[list[bytes], Origin | None]:
    """The values of one document of a format that is not Storyline, and where it came from.

    What a Storyline file carries may have been edited, or be of somebody else: where it does not fit, it is `extra` like any.
    """
    if residual == "carry" and any(_carries(story, format) for story in group):
        with suppress(InputError, ProjectionError):
            return _written(format, carrier.restored(group, format), residual)
    return _written(format, group, residual)


def _carries(story: StorylineDocument, format: str) -> bool:
    origin = carrier.carried(story)
    return origin is not None and origin.format == format


def _written(format: str, members: Sequence[StorylineDocument], residual: Carry) -> tuple[list[bytes], Origin | None]:
    origin = members[0].origin
    is_ours = origin is not None and origin.format == format
    if format == "atif":
        trees = [list(members)] if is_ours else _trees(members)
        return [atif.dump(tree, residual=residual == "carry") for tree in trees], origin
    documents = [list(members)] if is_ours else [[member] for member in members]
    return [openai_msg.dump(document, exact=residual == "carry") for document in documents], origin


def _trees(members: Sequence[StorylineDocument]) -> list[list[StorylineDocument]]:
    """The stories of one document that can be embedded in each other; sessions of a row corpus stand beside each other."""
    trees: list[list[StorylineDocument]] = []
    for i, story in enumerate(members):
        above = _linked(story, members[:i])
        if above is None:
            trees.append([story])
        else:
            next(tree for tree in trees if any(other is above for other in tree)).append(story)
    return trees


def grouped(stories: Sequence[StorylineDocument], format: str) -> list[list[StorylineDocument]]:
    """The stories of each document to write in a format: those of one source document, or those that are linked."""
    groups: list[list[StorylineDocument]] = []
    place: dict[str, int] = {}
    for i, story in enumerate(stories):
        origin = carrier.carried(story) or story.origin
        document = origin.document_id if origin is not None else None
        key = f"document {document}" if document else f"story {i}"
        if key not in place:
            whole = document is not None and origin is not None and origin.format == format
            above = None if whole else _linked(story, stories[:i])
            if above is None:
                place[key] = len(groups)
                groups.append([])
            else:
                place[key] = next(n for n, group in enumerate(groups) if any(other is above for other in group))
        groups[place[key]].append(story)
    return groups


def _linked(story: StorylineDocument, earlier: Sequence[StorylineDocument]) -> StorylineDocument | None:
    """The one earlier story that names this one as a child and is named by it as parent."""
    if story.parent is None:
        return None
    psid, names = story.parent.psid, {story.run, story.session}
    found = [
        other
        for other in earlier
        if story.story_id in other.child_stories
        or (psid in (other.run, other.session) and not names.isdisjoint(other.children or ()))
    ]
    return found[0] if len(found) == 1 else None


def _container(origins: Sequence[Origin | None], format: str) -> str | None:
    """The container in which all of them came, as files of this format; None where they did not."""
    found = {origin.container if origin is not None and origin.format == format else None for origin in origins}
    return found.pop() if len(found) == 1 else None


def _contained(texts: Sequence[bytes], container: str | None, format: str) -> bytes:
    if container is None and format == "openai_msg" and len(texts) > 1:
        container = "jsonl"
    before, between, after = frame(container, len(texts) > 1)
    return before + between.join(texts) + after
