"""Cut a source into documents and parts by byte ranges that cover it without a gap (design 4.2).

Nothing is decoded that is not needed to find the pieces, and nothing is written: a document put together
from its ranges is the document, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from chronicle.errors import InputError, UsageError
from chronicle.formats import detect, jsontext, pieces, slices
from chronicle.formats.detect import Verdict
from chronicle.formats.document import CutDocument, CutSource
from chronicle.formats.slices import ARRAY, OBJECT, REFUSED, FastReader, Reader, Slice, SlowReader, Trajectory

CONTAINERS = ("object", "array", "jsonl", "concatenated")

_TRIED_LINES = 20
_VAGUE = ("json-scalar", "json-object", "json-array")


def cut(
    source: bytes,
    *,
    name: str = "",
    format: str | None = None,
    container: str | None = None,
    first_locator: int = 0,
) -> CutSource:
    """Cut `source` (decompressed bytes) into documents and parts; all offsets are absolute.

    `name` helps to tell JSONL and stands in messages. `format` skips detection, `container` the search for one;
    `first_locator` is the ordinal of the first document, for the tail of a JSONL that only grew.

    Raises InputError with the quarantine kind (`empty`, `unreadable`, `truncated`, `encoding`,
    `unsupported:<what>`) when not one document can be read, UsageError for a format or container that is none.
    """
    if format is not None and format not in detect.FORMATS:
        raise UsageError(f"there is no format named {format!r}", hint=f"formats: {', '.join(detect.READABLE)}")
    if container is not None and container not in CONTAINERS:
        raise UsageError(f"there is no container named {container!r}", hint=f"containers: {', '.join(CONTAINERS)}")
    if format is not None and format not in detect.READABLE:
        raise _unsupported(format, detail=f"the format {format} is not read yet")
    cutter = _Cutter(source, format, is_lines=_lines_by_name(name), forced=container, fast=FastReader(source))
    try:
        found, documents = cutter.run(tail=first_locator > 0)
    except InputError as error:
        raise _named(error, name or "the source", source) from error
    end = 0
    for locator, document in enumerate(documents, first_locator):
        document.locator, document.lead = locator, end
        end = document.end
    first = next((each for each in documents if not each.fault), None)
    return CutSource(
        format=first.format if first else format or "",
        container=found,
        documents=documents,
        size=len(source),
        reason=first.reason if first else "",
    )


def _lines_by_name(name: str) -> bool:
    lower = name.lower()
    for suffix in (".gz", ".zst"):
        lower = lower.removesuffix(suffix)
    return lower.endswith((".jsonl", ".ndjson"))


class _Cutter(msgspec.Struct):
    source: bytes
    format: str | None
    is_lines: bool
    forced: str | None
    fast: FastReader
    utf8: bool = True

    # -- the source ----------------------------------------------------------------------------------------

    def run(self, tail: bool) -> tuple[str, list[CutDocument]]:
        """(container, documents); raises InputError when there is no document to read."""
        whole = slices.trim(self.source, Slice(0, len(self.source)))
        if whole.start >= whole.end:
            raise InputError("there is nothing in it", hint="nothing to ingest", kind="empty")
        bad = self._encoding(whole)
        if self.forced == "jsonl" or bad is not None:
            documents = self._each(slices.lines(self.source, whole))
            if bad is not None and not tail and not self._are_lines(documents):
                raise bad
            return "jsonl", self._readable(documents, tail)
        if self.forced == "concatenated":
            documents = self._chain(whole) or []
            found = ("concatenated", self._readable(documents, tail)) if documents else self._broken_chain(whole)
            if found is None:
                raise self._broken(whole)
            return found
        if self.forced == "array" and self.source[whole.start] != ARRAY:
            raise InputError("no array", hint="an array of documents was asked for", kind="unreadable")
        return self._detected(whole)

    def _are_lines(self, documents: list[CutDocument]) -> bool:
        """Whether the lines of a source that is not all UTF-8 are documents, so that the bad ones can be set aside."""
        if all(each.fault for each in documents):
            return False
        broken = sum(each.fault in ("member:unreadable", "member:truncated") for each in documents)
        return self.is_lines or self.forced == "jsonl" or broken < sum(map(_complete, documents))

    def _encoding(self, whole: Slice) -> InputError | None:
        """Why the source is not UTF-8, if only some of its lines may not be; raises where it is hopeless."""
        wide = slices.wide(self.source)
        offset = -1 if wide else slices.bad_utf8(self.source)
        if not wide and offset < 0:
            return None
        what = f"text in {wide}" if wide else f"not UTF-8: byte {offset} is 0x{self.source[offset]:02x}"
        error = InputError(
            f"it is {what}",
            hint="save it as UTF-8",
            kind="encoding",
            **({} if wide else {"offset": offset}),
        )
        if wide or (self.forced != "jsonl" and self.source.find(b"\n", whole.start, whole.end) < 0):
            raise error
        self.utf8 = False
        return error

    def _detected(self, whole: Slice) -> tuple[str, list[CutDocument]]:
        fault: InputError | None = None
        try:
            return self._one_value(whole)
        except _Several:
            pass
        except InputError as error:
            if error.kind not in ("unreadable", "truncated"):
                raise
            fault = error
        if self.forced is None:
            found = self._several(whole, broken=fault is not None)
            if found is None and fault and fault.kind == "truncated" and self.source[whole.start] == ARRAY:
                found = self._cut_off(whole)
            if found is not None:
                return found
        what = detect.of_text(self.source)
        if what:
            raise _unsupported(what)
        raise fault or self._broken(whole)

    def _broken(self, at: Slice) -> InputError:
        try:
            SlowReader(self.source, at).value(at)
        except InputError as error:
            return self._located(error, at)
        return InputError("several values", hint="one value is expected here", kind="unreadable")

    # -- one value -----------------------------------------------------------------------------------------

    def _one_value(self, whole: Slice) -> tuple[str, list[CutDocument]]:
        """The source as one JSON value: a document, or an array of documents. Raises InputError, `_Several`."""
        if self.source[whole.start] == ARRAY and self.forced != "object":
            elements = self._elements(whole)
            if not elements:
                raise InputError("an empty array", hint="nothing to ingest", kind="empty")
            verdict = self._verdict([self.source[each.start : each.end] for each in elements])
            if not verdict.format or self.forced == "array":
                documents = self._each(elements)
                return "array", self._readable(documents, False, verdict.unsupported)
        document = self._read(whole)
        may_be_line = self.forced is None and self.is_lines and self.source[whole.start] == OBJECT
        if may_be_line and self.source.find(b"\n", whole.start, whole.end) < 0:
            return "jsonl", [document]
        return "object", [document]

    def _elements(self, at: Slice) -> list[Slice]:
        try:
            return self.fast.elements(at)
        except REFUSED as error:
            if "trailing characters" in str(error):
                raise _Several from error
        slow = SlowReader(self.source, at)
        try:
            slow.value(at)
            return slow.elements(at)
        except InputError as error:
            raise self._fault(error, at) from error

    def _read(self, at: Slice) -> CutDocument:
        """The document at `at`. Raises InputError when it cannot be read, `_Several` when more follows."""
        try:
            return self._pieces(self.fast, at, fast=self.fast)
        except REFUSED as error:
            if "trailing characters" in str(error):
                raise _Several from error
        slow = SlowReader(self.source, at)
        try:
            slow.value(at)
            return self._pieces(slow, at)
        except InputError as error:
            raise self._fault(error, at) from error

    def _fault(self, error: InputError, at: Slice) -> Exception:
        return _Several() if error.context.get("more") else self._located(error, at)

    def _located(self, error: InputError, at: Slice) -> InputError:
        """The same error with the offset in the source and the name of the source."""
        offset = error.context.get("offset")
        if offset is None:
            return error
        what = error.message.partition("): ")[2] or error.message
        return InputError(
            f"not JSON from byte {at.start + offset} on: {what}",
            hint="the file may be cut off" if error.kind == "truncated" else "repair it at its producer, then ingest again",
            kind=error.kind,
            offset=at.start + offset,
        )

    def _pieces(self, reader: Reader, at: Slice, fast: FastReader | None = None) -> CutDocument:
        kind = self.source[at.start]
        if kind not in (OBJECT, ARRAY):
            (fast or SlowReader(self.source, at)).value(at)
            raise _unsupported("json-scalar")
        if fast is not None and kind == OBJECT and self.format in (None, "atif") and self._may_be_atif(at):
            root = reader.trajectory(at)
            if root.version is not None:
                return self._atif(reader, at, Verdict("atif", f"`schema_version` says {root.version}"), root)
        places: dict[str, Slice] = {}
        top: detect.Top
        if kind == OBJECT:
            places = reader.members(at)
            top = {key: self.source[each.start : each.end] for key, each in places.items()}
        else:
            top = [self.source[each.start : each.end] for each in reader.elements(at)]
        verdict = self._verdict(top)
        if not verdict.format:
            raise _unsupported(verdict.unsupported, verdict.reason)
        if verdict.format == "atif":
            return self._atif(reader, at, verdict)
        if verdict.format == "storyline":
            document = self._document(reader, at, verdict, pieces.storyline(reader, places))
            document.invalid = pieces.violation(self.source, at, document.parts)
            return document
        return self._document(reader, at, verdict, pieces.openai(reader, at, verdict, top, places))

    def _may_be_atif(self, at: Slice) -> bool:
        # A hint only: what it misses is found by the look at all members, at the price of one more decode.
        return self.source.find(b"ATIF", at.start, min(at.end, at.start + 512)) >= 0

    def _verdict(self, top: detect.Top) -> Verdict:
        return detect.recognise(top) if self.format is None else detect.forced(self.format, top)

    def _atif(self, reader: Reader, at: Slice, verdict: Verdict, root: Trajectory | None = None) -> CutDocument:
        return self._document(reader, at, verdict, pieces.atif(reader, at, root))

    def _document(self, reader: Reader, at: Slice, verdict: Verdict, found: pieces.Pieces) -> CutDocument:
        parts, stories = found
        return CutDocument(
            format=verdict.format,
            form=verdict.form,
            locator=0,
            lead=0,
            start=at.start,
            end=at.end,
            parts=parts,
            stories=stories,
            strict=reader.strict,
            reason=verdict.reason,
        )

    # -- several values ------------------------------------------------------------------------------------

    def _several(self, whole: Slice, broken: bool) -> tuple[str, list[CutDocument]] | None:
        """The source as JSONL or as consecutive values; None when it is neither. `broken`: its first value is none."""
        lines = slices.lines(self.source, whole)
        documents: list[CutDocument] = []
        chained = broken
        for line in lines:
            document = self._member(line)
            if document.fault and not _complete(document):
                chain = None if chained else self._chain(whole, line.start)
                if chain is not None:
                    # Also where some line holds a scalar, lines are lines.
                    are_lines = [each.start for each in chain] == [each.start for each in lines]
                    return "jsonl" if are_lines else "concatenated", self._readable(chain, False)
                if not self.is_lines and not documents and not self._looks_like_lines(lines):
                    return None if broken else self._broken_chain(whole)
                chained = True
            documents.append(document)
        complete = sum(map(_complete, documents))
        if complete == 0 or (not self.is_lines and 2 * complete <= len(documents)):
            return None if broken else self._broken_chain(whole)
        return "jsonl", self._readable(documents, False)

    def _looks_like_lines(self, lines: list[Slice]) -> bool:
        tried = lines[:_TRIED_LINES]
        return 2 * sum(_complete(self._member(line)) for line in tried) > len(tried)

    def _chain(self, whole: Slice, checked_from: int = 0) -> list[CutDocument] | None:
        """Consecutive values; None when what stands from `checked_from` on is not."""
        if checked_from > whole.start and self._ends(checked_from, whole.end) is None:
            return None
        ends = self._ends(whole.start, whole.end)
        return self._each(ends) if ends is not None else None

    def _ends(self, start: int, end: int) -> list[Slice] | None:
        found, fault = slices.values(self.source, start, end)
        return None if fault else found

    def _broken_chain(self, whole: Slice) -> tuple[str, list[CutDocument]] | None:
        """Consecutive values and then something that is none: the rest is one member that cannot be read."""
        found, fault = slices.values(self.source, whole.start, whole.end)
        if fault is None or not found:
            return None
        documents = self._each(found)
        if all(each.fault for each in documents):
            return None
        rest = slices.trim(self.source, Slice(found[-1].end, whole.end))
        documents.append(_opaque(rest, fault.kind, self._located(fault, Slice(0, 0)).message))
        return "concatenated", self._readable(documents, False)

    def _each(self, places: Iterable[Slice]) -> list[CutDocument]:
        return [self._member(each) for each in places]

    def _member(self, at: Slice) -> CutDocument:
        """The member of a container at `at`, opaque where it cannot be read."""
        if not self.utf8:
            offset = slices.bad_utf8(self.source[at.start : at.end])
            if offset >= 0:
                return _opaque(at, "encoding", f"byte {at.start + offset} is not UTF-8")
        if slices.EMPTY_ARRAY.fullmatch(self.source, at.start, at.end):
            return _opaque(at, "empty", "an empty array")
        try:
            return self._read(at)
        except _Several:
            return _opaque(at, "unreadable", f"more than one value from byte {at.start} on")
        except InputError as error:
            return _opaque(at, error.kind, error.message)

    def _readable(self, documents: list[CutDocument], tail: bool, shape: str = "") -> list[CutDocument]:
        """`documents`, merged; raises the most telling fault when not one can be read and it is not the tail of more."""
        documents = _merged(self.source, documents)
        if tail or any(not each.fault for each in documents):
            return documents
        kinds = Counter(each.fault.removeprefix("member:") for each in documents)
        telling = [kind for kind in kinds if kind.startswith("unsupported:") and not kind.endswith(_VAGUE)]
        known = max(telling or kinds, key=lambda kind: kinds[kind])
        first = next(each for each in documents if each.fault == f"member:{known}")
        what = known.removeprefix("unsupported:")
        if what in _VAGUE and shape and (what == "json-scalar" or shape not in _VAGUE):
            raise _unsupported(shape)
        if known.startswith("unsupported:") and what != "json-scalar":
            raise _unsupported(what, first.reason)
        raise InputError(
            f"none of its {len(documents)} members can be read; the first: {first.reason}",
            hint="repair it at its producer, then ingest again",
            kind="unreadable" if what == "json-scalar" else known,
        )

    def _cut_off(self, whole: Slice) -> tuple[str, list[CutDocument]] | None:
        """An array of documents that ends too soon: what is whole in it, and the rest as one opaque member."""
        found: list[Slice] = []
        try:
            found += (Slice(*each) for each in jsontext.elements(self.source, whole.start))
        except InputError as error:
            fault = self._located(error, Slice(0, 0))
        if not found or self._verdict([self.source[each.start : each.end] for each in found]).format:
            return None
        documents = self._each(found)
        if all(each.fault for each in documents):
            return None
        rest = slices.trim(self.source, Slice(found[-1].end, whole.end))
        if self.source.startswith(b",", rest.start):
            rest = slices.trim(self.source, Slice(rest.start + 1, rest.end))
        return "array", self._readable([*documents, _opaque(rest, fault.kind, fault.message)], False)


class _Several(Exception):
    """More text follows the value."""


def _complete(document: CutDocument) -> bool:
    """Whether a member is one whole object or array, readable or not."""
    fault = document.fault.removeprefix("member:")
    return not fault or fault == "empty" or (fault.startswith("unsupported:") and not fault.endswith("json-scalar"))


def _opaque(at: Slice, kind: str, reason: str) -> CutDocument:
    return CutDocument(
        format="",
        form="",
        locator=0,
        lead=0,
        start=at.start,
        end=at.end,
        strict=False,
        fault=f"member:{kind}",
        reason=reason,
    )


def _merged(source: bytes, documents: list[CutDocument]) -> list[CutDocument]:
    """Neighbouring rows of form A are one document: a file of them is one conversation log (openai_msg.md A)."""
    merged: list[CutDocument] = []
    run: list[CutDocument] = []
    for document in [*documents, None]:
        if document is not None and document.form == "A:row":
            run.append(document)
            continue
        if run:
            merged.append(_rows(source, run))
            run = []
        if document is not None:
            merged.append(document)
    return merged


def _rows(source: bytes, run: list[CutDocument]) -> CutDocument:
    first = run[0]
    if len(run) == 1:
        return first
    rows = [Slice(part.start, part.end) for document in run for part in document.parts]
    first.parts, first.stories = pieces.row_pieces(source, [(row, f"/{i}") for i, row in enumerate(rows)])
    first.end = run[-1].end
    first.strict = all(document.strict for document in run)
    return first


def _named(error: InputError, name: str, source: bytes) -> InputError:
    """The same error with the name of the source and, where it has a place, the line."""
    context = dict(error.context)
    if "offset" in context:
        # Here only: to count lines for every bad member of a large source would take its square.
        context["line"] = source.count(b"\n", 0, context["offset"]) + 1
        name = f"{name}, line {context['line']}"
    return InputError(f"{name}: {error.message}", hint=error.hint, kind=error.kind, **context)


def _unsupported(what: str, detail: str = "") -> InputError:
    text, hint = detect.describe(what)
    return InputError(detail or text, hint=hint, kind=f"unsupported:{what}")
