"""Small stories and stores for the tests of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from msgspec.structs import replace

from chronicle.formats.story import Agent, Origin, StorylineDocument, ToolCall, Turn
from chronicle.layout import generation_path
from chronicle.projection.tables import SCHEMAS, TableBuilder
from chronicle.storage import lanceio
from chronicle.storyline.current import EventsSource, Projection, Snapshot
from chronicle.storyline.source import StorylineDataSource

PROJECTION = Projection(
    source_id="events:" + "0" * 64,
    source_file="events/d/events.lance",
    source=EventsSource(
        kind="canonical_events", source_uri="/lake/events/d/events.lance", fact_version=3, fact_rows=7, layout_revision=4
    ),
    projector_name="chronicle",
    recipe_hash="1" * 64,
    completeness="full",
)


def story(number: int, text: str = "hi", turns: int = 2) -> StorylineDocument:
    """Story `number`; its storage ordinal is to be `number` too."""
    call = ToolCall(tcid="c1", fn="look", args=b'{"at": 1.10}', residual={"/x": "null"})
    return StorylineDocument(
        story_id=f"{number:032x}",
        session=f"s-{number}",
        agent=Agent(id="a", name="a"),
        turns=[
            Turn(id=1, src="user", msg=f'"{text}"'.encode(), ts="2026-01-02T12:04:05+09:00"),
            *(
                Turn(id=at, src="agent", msg=b'"done"', tool_calls=[call], observation=b'{"results":[{"source_call_id":"c1"}]}')
                for at in range(2, turns + 1)
            ),
        ],
        origin=Origin(format="atif", schema_version="ATIF-v1.7", locator=number),
    )


def batches(stories: Iterable[StorylineDocument], each: int = 1) -> Iterator[dict[str, pa.RecordBatch]]:
    """Batches of `each` stories, with the number in the story id as the ordinal."""
    builder = TableBuilder()
    for at, one in enumerate(stories, 1):
        builder.add([replace(one)], int(one.story_id, 16))
        if at % each == 0:
            yield builder.batches()
    yield builder.batches()


def visible(root: str) -> list[StorylineDocument]:
    """All stories that a reader sees now."""
    return list(StorylineDataSource.open(root).stories())


def garble(root: str, snapshot: Snapshot, table: str = "steps") -> int:
    """Append rows to a table as a writer would that dies before its commit; returns the version."""
    uri = generation_path(root, snapshot.table_generation, table)
    rows = next(batches([story(99)]))[table]
    latest = int(lanceio.open_version(uri, snapshot.versions[table]).latest_version)
    return lanceio.append(uri, latest, SCHEMAS[table], [rows])
