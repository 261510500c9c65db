"""The cut covers a source without a gap, both cutters agree, and every defective input ends as design 4.2 says."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.errors import InputError, UsageError
from chronicle.formats import hub, jsontext
from chronicle.formats.cut import cut
from chronicle.formats.document import CutSource

STEP = '{"step_id":1,"source":"agent","message":"hi","timestamp":"2026-01-02T03:04:05Z"}'
HEAD = '{"schema_version":"ATIF-v1.7","session_id":"s","agent":{"name":"a","version":"1"},"steps":['
ATIF = HEAD + STEP + "]}"
CHAT = '{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}'
STORY = '{"spec":"storyline/v1","session":"s","agent":{"id":"w"},"turns":[{"id":1,"src":"user","msg":"m","ts":"t"}]}'
SHAREGPT = '{"conversations":[{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}'
MARK, LONE = "\\u0041", "\\ud800"
"""Two spellings of one length: a strict text becomes one that only the scanner takes, and no offset moves."""


def row(session: str | None, step: int) -> str:
    value = {"session_id": session, "step_id": step, "messages": [{"role": "user", "content": "q"}], "agent_model": "m"}
    return json.dumps({key: each for key, each in value.items() if each is not None})


def lawful(source: bytes, found: CutSource) -> CutSource:
    """Check the laws of the cut and give `found` back."""
    assert found.size == len(source)
    end, pieces = 0, []
    for document in found.documents:
        assert end == document.lead <= document.start <= document.end <= len(source)
        assert document.stories[0].discriminator == "" or document.form.startswith("A")
        at = document.lead
        for part in document.parts:
            assert max(at, document.start) <= part.start <= part.end <= document.end
            assert 0 <= part.story < len(document.stories)
            pieces += [source[at : part.start], source[part.start : part.end]]
            at = part.end
        for part in list(document.parts)[:50] if document.strict else ():
            text = source[part.start : part.end]
            assert jsontext.is_strict(text) or jsontext.depth(text) > jsontext.STRICT_DEPTH
        pieces.append(source[at : document.end])
        end = document.end
    pieces.append(source[end:])
    assert b"".join(pieces) == source
    return found


def cut_text(text: str | bytes, **kwargs: object) -> CutSource:
    source = text.encode() if isinstance(text, str) else text
    return lawful(source, cut(source, **kwargs))  # type: ignore[arg-type]


def kind_of(text: str | bytes, **kwargs: object) -> str:
    with pytest.raises(InputError) as caught:
        cut_text(text, **kwargs)
    assert caught.value.message
    return caught.value.kind


def texts(source: bytes | str, found: CutSource, document: int = 0) -> dict[str, bytes]:
    raw = source.encode() if isinstance(source, str) else source
    return {part.pointer: raw[part.start : part.end] for part in found.documents[document].parts}


# -- both cutters ------------------------------------------------------------------------------------------------


def spell(value: object, rnd: random.Random) -> str:
    """JSON text with random white space and, now and then, a repeated member before the one that counts."""
    gap = lambda: rnd.choice(["", "", "", " ", "\n", "\t", "\r\n  "])  # noqa: E731
    if isinstance(value, dict):
        members = []
        for key, each in value.items():
            if rnd.random() < 0.1:
                members.append((key, rnd.choice([None, [1], {"steps": [2]}, "x", 7])))
            members.append((key, each))
        body = ",".join(f"{gap()}{json.dumps(key)}{gap()}:{gap()}{spell(each, rnd)}{gap()}" for key, each in members)
        return "{" + (body or gap()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(gap() + spell(each, rnd) + gap() for each in value) or gap()) + "]"
    return json.dumps(value, ensure_ascii=rnd.random() < 0.5)


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5).map(lambda s: s.replace("\\", "")))
names = st.sampled_from(["s", "", "t-1", "Ünï", None, 5])
stamps = st.sampled_from(["2026-01-02T03:04:05Z", "", None, 1.5, "x"])
extra = st.dictionaries(st.sampled_from(["extra", "steps_", "a/b", "~"]), st.lists(scalars, max_size=2), max_size=2)
steps = st.one_of(
    st.fixed_dictionaries({"source": scalars, "message": scalars}, optional={"timestamp": stamps, "extra": scalars}), scalars
)
trajectories = st.recursive(
    st.fixed_dictionaries(
        {"steps": st.lists(steps, max_size=3), "agent": st.one_of(scalars, st.fixed_dictionaries({"name": names}))},
        optional={"session_id": names, "trajectory_id": names, "extra": extra},
    ),
    lambda inner: st.fixed_dictionaries(
        {
            "subagent_trajectories": st.lists(st.one_of(inner, inner, inner, scalars), max_size=2),
            "steps": st.lists(steps, max_size=2),
        },
        optional={"session_id": names, "trajectory_id": names},
    ),
    max_leaves=4,
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=3)}),
    min_size=1,
    max_size=3,
)
turns = st.one_of(scalars, st.fixed_dictionaries({"id": st.integers(0, 2)}, optional={"ts": stamps, "timestamp": stamps}))
documents = st.one_of(
    trajectories.map(lambda t: {"schema_version": "ATIF-v1.7", **t}),
    trajectories.map(lambda t: {**t, "schema_version": "ATIF-v1.6"}),
    st.fixed_dictionaries({"messages": messages}, optional={"id": names, "model": names}),
    st.fixed_dictionaries({"prompt": messages, "completion": messages}),
    st.fixed_dictionaries({"spec": st.just("storyline/v1"), "turns": st.lists(turns, max_size=2)}, optional={"session": names}),
)


def agree(fast: CutSource, slow: CutSource) -> None:
    assert (fast.container, fast.format, len(fast.documents)) == (slow.container, slow.format, len(slow.documents))
    for one, other in zip(fast.documents, slow.documents, strict=True):
        assert one.strict
        assert not other.strict
        assert (one.format, one.form, one.invalid, one.reason) == (other.format, other.form, other.invalid, other.reason)
        assert one.fault == other.fault == ""
        assert (one.lead, one.start, one.end) == (other.lead, other.start, other.end)
        assert list(one.parts) == list(other.parts)
        assert list(one.stories) == list(other.stories)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(documents, min_size=1, max_size=3), st.sampled_from(["array", "jsonl", "concatenated"]), st.integers(0, 2**32))
def test_both_cutters_agree(values: list[dict[str, object]], container: str, seed: int) -> None:
    rnd = random.Random(seed)
    written = [spell({**value, "zz": "MARK"}, rnd) for value in values]
    if container == "array":
        text = f" [{' , '.join(written)} ]\n"
    elif container == "jsonl":
        text = "\ufeff" + "\r\n\n".join(each.replace("\n", " ").replace("\r", " ") for each in written) + "\n"
    else:
        text = " \n".join("\n" + each for each in written)
    fast = cut_text(text.replace("MARK", MARK), name="x.json")
    slow = cut_text(text.replace("MARK", LONE), name="x.json")
    agree(fast, slow)
    assert len(fast.documents) == len(values)
    if container == "array" or (container == "jsonl" and len(values) > 1):
        assert fast.container == container


def faults_of(source: bytes, name: str) -> list[str]:
    """The kind of a source that is refused; else the fault of each document, at least one of them without."""
    try:
        found = cut_text(source, name=name)
    except InputError as error:
        return [error.kind]
    faults = [each.fault.removeprefix("member:") for each in found.documents]
    assert "" in faults
    return faults


KINDS = ("empty", "unreadable", "truncated", "encoding", "unsupported:")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from([ATIF, CHAT, STORY, SHAREGPT, row("a", 1), row("b", 1), "[]", "7"]), min_size=1, max_size=4),
    st.sampled_from(["\n", ",", " ", "\r\n\n"]),
    st.booleans(),
    st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3), st.integers(0, 9)), max_size=3),
    st.sampled_from(["x.json", "x.jsonl"]),
)
def test_whatever_comes_in_is_covered_or_refused(
    values: list[str], between: str, wrap: bool, edits: list[tuple[float, bytes, int]], name: str
) -> None:
    text = between.join(values)
    source = (f"[{text}]" if wrap else text).encode()
    for place, put, drop in edits:
        at = int(place * len(source))
        source = source[:at] + put + source[at + drop :]
    faults = faults_of(source, name)
    assert all(kind == "" or kind.startswith(KINDS) for kind in faults)


# -- containers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "container", "count"),
    [
        (ATIF, "a.json", "object", 1),
        (f"\ufeff  {ATIF}\n\n", "a.json", "object", 1),
        (ATIF, "a.jsonl", "jsonl", 1),
        (f"{ATIF}\n", "a.ndjson.gz", "jsonl", 1),
        (f"[{ATIF}]", "a.json", "array", 1),
        (f"[{ATIF},\n {CHAT}]", "a.jsonl", "array", 2),
        (f"{ATIF}\n{ATIF}\n", "a.json", "jsonl", 2),
        (f"\ufeff{CHAT}\r\n\r\n{ATIF}\r\n  {CHAT}", "a", "jsonl", 3),
        (f"{ATIF}{ATIF}", "a.json", "concatenated", 2),
        (f"{ATIF} {CHAT}\n{CHAT}", "a.jsonl", "concatenated", 3),
        ("\n".join(json.dumps(json.loads(each), indent=1) for each in (ATIF, CHAT, STORY)), "a.json", "concatenated", 3),
        (json.dumps(json.loads(ATIF), indent=2), "a.jsonl", "object", 1),
        (json.dumps(json.loads(CHAT)["messages"]), "a.json", "object", 1),
        (json.dumps([json.loads(CHAT)["messages"]] * 2), "a.json", "array", 2),
        (json.dumps(json.loads(CHAT)["messages"]) + "\n" + json.dumps(json.loads(CHAT)["messages"]), "a.jsonl", "jsonl", 2),
    ],
)
def test_containers(text: str, name: str, container: str, count: int) -> None:
    found = cut_text(text, name=name)
    assert (found.container, len(found.documents)) == (container, count)
    assert not any(each.fault or each.invalid for each in found.documents)
    assert [each.locator for each in found.documents] == list(range(count))
    assert all(each.parts for each in found.documents)


def test_mixed_formats_are_read_each_by_itself() -> None:
    found = cut_text(f"{SHAREGPT}\n{CHAT}\n{STORY}\n{ATIF}\n", name="m.jsonl")
    assert [each.format for each in found.documents] == ["", "openai_msg", "storyline", "atif"]
    assert found.format == "openai_msg"
    assert found.documents[0].fault == "member:unsupported:sharegpt"


def test_a_tail_goes_on_counting_and_may_hold_nothing_readable() -> None:
    assert [each.locator for each in cut_text(f"{CHAT}\n{CHAT}\n", container="jsonl", first_locator=7).documents] == [7, 8]
    tail = cut_text('{"messages": [\n', container="jsonl", first_locator=3)
    assert [(each.locator, each.fault) for each in tail.documents] == [(3, "member:truncated")]
    tail = cut_text(b'{"messages": "\xff"}', container="jsonl", first_locator=3)
    assert [(each.locator, each.fault) for each in tail.documents] == [(3, "member:encoding")]


# -- stories and parts -------------------------------------------------------------------------------------------


def test_embedded_trajectories_in_byte_order_with_stories_in_pre_order() -> None:
    grandchild = '{"session_id":"own","steps":[2]}'
    child = '{"trajectory_id":"c","steps":[{"timestamp":"t1"}],"subagent_trajectories":[' + grandchild + "]}"
    text = (
        '{"subagent_trajectories":[%s,{"agent":{"name":"b"}}],"session_id":"","trajectory_id":"r","steps":[{"timestamp":"t0"}],'
    )
    text = text % child + '"schema_version":"atif-v1.7"}'
    document = cut_text(text).documents[0]
    assert [(part.pointer, part.story, part.timestamp) for part in document.parts] == [
        ("/subagent_trajectories/0/steps/0", 1, "t1"),
        ("/subagent_trajectories/0/subagent_trajectories/0/steps/0", 2, None),
        ("/steps/0", 0, "t0"),
    ]
    assert [(s.discriminator, s.session_id, s.agent_id, s.run_id) for s in document.stories] == [
        ("", "r", None, "r"),
        ("/subagent_trajectories/0", "r", None, "c"),
        ("/subagent_trajectories/0/subagent_trajectories/0", "own", None, None),
        ("/subagent_trajectories/1", "r", "b", None),
    ]


@pytest.mark.parametrize("mark", [MARK, LONE])
@pytest.mark.parametrize(
    ("members", "parts"),
    [
        ('"steps":[1,2],"steps":[{"x":3}]', {"/steps/0": b'{"x":3}'}),
        ('"steps":null,"steps":[4]', {"/steps/0": b"4"}),
        ('"steps":[4],"steps":null', {}),
        ('"steps":{"0":1}', {}),
        ('"extra":{"steps":[1,2]},"steps":[ ]', {}),
        ('"\\u0073teps":[7]', {"/steps/0": b"7"}),
        ('"steps":[5],"subagent_trajectories":[{"steps":[6]},7]', {"/steps/0": b"5"}),
        ('"steps":[5],"subagent_trajectories":{"steps":[6]}', {"/steps/0": b"5"}),
        ('"subagent_trajectories":[{"steps":[6]}],"subagent_trajectories":null', {}),
        (
            '"subagent_trajectories":[{"steps":[{"timestamp":1,"timestamp":"t"}]}]',
            {"/subagent_trajectories/0/steps/0": b'{"timestamp":1,"timestamp":"t"}'},
        ),
        ('"steps":[{"message":"same"},{"message":"same"}]', {f"/steps/{i}": b'{"message":"same"}' for i in (0, 1)}),
    ],
)
def test_what_counts_as_a_step(members: str, parts: dict[str, bytes], mark: str) -> None:
    text = f'{{"schema_version":"ATIF-v1.7","notes":"{mark}",{members}}}'
    found = cut_text(text)
    assert texts(text, found) == parts
    assert found.documents[0].strict == (mark == MARK)


def test_storyline_turns() -> None:
    text = STORY.replace('"session":"s"', '"session":"","story_id":"x","run_id":"r"')
    document = cut_text(text.replace('"session":"",', "")).documents[0]
    assert [(part.pointer, part.timestamp) for part in document.parts] == [("/turns/0", "t")]
    assert (document.stories[0].session_id, document.stories[0].agent_id, document.stories[0].run_id) == ("x", "w", "r")


def test_storyline_that_must_be_rejected_is_cut_and_marked() -> None:
    for broken in (STORY.replace("v1", "v2"), STORY.replace('"id":"w"', '"id":""'), STORY.replace('"msg":"m",', "")):
        document = cut_text(broken).documents[0]
        assert document.invalid.startswith("invalid:")
        assert document.format == "storyline"
        assert not document.fault


# -- rows of form A ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "container", "pointers"),
    [
        (f"[{row('a', 1)}, {row('b', 1)}, {row('a', 2)}]", "object", ["/0", "/1", "/2"]),
        (
            f'{{"session_steps": [{row("a", 1)}, {row("b", 1)}, {row("a", 2)}]}}',
            "object",
            [f"/session_steps/{i}" for i in range(3)],
        ),
        (f"{row('a', 1)}\n\n{row('b', 1)}\r\n{row('a', 2)}\n", "jsonl", ["/0", "/1", "/2"]),
    ],
)
def test_rows_are_one_document_and_sessions_its_stories(text: str, container: str, pointers: list[str]) -> None:
    found = cut_text(text)
    assert (found.container, len(found.documents)) == (container, 1)
    document = found.documents[0]
    assert [part.pointer for part in document.parts] == pointers
    assert [part.story for part in document.parts] == [0, 1, 0]
    assert [(s.discriminator, s.session_id, s.agent_id) for s in document.stories] == [("a", "a", "m"), ("b", "b", "m")]


def test_rows_of_one_session_are_the_root_story() -> None:
    document = cut_text(f"[{row('a', 1)},{row('a', 2)}]").documents[0]
    assert [(s.discriminator, s.session_id) for s in document.stories] == [("", "a")]
    single = cut_text(row("a", 1), name="a.json").documents[0]
    assert [part.pointer for part in single.parts] == ["/0"]
    assert (single.parts[0].start, single.parts[0].end) == (single.start, single.end)


def test_a_row_without_a_session_belongs_to_the_root() -> None:
    document = cut_text(f"[{row('a', 1)},{row(None, 2)}]").documents[0]
    assert [(s.discriminator, s.session_id) for s in document.stories] == [("a", "a"), ("", None)]
    assert [part.story for part in document.parts] == [0, 1]


def test_a_bad_line_parts_the_rows_around_it() -> None:
    found = cut_text(f"{row('a', 1)}\n{row('a', 2)}\n{{bad\n{row('a', 3)}\n")
    assert [(each.fault, len(each.parts)) for each in found.documents] == [("", 2), ("member:unreadable", 0), ("", 1)]


# -- what cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        (" \r\n\t", "empty"),
        ("\ufeff", "empty"),
        ("[]", "empty"),
        ("[ \n ]", "empty"),
        ("42", "unsupported:json-scalar"),
        ('"x"', "unsupported:json-scalar"),
        ("null\n", "unsupported:json-scalar"),
        ("1\n2\n", "unreadable"),
        ("[1, null]", "unsupported:json-array"),
        ("{}", "unsupported:json-object"),
        ('[{"a": 1}]', "unsupported:json-object"),
        (ATIF[:-1], "truncated"),
        (ATIF[:-30], "truncated"),
        (json.dumps(json.loads(ATIF), indent=1)[:-9], "truncated"),
        (ATIF[:-1] + ",}", "unreadable"),
        ("// c\n" + ATIF, "unreadable"),
        (ATIF.replace('"', "'"), "unreadable"),
        ("hello world", "unreadable"),
        (ATIF.encode().replace(b"hi", b"h\xe9"), "encoding"),
        (f"[\n{CHAT},\n{CHAT}\n]".replace('"q"', '"\xe9"').encode("latin-1"), "encoding"),
        (f"[\n{CHAT.replace('q', 'é')},\n{CHAT}\n]".encode("latin-1"), "encoding"),
        (ATIF.encode("utf-16"), "encoding"),
        (ATIF.encode("utf-16-le"), "encoding"),
        (ATIF.encode("utf-32"), "encoding"),
        (f"{SHAREGPT}\n{SHAREGPT}\n{{\n", "unsupported:sharegpt"),
    ],
)
def test_kinds(text: str | bytes, kind: str) -> None:
    assert kind_of(text, name="x.json") == kind


def test_faults_say_where() -> None:
    with pytest.raises(InputError) as caught:
        cut(f" {ATIF[:-1]},}}".encode(), name="dir/x.json")
    assert caught.value.context["offset"] == len(ATIF) + 1
    assert "dir/x.json" in str(caught.value)
    assert f"byte {len(ATIF) + 1}" in str(caught.value)
    with pytest.raises(InputError, match="UTF-16"):
        cut(ATIF.encode("utf-16"))


@pytest.mark.parametrize(
    ("member", "fault"),
    [
        (b'{"messages":[{"role":"user","content":"cut', "member:truncated"),
        (b'{"messages":[}', "member:unreadable"),
        (CHAT.encode() + b" x", "member:unreadable"),
        (CHAT.encode().replace(b'"q"', b'"\xed\xa0\x80"'), "member:encoding"),
        (SHAREGPT.encode(), "member:unsupported:sharegpt"),
        (b"[]", "member:empty"),
        (b"7", "member:unsupported:json-scalar"),
    ],
)
def test_a_bad_line_leaves_its_neighbours_alone(member: bytes, fault: str) -> None:
    for name in ("x.jsonl", "x.json"):
        source = b"\xef\xbb\xbf" + CHAT.encode() + b"\r\n\r\n" + member + b"\n" + ATIF.encode() + b"\n" + CHAT.encode()
        found = cut_text(source, name=name)
        assert [each.fault for each in found.documents] == ["", fault, "", ""]
        assert source[found.documents[1].start : found.documents[1].end] == member
        assert found.documents[1].reason
        assert [each.format for each in found.documents] == ["openai_msg", "", "atif", "openai_msg"]


def test_the_first_line_may_be_the_bad_one() -> None:
    for name in ("x.jsonl", "x.json"):
        found = cut_text(f"{CHAT[:20]}\n{CHAT}\n{CHAT}\n", name=name)
        assert [each.fault for each in found.documents] == ["member:truncated", "", ""]


def test_members_of_an_array_that_are_no_documents() -> None:
    found = cut_text(f'[null, {ATIF}, 5, {SHAREGPT}, {{"a": NaN}}, {CHAT}]')
    faults = ["json-scalar", None, "json-scalar", "sharegpt", "json-object", None]
    assert [each.fault for each in found.documents] == [f"member:unsupported:{what}" if what else "" for what in faults]


def test_an_array_and_a_chain_that_are_cut_off_keep_what_is_whole() -> None:
    found = cut_text(f"[{ATIF}, {CHAT}, {ATIF[:40]}")
    assert [each.fault for each in found.documents] == ["", "", "member:truncated"]
    assert [each.fault for each in cut_text(f"[{ATIF}").documents] == ["", "member:truncated"]
    pretty = json.dumps(json.loads(ATIF), indent=1)
    found = cut_text(f"{pretty}\n{pretty}\n{pretty[:50]}")
    assert (found.container, [each.fault for each in found.documents]) == ("concatenated", ["", "", "member:truncated"])
    assert kind_of(json.dumps(json.loads(CHAT)["messages"])[:-1]) == "truncated"


# -- forced format, odd but readable -----------------------------------------------------------------------------


def test_forced_format() -> None:
    assert cut_text('{"x": 1}', format="atif").documents[0].format == "atif"
    assert len(cut_text('{"steps": [1, 2]}', format="atif").documents[0].parts) == 2
    assert [each.fault for each in cut_text('[{"steps":[1]}, 5]', format="atif").documents] == [
        "",
        "member:unsupported:json-scalar",
    ]
    assert kind_of("[[1]]", format="atif") == "unsupported:json-array"
    assert kind_of("5", format="atif") == "unsupported:json-scalar"
    assert kind_of(ATIF, format="openai_msg") == "unsupported:json-object"
    assert cut_text(CHAT, format="openai_msg").documents[0].form == "B1"
    assert kind_of(ATIF, format="actf") == "unsupported:actf"
    with pytest.raises(UsageError):
        cut(ATIF.encode(), format="events")
    with pytest.raises(UsageError):
        cut(ATIF.encode(), container="zip")


@pytest.mark.parametrize("odd", ["NaN", '"\\ud83d"', '"\x01"', "[" * 150 + "]" * 150, "[" * 3000 + "]" * 3000])
def test_odd_but_readable(odd: str) -> None:
    text = ATIF.replace('"hi"', odd)
    found = cut_text(text)
    document = found.documents[0]
    assert (document.format, len(document.parts)) == ("atif", 1)
    assert document.parts[0].timestamp == "2026-01-02T03:04:05Z"
    # How deep the strict reader of the cut goes depends on the version of Python; what a document says of its parts does not.
    assert hub.document_of(text.encode(), found, document, "s").strict == (len(odd) == 300)
    assert document.strict == (len(odd) == 300) or len(odd) == 6000


def test_deep_embedding_costs_no_more_than_a_scan() -> None:
    levels = 20_000
    text = '{"steps":[1],"subagent_trajectories":[' * levels + "]}" * levels
    document = cut_text('{"schema_version":"ATIF-v1.7",' + text[1:]).documents[0]
    assert [part.pointer for part in document.parts] == ["/steps/0"]
    shallow = '{"steps":[1],"subagent_trajectories":[' * 100 + "]}" * 100
    assert len(cut_text('{"schema_version":"ATIF-v1.7",' + shallow[1:]).documents[0].parts) == 100


def test_large_documents() -> None:
    many = ATIF.replace(STEP, ",".join([STEP] * 100_000))
    assert len(cut_text(many).documents[0].parts) == 100_000
    one = ATIF.replace("hi", "x" * (8 << 20))
    assert len(cut_text(one).documents[0].parts[0].pointer) == len("/steps/0")
