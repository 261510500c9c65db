"""EventRow: the physical schema, fast columns, and the agreement of columns and record."""


import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InputError, IntegrityError
from chronicle.events import row
from chronicle.events.record import parse
from chronicle.events.row import COLUMNS, SCHEMA, Common, EventColumns, EventRow, record_of, row_of, rows_of
from tests.events.helpers import event, events

NAMES = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
INT64 = st.integers(-(2**63), 2**63 - 1)
ROWS = st.builds(
    EventRow,
    seq=INT64,
    event_id=NAMES,
    timestamp=INT64,
    kind=st.sampled_from(["note", "http.request", ""]),
    source=st.sampled_from(["a", "b"]),
    agent_id=NAMES,
    session_id=NAMES,
    call_id=NAMES,
    trace_id=NAMES,
    parent_call_id=NAMES,
    model=NAMES,
    payload_json=st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
)


def test_the_schema_is_the_one_the_peer_compares():
    optional = {"event_id", "agent_id", "session_id", "call_id", "trace_id", "parent_call_id", "model"}
    assert list(COLUMNS) == [
        *("seq", "event_id", "timestamp", "kind", "source", "agent_id"),
        *("session_id", "call_id", "trace_id", "parent_call_id", "model", "payload_json"),
    ]
    assert {field.name for field in SCHEMA if field.nullable} == optional
    assert {str(field.type) for field in SCHEMA} == {"int64", "string", "timestamp[ms, tz=UTC]"}
    assert SCHEMA.metadata is None
    assert all(field.metadata is None for field in SCHEMA)


@given(st.lists(ROWS, max_size=20))
def test_columns_give_the_rows_back(rows):
    columns = EventColumns()
    for each in rows:
        columns.add_row(each)
    assert (columns.rows, columns.bytes) == (len(rows), sum(len(each.payload_json) for each in rows))
    batch = columns.batch()
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert list(rows_of(batch)) == rows
    assert (columns.rows, columns.bytes, columns.batch().num_rows) == (0, 0, 0)


def test_pieces_are_joined_and_common_columns_repeat():
    columns = EventColumns()
    common = Common("src", session_id="s", trace_id="d")
    for seq in range(3):
        columns.add(seq, None, 5, "note", (b'{"a":', memoryview(b"12345")[:2], b"}"), common)
    columns.add(9, "e", 6, "note", (b"{}",), Common("src", model="m"))
    rows = list(rows_of(columns.batch()))
    assert [each.payload_json for each in rows] == [b'{"a":12}'] * 3 + [b"{}"]
    assert [each.session_id for each in rows] == ["s", "s", "s", None]
    assert [each.model for each in rows] == [None, None, None, "m"]


def test_a_batch_stays_below_2_gib(monkeypatch):
    monkeypatch.setattr(row, "MAX_BATCH_BYTES", 10)
    columns = EventColumns()
    common = Common("s")
    columns.add(0, None, 0, "note", (b"123456",), common)
    with pytest.raises(InputError) as caught:
        columns.add(1, None, 0, "note", (b"12345",), common)
    assert caught.value.kind == "too-large"
    assert columns.batch().num_rows == 1
    columns.add(1, None, 0, "note", (b"12345",), common)
    assert next(rows_of(columns.batch())).payload_json == b"12345"


def test_record_and_row_are_two_views_of_one_fact():
    for record in events(5):
        assert record_of(row_of(record)) == record


def test_the_physical_session_and_agent_win_and_the_claim_stays():
    claimed = event(1, "claimed")
    routed = record_of(row_of(claimed)._replace(session_id="routed", agent_id=None))
    assert (routed.session_id, routed.agent_id) == ("routed", None)
    assert routed.envelope.session_id == "claimed"
    assert routed.text == claimed.text
    moved = parse(routed.effective_text())
    assert (moved.session_id, moved.agent_id) == ("routed", None)
    assert claimed.effective_text() == claimed.text
    assert row_of(routed) == row_of(claimed)._replace(session_id="routed", agent_id=None)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 2},
        {"event_id": "other"},
        {"event_id": None},
        {"kind": "note"},
        {"source": "other"},
        {"call_id": None},
        {"trace_id": "t"},
        {"parent_call_id": "p"},
        {"model": None},
        {"timestamp": 5},
        {"payload_json": b"{}"},
        {"payload_json": b"nothing"},
    ],
)
def test_columns_that_disagree_with_the_record(change):
    with pytest.raises(IntegrityError, match="seq"):
        record_of(row_of(event(1))._replace(**change))


def test_a_row_needs_an_instant():
    with pytest.raises(InputError, match="timestamp_unix_ms"):
        row_of(event(1, timestamp_unix_ms=None))


def test_records_are_frozen():
    with pytest.raises(AttributeError):
        event(1).text = b""


def test_texts_of_any_utf8_column_type_read_back():
    batch = pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row_of(event(1)), strict=True))], schema=SCHEMA)
    assert record_of(next(rows_of(batch))) == event(1)
