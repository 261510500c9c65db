"""EventRecord: what is one, and what happens to its text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InputError
from chronicle.events import record

MINIMAL = {"seq": 0, "source": "s", "kind": "note", "payload": {}}


def text(**changes):
    members = {**MINIMAL, **changes}
    return json.dumps({key: value for key, value in members.items() if value is not ...}).encode()


def test_the_text_stays_as_it_came():
    raw = b'{"kind" : "note","seq":7, "source":"s","payload":{"cost":1.10,"cost":0.0100},"mine":[1e400, 12345678901234567890]}'
    found = record.parse(b" " + raw + b"\n")
    assert found.text == raw
    assert (found.seq, found.kind, found.source, found.event_id) == (7, "note", "s", None)
    assert found.payload == b'{"cost":1.10,"cost":0.0100}'


@pytest.mark.parametrize(
    "raw",
    [
        text(seq=...),
        text(source=...),
        text(kind=...),
        text(payload=...),
        text(source="  "),
        text(kind=""),
        text(seq=2**63),
        text(seq=-1),
        text(seq="1"),
        text(seq=True),
        text(seq=None),
        text(timestamp_unix_ms=2**70),
        text(session_id=5),
        b"[]",
        b"null",
        b'"text"',
    ],
)
def test_what_is_no_record_is_set_aside(raw):
    with pytest.raises(InputError) as caught:
        record.parse(raw)
    assert caught.value.kind == "member:invalid"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "member:unreadable"),
        (b"{", "member:unreadable"),
        (text()[:-1], "member:unreadable"),
        (text() + b"}", "member:unreadable"),
        (b'{"seq":0,"source":"s","kind":"note","payload":NaN}', "member:unreadable"),
        (b'{"seq":0,"source":"s","kind":"note","payload":"\xff"}', "member:encoding"),
        (b'{"seq":0,"source":"s","kind":"note","payload":' + b"[" * 5000 + b"]" * 5000 + b"}", "member:unreadable"),
    ],
)
def test_what_is_no_json(raw, kind):
    with pytest.raises(InputError) as caught:
        record.parse(raw)
    assert caught.value.kind == kind


def test_the_largest_seq_and_payloads_that_are_no_objects():
    assert record.parse(text(seq=2**63 - 1)).seq == 2**63 - 1
    for payload in (None, 5, "x", [1], {"model": 5}, {"model": None}):
        assert record.parse(text(payload=payload)).model is None
    assert record.parse(text(payload={"model": "m\u00e91"})).model == "mé1"


def test_complete_fills_what_a_live_producer_left_out():
    given = record.parse(text(timestamp="2026-01-02T03:04:05.678Z", mine=1))
    full = record.complete(given, now_ms=5, session_id="S", agent_id="A", run_id="R")
    members = json.loads(full.text)
    assert members == {
        **MINIMAL,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "mine": 1,
        "run_id": "R",
        "storyline_id": "S",
        "session_id": "S",
        "agent_id": "A",
        "producer": "s",
        "timestamp_unix_ms": 1767323045678,
    }
    assert full.text.startswith(given.text[:-1])
    assert record.complete(full, now_ms=9, session_id="T", agent_id="B", run_id="Q") == full
    assert (full.session_id, full.agent_id) == ("S", "A")


def test_complete_without_any_help():
    full = record.complete(record.parse(text()), now_ms=5)
    assert json.loads(full.text) == {**MINIMAL, "producer": "s", "timestamp_unix_ms": 5}


def test_an_explicit_null_is_filled_once():
    full = record.complete(record.parse(text(session_id=None, timestamp_unix_ms=None)), now_ms=5, session_id="S")
    assert full.text.count(b'"session_id"') == full.text.count(b'"timestamp_unix_ms"') == 1
    assert (full.session_id, full.timestamp_unix_ms) == ("S", 5)


@pytest.mark.parametrize(
    ("stamp", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.0019+01:00", 1),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("9999-12-31T23:59:59Z", 253402300799000),
        ("0001-01-01T00:00:00+23:00", -62135679600000),
        ("2026-01-02T03:04:05", None),
        ("yesterday", None),
        ("2026-13-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_rfc3339(stamp, ms):
    assert record.unix_ms(stamp) == ms


def test_unix_ms_wins_over_a_timestamp_that_differs_and_both_stay():
    raw = text(timestamp="2026-01-02T03:04:05Z", timestamp_unix_ms=7)
    assert record.timed(record.parse(raw), 9).text == raw


def test_timed_falls_back_to_the_clock():
    assert record.timed(record.parse(text(timestamp="soon")), 9).timestamp_unix_ms == 9


KEYS = st.sampled_from(["run_id", "session_id", "agent_id", "mine", "\u00e9", '"'])


@given(
    members=st.dictionaries(KEYS, st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9))),
    changes=st.dictionaries(KEYS, st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9))),
)
def test_with_members_is_a_dict_update(members, changes):
    expected = {**members, **changes}
    expected = {key: value for key, value in expected.items() if key not in changes or changes[key] is not None}
    assert json.loads(record.with_members(json.dumps(members).encode(), changes)) == expected
