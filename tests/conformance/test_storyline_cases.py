"""Cases 103 to 116: Storyline files, what they must be rejected for, and the way from and to ATIF (formats/storyline.md)."""

from __future__ import annotations

import json

import pytest

from chronicle.formats import hub
from tests.conformance.spine import Cases, Laws, columns, lints_of, origin_of, residual_of
from tests.conformance.texts import arr, obj, ordered
from tests.jsoncompare import same_json

case = Cases()

_TURN = (
    "id", "src", "msg", "ts", "model", "effort", "reason", "tool_calls", "observation", "metrics", "nllm", "copied", "extra",
    "kind", "latency_ms", "ttft_ms",
)  # fmt: skip
_STORY = (
    "spec", "run", "session", "agent", "parent", "children", "notes", "final_metrics", "continued_trajectory_ref", "extra",
    "turns",
)  # fmt: skip


class TestLaws(Laws):
    """All files of this module."""

    def test_what_must_be_rejected_is_stored_and_named(self, lake):
        kinds = [kind for found in lake.entries.values() for _, kind in found]
        assert {kind.partition(":")[0] for kind in kinds} == {"invalid"}
        assert lake.reports[1].exit_code() == 65


def turn(**changes: str | None) -> str:
    return ordered(_TURN, {"id": "1", "src": '"user"', "msg": '"fix the hinge"', **changes})


def call(**changes: str | None) -> str:
    return obj(**{"tcid": '"t1"', "fn": '"ls"', "args": '{"path":"."}', **changes})


def story(*turns: str, **changes: str | None) -> bytes:
    base = {"spec": '"storyline/v1"', "session": '"s-9"', "agent": '{"id":"wrench"}', "turns": arr(*turns)}
    return ordered(_STORY, {**base, **changes}).encode()


def one(**changes: str | None) -> bytes:
    """A file with a story of one turn."""
    return story(turn(**changes))


def root(**changes: str | None) -> bytes:
    """A file with a story of one plain turn and other members in its root."""
    return story(turn(), **changes)


# --- names --------------------------------------------------------------------------------------------------


@case(
    103,
    {
        "seed": (root(), {}),
        "peer": (root(spec=None, schema_version='"storyline/v1"'), {"/spec": None, "/schema_version": '"storyline/v1"'}),
    },
)
def test_both_names_of_the_version(seen, expected):
    assert origin_of(seen.run)["schema_version"] == "storyline/v1"
    assert columns(seen.run, ("session_id", "agent_id", "agent_name", "run_id")) == ("s-9", "wrench", None, None)
    assert columns(seen.step, ("step_id", "source", "message_value", "effective_kind")) == (
        1,
        "user",
        '"fix the hinge"',
        "dialogue",
    )
    assert residual_of(seen.run) == expected
    assert seen.lints == {}


ROOT_ALIASES = {
    "run_id": ("run_id", '"r-1"', "r-1"),
    "trajectory_id": ("run_id", '"r-1"', "r-1"),
    "child_session_ids": ("child_session_ids", "[]", "[]"),
    "child_story_ids": ("child_session_ids", "[]", "[]"),
}


@case(104, {name: (root(**{name: text}), (column, value)) for name, (column, text, value) in ROOT_ALIASES.items()})
def test_long_names_of_the_root(seen, expected):
    column, value = expected
    assert seen.run[column] == value
    assert seen.lints == {}


@case(104, {name: root(session=None, **{name: '"s-8"'}) for name in ("session_id", "story_id")})
def test_long_names_of_the_session(seen, expected):
    assert seen.run["session_id"] == "s-8"
    assert seen.lints == {}


@case(
    104,
    {
        "version": (root(agent='{"id":"a","version":"1"}'), ("agent_version", "1")),
        "agent-model_name": (root(agent='{"id":"a","model_name":"m"}'), ("agent_model_name", "m")),
        "tool_definitions": (root(agent='{"id":"a","tool_definitions":[1.0]}'), ("agent_tool_definitions", "[1.0]")),
    },
)
def test_long_names_of_the_agent(seen, expected):
    column, value = expected
    assert seen.run[column] == value
    assert seen.lints == {}


