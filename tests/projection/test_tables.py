"""Hub stories as rows, and back."""

from __future__ import annotations

import json
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chronicle.errors import IntegrityError, ProjectionError
from chronicle.formats.story import Agent, Origin, StorylineDocument, ToolCall, Turn
from chronicle.projection import columns, tables
from tests.projection import strategies as some


def built(stories: list[StorylineDocument], *, alone: bool = True) -> dict[str, pa.RecordBatch]:
    """The rows of stories, each of a document of its own or all of one; they keep their turns."""
    (batches,) = in_batches(stories, alone)
    return batches


def in_batches(stories: list[StorylineDocument], alone: bool) -> list[dict[str, pa.RecordBatch]]:
    found = []
    builder = tables.TableBuilder()
    for at, document in enumerate([[story] for story in stories] if alone else [stories]):
        builder.add(list(map(replace, document)), at)
        while builder.is_full:
            found.append(builder.batches())
    return [*found, builder.batches()]


def cells(data: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    """Rows with instants as numbers: without pandas, Python has no type for their nanoseconds."""
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    fields = [field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields)).to_pylist()


def read_back(*batches: dict[str, pa.RecordBatch]) -> list[StorylineDocument]:
    return list(tables.stories(*([each[name] for each in batches] for name in tables.SCHEMAS)))


def story(*turns: Turn, **fields: object) -> StorylineDocument:
    values: dict[str, object] = {"story_id": "0" * 32, "session": "s-1", "agent": Agent(id="a"), "turns": list(turns)}
    return StorylineDocument(**{**values, **fields})  # type: ignore[arg-type]


def turn(number: int = 1, **fields: object) -> Turn:
    return Turn(**{"id": number, "src": "agent", "msg": b'"hi"', **fields})  # type: ignore[arg-type]


def rows(table: str, *turns: Turn, **fields: object) -> list[dict[str, object]]:
    return cells(built([story(*turns, **fields)])[table])


@given(some.stories())
@settings(max_examples=60, deadline=None)
def test_rows_give_back_the_stories_exactly(stories: list[StorylineDocument]) -> None:
    batches = built(stories)
    for name, batch in batches.items():
        batch.validate(full=True)
        assert batch.schema.equals(tables.SCHEMAS[name], check_metadata=True)
    assert read_back(batches) == stories


@given(some.stories(max_size=6), st.data())
@settings(max_examples=15, deadline=None)
def test_rows_do_not_depend_on_the_batches(stories: list[StorylineDocument], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(stories)))
    whole, parts = built(stories), [built(stories[:at]), built(stories[at:])]
    for name in tables.SCHEMAS:
        joined = pa.Table.from_batches([part[name] for part in parts])
        left = pa.Table.from_batches([whole[name]])
        if name == "runs":  # the ordinals of the test builder begin anew
            joined, left = (each.drop_columns(["storage_ordinal"]) for each in (joined, left))
        assert cells(joined) == cells(left)
    assert read_back(*parts) == stories


