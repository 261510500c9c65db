"""Hypothesis strategies for hub stories with values of every kind that a column may meet."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from chronicle.formats.story import Agent, Origin, Parent, StorylineDocument, ToolCall, Turn

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
NAME = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)

_VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def json_texts(draw: st.DrawFn, values: st.SearchStrategy[Any] = _VALUES) -> bytes:
    """JSON text in one of several spellings; also what only a lenient reader takes."""
    odd = draw(st.sampled_from([None] * 8 + [b"NaN", b'"\\ud800"', b'{"a":1,"a":1.10}', b"1e400", b"-0"]))
    if odd is not None:
        return odd
    spaces = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\n ")]))
    return json.dumps(draw(values), ensure_ascii=draw(st.booleans()), separators=spaces).encode()


JSON = json_texts()

TIMESTAMPS = (
    st.datetimes().map(lambda moment: moment.isoformat())
    | st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "Z")
    | st.sampled_from(
        [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.250Z",
            "2026-01-02T03:04:05.250000Z",
            "2026-01-02T03:04:05.000000001Z",
            "2026-01-02T12:04:05+09:00",
            "2026-01-02",
            "2016-12-31T23:59:60Z",
            "1677-09-21T00:12:43.145224193Z",
            "2262-04-11T23:47:16.854775807Z",
            "9999-12-31T23:59:59Z",
            "yesterday",
            '"quoted" \\ and \n broken',
            "",
        ]
    )
)

_POINTERS = st.sampled_from(["", "/step_id", "/timestamp", "/a~1b/0", "/\ud800"])
_RESIDUAL = st.dictionaries(_POINTERS, st.none() | JSON.map(lambda text: text.decode()) | TIMESTAMPS.map(json.dumps), max_size=3)
_ORDERS = st.dictionaries(st.sampled_from(["#", "#/extra"]), st.lists(TEXT, max_size=3), max_size=1)
RESIDUALS = st.none() | st.builds(lambda values, orders: {**values, **orders} or None, _RESIDUAL, _ORDERS)

IDS = st.sampled_from(["c1", "c2", "c1#2", "", "日本"])
_RESULT = st.fixed_dictionaries(
    {"content": TEXT}, optional={"source_call_id": IDS | st.none(), "tool_call_id": IDS | st.integers()}
)
_OBSERVATION = st.fixed_dictionaries({}, optional={"results": st.lists(_RESULT | TEXT | st.none(), max_size=3) | TEXT, "x": TEXT})

CALLS = st.builds(
    ToolCall,
    tcid=IDS,
    fn=TEXT,
    args=JSON,
    duration_ms=st.none() | INT64,
    extra=st.none() | JSON,
    residual=RESIDUALS,
)

TURNS = st.builds(
    Turn,
    id=INT64,
    src=st.sampled_from(["user", "agent", "system", "tool", ""]),
    msg=JSON,
    ts=st.none() | TIMESTAMPS,
    model=st.none() | TEXT,
    effort=st.none() | JSON,
    reason=st.none() | TEXT,
    tool_calls=st.none() | st.lists(CALLS, max_size=3, unique_by=lambda call: call.tcid),
    observation=st.none() | JSON | json_texts(_OBSERVATION),
    metrics=st.none() | JSON,
    nllm=st.none() | INT64,
    copied=st.none() | st.booleans(),
    extra=st.none() | JSON,
    kind=st.none() | TEXT,
    latency_ms=st.none() | INT64,
    ttft_ms=st.none() | INT64,
    residual=RESIDUALS,
)

ORIGINS = st.builds(
    Origin,
    format=st.sampled_from(["atif", "storyline", "openai_msg"]),
    schema_version=st.none() | TEXT,
    form=st.none() | st.sampled_from(["A", "B1"]),
    container=st.none() | st.sampled_from(["object", "array", "jsonl"]),
    document_id=st.none() | TEXT,
    source_id=st.none() | TEXT,
    locator=st.none() | st.integers(0, 9),
    index=st.integers(0, 3),
    pointer=st.none() | TEXT,
)

BODIES = st.builds(
    StorylineDocument,
    story_id=st.just(""),
    session=NAME,
    agent=st.builds(
        Agent,
        id=NAME,
        name=st.none() | TEXT,
        ver=st.none() | TEXT,
        model=st.none() | TEXT,
        tools=st.none() | JSON,
        extra=st.none() | JSON,
    ),
    turns=st.lists(TURNS, max_size=4, unique_by=lambda turn: turn.id),
    run=st.none() | TEXT,
    children=st.none() | st.lists(TEXT, max_size=2),
    child_stories=st.lists(TEXT, max_size=2),
    parent=st.none() | st.builds(Parent, psid=TEXT, scid=st.none() | TEXT, ptid=st.none() | INT64, rel=st.none() | TEXT),
    notes=st.none() | TEXT,
    final_metrics=st.none() | JSON,
    continued_trajectory_ref=st.none() | TEXT,
    extra=st.none() | JSON,
    origin=st.none() | ORIGINS,
    residual=RESIDUALS,
    lints=st.dictionaries(TEXT, st.integers(1, 9), max_size=2),
)


@st.composite
def stories(draw: st.DrawFn, max_size: int = 4) -> list[StorylineDocument]:
    """Stories with distinct ids."""
    found = draw(st.lists(BODIES, max_size=max_size))
    for at, story in enumerate(found):
        story.story_id = f"{at:032x}"
    return found