PARENT_ALIASES = {
    "parent_session_id": ('{"parent_session_id":"p"}', {"psid": "p"}),
    "parent_story_id": ('{"parent_story_id":"p"}', {"psid": "p"}),
    "spawn_call_id": ('{"psid":"p","spawn_call_id":"t1"}', {"psid": "p", "scid": "t1"}),
    "spawn_id": ('{"psid":"p","spawn_id":3}', {"psid": "p", "ptid": 3}),
    "relation": ('{"psid":"p","relation":"fork"}', {"psid": "p", "rel": "fork"}),
}


@case(104, {name: (root(parent=text), parent) for name, (text, parent) in PARENT_ALIASES.items()})
def test_long_names_of_the_parent(seen, expected):
    assert json.loads(seen.run["parent"]) == expected
    assert seen.lints == {}


TURN_ALIASES = {
    "timestamp": ("ts", '"2026-03-04T05:06:07Z"', "timestamp", 1772600767_000_000_000),
    "source": ("src", '"system"', "source", "system"),
    "message": ("msg", '"hi"', "message_value", '"hi"'),
    "turn-model_name": ("model", '"m"', "model_name", "m"),
    "reasoning_content": ("reason", '"hm"', "reasoning_content", "hm"),
    "reasoning_effort": ("effort", "0.50", "reasoning_effort_value", "0.50"),
    "llm_call_count": ("nllm", "2", "llm_call_count", 2),
    "is_copied_context": ("copied", "true", "is_copied_context", True),
}


@case(
    104,
    {
        name: (one(**{short: None, name.removeprefix("turn-"): text}), (column, value))
        for name, (short, text, column, value) in TURN_ALIASES.items()
    },
)
def test_long_names_of_a_turn(seen, expected):
    column, value = expected
    assert seen.step[column] == value
    assert seen.lints == {}


CALL_ALIASES = {
    "tool_call_id": ("tcid", '"t2"', "tool_call_id", "t2"),
    "function_name": ("fn", '"cat"', "function_name", "cat"),
    "arguments": ("args", "[1.0]", "arguments", "[1.0]"),
}


@case(
    104,
    {
        name: (one(src='"agent"', tool_calls=arr(call(**{short: None, name: text}))), (column, value))
        for name, (short, text, column, value) in CALL_ALIASES.items()
    },
)
def test_long_names_of_a_call(seen, expected):
    column, value = expected
    assert seen.call[column] == value
    assert seen.lints == {}


@case(
    104,
    {
        "equal": (one(source='"user"'), ("user", '"user"', {})),
        "unequal": (one(source='"agent"'), ("user", '"agent"', {"alias-conflict": 1})),
    },
)
def test_the_short_name_wins(seen, expected):
    source, kept, lints = expected
    assert seen.step["source"] == source
    assert residual_of(seen.step) == {"/source": kept}
    assert seen.lints == lints


@case(
    104,
    {
        "run-unequal": (root(run='"r"', run_id='"x"'), ("r", {"alias-conflict": 1})),
        "run-by-two-names": (root(run_id='"r"', trajectory_id='"t"'), ("r", {"alias-conflict": 1})),
        "run-by-two-names-reversed": (root(trajectory_id='"t"', run_id='"r"'), ("r", {"alias-conflict": 1})),
        "run-equal": (root(run='"r"', trajectory_id='"r"'), ("r", {})),
    },
)
def test_the_run_by_several_names(seen, expected):
    run, lints = expected
    assert seen.run["run_id"] == run
    assert seen.lints == lints


# --- what must be rejected ----------------------------------------------------------------------------------

BROKEN_CALLS = {"no-tcid": call(tcid=None), "no-fn": call(fn=None), "no-args": call(args=None)}
AGENT_TURN = {"src": '"agent"'}