@given(some.stories(max_size=6), st.integers(1, 9), st.integers(1, 300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_rows_do_not_depend_on_the_size_of_a_batch(stories: list[StorylineDocument], rows: int, size: int, alone: bool) -> None:
    whole = built(stories, alone=alone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_FULL_ROWS", rows)
        patch.setattr(tables, "_FULL_BYTES", size)
        parts = in_batches(stories, alone)
    for name, schema in tables.SCHEMAS.items():
        assert cells(pa.Table.from_batches([part[name] for part in parts], schema)) == cells(whole[name])
    assert read_back(*parts) == stories
    most = max((1 + len(turn.tool_calls or ()) for story in stories for turn in story.turns), default=0)
    assert all(sum(part[name].num_rows for name in part) <= 2 * rows + most for part in parts)


def test_a_large_story_is_let_go_of_while_it_becomes_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_FULL_BYTES", 1 << 18)
    tracemalloc.start()
    try:
        large = story(*(turn(n, msg=b'"%b"' % (b"x" * (1 << 16))) for n in range(1, 129)))
        builder = tables.TableBuilder()
        builder.add([large], 0)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        rows, left = 0, []
        while builder.is_full:
            rows += builder.batches()["steps"].num_rows
            left.append(tracemalloc.get_traced_memory()[0])
        rows += builder.batches()["steps"].num_rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (rows, size > 128 << 16) == (128, True)
    assert peak < size + (1 << 20), "one batch more, not the story once more"
    assert left == sorted(left, reverse=True)
    assert left[-1] < size // 8


@given(some.stories())
@settings(max_examples=30, deadline=None)
def test_what_the_peer_checks_when_it_loads_a_document(stories: list[StorylineDocument]) -> None:
    batches = built(stories)
    steps = {(row["document_id"], row["step_id"]): row for row in cells(batches["steps"])}
    for row in steps.values():
        first = row["message_value"][0]
        assert row["message_kind"] == {'"': "text", "[": "parts", "n": "null"}.get(first, "json")
        assert (row["reasoning_effort_kind"] is None) == (row["reasoning_effort_value"] is None)
        assert row["had_observation"] == (row["observation"] is not None)
    for call in cells(batches["tool_calls"]):
        step = steps[call["document_id"], call["step_id"]]
        assert step["had_tool_calls"]
        observation = json.loads(step["observation"]) if step["observation"] else None
        results = observation.get("results") if isinstance(observation, dict) else None
        own = [
            result
            for result in (results if isinstance(results, list) else [])
            if isinstance(result, dict) and result.get("source_call_id", result.get("tool_call_id")) == call["tool_call_id"]
        ]
        assert json.loads(call["results"]) == own


@given(st.lists(st.none() | some.TIMESTAMPS, max_size=6))
@settings(deadline=None)
def test_an_instant_depends_on_its_own_text_only(stamps: list[str | None]) -> None:
    together = columns.instants(stamps)
    assert together.equals(pa.concat_arrays([columns.instants([]), *(columns.instants([stamp]) for stamp in stamps)]))
    for text, back in zip(stamps, columns.rendered(together), strict=True):
        if text is not None and back is not None:
            assert columns.is_canonical(text) == (text == back)


@given(st.lists(st.none() | some.INT64, min_size=1, max_size=4))
@settings(deadline=None)
def test_rendered_instants_are_canonical(numbers: list[int | None]) -> None:
    # The cast takes neither the earliest instants nor the smallest number, which stands for none elsewhere.
    column = pa.array([None if n is None else max(n, -(1 << 62)) for n in numbers], pa.int64()).cast(columns.TIMESTAMP)
    texts = columns.rendered(column)
    assert columns.instants(texts).equals(column)
    assert all(columns.is_canonical(text) for text in texts if text is not None)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01", 1_000_000_000),
        ("1970-01-01 00:00:01.5", 1_500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.000000001", 1),
        ("1970-01-01T00:00:00,00000012", 120),
        ("1970-01-01T09:00:00+09:00", 0),
        ("1970-01-02", 86_400_000_000_000),
        ("19700102T000000Z", 86_400_000_000_000),
        ("2262-04-11T23:47:16.854775807Z", (1 << 63) - 1),
        ("2262-04-11T23:47:16.854775808Z", None),
        ("2262-04-12", None),
        ("9999-12-31T23:59:59+00:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("2016-12-31T23:59:60Z", None),
        ("2026-02-30T00:00:00Z", None),
        ("1767323045", None),
        ("", None),
    ],
)
def test_instants(text: str, nanoseconds: int | None) -> None:
    for values in ([text], [text, "no time at all", None, "2026-01-01T00:00:00Z"]):
        assert columns.instants(values).cast(pa.int64())[0].as_py() == nanoseconds


def test_a_timestamp_the_instant_does_not_spell_stands_in_the_residual() -> None:
    plain, offset, odd, none = rows(
        "steps",
        turn(1, ts="2026-01-02T03:04:05.250Z"),
        turn(2, ts="2026-01-02T12:04:05.250000+09:00", residual={"/x": "1.10"}),
        turn(3, ts='at "noon"'),
        turn(4),
    )
    assert plain["residual"] is None
    assert plain["timestamp"] == offset["timestamp"]
    assert json.loads(str(offset["residual"])) == {"/x": "1.10", "/timestamp": '"2026-01-02T12:04:05.250000+09:00"'}
    assert json.loads(str(odd["residual"])) == {"/timestamp": '"at \\"noon\\""'}
    assert (odd["timestamp"], none["timestamp"], none["residual"]) == (None, None, None)


def test_results_are_the_entries_that_name_the_call() -> None:
    first = b'{"source_call_id": "a", "content": 1.10}'
    observation = (
        b'{"results":[%b, {"source_call_id":null,"content":"x"}, {"tool_call_id":"b"},{"source_call_id":"a"}], "k":0}' % first
    )
    calls = [ToolCall(tcid=name, fn="f", args=b"{}") for name in ("a", "b", "c")]
    found = [row["results"] for row in rows("tool_calls", turn(tool_calls=calls, observation=observation))]
    assert found == [f'[{first.decode()},{{"source_call_id":"a"}}]', '[{"tool_call_id":"b"}]', "[]"]


def test_results_of_an_observation_that_only_a_lenient_reader_takes() -> None:
    observation = b'{"results": [{"source_call_id":"a","content":NaN}, 7, {"source_call_id":"\\ud800"}], "results2": []}'
    calls = [ToolCall(tcid=name, fn="f", args=b"{}") for name in ("a", "\ufffd")]
    found = [row["results"] for row in rows("tool_calls", turn(tool_calls=calls, observation=observation))]
    assert found == ['[{"source_call_id":"a","content":NaN}]', '[{"source_call_id":"\\ud800"}]']


@pytest.mark.parametrize("observation", [b'"text"', b"null", b"[]", b'{"results":"x"}', b'{"results":{}}', b"{}"])
def test_results_of_an_observation_without_a_list(observation: bytes) -> None:
    (row,) = rows("tool_calls", turn(tool_calls=[ToolCall(tcid="a", fn="f", args=b"{}")], observation=observation))
    assert row["results"] == "[]"


def test_one_row_of_each_table() -> None:
    whole = story(
        turn(7, tool_calls=[ToolCall(tcid="c", fn="f", args=b"[1]", duration_ms=3)], latency_ms=5, effort=b'"high"', nllm=1),
        turn(8, src="tool", kind="odd", msg=b"1", effort=b"{}"),
        run="r",
        child_stories=["k"],
        children=["kid", "gone"],
        origin=Origin(format="atif", schema_version="ATIF-v1.7"),
        lints={"order": 2},
    )
    batches = built([whole])
    run = cells(batches["runs"])[0]
    assert {name: value for name, value in run.items() if value is not None} == {
        "schema_version": "storyline/v1",
        "origin": '{"format":"atif","schema_version":"ATIF-v1.7"}',
        "document_id": "0" * 32,
        "storage_ordinal": 0,
        "trajectory_id_explicit": True,
        "run_id": "r",
        "session_id": "s-1",
        "agent_id": "a",
        "child_session_ids": '["k"]',
        "meta": '{"lints":{"order":2}}',
        "residual": '{"children":"[\\"kid\\",\\"gone\\"]"}',
    }
    first, second = cells(batches["steps"])
    assert (first["turn_ordinal"], first["effective_kind"], first["kind"], first["latency"]) == (0, "autonomous", None, 5)
    assert (second["turn_ordinal"], second["effective_kind"], second["message_kind"]) == (1, "odd", "json")
    assert (first["reasoning_effort_kind"], second["reasoning_effort_kind"]) == ("text", "json")
    call = cells(batches["tool_calls"])[0]
    assert (call["step_id"], call["call_index"], call["duration"], call["session_id"]) == (7, 0, 3, "s-1")


@pytest.mark.parametrize(
    "bad",
    [
        turn(1 << 63),
        turn(reason="\ud800"),
        turn(latency_ms=-(1 << 63) - 1),
        turn(tool_calls=[ToolCall(tcid="\udfff", fn="", args=b"0")]),
    ],
)
def test_what_a_column_cannot_hold_is_refused_before_it_is_taken(bad: Turn) -> None:
    builder = tables.TableBuilder()
    builder.add([story(turn())], 0)
    document = [story(turn()), story(turn(), bad)]
    with pytest.raises(ProjectionError):
        builder.add(document, 1)
    assert [len(each.turns) for each in document] == [1, 2]
    assert (builder.rows, builder.batches()["runs"].num_rows) == (2, 1)
    assert (builder.rows, builder.bytes, builder.batches()["steps"].num_rows) == (0, 0, 0)


def test_missing_and_disordered_rows_are_noticed() -> None:
    call = ToolCall(tcid="c", fn="f", args=b"{}")
    batches = built([story(turn(1, tool_calls=[call]), turn(2))])
    runs, steps, calls = (batches[name] for name in tables.SCHEMAS)
    for parts in (
        ([], [steps], [calls]),
        ([runs], [steps.slice(1)], [calls]),
        ([runs], [steps.slice(1), steps.slice(0, 1)], [calls]),
        ([runs], [], [calls]),
        ([runs], [steps], [calls, calls]),
    ):
        with pytest.raises(IntegrityError):
            list(tables.stories(*parts))


def test_a_builder_is_full_by_its_text_or_by_its_rows() -> None:
    builder = tables.TableBuilder()
    builder.add([story(Turn(id=1, src="user", msg=b'"%b"' % (b"x" * tables._FULL_BYTES)))], 0)
    assert builder.is_full
    builder.batches()
    turns = [Turn(id=number, src="agent", msg=b'""') for number in range(1, 1001)]
    added = 0
    while not builder.is_full:
        builder.add([story(*turns)], added)
        added += 1
    assert (added - 1) * 1001 < tables._FULL_ROWS <= added * 1001
    assert builder.bytes < tables._FULL_BYTES
