"""ATIF into stories and back: the odd inputs of the conformance list (A and J), the laws, lints and edits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from chronicle.errors import ProjectionError
from chronicle.formats import atif, hub, jsontext, turns
from chronicle.formats.kinds import Reading
from chronicle.formats.story import StorylineDocument
from tests.formats.oddities import atif_documents, atif_steps, differences, odd

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/atif"
CALLS = ',"tool_calls":[{"tool_call_id":"c","function_name":"f","arguments":{}}]'
LAW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def document(steps: str = "", root: str = "") -> str:
    return f'{{"schema_version":"ATIF-v1.7","session_id":"s1","agent":{{"name":"a","version":"1"}}{root},"steps":[{steps}]}}'


def step(more: str = "", identity: str = "1", source: str = "agent") -> str:
    return f'{{"step_id":{identity},"source":"{source}","message":"m"{more}}}'


def stories_of(text: str) -> list[StorylineDocument]:
    """The stories, after both ways back were found equal to the source as exact values."""
    stories = hub.into_storyline("atif", text)
    assert not differences(text, hub.from_storyline("atif", stories))
    carried = hub.from_storyline("storyline", stories)
    assert not differences(text, hub.convert("storyline", "atif", carried))
    return stories


def story_of(text: str) -> StorylineDocument:
    (story,) = stories_of(text)
    return story


def turn_with(more: str) -> Any:
    return story_of(document(step(more))).turns[0]


# --- root ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", [f"ATIF-v1.{n}" for n in range(9)] + ["1.4", "ATIF-v2.0", ""])
def test_every_version_tag_is_kept(tag: str) -> None:
    assert story_of(document().replace("ATIF-v1.7", tag)).origin.schema_version == tag


@pytest.mark.parametrize("version", ["", '"schema_version":null,', '"schema_version":1.7,'])
def test_missing_version_stays_missing(version: str) -> None:
    story = story_of(document().replace('"schema_version":"ATIF-v1.7",', version))
    assert story.origin.schema_version is None


@pytest.mark.parametrize(
    ("ids", "session", "run"),
    [
        ('"session_id":"s","trajectory_id":"t",', "s", "t"),
        ('"trajectory_id":"t",', "t", "t"),
        ('"session_id":null,"trajectory_id":"t",', "t", "t"),
        ('"session_id":"","trajectory_id":"t",', "t", "t"),
        ('"session_id":5,', None, None),
        ("", None, None),
    ],
)
def test_session_falls_back_to_trajectory_then_story(ids: str, session: str | None, run: str | None) -> None:
    story = story_of(f'{{{ids}"agent":{{"name":"a","version":"1"}},"steps":[]}}')
    assert (story.session, story.run) == (session or story.story_id, run)


@pytest.mark.parametrize(
    ("agent", "identity", "name", "version"),
    [
        ('"agent":{"name":"a","version":"1"},', "a", "a", "1"),
        ('"agent":{"name":"","version":""},', "unknown", "", ""),
        ('"agent":{},', "unknown", None, None),
        ('"agent":null,', "unknown", None, None),
        ('"agent":"me",', "unknown", None, None),
        ("", "unknown", None, None),
    ],
)
def test_agent_is_never_without_an_id(agent: str, identity: str, name: str | None, version: str | None) -> None:
    story = story_of(f'{{"schema_version":"ATIF-v1.7",{agent}"steps":[]}}')
    assert (story.agent.id, story.agent.name, story.agent.ver) == (identity, name, version)
    assert ("agent-missing" in story.lints) == ("{" not in agent)


@pytest.mark.parametrize("steps", ["[]", "null", "{}", "[ \n ]"])
def test_documents_without_steps_are_stories_without_turns(steps: str) -> None:
    assert story_of(f'{{"schema_version":"ATIF-v1.7","agent":{{"name":"a"}},"steps":{steps}}}').turns == []


def test_steps_that_are_missing_are_not_added() -> None:
    assert story_of('{"schema_version":"ATIF-v1.7","agent":{"name":"a"}}').turns == []


def test_members_stand_in_any_order() -> None:
    story = story_of(f'{{"steps":[{step()}],"agent":{{"version":"1","name":"a"}},"schema_version":"ATIF-v1.7"}}')
    assert (story.agent.name, len(story.turns)) == ("a", 1)


def test_of_repeated_steps_members_the_last_counts() -> None:
    text = document(step(), root=f',"steps":[{step()},{step(identity="2")}]')
    story = story_of(text)
    assert [turn.id for turn in story.turns] == [1]
    assert story.lints["repeated-key"] == 1


def test_arrays_that_look_like_steps_are_not_cut() -> None:
    story = story_of(document(step(), root=f',"extra":{{"steps":[{step()},{step()}]}}'))
    assert len(story.turns) == 1
    assert story.extra is not None


@pytest.mark.parametrize("key", ["_storyline", "unknown", "", "a/b", "c~d", "__proto__", "k" * 10_000])
@pytest.mark.parametrize("where", ["root", "agent", "step", "call", "part", "metrics"])
def test_unknown_keys_are_kept_everywhere(key: str, where: str) -> None:
    member = f"{json.dumps(key)}:[1.10,null]"
    call = f'{{"tool_call_id":"c","function_name":"f","arguments":{{}}{"," + member if where == "call" else ""}}}'
    message = f'[{{"type":"text","text":"x"{"," + member if where == "part" else ""}}}]'
    metrics = f"{{{member if where == 'metrics' else ''}}}"
    one = f'{{"step_id":1,"source":"agent","message":{message},"tool_calls":[{call}],"metrics":{metrics}'
    one += f"{',' + member if where == 'step' else ''}}}"
    agent = f'{{"name":"a"{"," + member if where == "agent" else ""}}}'
    root = f",{member}" if where == "root" else ""
    story_of(f'{{"schema_version":"ATIF-v1.7","agent":{agent},"steps":[{one}]{root}}}')


# --- step ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_ids", "ids", "lint"),
    [
        ("1 2 3", [1, 2, 3], None),
        ("1 3 7", [1, 3, 7], "step-ids-not-sequential"),
        ("3 2 1", [3, 2, 1], "step-ids-not-sequential"),
        ("0 -1 5", [0, -1, 5], "step-ids-not-sequential"),
        ("1 1 2", [1, 2, 3], "step-ids-not-distinct"),
        ("5 1.0 7", [1, 2, 3], "step-ids-not-distinct"),
        ('5 "1" 7', [1, 2, 3], "step-ids-not-distinct"),
        ("5 null 7", [1, 2, 3], "step-ids-not-distinct"),
        ("5 9223372036854775807 7", [5, 9223372036854775807, 7], "step-ids-not-sequential"),
        ("5 9223372036854775808 7", [1, 2, 3], "step-ids-not-distinct"),
        ("2 -0 1", [2, 0, 1], "step-ids-not-sequential"),
    ],
)
def test_ids_are_the_sources_where_distinct_integers(given_ids: str, ids: list[int], lint: str | None) -> None:
    story = story_of(document(",".join(step(identity=one) for one in given_ids.split())))
    assert [turn.id for turn in story.turns] == ids
    assert [code for code in story.lints if code.startswith("step-ids")] == ([lint] if lint else [])


def test_a_step_without_an_id_makes_all_ids_ordinals() -> None:
    story = story_of(document(f'{{"source":"user","message":""}},{step(identity="9")}'))
    assert [turn.id for turn in story.turns] == [1, 2]
    assert story.turns[1].residual == {"/step_id": "9"}


# --- step members -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ts", "lint"),
    [
        ("2026-01-02T03:04:05Z", None),
        ("2026-01-02T03:04:05.123456789Z", None),
        ("2026-01-02T03:04:05.123456789012+05:30", None),
        ("2026-01-02T03:04:05-00:00", None),
        ("2026-01-02 03:04:05Z", None),
        ("2026-01-02t03:04:05z", None),
        ("0001-01-01T00:00:00Z", "timestamp-out-of-range"),
        ("9999-12-31T23:59:59Z", "timestamp-out-of-range"),
        ("2025-10-16T14:30:00", "timestamp-naive"),
        ("2025-10-16", "timestamp-naive"),
        ("2016-12-31T23:59:60Z", "timestamp-unparsable"),
        ("1770091506", "timestamp-unparsable"),
        ("", "timestamp-unparsable"),
    ],
)
def test_time_stamps_keep_their_text(ts: str, lint: str | None) -> None:
    story = story_of(document(step(f',"timestamp":"{ts}"')))
    assert story.turns[0].ts == ts
    assert [code for code in story.lints if code.startswith("timestamp")] == ([lint] if lint else [])


@pytest.mark.parametrize("ts", ["1770091506", "1770091506.25", "null", '"\\ud800"'])
def test_time_stamps_that_are_no_text_stand_in_the_residual(ts: str) -> None:
    assert turn_with(f',"timestamp":{ts}').ts is None


@pytest.mark.parametrize("source", ["tool", "", "environment"])
def test_unknown_sources_are_kept(source: str) -> None:
    story = story_of(document(step(source=source)))
    assert (story.turns[0].src, story.lints) == (source, {"unknown-source": 1})


@pytest.mark.parametrize(
    "message",
    [
        "null", "5", "{}", "[]", '""', '"\\ud800"', '"\\u0000\\/\u2028"',
        '[{"type":"text","text":"a"},{"type":"image","source":{"media_type":"image/png","path":"images/1.png"}}]',
        '[{"type":"audio","source":{"media_type":"audio/x-wav","path":"a.wav","duration_sec":1.0}}]',
        '[{"type":"hologram","depth":1e2,"text":null}]',
        '[{"type":"image","source":{"path":"data:image/png;base64,AAAA"}}]',
    ],
)  # fmt: skip
def test_messages_are_their_own_text(message: str) -> None:
    turn = story_of(document(f'{{"step_id":1,"source":"user","message":{message}}}')).turns[0]
    assert turn.msg == message.encode()
    assert turn.residual is None


def test_a_missing_message_is_empty_and_stays_missing() -> None:
    turn = story_of(document('{"step_id":1,"source":"user"}')).turns[0]
    assert (turn.msg, turn.residual) == (b'""', {"/message": None})


@pytest.mark.parametrize(("calls", "found"), [("[]", []), ("null", None), ("{}", None), ('"x"', None)])
def test_tool_calls_that_are_no_list_of_calls(calls: str, found: list[Any] | None) -> None:
    assert turn_with(f',"tool_calls":{calls}').tool_calls == found
    assert turn_with("").tool_calls is None


def call(identity: str | None, more: str = "") -> str:
    name = "" if identity is None else f'"tool_call_id":{identity},'
    return f'{{{name}"function_name":"f","arguments":{{}}{more}}}'


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (['"c"', '"c"', '"c"'], ["c", "c#2", "c#3"]),
        (['"c"', '"c#2"', '"c"'], ["c", "c#2", "c#3"]),
        (['""', '"c"', '""'], ["call-1-1", "c", "call-1-3"]),
        ([None, '"call-1-1"', "null"], ["call-1-1#2", "call-1-1", "call-1-3"]),
        (["5", '"\\ud800"', '"\\udc00"'], ["call-1-1", "\ufffd", "\ufffd#2"]),
    ],
)
def test_call_ids_are_made_distinct(ids: list[str | None], found: list[str]) -> None:
    turn = turn_with(f',"tool_calls":[{",".join(map(call, ids))}]')
    assert [one.tcid for one in turn.tool_calls] == found


def test_call_ids_repeated_in_other_steps_are_made_distinct_too() -> None:
    calls = f',"tool_calls":[{call(chr(34) + "c" + chr(34))}]'
    story = story_of(document(f"{step(calls)},{step(calls, identity='2')}"))
    assert [turn.tool_calls[0].tcid for turn in story.turns] == ["c", "c#2"]
    assert story.turns[1].tool_calls[0].residual == {"/tool_call_id": '"c"'}
    assert story.lints == {"repeated-tool-call-id": 1}


@pytest.mark.parametrize("arguments", ['"{}"', "null", "[1]", "{}", '{"b":1,"a":2,"b":1.10}', "1e2"])
def test_arguments_are_their_own_text(arguments: str) -> None:
    turn = turn_with(f',"tool_calls":[{{"tool_call_id":"c","function_name":"","arguments":{arguments},"result":null}}]')
    assert turn.tool_calls[0].args == arguments.encode()
    assert turn.tool_calls[0].residual == {"/result": "null"}


def test_missing_arguments_are_empty() -> None:
    turn = turn_with(',"tool_calls":[{"tool_call_id":"c"}, "call"]')
    assert [(one.fn, one.args) for one in turn.tool_calls] == [("", b"{}"), ("", b"{}")]
    assert turn.tool_calls[1].residual == {"": '"call"'}


@pytest.mark.parametrize(
    ("extra", "duration"),
    [
        ("{}", None), ("[]", None), ('{"duration_ms":12}', 12), ('{"duration_ms":12.0}', None),
        ('{"duration_ms":"12"}', None), ('{"duration_ms":12.5}', None), ('{"duration_ms":-1}', -1),
        ('{"duration_ms":9223372036854775808}', None), ('{"duration_ms":3,"duration_ms":4}', 4),
    ],
)  # fmt: skip
def test_duration_of_a_call_is_a_copy(extra: str, duration: int | None) -> None:
    made = turn_with(f',"tool_calls":[{call(chr(34) + "c" + chr(34), f",{chr(34)}extra{chr(34)}:{extra}")}]').tool_calls[0]
    assert (made.duration_ms, made.extra) == (duration, extra.encode())


@pytest.mark.parametrize(
    "observation",
    ["{}", "[]", '"text"', '{"results":null}', '{"results":[]}', '{"results":["s",5]}', '{"results":[{"source_call_id":null}]}'],
)
def test_observations_are_their_own_text(observation: str) -> None:
    assert turn_with(f',"observation":{observation}').observation == observation.encode()


@pytest.mark.parametrize("name", ["timestamp", "tool_calls", "observation", "metrics", "extra", "model_name", "llm_call_count"])
def test_an_explicit_null_is_not_absent(name: str) -> None:
    turn = turn_with(f',"{name}":null')
    assert turn.residual == {f"/{name}": "null"}


@pytest.mark.parametrize(
    ("metrics", "latency", "ttft"),
    [
        ("{}", None, None), ("[]", None, None), ("5", None, None),
        ('{"latency_ms":12.9,"elapsed_ms":1,"ttft_ms":3}', 12, 3),
        ('{"latency_ms":null,"elapsed_ms":-7.5}', -7, None), ('{"duration_ms":1e3}', 1000, None),
        ('{"latency_ms":"5","duration_ms":6}', 6, None), ('{"latency_ms":1e30}', None, None),
        ('{"latency_ms":NaN,"ttft_ms":Infinity}', None, None), ('{"latency\\u005fms":4}', 4, None),
        ('{"latency_ms":1e400}', None, None), ('{"extra":{"latency_ms":1}}', None, None),
    ],
)  # fmt: skip
def test_latencies_are_copies(metrics: str, latency: int | None, ttft: int | None) -> None:
    turn = turn_with(f',"metrics":{metrics}')
    assert (turn.latency_ms, turn.ttft_ms, turn.metrics) == (latency, ttft, metrics.encode())


def test_token_arrays_and_infinities_are_kept() -> None:
    ids = ",".join(map(str, range(100_000)))
    turn_with(f',"metrics":{{"completion_token_ids":[{ids}],"logprobs":[-0.50,-Infinity]}}')


@pytest.mark.parametrize(("value", "found"), [("true", True), ("false", False), ("null", None), ('"true"', None)])
def test_copied_context(value: str, found: bool | None) -> None:
    assert turn_with(f',"is_copied_context":{value}').copied is found


@pytest.mark.parametrize(
    ("one", "lints"),
    [
        (step(',"metrics":{},"llm_call_count":0'), {"metrics-without-llm": 1}),
        (step(',"model_name":"m"', source="user"), {"agent-only-field": 1}),
        (step(',"x":1,"y":2'), {"unknown-key": 2}),
        (step(',"model_name":5'), {"wrong-type": 1}),
        (step(',"extra":{},"extra":{}'), {"repeated-key": 1}),
        (step(',"extra":1'), {"wrong-type": 1}),
        ('"a step"', {"not-an-object": 1, "unknown-source": 1, "step-ids-not-distinct": 1}),
        (
            step(f',"tool_calls":[{call(chr(34) + "c" + chr(34))}],"observation":{{"results":[{{"source_call_id":"d"}}]}}'),
            {"dangling-source-call-id": 1},
        ),
        (step(',"extra":{"context_management":{"type":"compaction","boundary":"replace"}}', source="system"), {}),
    ],
)
def test_lints_count_what_is_odd(one: str, lints: dict[str, int]) -> None:
    assert story_of(document(one)).lints == lints


# --- embedded trajectories ----------------------------------------------------------------------------------


def child(identity: str | None, steps: str = "", more: str = "") -> str:
    name = "" if identity is None else f'"trajectory_id":"{identity}",'
    return f'{{{name}"agent":{{"name":"b","version":"1"}},"steps":[{steps}]{more}}}'


def nested(*children: str, steps: str = "") -> str:
    return document(steps, root=f',"trajectory_id":"main","subagent_trajectories":[{",".join(children)}]')


def test_children_are_linked_both_ways() -> None:
    ref = '{"source_call_id":"t1","subagent_trajectory_ref":[{"trajectory_id":"bird"}]}'
    steps = step(f',"tool_calls":[{call(chr(34) + "t1" + chr(34))}],"observation":{{"results":[{ref}]}}', identity="4")
    root, bird = stories_of(nested(child("bird", step()), steps=steps))
    assert (root.children, root.child_stories) == (["bird"], [bird.story_id])
    assert bird.parent is not None
    assert (bird.parent.psid, bird.parent.scid, bird.parent.ptid) == ("main", "t1", 4)
    assert (bird.session, bird.run, bird.origin.pointer) == ("s1", "bird", "/subagent_trajectories/0")
    assert root.lints == {"step-ids-not-sequential": 1}


def test_children_nest() -> None:
    inner = child("three", step(), f',"subagent_trajectories":[{child("four")}]')
    found = stories_of(nested(child("two", more=f',"subagent_trajectories":[{inner}]'), child("five", step())))
    assert [story.run for story in found] == ["main", "two", "three", "four", "five"]
    assert [len(story.turns) for story in found] == [0, 0, 1, 0, 1]


def test_children_nest_as_deep_as_json_may() -> None:
    inner = child("0", step())
    for i in range(1, 450):
        inner = child(str(i), more=f',"subagent_trajectories":[{inner}]')
    assert len(hub.into_storyline("atif", inner)) == 450
    assert not differences(inner, hub.convert("atif", "atif", inner))


@pytest.mark.parametrize(
    ("children", "count", "names"),
    [("[]", 1, []), ("null", 1, None), ("{}", 1, None), ("[1]", 1, None), (f"[{child('x')},2]", 1, None)],
)
def test_lists_that_hold_no_trajectories(children: str, count: int, names: list[str] | None) -> None:
    found = stories_of(document(root=f',"subagent_trajectories":{children}'))
    assert (len(found), found[0].children) == (count, names)


def test_children_may_share_names() -> None:
    inner = child("same", more=f',"subagent_trajectories":[{child("same", step())}]')
    found = stories_of(nested(inner, child("same"), child("main"), child("s1"), child(None)))
    assert len({story.story_id for story in found}) == len(found) == 7
    assert found[0].lints["repeated-subagent-id"] == 1
    assert found[0].lints["subagent-without-id"] == 1


@pytest.mark.parametrize(
    ("ref", "lint"),
    [
        ('[{"session_id":"x"}]', 1), ('[{"trajectory_id":"gone"}]', 1), ('{"trajectory_id":"gone"}', 1),
        ('[{"trajectory_path":"a.json"}]', 0), ("null", 0), ("[]", 0),
    ],
)  # fmt: skip
def test_references_that_lead_nowhere(ref: str, lint: int) -> None:
    story = story_of(document(step(f',"observation":{{"results":[{{"subagent_trajectory_ref":{ref}}}]}}')))
    assert story.lints.get("unresolved-subagent-ref", 0) == lint


@pytest.mark.parametrize("ref", ['"next.json"', '"s1"', "null", "5"])
def test_continuations_are_not_followed(ref: str) -> None:
    story = story_of(document(root=f',"continued_trajectory_ref":{ref}'))
    assert story.continued_trajectory_ref == (json.loads(ref) if ref[0] == '"' else None)


def test_several_documents_keep_their_container() -> None:
    one, two = document(step()), document()
    for text in (f"[{one}]", f"[{one},{two}]"):
        assert len(stories_of(text)) == text.count("schema_version")
    lines = f"{one}\n{two}\n"
    assert hub.convert("atif", "atif", lines).decode() == lines


# --- JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "1.0", "1e2", "1E+2", "1.10", "-0", "-0.0", "9007199254740993", "9223372036854775808", "18446744073709551616",
        "9" * 30, "9" * 5000, "1e400", "1e-400", "NaN", "Infinity", "-Infinity", '"\\ud800"', '"\\udc00\\ud800"',
        '"\\ud83d\\ude00"', '"\U0001f600"', '"\\u0000"', '"\x01\t"', '"\u2028"', '"\\/"', '{"a":1,"a":1}', '{"a":1,"\\u0061":2}',
        "[" * 200 + "]" * 200, "[" * 990 + "]" * 990,
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["root", "extra", "step", "args", "message", "notes", "reasoning_content", "unknown"])
def test_values_keep_their_spelling(value: str, where: str) -> None:
    more = {
        "step": f',"x":{value}',
        "args": f',"tool_calls":[{{"tool_call_id":"c","function_name":"f","arguments":{value}}}]',
        "extra": f',"extra":{{"a":{value}}}',
        "reasoning_content": f',"reasoning_content":{value}',
        "unknown": f',"model_name":"m","unknown":{{"y":{value}}}',
    }.get(where, "")
    root = {"root": f',"x":{value}', "notes": f',"notes":{value}'}.get(where, "")
    text = document(step(more), root=root)
    story_of(text.replace('"m"', value) if where == "message" else text)


@pytest.mark.parametrize("levels", [1100, 3000])
def test_nesting_beyond_the_limit_is_not_projected(levels: int) -> None:
    value = "[" * levels + "]" * levels
    for text in (document(step(f',"extra":{value}')), document(root=f',"extra":{value}')):
        with pytest.raises(ProjectionError) as caught:
            hub.into_storyline("atif", text)
        assert caught.value.kind == "too-deep"


@pytest.mark.parametrize("spacing", [(",", ":"), (", ", ": ")])
def test_repeated_and_escaped_names(spacing: tuple[str, str]) -> None:
    comma, colon = spacing
    pairs = ['"step_id"', "1", '"source"', '"agent"', '"message"', '"x"', '"message"', '"y"', '"e\\u0078tra"', "{}"]
    text = "{" + comma.join(f"{a}{colon}{b}" for a, b in zip(pairs[::2], pairs[1::2], strict=True)) + "}"
    turn = story_of(document(text)).turns[0]
    assert (turn.msg, turn.extra) == (b'"y"', b"{}")


# --- laws ---------------------------------------------------------------------------------------------------


@LAW
@given(atif_documents)
def test_what_is_read_is_written(text: str) -> None:
    stories_of(text)


@LAW
@given(atif_steps | odd)
def test_both_readers_agree(text: str) -> None:
    def comparable(reading: Reading) -> Any:
        values = {k: [comparable(one) for one in v] if k == "tool_calls" else v for k, v in reading.values.items()}
        return values, reading.residual, Counter(reading.lints)

    quick = atif.STEP.quick(text.encode())
    if quick is not None:
        assert comparable(quick) == comparable(atif.STEP.slow(text.encode()))


@pytest.mark.parametrize("spacing", [(None, None), (None, (",", ":")), (2, None), (4, None)])
def test_usual_spacings_are_read_quickly(spacing: tuple[int | None, tuple[str, str] | None]) -> None:
    indent, separators = spacing
    one = {"source": "user", "step_id": 3, "message": 'a "b"', "vendor": [1], "timestamp": None}
    reading = atif.STEP.quick(json.dumps(one, indent=indent, separators=separators).encode())
    assert reading is not None
    assert reading.values == {"src": "user", "id": 3, "msg": b'"a \\"b\\""'}
    assert reading.residual["/vendor"] == "[1]"


def test_residuals_of_equal_steps_are_shared() -> None:
    story = story_of(document('{"source":"user","step_id":1,"message":"a"},{"source":"user","step_id":2,"message":"b"}'))
    assert story.turns[0].residual == {"#": ["source", "step_id", "message"]}
    assert story.turns[0].residual is story.turns[1].residual


@pytest.mark.parametrize("path", sorted(CORPUS.glob("[!n]*.json")) or [None], ids=lambda path: path.name if path else "none")
def test_files_of_other_tools(path: Path | None) -> None:
    if path is None:
        pytest.skip("the corpus is not here")
    stories_of(path.read_text())


# --- edits and foreign stories ------------------------------------------------------------------------------


def test_an_edited_turn_shows() -> None:
    text = document(
        '{"x":1,"source":"agent","step_id":"7","message":"old","model_name":null,"metrics":{"elapsed_ms":5},'
        '"tool_calls":[{"tool_call_id":"","function_name":"f","arguments":{},"extra":3,"extra":4}]}'
    )
    story = story_of(text)
    turn = story.turns[0]
    turn.msg, turn.model, turn.reason, turn.latency_ms = b'"new"', "m", "because", 9
    turn.tool_calls[0].fn = "g"
    written = jsontext.parse(atif.dump([story])).get("steps")[0]
    assert dict(written) == {
        "x": jsontext.Number("1"), "source": "agent", "step_id": "7", "message": "new", "model_name": "m",
        "metrics": jsontext.parse('{"elapsed_ms":5,"latency_ms":9}'), "reasoning_content": "because",
        "tool_calls": jsontext.parse(
            '[{"tool_call_id":"","function_name":"g","arguments":{},"extra":3,"extra":4}]'
        ),
    }  # fmt: skip


def test_an_edit_wins_where_the_whole_object_stands_in_the_residual() -> None:
    story = story_of(document('{"step_id":1,"source":"user","message":"a","message":"b"}, "no step"'))
    story.turns[0].msg = b'"c"'
    story.turns[1].src = "user"
    steps = jsontext.parse(atif.dump([story])).get("steps")
    assert jsontext.dump(steps[0]) == b'{"step_id":1,"source":"user","message":"a","message":"c"}'
    assert steps[1].get("source") == "user"


def test_turns_may_come_and_go() -> None:
    two = step(identity="2")
    story = story_of(document(step(',"x":1') + "," + two))
    del story.turns[0]
    assert [one.get("step_id").text for one in jsontext.parse(atif.dump([story])).get("steps")] == ["2"]
    story = story_of('{"schema_version":"ATIF-v1.7","agent":{"name":"a"},"x":[]}')
    story.turns = story_of(document(step())).turns
    assert len(jsontext.parse(atif.dump([story])).get("steps")) == 1


def test_without_residual_the_canonical_form_is_written() -> None:
    story = story_of('{"agent":{"name":"a","x":1},"schema_version":"ATIF-v1.5","steps":[],"y":2}')
    assert atif.dump([story], residual=False) == (
        b'{"schema_version":"ATIF-v1.5","session_id":"%b","agent":{"name":"a","version":"unknown"},"steps":[]}'
        % story.session.encode()
    )


def test_a_foreign_story_becomes_a_valid_trajectory() -> None:
    text = (
        '{"spec":"storyline/v1","session":"s","agent":{"id":"w"},"turns":[{"id":4,"src":"agent","msg":"hi","latency_ms":7,'
        '"ttft_ms":2,"metrics":{"cost_usd":0.10},"tool_calls":[{"tcid":"t","fn":"f","args":[],"duration_ms":3}]}]}'
    )
    assert hub.convert("storyline", "atif", text) == (
        b'{"schema_version":"ATIF-v1.7","session_id":"s","agent":{"name":"w","version":"unknown"},"steps":[{"step_id":4,'
        b'"source":"agent","message":"hi","tool_calls":[{"tool_call_id":"t","function_name":"f","arguments":[],'
        b'"extra":{"duration_ms":3}}],"metrics":{"cost_usd":0.10,"latency_ms":7,"ttft_ms":2}}]}'
    )


@pytest.mark.parametrize(("part", "version"), [("audio", "ATIF-v1.8"), ("image", "ATIF-v1.7")])
def test_a_foreign_story_with_audio_needs_the_newest_version(part: str, version: str) -> None:
    text = (
        '{"spec":"storyline/v1","session":"s","agent":{"id":"w"},'
        f'"turns":[{{"id":1,"src":"user","msg":[{{"type":"{part}","source":{{}}}}]}}]}}'
    )
    assert jsontext.parse(hub.convert("storyline", "atif", text)).get("schema_version") == version


@pytest.mark.parametrize("steps", [step() + "," + step(), step(CALLS) + "," + step(CALLS, "2")], ids=["step", "call"])
def test_a_changed_id_that_the_residual_does_not_keep_is_noticed(steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stories_of(document(steps))
    monkeypatch.setattr(turns, "settled", lambda rest, name, text: rest)
    with pytest.raises(ProjectionError, match="do not give back turn"):
        hub.into_storyline("atif", document(steps))