@case(
    None,
    {
        "105-v2": (root(spec='"storyline/v2"'), "unknown-version"),
        "105-v1.1": (root(spec='"storyline/v1.1"'), "unknown-version"),
        "105-v2-by-its-long-name": (root(spec=None, schema_version='"storyline/v2"'), "unknown-version"),
        "106-empty-session": (root(session='""'), "empty-session"),
        "106-no-session": (root(session=None), "empty-session"),
        "106-session-number": (root(session="9"), "empty-session"),
        "106-empty-agent-id": (root(agent='{"id":""}'), "empty-agent-id"),
        "106-no-agent-id": (root(agent='{"name":"wrench"}'), "empty-agent-id"),
        "106-no-agent": (root(agent=None), "missing-agent"),
        "106-agent-string": (root(agent='"wrench"'), "missing-agent"),
        "106-turns-object": (root(turns="{}"), "turns-not-array"),
        "106-no-turns": (root(turns=None), "turns-not-array"),
        "107-repeated-ids": (story(turn(), turn()), "repeated-turn-id"),
        "107-no-id": (one(id=None), "turn-without-id"),
        "107-id-text": (one(id='"1"'), "turn-without-id"),
        "107-id-float": (one(id="1.0"), "turn-without-id"),
        "107-no-src": (one(src=None), "turn-without-src"),
        "107-no-msg": (one(msg=None), "turn-without-msg"),
    }
    | {
        f"108-{name}": (one(**AGENT_TURN, tool_calls=arr(broken)), f"call-without-{name.removeprefix('no-')}")
        for name, broken in BROKEN_CALLS.items()
    },
)
def test_what_the_seed_says_must_be_rejected(seen, expected):
    """Among the facts and given back exactly, in quarantine with the rule that it breaks, in no table."""
    assert seen.quarantine == [(0, f"invalid:{expected}")]
    assert seen.exported == seen.source
    assert seen.runs == []


case.converted["113-one-is-rejected.jsonl"] = root() + b"\n" + root(notes='"third"') + b"\n"


@case(113, {"one-is-rejected": b"\n".join([root(), root(session='""'), root(notes='"third"'), b""])}, suffix=".jsonl")
def test_a_rejected_story_does_not_cost_its_neighbours(seen, expected):
    assert seen.quarantine == [(1, "invalid:empty-session")]
    assert [origin_of(run)["locator"] for run in seen.runs] == [0, 2]


@case(105, {"missing": root(spec=None)})
def test_a_story_without_a_version(seen, expected):
    assert seen.lints == {"missing-spec": 1}
    assert residual_of(seen.run) == {"/spec": None}
    assert seen.step["message_value"] == '"fix the hinge"'


# --- ids ----------------------------------------------------------------------------------------------------


@case(
    107,
    {
        "descending": (story(turn(id="3"), turn(id="2"), turn(id="1")), ([3, 2, 1], {"ids-not-ascending": 1})),
        "zero": (story(turn(id="0"), turn(id="5")), ([0, 5], {})),
        "negative": (story(turn(id="-4"), turn(id="7")), ([-4, 7], {})),
    },
)
def test_ids_of_turns(seen, expected):
    ids, lints = expected
    assert [row["step_id"] for row in seen.steps] == ids
    assert [row["turn_ordinal"] for row in seen.steps] == list(range(len(ids)))
    assert seen.lints == lints


def answered(name: str, content: str) -> str:
    return obj(results=arr(obj(source_call_id=json.dumps(name), content=json.dumps(content))))


@case(
    108,
    {
        "reused": story(
            turn(src='"agent"', tool_calls=arr(call()), observation=answered("t1", "a")),
            turn(id="2", src='"agent"', tool_calls=arr(call()), observation=answered("t1", "b")),
        )
    },
)
def test_a_reused_call_id(seen, expected):
    assert [columns(row, ("tool_call_id", "function_name")) for row in seen.calls] == [("t1", "ls"), ("t1#2", "ls")]
    assert [json.loads(row["results"])[0]["content"] for row in seen.calls] == ["a", "b"]
    assert [residual_of(row) for row in seen.calls] == [{}, {"/tcid": '"t1"'}]
    assert seen.lints == {"repeated-tool-call-id": 1}


# --- links --------------------------------------------------------------------------------------------------


def names_of(run) -> list[str] | None:
    """What the source calls the children, where the tables have no story for them."""
    said = json.loads(run["residual"] or "{}").get("children")
    return None if said is None else json.loads(said)


@case(
    109,
    {
        "none": (root(children="[]"), None),
        "dangling": (root(children='["nobody"]'), ["nobody"]),
        "itself": (root(children='["s-9"]'), ["s-9"]),
    },
)
def test_children_are_names(seen, expected):
    """`[]` is not the same as absent; a child that is not there is kept as a name and makes nothing fail."""
    assert seen.run["child_session_ids"] == "[]"
    assert names_of(seen.run) == expected
    assert seen.lints == {}


@case(109, {"absent": (root(), None), "not-a-list": (root(children='"bird"'), '"bird"')})
def test_no_children(seen, expected):
    assert seen.run["child_session_ids"] is None
    assert residual_of(seen.run).get("/children") == expected


