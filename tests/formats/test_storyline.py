"""Storyline files: names, rules, oddities of the conformance list (S), and both profiles of the writer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from chronicle.errors import InputError, ProjectionError, UsageError
from chronicle.formats import hub, jsontext, storyline
from chronicle.formats.story import StorylineDocument
from tests.formats.oddities import differences, storyline_documents

TURN = '{"id":1,"src":"user","msg":"hi"}'


def file(turns: str = TURN, root: str = "", spec: str = '"spec":"storyline/v1",', agent: str = '{"id":"w"}') -> str:
    return f'{{{spec}"session":"s","agent":{agent},"turns":[{turns}]{root}}}'


def stories_of(text: str) -> list[StorylineDocument]:
    """The stories, after writing them gave the source back as exact values."""
    stories = hub.into_storyline("storyline", text)
    assert not differences(text, hub.from_storyline("storyline", stories))
    return stories


def story_of(text: str) -> StorylineDocument:
    (story,) = stories_of(text)
    return story


# --- names --------------------------------------------------------------------------------------------------

LONG = {
    "turn": {
        "src": ["source"], "msg": ["message"], "ts": ["timestamp"], "model": ["model_name"], "effort": ["reasoning_effort"],
        "reason": ["reasoning_content"], "nllm": ["llm_call_count"], "copied": ["is_copied_context"],
    },
    "call": {"tcid": ["tool_call_id"], "fn": ["function_name"], "args": ["arguments"]},
    "agent": {"ver": ["version"], "model": ["model_name"], "tools": ["tool_definitions"]},
    "parent": {
        "psid": ["parent_session_id", "parent_story_id"], "scid": ["spawn_call_id"], "ptid": ["spawn_id"], "rel": ["relation"],
    },
    "root": {
        "spec": ["schema_version"], "run": ["run_id", "trajectory_id"], "session": ["session_id", "story_id"],
        "children": ["child_session_ids", "child_story_ids"],
    },
}  # fmt: skip

FULL: dict[str, dict[str, Any]] = {
    "root": {"spec": "storyline/v1", "run": "r", "session": "s", "children": ["c"]},
    "agent": {"id": "w", "ver": "1", "model": "m", "tools": [1]},
    "parent": {"psid": "p", "scid": "t", "ptid": 3, "rel": "spawn"},
    "call": {"tcid": "t", "fn": "f", "args": {}},
    "turn": {
        "id": 1, "src": "agent", "msg": "hi", "ts": "2026-01-02T03:04:05Z", "model": "m", "effort": 3, "reason": "why",
        "nllm": 1, "copied": False,
    },
}  # fmt: skip


def whole(level: str = "", short: str = "", long: str = "") -> str:
    """A document with every member that has a long name; one of them by that name."""

    def level_of(name: str) -> dict[str, Any]:
        return {(long if (name, key) == (level, short) else key): value for key, value in FULL[name].items()}

    turn = {**level_of("turn"), "tool_calls": [level_of("call")]}
    return json.dumps({**level_of("root"), "agent": level_of("agent"), "parent": level_of("parent"), "turns": [turn]})


def fields(story: StorylineDocument) -> Any:
    """What a story says, without where it came from."""
    story.residual = story.origin = None
    story.story_id = ""
    for turn in story.turns:
        turn.residual = None
        for call in turn.tool_calls or ():
            call.residual = None
    return story


@pytest.mark.parametrize(
    ("level", "short", "long"),
    [(level, short, long) for level, names in LONG.items() for short, longs in names.items() for long in longs],
)
def test_every_long_name_is_taken(level: str, short: str, long: str) -> None:
    wanted = fields(story_of(whole()))
    text = whole(level, short, long)
    assert fields(story_of(text)) == wanted
    canonical = hub.convert("storyline", "storyline", text, residual="drop")
    assert not differences(canonical, hub.convert("storyline", "storyline", whole(), residual="drop"))


@pytest.mark.parametrize(
    ("members", "src", "lints"),
    [
        ('"src":"user","source":"user"', "user", {}),
        ('"source":"user","src":"user"', "user", {}),
        ('"source":"agent","src":"user"', "user", {"alias-conflict": 1}),
    ],
)
def test_the_short_name_wins(members: str, src: str, lints: dict[str, int]) -> None:
    story = story_of(file(f'{{"id":1,{members},"msg":""}}'))
    assert (story.turns[0].src, story.lints) == (src, lints)


def test_run_id_is_stronger_than_trajectory_id() -> None:
    assert story_of(file(root=',"trajectory_id":"t","run_id":"r"')).run == "r"


# --- rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ['"spec":"storyline/v1",', '"schema_version":"storyline/v1",', "", '"spec":"mine",', '"spec":null,']
)
def test_specs_that_are_taken(spec: str) -> None:
    assert ("missing-spec" in story_of(file(spec=spec)).lints) == (spec == "")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (file(spec='"spec":"storyline/v2",'), "unknown-version"),
        (file(spec='"schema_version":"storyline/v1.1",'), "unknown-version"),
        (file().replace('"s"', '""'), "empty-session"),
        (file().replace('"s"', "5"), "empty-session"),
        (file().replace('"session":"s",', ""), "empty-session"),
        (file(agent="null"), "missing-agent"),
        (file(agent='"w"'), "missing-agent"),
        (file(agent="{}"), "empty-agent-id"),
        (file(agent='{"id":""}'), "empty-agent-id"),
        (file(agent='{"id":1}'), "empty-agent-id"),
        (file().replace(f"[{TURN}]", "{}"), "turns-not-array"),
        (file().replace(f',"turns":[{TURN}]', ""), "turns-not-array"),
        (file(f"{TURN},{TURN}"), "repeated-turn-id"),
        (file(f"{TURN.replace('1', '0')},{TURN.replace('1', '-0')}"), "repeated-turn-id"),
        (file('"hi"'), "turn-without-id"),
        (file(TURN.replace("1", '"1"')), "turn-without-id"),
        (file(TURN.replace("1", "1.0")), "turn-without-id"),
        (file(TURN.replace("1", "9223372036854775808")), "turn-without-id"),
        (file('{"src":"user","msg":""}'), "turn-without-id"),
        (file('{"id":1,"msg":""}'), "turn-without-src"),
        (file('{"id":1,"src":"user"}'), "turn-without-msg"),
        (file('{"id":1,"src":"user","msg":"","tool_calls":[1]}'), "call-without-tcid"),
        (file('{"id":1,"src":"user","msg":"","tool_calls":[{"fn":"f","args":1}]}'), "call-without-tcid"),
        (file('{"id":1,"src":"user","msg":"","tool_calls":[{"tcid":"t","args":1}]}'), "call-without-fn"),
        (file('{"id":1,"src":"user","msg":"","tool_calls":[{"tcid":"t","fn":"f"}]}'), "call-without-args"),
    ],
)
def test_what_must_be_rejected(text: str, rule: str) -> None:
    assert storyline.violation(jsontext.parse(text)) == rule
    with pytest.raises(InputError) as caught:
        hub.into_storyline("storyline", text)
    assert caught.value.kind == f"invalid:{rule}"


def test_only_an_object_is_a_document() -> None:
    assert storyline.violation(jsontext.parse("[]")) == "not-an-object"


@pytest.mark.parametrize(("ids", "lints"), [("3 2 1", {"ids-not-ascending": 1}), ("0 5", {}), ("-4 7", {})])
def test_ids_are_kept_in_their_order(ids: str, lints: dict[str, int]) -> None:
    story = story_of(file(",".join(f'{{"id":{one},"src":"user","msg":""}}' for one in ids.split())))
    assert [turn.id for turn in story.turns] == [int(one) for one in ids.split()]
    assert story.lints == lints


def test_call_ids_may_be_reused() -> None:
    call = '{"tcid":"t","fn":"","args":null}'
    story = story_of(file(f'{{"id":1,"src":"agent","msg":"","tool_calls":[{call},{call}]}}'))
    assert [one.tcid for one in story.turns[0].tool_calls or ()] == ["t", "t#2"]


# --- members ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("children", [[], ["gone"], ["s"]])
def test_children_are_names(children: list[str]) -> None:
    assert story_of(file(root=f',"children":{json.dumps(children)}')).children == children
    assert story_of(file()).children is None


@pytest.mark.parametrize(("rel", "found"), [("", None), (',"rel":"spawn"', "spawn"), (',"rel":"fork"', "fork")])
def test_relation_is_written_where_it_was(rel: str, found: str | None) -> None:
    parent = story_of(file(root=f',"parent":{{"psid":"p"{rel}}}')).parent
    assert parent is not None
    assert parent.rel == found


def test_a_kind_that_is_stated_stays_stated() -> None:
    assert story_of(file('{"id":1,"src":"user","msg":"","kind":"dialogue"}')).turns[0].kind == "dialogue"


@pytest.mark.parametrize(("text", "found"), [("1", 1), ("1.5", None), ('"1"', None), ("null", None), ("-0", 0)])
def test_latency_is_an_integer(text: str, found: int | None) -> None:
    turn = story_of(file(f'{{"id":1,"src":"user","msg":"","latency_ms":{text},"ttft_ms":{text}}}')).turns[0]
    assert (turn.latency_ms, turn.ttft_ms) == (found, found)


@pytest.mark.parametrize("value", ["1.10", "{}", "null", '"\\ud800"', '{"a":1,"a":2}', "NaN"])
def test_unknown_members_are_kept_at_every_level(value: str) -> None:
    call = f'{{"tcid":"t","fn":"f","args":{value},"x":{value}}}'
    turn = f'{{"id":1,"src":"agent","msg":{value},"x":{value},"tool_calls":[{call}],"observation":{value}}}'
    story_of(file(turn, f',"x":{value},"parent":{{"psid":"p","x":{value}}}', agent=f'{{"id":"w","x":{value}}}'))


def test_deep_documents_are_not_projected() -> None:
    value = "[" * 1100 + "]" * 1100
    for text in (file(root=f',"x":{value}'), file(f'{{"id":1,"src":"user","msg":{value}}}')):
        with pytest.raises(ProjectionError) as caught:
            hub.into_storyline("storyline", text)
        assert caught.value.kind == "too-deep"
    value = "[" * 999 + "]" * 999
    (story,) = hub.into_storyline("storyline", file(f'{{"id":1,"src":"user","msg":{value}}}'))
    assert story.turns[0].msg == value.encode()


# --- files --------------------------------------------------------------------------------------------------


def test_several_stories() -> None:
    one, two = file(), file(root=',"notes":"n"')
    assert len(stories_of(f"[{one},{two}]")) == 2
    assert len(stories_of(f"[{one}]")) == 1
    lines = f"{one}\n{two}\n"
    assert [story.notes for story in hub.into_storyline("storyline", lines)] == [None, "n"]
    assert hub.convert("storyline", "storyline", lines).decode() == lines


def test_no_story_is_no_file() -> None:
    with pytest.raises(UsageError):
        storyline.dump([])


@pytest.mark.parametrize("observation", ['"text"', "[1]", '{"a":1}', "null"])
def test_free_observations_reach_other_formats(observation: str) -> None:
    text = hub.convert("storyline", "atif", file(f'{{"id":1,"src":"agent","msg":"","observation":{observation}}}'))
    found = jsontext.parse(text).get("steps")[0].get("observation")
    assert found == (jsontext.parse(observation) if observation != "null" else None)


# --- profiles -----------------------------------------------------------------------------------------------

ROOT_NAMES = {
    "schema_version", "run", "session", "agent", "parent", "children", "notes", "final_metrics", "continued_trajectory_ref",
    "extra", "turns", "trajectory", "origin", "unknown_fields", "unknown_key_counts",
}  # fmt: skip


def test_the_peer_profile_has_only_names_that_the_peer_knows() -> None:
    text = whole("turn", "src", "source").replace('"turns"', '"x": 1, "turns"')
    value = jsontext.parse(hub.convert("storyline", "storyline", text, profile="peer"))
    assert {name for name, _ in value} <= ROOT_NAMES
    assert value.get("schema_version") == "storyline/v1"
    sources = value.get("unknown_fields").get("sources").get("storyline")
    assert sources.get("fields").get("/x") == jsontext.Number("1")
    assert sources.get("fields").get("/turns/0/source") == "agent"
    counts = value.get("unknown_key_counts").get("storyline")
    assert [name for name, _ in counts] == [name for name, _ in sources.get("fields")]
    assert {name for name, _ in value.get("turns")[0]} == set(FULL["turn"]) | {"tool_calls"}


def test_the_peer_profile_is_read_too() -> None:
    text = '{"schema_version":"ATIF-v1.7","trajectory_id":"t","x":[1.0],"agent":{"name":"a"},"steps":[{"source":"user"}]}'
    peer = hub.convert("atif", "storyline", text, profile="peer")
    assert jsontext.parse(peer).get("trajectory") == "t"
    assert fields(story_of(peer.decode())).run == "t"
    assert not differences(text, hub.convert("storyline", "atif", peer))


# --- laws ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(storyline_documents())
def test_what_is_read_is_written(text: str) -> None:
    assume(storyline.violation(jsontext.parse(text)) is None)
    stories = stories_of(text)
    for profile in ("seed", "peer"):
        again = hub.into_storyline("storyline", hub.from_storyline("storyline", stories, profile=profile))
        assert len(again) == len(stories)
    hub.from_storyline("atif", stories)
