"""find: runs by an id or by words, in one dataset or a whole lake (design 8).

What is exactly an id is found as such, and that is all; else the one id that begins so, and the cells that hold the words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from chronicle import facts
from chronicle.discovery import Location, places_with_tables
from chronicle.errors import UsageError
from chronicle.events.log import RawEventLanceStore
from chronicle.freshness import stale_tables
from chronicle.options import FindOptions
from chronicle.projection.sources import wanted_documents
from chronicle.storyline.fulltext import hits
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.writer import quoted
from chronicle.words import Words

if TYPE_CHECKING:
    import pyarrow as pa

_RUN_IDS = ("document_id", "session_id", "run_id")
_SHORTEST_PREFIX = 4
_ROWS_A_BATCH = 256
_SHOWN = 120
_IDS_A_FILTER = 32
_SOURCE_ID = re.compile(r"[0-9a-f]{32}\Z")
_EVENT_ID = re.compile(r"(?=.*\d)[!-~]{16,200}\Z")


class Found(NamedTuple):
    """One row of the answer: where TEXT is."""

    dataset: str
    document_id: str | None
    """Of the run; None for a fact that is of none."""
    session_id: str | None
    step_id: int | None
    """Of the turn; None where the run as a whole is meant."""
    column: str
    """`table.column` that holds it, or `source_key`, `source_id` or `event_id` of the facts."""
    snippet: str


class FindResult(msgspec.Struct):
    """Rows, found while they are read."""

    rows: Iterator[Found]
    warnings: list[str]
    """Sentences about datasets that have no tables, or tables that are not made from all facts."""
    count: int = 0
    """Rows that `batches` has given so far."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        import pyarrow as pa

        return pa.schema([(name, pa.int64() if name == "step_id" else pa.string()) for name in Found._fields])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""
        import pyarrow as pa

        while some := list(itertools.islice(self.rows, _ROWS_A_BATCH)):
            self.count += len(some)
            columns = dict(zip(Found._fields, zip(*some, strict=True), strict=True))
            yield pa.record_batch([pa.array(columns[field.name], field.type) for field in self.schema], schema=self.schema)


def find(options: FindOptions) -> FindResult:
    """Look for an id or for words.

    Raises UsageError for a text without either, NotFoundError where there is no such dataset or no tables, IntegrityError
    where tables or facts do not read.
    """
    if not options.text.strip():
        raise UsageError("there is nothing to look for", hint="name an id, or words of a message")
    words = Words(options.text) if options.words else None
    places, warnings = places_with_tables(options.lake, options.dataset)
    opened = [_Place(place, StorylineDataSource.open(place.storyline)) for place in places]
    warnings = [*warnings, *stale_tables((place.location, place.source) for place in opened)]
    return FindResult(itertools.islice(_rows(options.text, words, opened), options.limit), warnings)


def _rows(text: str, words: Words | None, places: list[_Place]) -> Iterator[Found]:
    if words is None:
        exact = list(_all(place.exactly(text) for place in places)) or list(_all(place.facts(text) for place in places))
        if exact:
            yield from exact
            return
        yield from _beginning(text, places)
        words = Words(text)
    for place in places:
        for hit in hits(place.source, words):
            yield Found(place.name, *hit)


def _all(found: Iterable[Iterable[Found]]) -> Iterator[Found]:
    return itertools.chain.from_iterable(found)


def _beginning(text: str, places: list[_Place]) -> Iterator[Found]:
    """Rows of the one id that begins with a text; none where several do."""
    if len(text) < _SHORTEST_PREFIX or text.split() != [text]:
        return
    ids: set[str] = set()
    for place in places:
        for one in place.ids_like(text):
            ids.add(one)
            if len(ids) > 1:
                return
    for one in ids:
        yield from _all(place.exactly(one) for place in places)


class _Place(msgspec.Struct, frozen=True):
    """One dataset that is looked through."""

    location: Location
    source: StorylineDataSource

    @property
    def name(self) -> str:
        return self.location.name

    def exactly(self, text: str) -> Iterator[Found]:
        """Runs and calls with this id."""
        for column in _RUN_IDS:
            for row in self._scan("runs", [*_RUN_IDS, "agent_id"], f"{column} = {quoted([text])}"):
                yield Found(self.name, row[0], row[1], None, f"runs.{column}", f"{text} ({row[3]})")
        keys = ["document_id", "session_id", "step_id", "function_name", "arguments"]
        for row in self._scan("tool_calls", keys, f"tool_call_id = {quoted([text])}"):
            shown = " ".join(f"{row[3]} {row[4]}".split())
            snippet = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
            yield Found(self.name, row[0], row[1], row[2], "tool_calls.tool_call_id", snippet)

    def ids_like(self, text: str) -> Iterator[str]:
        """Ids that begin with a text, each any number of times."""
        for table, columns in (("runs", _RUN_IDS), ("tool_calls", ("tool_call_id",))):
            for column in columns:
                for row in self._scan(table, [column], f"starts_with({column}, {quoted([text])})"):
                    yield row[0]

    def facts(self, text: str) -> Iterator[Found]:
        """Runs of a source with this id or key, or whose key ends with this path; runs of a fact with this id."""
        store = RawEventLanceStore(self.location.events)
        if "/" in text or "." in text or _SOURCE_ID.match(text):
            yield from self._of_source(text, store)
        if _EVENT_ID.match(text):
            for _, batch in store.snapshot().lookup("event_id", [text], ["kind", "trace_id"]):
                for kind, document in zip(batch["kind"].to_pylist(), batch["trace_id"].to_pylist(), strict=True):
                    known = list(self._runs([document], "event_id", f"{kind} {text}")) if document else []
                    yield from known or [Found(self.name, None, None, None, "event_id", f"{kind} {text}")]

    def _of_source(self, text: str, store: RawEventLanceStore) -> Iterator[Found]:
        fold = facts.source_fold(store.snapshot())
        live = fold.live()
        for key, receipt in sorted(fold.current.items()):
            column = "source_id" if receipt.source_id == text else "source_key"
            if (column == "source_id" or key == text or key.endswith(f"/{text}")) and receipt.source_id in live:
                documents = wanted_documents(fold, fold.coverage([live[receipt.source_id]]))
                yield from self._runs(documents, column, key)

    def _runs(self, documents: Iterable[str], column: str, snippet: str) -> Iterator[Found]:
        """All runs of some documents of the facts."""
        wanted = set(documents)
        stories = [story for story, origin in self.source.origins() if origin.document_id in wanted]
        for at in range(0, len(stories), _IDS_A_FILTER):
            few = quoted(stories[at : at + _IDS_A_FILTER])
            for row in self._scan("runs", ["document_id", "session_id"], f"document_id IN ({few})"):
                yield Found(self.name, row[0], row[1], None, column, snippet)

    def _scan(self, table: str, columns: list[str], condition: str) -> Iterator[tuple[Any, ...]]:
        for batch in self.source.scan(table, columns, condition):
            yield from zip(*(batch[column].to_pylist() for column in columns), strict=True)