@case(
    109,
    {
        "cycle": arr(
            root(session='"a"', children='["b"]', parent='{"psid":"b"}').decode(),
            root(session='"b"', children='["a"]', parent='{"psid":"a"}').decode(),
        ).encode(),
        "two-parents": arr(
            root(session='"a"', children='["c"]').decode(),
            root(session='"b"', children='["c"]').decode(),
            root(session='"c"', parent='{"psid":"a"}').decode(),
        ).encode(),
    },
)
def test_links_that_are_no_tree(seen, expected):
    values = json.loads(seen.data)
    assert [run["session_id"] for run in seen.runs] == [value["session"] for value in values]
    assert [json.loads(run["parent"])["psid"] if run["parent"] else None for run in seen.runs] == [
        value.get("parent", {}).get("psid") for value in values
    ]
    sessions = [value["session_id"] for value in _trajectories(seen.as_format("atif"))]
    assert sorted(sessions) == sorted(value["session"] for value in values)


def _trajectories(data: bytes) -> list[dict]:
    """All trajectories of an ATIF file, embedded ones too."""
    value = json.loads(data)
    todo = value if isinstance(value, list) else [value]
    found = []
    while todo:
        one = todo.pop(0)
        found.append(one)
        todo += one.get("subagent_trajectories", [])
    return found


@case(
    110,
    {
        "written": (root(parent='{"psid":"p","rel":"spawn"}'), {"psid": "p", "rel": "spawn"}),
        "not-written": (root(parent='{"psid":"p"}'), {"psid": "p"}),
        "full": (
            root(parent='{"psid":"p","scid":"t1","ptid":2,"rel":"fork"}'),
            {"psid": "p", "scid": "t1", "ptid": 2, "rel": "fork"},
        ),
    },
)
def test_the_relation_is_written_as_it_came(seen, expected):
    assert json.loads(seen.run["parent"]) == expected
    assert residual_of(seen.run) == {}


@case(
    111,
    {
        "as-derived": (one(kind='"dialogue"'), ("dialogue", "dialogue")),
        "other": (one(kind='"internal"'), ("internal", "internal")),
        "unknown": (one(kind='"ritual"'), ("ritual", "ritual")),
        "absent": (one(), (None, "dialogue")),
        "system": (one(src='"system"'), (None, "internal")),
        "calls": (one(src='"agent"', tool_calls=arr(call())), (None, "autonomous")),
        "no-calls": (one(src='"agent"', tool_calls="[]"), (None, "dialogue")),
        "unknown-source": (one(src='"tool"'), (None, "dialogue")),
    },
)
def test_kind(seen, expected):
    assert columns(seen.step, ("kind", "effective_kind")) == expected
    assert residual_of(seen.step) == {}


ODD = {"x": "[1.0]", "a/b": "null"}
ODD_AT = {"/x": "[1.0]", "/a~1b": "null"}


@case(
    112,
    {
        "root": (root(**ODD), ("run", ODD_AT, {"unknown-key": 2})),
        "turn": (one(**ODD), ("step", ODD_AT, {"unknown-key": 2})),
        "call": (one(src='"agent"', tool_calls=arr(call(**ODD))), ("call", ODD_AT, {"unknown-key": 2})),
        "agent": (root(agent='{"id":"wrench","x":[1.0]}'), ("run", {"/agent/x": "[1.0]"}, {"agent-unknown-key": 1})),
        "parent": (root(parent='{"psid":"p","x":[1.0]}'), ("run", {"/parent/x": "[1.0]"}, {"parent-unknown-key": 1})),
    },
)
def test_unknown_members_at_each_level(seen, expected):
    where, rest, lints = expected
    assert residual_of(getattr(seen, where)) == rest
    assert seen.lints == lints


@case(
    113,
    {
        "array": (arr(root().decode(), root(notes='"2"').decode()).encode(), ("array", 2)),
        "array-of-one": (arr(root(notes='"1"').decode()).encode(), ("array", 1)),
    },
)
def test_an_array_of_stories(seen, expected):
    container, count = expected
    assert [origin_of(run)["container"] for run in seen.runs] == [container] * count
    assert [run["session_id"] for run in seen.runs] == ["s-9"] * count


@case(113, {"lines": b"\n".join([root(), root(notes='"2"'), b""])}, suffix=".jsonl")
def test_lines_of_stories(seen, expected):
    assert [origin_of(run)["container"] for run in seen.runs] == ["jsonl"] * 2
    assert [lints_of(run) for run in seen.runs] == [{}, {}]


