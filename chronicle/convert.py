"""convert: one file of one format to a file of another, without a lake (design 8).

The result is read back, written in the format in which it came, and compared value by value: every place that does not
come back as it was counts as lost. With `strict` nothing is written then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from chronicle import identity
from chronicle.errors import ChronicleError, NotFoundError, UsageError
from chronicle.formats import hub, jsontext, residual
from chronicle.formats.cut import cut
from chronicle.formats.jsontext import Json
from chronicle.formats.story import StorylineDocument
from chronicle.options import ConvertOptions
from chronicle.plural import counted
from chronicle.projection.markdown import render
from chronicle.reports import ConvertReport
from chronicle.storage import files
from chronicle.storage.uri import absolute

STDIO = "-"
MARKDOWN = "agenticmd"
_VIEW = "all of it: AgenticMD is a view to read, which is not read back"


def convert(options: ConvertOptions) -> ConvertReport:
    """Convert a file. Raises NotFoundError, InputError (kinds of design 4.2), UsageError, or what the disk says."""
    _check_target(options.to)
    source = _read(options.source)
    stories = hub.into_storyline(options.from_, source)
    if options.to == MARKDOWN:
        data, lost = _markdown(options, stories), [_VIEW]
    else:
        data = hub.from_storyline(options.to, stories, profile=options.profile, residual=options.residual)
        lost = losses(options, source, data)
    if not (lost and options.strict) and not options.dry_run:
        _write(options.target, data)
    return ConvertReport(
        source=options.source,
        to=options.target,
        stories=len(stories),
        bytes=len(data),
        lost=lost,
        strict=options.strict,
        dry_run=options.dry_run,
    )


def _check_target(format: str) -> None:
    if format == MARKDOWN:
        return
    try:
        hub.check_format(format)
    except UsageError as error:
        error.hint = error.hint if format == "events" else f"formats: {', '.join((*hub.FORMATS, MARKDOWN))}"
        raise


def _markdown(options: ConvertOptions, stories: Sequence[StorylineDocument]) -> bytes:
    if len(stories) > 1:
        raise UsageError(
            f"AgenticMD holds one run a file, and {options.source} holds {len(stories)}",
            hint="ingest it, then `chronicle export --format agenticmd`",
        )
    return render(stories[0], reasoning=options.reasoning)


def losses(options: ConvertOptions, source: bytes, made: bytes) -> list[str]:
    """Places of the source that its converted form does not give back: `<document>: <JSON Pointer>`."""
    try:
        back = hub.convert(options.to, options.from_, made, profile=options.profile, residual=options.residual)
    except ChronicleError as error:
        return [f"all of it: {error.message}"]
    before, after = _values(options.from_, source), _values(options.from_, back)
    if len(before) != len(after):
        return [f"{counted(len(before), 'document')} came back as {len(after)}"]
    pairs = zip(before, after, strict=True)
    return [f"{number}: {pointer or '/'}" for number, (old, new) in enumerate(pairs) for pointer in residual.diff(old, new)]


def _values(format: str, source: bytes) -> list[Json]:
    found = cut(source, format=format)
    source_id = identity.source_id(source)
    return [jsontext.parse(hub.document_of(source, found, document, source_id).text) for document in found.documents]


def _read(path: str) -> bytes:
    if path == STDIO:
        return sys.stdin.buffer.read()
    data = files.read(path)
    if data is None:
        raise NotFoundError(f"{path} does not exist", hint="name the file to convert, or - for standard input", path=path)
    return data


def _write(path: str, data: bytes) -> None:
    if path == STDIO:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        files.write_atomic(absolute(path), data)
