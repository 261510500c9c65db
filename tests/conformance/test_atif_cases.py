"""Cases 1 to 61: what ATIF files hold, and where it stands afterwards (formats/atif.md 9 and 10)."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from tests.conformance.spine import Cases, Laws, Seen, columns, lints_of, order_of, origin_of, residual_of
from tests.conformance.texts import AGENT, arr, atif, call, obj, one_call, one_step, root, step

case = Cases()


class TestLaws(Laws):
    """All files of this module."""


def origin(seen: Seen) -> dict:
    return origin_of(seen.run)


def ns(text: str, nanoseconds: int = 0) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000 + nanoseconds


# --- the root -----------------------------------------------------------------------------------------------


@case(
    1,
    {f"v1.{n}": (root(schema_version=f'"ATIF-v1.{n}"'), f"ATIF-v1.{n}") for n in range(9)}
    | {"bare": (root(schema_version='"1.4"'), "1.4"), "v2": (root(schema_version='"ATIF-v2.0"'), "ATIF-v2.0")},
)
def test_every_version_is_read_and_kept(seen, expected):
    assert origin(seen)["schema_version"] == expected
    assert origin(seen)["format"] == "atif"
    assert columns(seen.run, ("session_id", "agent_id", "meta")) == ("s-1", "wrench", None)
    assert residual_of(seen.run) == {}
    assert columns(seen.step, ("step_id", "source", "message_value")) == (1, "agent", '"turn the bolt"')


@case(
    2,
    {
        "missing": (root(schema_version=None), (None, {"/schema_version": None}, {"missing-schema-version": 1})),
        "null": (root(schema_version="null"), (None, {"/schema_version": "null"}, {"null-member": 1})),
        "empty": (root(schema_version='""'), ("", {}, {})),
    },
)
def test_no_version(seen, expected):
    version, rest, lints = expected
    assert origin(seen).get("schema_version") == version
    assert residual_of(seen.run) == rest
    assert seen.lints == lints
    assert seen.step["message_value"] == '"turn the bolt"'


@case(3, {"none": root(session_id=None)})
def test_without_any_id_the_story_is_named_by_its_document(seen, expected):
    assert seen.run["session_id"] == seen.run["document_id"] == seen.step["session_id"]
    assert seen.run["run_id"] is None
    assert residual_of(seen.run) == {"/session_id": None}
    assert seen.lints == {"missing-ids": 1}


@case(
    4,
    {
        "null": (root(session_id="null"), ("null", {"null-member": 1, "missing-ids": 1})),
        "empty": (root(session_id='""'), ('""', {"missing-ids": 1})),
        "number": (root(session_id="5"), ("5", {"wrong-type": 1, "missing-ids": 1})),
    },
)
def test_session_id_that_names_nothing(seen, expected):
    text, lints = expected
    assert seen.run["session_id"] == seen.run["document_id"]
    assert residual_of(seen.run) == {"/session_id": text}
    assert seen.lints == lints


@case(5, {"only": root(session_id=None, trajectory_id='"t-1"')})
def test_the_trajectory_id_stands_in_for_a_session(seen, expected):
    assert columns(seen.run, ("session_id", "run_id")) == ("t-1", "t-1")
    assert residual_of(seen.run)["/session_id"] is None
    assert seen.lints == {}


@case(
    6,
    {
        "missing": (root(agent=None), (None, {"agent-missing": 1})),
        "null": (root(agent="null"), ("null", {"agent-missing": 1, "null-member": 1})),
        "string": (root(agent='"wrench"'), ('"wrench"', {"agent-missing": 1, "wrong-type": 1})),
    },
)
def test_no_agent(seen, expected):
    text, lints = expected
    assert columns(seen.run, ("agent_id", "agent_name", "agent_version")) == ("unknown", None, None)
    assert residual_of(seen.run) == {"/agent": text}
    assert seen.lints == lints


@case(
    7,
    {
        "missing": (root(agent='{"name":"wrench"}'), (None, {"/agent/version": None}, {"agent-missing-version": 1})),
        "empty": (root(agent='{"name":"wrench","version":""}'), ("", {}, {})),
    },
)
def test_no_agent_version(seen, expected):
    version, rest, lints = expected
    assert columns(seen.run, ("agent_id", "agent_name", "agent_version")) == ("wrench", "wrench", version)
    assert residual_of(seen.run) == rest
    assert seen.lints == lints


@case(
    8,
    {
        "empty": (root(steps="[]"), ({}, {})),
        "missing": (root(steps=None), ({"/steps": None}, {"missing-steps": 1})),
        "null": (root(steps="null"), ({"/steps": "null"}, {"null-member": 1})),
        "object": (root(steps='{"1":{}}'), ({"/steps": '{"1":{}}'}, {"wrong-type": 1})),
    },
)
def test_no_steps(seen, expected):
    rest, lints = expected
    assert seen.steps == []
    assert residual_of(seen.run) == rest
    assert seen.lints == lints


# --- step ids -----------------------------------------------------------------------------------------------


def with_ids(*ids: str) -> bytes:
    return atif(*(step(step_id=text, message=f'"at {i}"') for i, text in enumerate(ids))).encode()


@case(9, {"gap": with_ids("1", "3", "4")})
def test_gap_in_the_ids(seen, expected):
    assert [row["step_id"] for row in seen.steps] == [1, 3, 4]
    assert [row["residual"] for row in seen.steps] == [None] * 3
    assert seen.lints == {"step-ids-not-sequential": 1}


@case(10, {"reversed": with_ids("2", "1")})
def test_reversed_ids_keep_the_order_of_the_array(seen, expected):
    assert [columns(row, ("turn_ordinal", "step_id", "message_value")) for row in seen.steps] == [
        (0, 2, '"at 0"'),
        (1, 1, '"at 1"'),
    ]
    assert seen.lints == {"step-ids-not-sequential": 1}


@case(11, {"repeated": with_ids("1", "1", "2")})
def test_repeated_ids_become_ordinals(seen, expected):
    assert [row["step_id"] for row in seen.steps] == [1, 2, 3]
    assert [residual_of(row) for row in seen.steps] == [{}, {"/step_id": "1"}, {"/step_id": "2"}]
    assert seen.lints == {"step-ids-not-distinct": 1}


@case(12, {"zero": (with_ids("0"), 0), "negative": (with_ids("-1"), -1), "largest": (with_ids("9223372036854775807"), 2**63 - 1)})
def test_ids_that_are_integers_but_no_ordinals(seen, expected):
    assert seen.step["step_id"] == expected
    assert seen.step["residual"] is None
    assert seen.lints == {"step-ids-not-sequential": 1}


@case(
    12,
    {
        "float": (with_ids("1.0"), ("1.0", {"wrong-type": 1})),
        "string": (with_ids('"1"'), ('"1"', {"wrong-type": 1})),
        "too-large": (with_ids("9223372036854775808"), ("9223372036854775808", {"wrong-type": 1})),
        "null": (with_ids("null"), ("null", {"null-member": 1})),
        "missing": (one_step(step_id=None), (None, {"missing-step-id": 1})),
    },
)
def test_ids_that_are_no_integers_become_ordinals(seen, expected):
    text, lints = expected
    assert seen.step["step_id"] == 1
    assert residual_of(seen.step) == {"/step_id": text}
    assert seen.lints == {**lints, "step-ids-not-distinct": 1}


# --- time ---------------------------------------------------------------------------------------------------


def at(text: str) -> bytes:
    return one_step(timestamp=json.dumps(text))


MOMENT = ns("2026-03-04T05:06:07+00:00")
OUT_OF_RANGE = {"timestamp-out-of-range": 1}


@case(
    None,
    {
        "13-naive": (at("2026-03-04T05:06:07"), (MOMENT, {"timestamp-naive": 1})),
        "14-space": (at("2026-03-04 05:06:07Z"), (MOMENT, {})),
        "14-space-naive": (at("2026-03-04 05:06:07"), (MOMENT, {"timestamp-naive": 1})),
        "15-date": (at("2026-03-04"), (ns("2026-03-04T00:00:00+00:00"), {"timestamp-naive": 1})),
        "16-east": (at("2026-03-04T10:36:07+05:30"), (MOMENT, {})),
        "16-unknown-offset": (at("2026-03-04T05:06:07-00:00"), (MOMENT, {})),
        "17-leap-second": (at("2016-12-31T23:59:60Z"), (None, {"timestamp-unparsable": 1})),
        "18-first-year": (at("0001-01-01T00:00:00Z"), (None, OUT_OF_RANGE)),
        "18-1600": (at("1600-01-01T00:00:00Z"), (None, OUT_OF_RANGE)),
        "18-2300": (at("2300-01-01T00:00:00Z"), (None, OUT_OF_RANGE)),
        "18-9999": (at("9999-12-31T23:59:59Z"), (None, OUT_OF_RANGE)),
        "19-picoseconds": (at("2026-03-04T05:06:07.123456789012Z"), (MOMENT + 123_456_789, {})),
        "19-short-fraction": (at("2026-03-04T05:06:07.5Z"), (MOMENT + 500_000_000, {})),
        "22-lower-case": (at("2026-03-04t05:06:07z"), (MOMENT, {})),
        "22-basic-offset": (at("2026-03-04T05:06:07+0000"), (MOMENT, {})),
        "21-empty": (at(""), (None, {"timestamp-unparsable": 1})),
        "21-words": (at("yesterday"), (None, {"timestamp-unparsable": 1})),
    },
)
def test_the_instant_is_read_and_the_text_is_kept(seen, expected):
    instant, lints = expected
    assert seen.step["timestamp"] == instant
    text = json.loads(seen.data)["steps"][0]["timestamp"]
    assert residual_of(seen.step) == {"/timestamp": json.dumps(text)}
    assert seen.lints == lints


@case(
    None,
    {
        "19-nanoseconds": (at("2026-03-04T05:06:07.123456789Z"), MOMENT + 123_456_789),
        "19-milliseconds": (at("2026-03-04T05:06:07.250Z"), MOMENT + 250_000_000),
        "18-1969": (at("1969-12-31T23:59:59Z"), -1_000_000_000),
        "18-last-in-range": (at("2262-04-11T23:47:16.854775807Z"), 2**63 - 1),
    },
)
def test_a_canonical_time_needs_no_residual(seen, expected):
    assert seen.step["timestamp"] == expected
    assert seen.step["residual"] is None
    assert seen.lints == {}


@case(
    None,
    {
        "20-integer": (one_step(timestamp="1772600767"), ("1772600767", {"wrong-type": 1})),
        "20-float": (one_step(timestamp="1772600767.50"), ("1772600767.50", {"wrong-type": 1})),
        "20-milliseconds": (one_step(timestamp="1772600767000"), ("1772600767000", {"wrong-type": 1})),
        "21-null": (one_step(timestamp="null"), ("null", {"null-member": 1})),
    },
)
def test_a_time_that_is_no_text_names_no_instant(seen, expected):
    """A bare number does not say whether it counts seconds or milliseconds, so none is guessed."""
    text, lints = expected
    assert seen.step["timestamp"] is None
    assert residual_of(seen.step) == {"/timestamp": text}
    assert seen.lints == lints


# --- source and message -------------------------------------------------------------------------------------


@case(
    23,
    {
        "tool": (one_step(source='"tool"'), ("tool", {}, {"unknown-source": 1})),
        "environment": (one_step(source='"environment"'), ("environment", {}, {"unknown-source": 1})),
        "empty": (one_step(source='""'), ("", {}, {"unknown-source": 1})),
        "missing": (one_step(source=None), ("", {"/source": None}, {"missing-source": 1, "unknown-source": 1})),
        "null": (one_step(source="null"), ("", {"/source": "null"}, {"null-member": 1, "unknown-source": 1})),
    },
)
def test_unknown_source(seen, expected):
    source, rest, lints = expected
    assert columns(seen.step, ("source", "effective_kind", "kind")) == (source, "dialogue", None)
    assert residual_of(seen.step) == rest
    assert seen.lints == lints


@case(
    24,
    {
        "null": (one_step(message="null"), ("null", "null", {}, {"wrong-type": 1})),
        "missing": (one_step(message=None), ("text", '""', {"/message": None}, {"missing-message": 1})),
        "number": (one_step(message="5.0"), ("json", "5.0", {}, {"wrong-type": 1})),
        "object": (one_step(message='{"b":1,"a":2}'), ("json", '{"b":1,"a":2}', {}, {"wrong-type": 1})),
        "no-parts": (one_step(message="[]"), ("parts", "[]", {}, {})),
        "empty": (one_step(message='""'), ("text", '""', {}, {})),
    },
)
def test_messages_of_every_type(seen, expected):
    kind, value, rest, lints = expected
    assert columns(seen.step, ("message_kind", "message_value")) == (kind, value)
    assert residual_of(seen.step) == rest
    assert seen.lints == lints


TEXT_PART = '{"type":"text","text":"see the hinge"}'
PARTS = {
    "25-text-and-image": arr(TEXT_PART, '{"type":"image","source":{"media_type":"image/png","path":"images/hinge.png"}}'),
    "26-audio": '[{"type":"audio","source":{"media_type":"audio/x-wav","path":"audio/a.wav","duration_sec":1.0}}]',
    "26-audio-alias": '[{"type":"audio","source":{"media_type":"audio/mp3","path":"audio/a.mp3"}}]',
    "27-unknown-type": arr(TEXT_PART, '{"type":"smell","source":{"path":"a.smell"}}'),
    "27-more-keys": '[{"type":"text","text":"x","cache":{"ttl":5.0},"type2":null}]',
    "28-data-url": '[{"type":"image","source":{"media_type":"image/png","path":"data:image/png;base64,iVBORw0KGgo="}}]',
}


@case(None, {name: (one_step(message=text), text) for name, text in PARTS.items()})
def test_parts_are_kept_as_they_came(seen, expected):
    assert columns(seen.step, ("message_kind", "message_value", "residual")) == ("parts", expected, None)
    assert seen.lints == {}


# --- tool calls ---------------------------------------------------------------------------------------------


@case(
    29,
    {
        "empty": (one_step(tool_calls="[]"), (True, {}, {})),
        "null": (one_step(tool_calls="null"), (False, {"/tool_calls": "null"}, {"null-member": 1})),
        "absent": (one_step(), (False, {}, {})),
        "object": (one_step(tool_calls='{"id":1}'), (False, {"/tool_calls": '{"id":1}'}, {"wrong-type": 1})),
    },
)
def test_no_calls(seen, expected):
    had, rest, lints = expected
    assert seen.calls == []
    assert columns(seen.step, ("had_tool_calls", "effective_kind")) == (had, "dialogue")
    assert residual_of(seen.step) == rest
    assert seen.lints == lints


def result(name: str, content: str) -> str:
    return obj(source_call_id=json.dumps(name), content=json.dumps(content))


def results(*texts: str) -> str:
    return obj(results=arr(*texts))


@case(
    30,
    {
        "in-step": one_step(
            tool_calls=arr(call(), call(arguments='{"n":2}')), observation=results(result("t1", "a"), result("t1", "b"))
        )
    },
)
def test_id_repeated_in_a_step(seen, expected):
    """Both calls are kept; the results that name the id belong to its calls in order."""
    assert [columns(row, ("call_index", "tool_call_id", "arguments")) for row in seen.calls] == [
        (0, "t1", '{"path":"."}'),
        (1, "t1#2", '{"n":2}'),
    ]
    assert [residual_of(row) for row in seen.calls] == [{}, {"/tool_call_id": '"t1"'}]
    assert [row["results"] for row in seen.calls] == [arr(result("t1", "a")), arr(result("t1#2", "b"))]
    assert residual_of(seen.step) == {"/observation/results/1/source_call_id": '"t1"'}
    assert seen.lints == {"repeated-tool-call-id": 1}


@case(
    30,
    {
        "taken-suffix": (
            one_step(
                tool_calls=arr(call(), call(tool_call_id='"t1#2"'), call()),
                observation=results(result("t1#2", "b"), result("t1", "a"), result("t1", "c"), result("t1", "d")),
            ),
            (["t1", "t1#2", "t1#3"], [["a"], ["b"], ["c", "d"]]),
        ),
        "fewer-results": (
            one_step(tool_calls=arr(call(), call()), observation=results(result("t1", "a"))),
            (["t1", "t1#2"], [["a"], []]),
        ),
        "repeated-results": (
            one_step(tool_calls=arr(call(), call()), observation='{"results":[],' + results(result("t1", "a"))[1:]),
            (["t1", "t1#2"], [["a"], []]),
        ),
    },
)
def test_results_of_repeated_ids(seen, expected):
    names, found = expected
    assert [row["tool_call_id"] for row in seen.calls] == names
    assert [[one["content"] for one in json.loads(row["results"])] for row in seen.calls] == found
    assert seen.lints == {"repeated-tool-call-id": 1}


@case(
    31,
    {
        "across-steps": atif(
            step(tool_calls=arr(call()), observation=results(result("t1", "a"))),
            step(step_id="2", tool_calls=arr(call()), observation=results(result("t1", "b"))),
        ).encode()
    },
)
def test_id_repeated_across_steps(seen, expected):
    """Agents number their calls in every step: each call has the result of its own step."""
    assert [columns(row, ("step_id", "tool_call_id", "results")) for row in seen.calls] == [
        (1, "t1", arr(result("t1", "a"))),
        (2, "t1#2", arr(result("t1#2", "b"))),
    ]
    assert seen.lints == {"repeated-tool-call-id": 1}


@case(
    32,
    {
        "empty": (one_call(tool_call_id='""'), ('""', {})),
        "null": (one_call(tool_call_id="null"), ("null", {"null-member": 1})),
        "number": (one_call(tool_call_id="7"), ("7", {"wrong-type": 1})),
        "missing": (one_call(tool_call_id=None), (None, {"missing-tool-call-id": 1})),
    },
)
def test_call_without_an_id(seen, expected):
    text, lints = expected
    assert columns(seen.call, ("tool_call_id", "function_name")) == ("call-1-1", "ls")
    assert residual_of(seen.call) == {"/tool_call_id": text}
    assert seen.lints == {**lints, "no-tool-call-id": 1}


@case(
    33,
    {
        "empty": (one_call(function_name='""'), ({}, {})),
        "missing": (one_call(function_name=None), ({"/function_name": None}, {"missing-function-name": 1})),
    },
)
def test_call_without_a_name(seen, expected):
    rest, lints = expected
    assert columns(seen.call, ("tool_call_id", "function_name")) == ("t1", "")
    assert residual_of(seen.call) == rest
    assert seen.lints == lints


@case(
    34,
    {
        "string": (one_call(arguments=r'"{\"path\": 1.0}"'), (r'"{\"path\": 1.0}"', {}, {"wrong-type": 1})),
        "null": (one_call(arguments="null"), ("null", {}, {"wrong-type": 1})),
        "list": (one_call(arguments="[1, 2.50]"), ("[1, 2.50]", {}, {"wrong-type": 1})),
        "missing": (one_call(arguments=None), ("{}", {"/arguments": None}, {"missing-arguments": 1})),
        "empty": (one_call(arguments="{}"), ("{}", {}, {})),
    },
)
def test_arguments_of_every_type(seen, expected):
    text, rest, lints = expected
    assert seen.call["arguments"] == text
    assert residual_of(seen.call) == rest
    assert seen.lints == lints


@case(
    35,
    {
        "empty": (one_call(extra="{}"), ("{}", None, {})),
        "list": (one_call(extra="[]"), ("[]", None, {"wrong-type": 1})),
        "integer": (one_call(extra='{"duration_ms":12}'), ('{"duration_ms":12}', 12, {})),
        "float": (one_call(extra='{"duration_ms":12.0}'), ('{"duration_ms":12.0}', None, {})),
        "fraction": (one_call(extra='{"duration_ms":12.5}'), ('{"duration_ms":12.5}', None, {})),
        "string": (one_call(extra='{"duration_ms":"12"}'), ('{"duration_ms":"12"}', None, {})),
        "negative": (one_call(extra='{"duration_ms":-1}'), ('{"duration_ms":-1}', -1, {})),
        "too-large": (one_call(extra='{"duration_ms":9223372036854775808}'), ('{"duration_ms":9223372036854775808}', None, {})),
    },
)
def test_extra_of_a_call(seen, expected):
    """Only an integer is promoted to the column; `extra` is kept whole."""
    extra, duration, lints = expected
    assert columns(seen.call, ("extra", "duration", "residual")) == (extra, duration, None)
    assert seen.lints == lints


@case(36, {"null": (one_call(result="null"), "null"), "value": (one_call(result='{"ok":1.0}'), '{"ok":1.0}')})
def test_result_is_no_member_of_a_call(seen, expected):
    assert columns(seen.call, ("result", "results")) == (None, "[]")
    assert residual_of(seen.call) == {"/result": expected}
    assert seen.lints == {"unknown-key": 1}


# --- observations -------------------------------------------------------------------------------------------


@case(
    37,
    {
        "null": (one_call(more="null"), (None, {"/observation": "null"}, {"null-member": 1})),
        "empty": (one_call(more="{}"), ("{}", {}, {"observation-without-results": 1})),
        "list": (one_call(more="[]"), ("[]", {}, {"wrong-type": 1})),
        "text": (one_call(more='"done"'), ('"done"', {}, {"wrong-type": 1})),
        "results-null": (one_call(more='{"results":null}'), ('{"results":null}', {}, {"observation-without-results": 1})),
        "results-empty": (one_call(more='{"results":[]}'), ('{"results":[]}', {}, {})),
        "results-object": (one_call(more='{"results":{"0":1}}'), ('{"results":{"0":1}}', {}, {"observation-without-results": 1})),
        "strings": (one_call(more='{"results":["a","b"]}'), ('{"results":["a","b"]}', {}, {"result-not-an-object": 2})),
        "no-call": (one_step(observation='{"results":["a"]}'), ('{"results":["a"]}', {}, {"result-not-an-object": 1})),
    },
)
def test_observations_of_every_shape(seen, expected):
    text, rest, lints = expected
    assert columns(seen.step, ("had_observation", "observation")) == (text is not None, text)
    assert residual_of(seen.step) == rest
    assert [row["results"] for row in seen.calls] in ([], ["[]"])
    assert seen.lints == lints


@case(
    37,
    {
        "mixed": one_call(more='{"results":["a",{"source_call_id":"t1","content":null},5]}'),
    },
)
def test_a_good_result_among_bad_ones_is_found(seen, expected):
    assert seen.call["results"] == '[{"source_call_id":"t1","content":null}]'
    assert seen.lints == {"result-not-an-object": 2}


@case(
    38,
    {
        "dangling": (one_call(more=results(result("t9", "a"))), ("[]", {"dangling-source-call-id": 1})),
        "two": (one_call(more=results(result("t1", "a"), result("t1", "b"))), (arr(result("t1", "a"), result("t1", "b")), {})),
        "without-id": (one_call(more='{"results":[{"content":"a"},{"source_call_id":null}]}'), ("[]", {})),
    },
)
def test_results_and_their_calls(seen, expected):
    found, lints = expected
    assert seen.call["results"] == found
    assert seen.step["observation"] == json.dumps(json.loads(seen.data)["steps"][0]["observation"], separators=(",", ":"))
    assert seen.lints == lints


@case(
    38,
    {
        "before": atif(
            step(observation=results(result("t1", "early"))),
            step(step_id="2", tool_calls=arr(call())),
        ).encode()
    },
)
def test_a_result_before_its_call_stays_where_it_is(seen, expected):
    assert seen.steps[0]["observation"] == results(result("t1", "early"))
    assert columns(seen.call, ("step_id", "results")) == (2, "[]")
    assert seen.lints == {}


def refers(ref: str, *, children: str | None = None, version: str = "ATIF-v1.7") -> bytes:
    observation = results(obj(source_call_id='"t1"', subagent_trajectory_ref=ref))
    steps = step(tool_calls=arr(call()), observation=observation)
    return atif(steps, schema_version=json.dumps(version), subagent_trajectories=children).encode()


@case(
    39,
    {
        "session-only": refers('[{"session_id":"child-1"}]', version="ATIF-v1.6"),
        "unknown-name": refers('[{"trajectory_id":"nobody"}]'),
        "string": refers('["child-1"]'),
    },
)
def test_a_ref_that_leads_nowhere_is_kept(seen, expected):
    assert json.loads(seen.step["observation"]) == json.loads(seen.data)["steps"][0]["observation"]
    assert seen.run["child_session_ids"] is None
    assert seen.lints == {"unresolved-subagent-ref": 1}


def child(name: str | None, **changes: str | None) -> str:
    made = {"session_id": None, "trajectory_id": None if name is None else json.dumps(name), **changes}
    return atif(step(message='"a wren"'), **made)


@case(
    40,
    {
        "object": refers('{"trajectory_id":"bird"}', children=arr(child("bird"))),
        "array": refers('[{"trajectory_id":"bird"}]', children=arr(child("bird"))),
    },
)
def test_a_ref_links_the_child_to_its_call(seen, expected):
    parent, bird = seen.runs
    assert json.loads(bird["parent"]) == {"psid": "s-1", "scid": "t1", "ptid": 1}
    assert json.loads(parent["child_session_ids"]) == [bird["document_id"]]
    assert lints_of(parent) == {}


# --- metrics ------------------------------------------------------------------------------------------------


@case(
    41,
    {
        "empty": (one_step(metrics="{}"), ("{}", {}, {})),
        "null": (one_step(metrics="null"), (None, {"/metrics": "null"}, {"null-member": 1})),
        "list": (one_step(metrics="[]"), ("[]", {}, {"wrong-type": 1})),
        "number": (one_step(metrics="5"), ("5", {}, {"wrong-type": 1})),
    },
)
def test_metrics_of_every_type(seen, expected):
    text, rest, lints = expected
    assert columns(seen.step, ("metrics", "latency", "ttft")) == (text, None, None)
    assert residual_of(seen.step) == rest
    assert seen.lints == lints


@case(
    None,
    {
        "42-integer": (one_step(metrics='{"latency_ms":1500,"ttft_ms":20}'), (1500, 20)),
        "42-float": (one_step(metrics='{"latency_ms":1500.9}'), (1500, None)),
        "42-string": (one_step(metrics='{"latency_ms":"1500"}'), (None, None)),
        "42-huge": (one_step(metrics='{"latency_ms":1e30}'), (None, None)),
        "42-null-then-elapsed": (one_step(metrics='{"latency_ms":null,"elapsed_ms":7}'), (7, None)),
        "43-elapsed": (one_step(metrics='{"elapsed_ms":5}'), (5, None)),
        "43-duration": (one_step(metrics='{"duration_ms":6}'), (6, None)),
        "43-both": (one_step(metrics='{"duration_ms":6,"elapsed_ms":5}'), (5, None)),
        "43-in-extra": (one_step(metrics='{"extra":{"latency_ms":9}}'), (None, None)),
    },
)
def test_durations_are_copied_not_moved(seen, expected):
    assert columns(seen.step, ("latency", "ttft")) == expected
    assert seen.step["metrics"] == json.dumps(json.loads(seen.data)["steps"][0]["metrics"], separators=(",", ":")).replace(
        "1e+30", "1e30"
    )
    assert seen.step["residual"] is None
    assert seen.lints == {}


IDS = "[" + ",".join(str(7 * i % 50_021) for i in range(100_000)) + "]"


@case(
    44,
    {
        "token-ids": (one_step(metrics=f'{{"completion_token_ids":{IDS}}}'), {}),
        "logprobs": (one_step(metrics='{"logprobs":[-0.5,-Infinity,NaN,Infinity]}'), {"not-a-number": 3}),
    },
)
def test_long_and_infinite_metrics(seen, expected):
    assert f'"metrics":{seen.step["metrics"]}'.encode() in seen.data
    assert seen.step["residual"] is None
    assert seen.lints == expected


@case(
    45,
    {
        "metrics": (one_step(metrics='{"cost_usd":0.0100}', llm_call_count="0"), (0, {"metrics-without-llm": 1})),
        "reasoning": (one_step(reasoning_content='"hm"', llm_call_count="0"), (0, {"metrics-without-llm": 1})),
        "neither": (one_step(llm_call_count="0"), (0, {})),
        "float": (one_step(llm_call_count="1.0"), (None, {"wrong-type": 1})),
    },
)
def test_llm_call_count(seen, expected):
    number, lints = expected
    assert seen.step["llm_call_count"] == number
    assert residual_of(seen.step) == ({} if number == 0 else {"/llm_call_count": "1.0"})
    assert seen.lints == lints


@case(
    46,
    {
        "true": (one_step(is_copied_context="true"), (True, {}, {})),
        "false": (one_step(is_copied_context="false"), (False, {}, {})),
        "null": (one_step(is_copied_context="null"), (None, {"/is_copied_context": "null"}, {"null-member": 1})),
        "string": (one_step(is_copied_context='"true"'), (None, {"/is_copied_context": '"true"'}, {"wrong-type": 1})),
        "absent": (one_step(), (None, {}, {})),
    },
)
def test_is_copied_context(seen, expected):
    value, rest, lints = expected
    assert seen.step["is_copied_context"] is value
    assert residual_of(seen.step) == rest
    assert seen.lints == lints


@case(
    47,
    {
        "model": (one_step(source='"user"', model_name='"m-large"'), ("model_name", "m-large")),
        "reasoning": (one_step(source='"user"', reasoning_content='"hm"'), ("reasoning_content", "hm")),
        "metrics": (one_step(source='"system"', metrics='{"cost_usd":1.10}'), ("metrics", '{"cost_usd":1.10}')),
        "effort": (one_step(source='"user"', reasoning_effort="0.50"), ("reasoning_effort_value", "0.50")),
    },
)
def test_agent_only_members_on_others_are_kept(seen, expected):
    column, value = expected
    assert seen.step[column] == value
    assert seen.step["residual"] is None
    assert seen.lints == {"agent-only-field": 1}


@case(
    47,
    {
        "calls": one_step(source='"user"', tool_calls=arr(call())),
    },
)
def test_calls_of_a_user_are_kept(seen, expected):
    assert columns(seen.call, ("tool_call_id", "function_name")) == ("t1", "ls")
    assert columns(seen.step, ("source", "effective_kind")) == ("user", "dialogue")
    assert seen.lints == {"agent-only-field": 1}


BOUNDARY = '{"context_management":{"type":"compaction","boundary":"replace"}}'


@case(
    48,
    {
        "replace": atif(
            step(source='"user"', message='"before"'),
            step(
                step_id="2", source='"system"', message='"compacted"', observation=results(result("x", "summary")), extra=BOUNDARY
            ),
            step(step_id="3", message='"after"'),
        ).encode()
    },
)
def test_a_context_boundary_hides_nothing(seen, expected):
    assert [row["message_value"] for row in seen.steps] == ['"before"', '"compacted"', '"after"']
    boundary = seen.steps[1]
    assert columns(boundary, ("source", "effective_kind", "extra")) == ("system", "internal", BOUNDARY)
    assert boundary["observation"] == results(result("x", "summary"))
    assert seen.lints == {}


@case(
    49,
    {
        "chain": arr(
            atif(step(), trajectory_id='"a"', continued_trajectory_ref='"b"'),
            atif(step(), trajectory_id='"b"', continued_trajectory_ref='"/nowhere/else.json"'),
            atif(step(), trajectory_id='"c"', continued_trajectory_ref='"c"'),
        ).encode()
    },
)
def test_continuations_are_names_that_nobody_follows(seen, expected):
    assert [columns(run, ("run_id", "continued_trajectory_ref")) for run in seen.runs] == [
        ("a", "b"),
        ("b", "/nowhere/else.json"),
        ("c", "c"),
    ]
    assert [lints_of(run) for run in seen.runs] == [{}, {}, {}]
    assert [run["parent"] for run in seen.runs] == [None] * 3


# --- subagents ----------------------------------------------------------------------------------------------


def with_children(*children: str, **changes: str | None) -> bytes:
    return root(subagent_trajectories=arr(*children), **changes)


@case(
    50,
    {
        "empty": (with_children(), ("[]", {}, {})),
        "null": (root(subagent_trajectories="null"), (None, {"/subagent_trajectories": "null"}, {"null-member": 1})),
        "object": (root(subagent_trajectories='{"a":1}'), (None, {"/subagent_trajectories": '{"a":1}'}, {"wrong-type": 1})),
        "strings": (
            root(subagent_trajectories='["a.json"]'),
            (None, {"/subagent_trajectories": '["a.json"]'}, {"wrong-type": 1}),
        ),
    },
)
def test_no_subagents(seen, expected):
    children, rest, lints = expected
    assert seen.run["child_session_ids"] == children
    assert residual_of(seen.run) == rest
    assert seen.lints == lints


@case(
    50,
    {
        "three-deep": with_children(child("a", subagent_trajectories=arr(child("b", subagent_trajectories=arr(child("c")))))),
        "siblings": None,
    }
    | {"siblings": with_children(child("a", subagent_trajectories=arr(child("b"))), child("c"))},
)
def test_nested_subagents_are_stories_in_pre_order(seen, expected):
    main, a, b, _ = seen.runs
    assert [run["run_id"] for run in seen.runs] == [None, "a", "b", "c"]
    assert len({run["document_id"] for run in seen.runs}) == 4
    assert len({run["storage_ordinal"] for run in seen.runs}) == 1
    assert json.loads(a["child_session_ids"])[0] == b["document_id"]
    assert json.loads(main["child_session_ids"])[0] == a["document_id"]
    assert [json.loads(run["parent"])["psid"] for run in (a, b)] == ["s-1", "a"]
    assert [seen.steps_of(run)[0]["message_value"] for run in seen.runs] == ['"turn the bolt"', *['"a wren"'] * 3]


@case(51, {"no-session": with_children(child("bird"))})
def test_a_child_without_a_session_belongs_to_its_parents(seen, expected):
    _, bird = seen.runs
    assert columns(bird, ("session_id", "run_id")) == ("s-1", "bird")
    assert residual_of(bird)["/session_id"] is None
    assert [lints_of(run) for run in seen.runs] == [{}, {}]


@case(
    52,
    {
        "two-parents": with_children(
            child("a", subagent_trajectories=arr(child("same"))), child("b", subagent_trajectories=arr(child("same")))
        )
    },
)
def test_one_child_id_under_two_parents(seen, expected):
    _, a, first, b, second = seen.runs
    assert [run["run_id"] for run in (first, second)] == ["same", "same"]
    assert json.loads(a["child_session_ids"]) == [first["document_id"]]
    assert json.loads(b["child_session_ids"]) == [second["document_id"]]
    assert all(lints_of(run) == {} for run in seen.runs)


@case(
    53,
    {
        "root-id": (with_children(child("main"), trajectory_id='"main"'), "main"),
        "root-session": (with_children(child("s-1")), "s-1"),
    },
)
def test_a_child_may_be_called_as_its_root_is(seen, expected):
    main, bird = seen.runs
    assert bird["run_id"] == expected
    assert bird["document_id"] != main["document_id"]
    assert json.loads(main["child_session_ids"]) == [bird["document_id"]]
    assert json.loads(bird["parent"])["psid"] == expected
    assert [lints_of(run) for run in seen.runs] == [{}, {}]


@case(54, {"none": with_children(child(None)), "null": with_children(child(None, trajectory_id="null"))})
def test_a_child_without_an_id(seen, expected):
    main, bird = seen.runs
    assert columns(bird, ("run_id", "session_id")) == (None, "s-1")
    assert json.loads(main["child_session_ids"]) == [bird["document_id"]]
    assert lints_of(main) == {"subagent-without-id": 1}


@case(55, {"duplicate": with_children(child("same"), child("same", notes='"second"'))})
def test_one_id_twice_in_an_array(seen, expected):
    main, first, second = seen.runs
    assert json.loads(main["child_session_ids"]) == [first["document_id"], second["document_id"]]
    assert [run["notes"] for run in (first, second)] == [None, "second"]
    assert lints_of(main) == {"repeated-subagent-id": 1}


@case(56, {"file": refers('[{"trajectory_id":"bird","trajectory_path":"../bird/trajectory.json"}]')})
def test_a_child_in_a_file_is_a_name(seen, expected):
    """Nothing that is named in data is opened; the path says where the child is, so nothing is amiss."""
    assert json.loads(seen.step["observation"]) == json.loads(seen.data)["steps"][0]["observation"]
    assert seen.run["child_session_ids"] is None
    assert seen.lints == {}


# --- containers and members ---------------------------------------------------------------------------------


@case(57, {"one": (arr(atif(step(message='"alone"'))).encode(), 1), "two": (arr(atif(step()), atif(step())).encode(), 2)})
def test_an_array_stays_an_array(seen, expected):
    assert [origin_of(run)["container"] for run in seen.runs] == ["array"] * expected
    assert [run["session_id"] for run in seen.runs] == ["s-1"] * expected
    assert len({run["document_id"] for run in seen.runs}) == expected
    assert json.loads(seen.as_format("atif")) == json.loads(seen.data)


LONG = "k" * 10_240
ODD_KEYS = {
    "_storyline": "/_storyline",
    "unknown": "/unknown",
    "": "/",
    "a/b": "/a~1b",
    "c~d": "/c~0d",
    "__proto__": "/__proto__",
    LONG: f"/{LONG}",
}


@case(
    58,
    {
        "root": (root(**dict.fromkeys(ODD_KEYS, "[1.0]")), "run"),
        "step": (one_step(**dict.fromkeys(ODD_KEYS, "[1.0]")), "step"),
        "call": (one_call(**dict.fromkeys(ODD_KEYS, "[1.0]")), "call"),
    },
)
def test_unknown_members_of_every_name(seen, expected):
    assert residual_of(getattr(seen, expected)) == dict.fromkeys(ODD_KEYS.values(), "[1.0]")
    assert seen.lints == {"unknown-key": len(ODD_KEYS)}


@case(58, {"agent": root(agent='{"name":"wrench","version":"1","mood":"good"}')})
def test_unknown_members_of_the_agent(seen, expected):
    assert residual_of(seen.run) == {"/agent/mood": '"good"'}
    assert seen.lints == {"agent-unknown-key": 1}


@case(59, {"extra-steps": root(extra=obj(steps=arr(step(), step(step_id="2"))))})
def test_steps_in_extra_are_no_steps(seen, expected):
    assert len(seen.steps) == 1
    assert json.loads(seen.run["extra"]) == json.loads(seen.data)["extra"]
    assert seen.lints == {}


@case(60, {"two": (atif(step(message='"first"'), note="1")[:-1] + "," + obj(steps=arr(step(message='"last"')))[1:]).encode()})
def test_of_two_steps_members_the_last_counts(seen, expected):
    """As for every JSON reader; the other one is in the residual, where nothing of it is lost."""
    assert [row["message_value"] for row in seen.steps] == ['"last"']
    assert "first" in seen.run["residual"]
    assert seen.lints == {"repeated-key": 1, "unknown-key": 1}


@case(
    61,
    {
        "steps-first": obj(steps=arr(step()), agent=AGENT, session_id='"s-1"', schema_version='"ATIF-v1.7"').encode(),
        "version-last": obj(session_id='"s-1"', agent=AGENT, steps=arr(step()), schema_version='"ATIF-v1.7"').encode(),
    },
)
def test_members_in_any_order(seen, expected):
    assert columns(seen.run, ("session_id", "agent_id")) == ("s-1", "wrench")
    assert origin(seen)["schema_version"] == "ATIF-v1.7"
    assert residual_of(seen.run) == {}
    assert order_of(seen.run) == list(json.loads(seen.data))
    assert len(seen.steps) == 1
    assert seen.lints == {}


def test_every_case_has_its_file(lake):
    """All of them are among the facts, none is in quarantine, and the exit code says so."""
    assert lake.entries == {}
    assert lake.reports[1].exit_code() == 0


if __name__ == "__main__":
    pytest.main([__file__])