# --- to and from ATIF ---------------------------------------------------------------------------------------


@case(
    114,
    {
        "text": (one(src='"agent"', observation='"all is well"'), "all is well"),
        "list": (one(src='"agent"', observation='["a",1.0]'), ["a", 1.0]),
        "object": (one(src='"agent"', observation='{"exit":0}'), {"exit": 0}),
        "results": (one(src='"agent"', observation=answered("t9", "a")), json.loads(answered("t9", "a"))),
    },
)
def test_any_observation_goes_to_atif(seen, expected):
    assert json.loads(seen.step["observation"]) == expected
    made = json.loads(seen.as_format("atif"))
    assert made["steps"][0]["observation"] == expected
    assert (made["schema_version"], made["session_id"], made["agent"]["name"]) == ("ATIF-v1.7", "s-9", "wrench")


@case(
    115,
    {
        "fraction": (one(latency_ms="1.5"), ("latency", None, {"/latency_ms": "1.5"}, {"wrong-type": 1})),
        "text": (one(ttft_ms='"7"'), ("ttft", None, {"/ttft_ms": '"7"'}, {"wrong-type": 1})),
        "integer": (one(latency_ms="15"), ("latency", 15, {}, {})),
        "null": (one(latency_ms="null"), ("latency", None, {"/latency_ms": "null"}, {"null-member": 1})),
    },
)
def test_latency(seen, expected):
    column, value, rest, lints = expected
    assert seen.step[column] == value
    assert residual_of(seen.step) == rest
    assert seen.lints == lints


ATIF = (
    '{"session_id":null,"schema_version":"ATIF-v1.6","odd":1.0,"agent":{"name":"wrench","version":"1"},"steps":['
    '{"step_id":1,"source":"user","message":"turn","timestamp":"2026-03-04T05:06:07+02:00"},'
    '{"step_id":1,"source":"agent","message":"done","metrics":{"elapsed_ms":5},"tool_calls":['
    '{"tool_call_id":"c","function_name":"f","arguments":{"n":1.10}},{"tool_call_id":"c","function_name":"f","arguments":{}}],'
    '"observation":{"results":[{"source_call_id":"c","content":"1"},{"source_call_id":"c","content":"2"}]}}]}'
)


def edited(old: str, new: str) -> bytes:
    assert ATIF.count(old) == 1
    return ATIF.replace(old, new).encode()


def test_case116_atif_through_a_storyline_file_is_the_same():
    carried = hub.convert("atif", "storyline", ATIF)
    assert same_json(hub.convert("storyline", "atif", carried), ATIF.encode()) is None
    calls = json.loads(carried)["turns"][1]["tool_calls"]
    assert [call["tcid"] for call in calls] == ["c", "c#2"]
    results = json.loads(carried)["turns"][1]["observation"]["results"]
    assert [result["source_call_id"] for result in results] == ["c", "c#2"]


EDITS = {
    "message": (("turns", 1, "msg"), "redone", edited('"done"', '"redone"')),
    "first-message": (("turns", 0, "msg"), "turn it", edited('"turn"', '"turn it"')),
    "arguments": (("turns", 1, "tool_calls", 1, "args"), {"n": 2}, edited('"arguments":{}', '"arguments":{"n":2}')),
    "result": (
        ("turns", 1, "observation", "results", 1, "content"),
        "two",
        edited('"content":"2"', '"content":"two"'),
    ),
    "agent": (("agent", "ver"), "2", edited('"version":"1"', '"version":"2"')),
}


@pytest.mark.parametrize("name", EDITS)
def test_case116_an_edit_of_the_storyline_file_is_all_that_changes(name):
    at, new, expected = EDITS[name]
    value = json.loads(hub.convert("atif", "storyline", ATIF))
    place = value
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = new
    assert same_json(hub.convert("storyline", "atif", json.dumps(value)), expected) is None


def test_case116_an_edit_of_the_story_is_all_that_changes():
    stories = hub.into_storyline("atif", ATIF)
    stories[0].turns[1].msg = b'"redone"'
    assert same_json(hub.from_storyline("atif", stories), edited('"done"', '"redone"')) is None
    stories[0].turns[1].tool_calls = stories[0].turns[1].tool_calls[:1]
    made = json.loads(hub.from_storyline("atif", stories))
    assert [call["tool_call_id"] for call in made["steps"][1]["tool_calls"]] == ["c"]
