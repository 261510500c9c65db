"""The hub: any format through Storyline files and back, several documents, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from chronicle import identity
from chronicle.errors import InputError, UsageError
from chronicle.formats import atif, carrier, cut, hub, jsontext
from chronicle.formats.story import StorylineDocument
from tests.formats.oddities import differences
from tests.laws.contents import rows

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"

LEAF = (
    '{"schema_version":"ATIF-v1.7","trajectory_id":"leaf","agent":{"name":"b"},"steps":[{"message":"x","source":"agent","n":1}]}'
)
ATIF = (
    '{"x":1,"schema_version":"ATIF-v1.6","session_id":null,"trajectory_id":"main","agent":{"version":"1","name":"a","y":2},'
    '"steps":[{"step_id":"1","source":"user","message":"hi","timestamp":5},{"step_id":1,"source":"agent","message":"",'
    '"tool_calls":[{"tool_call_id":"c","function_name":"f","arguments":{},"z":1},{"tool_call_id":"c"},7]}],'
    f'"subagent_trajectories":[{LEAF}]}}'
)
MESSAGES = (
    '{"messages":[{"role":"developer","content":"b"},{"role":"assistant","content":null,"reasoning":"r"}],"id":"k","v":1.0}'
)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["events", "actf", "agenticmd", "parquet", ""])
def test_formats_that_the_hub_does_not_take(format: str) -> None:
    reasons = {"events": "events_to_storyline", "actf": "not supported yet", "agenticmd": "not supported yet"}
    (story,) = hub.into_storyline("atif", LEAF)
    for refused in (
        lambda: hub.into_storyline(format, LEAF),
        lambda: hub.from_storyline(format, [story]),
        lambda: hub.convert("atif", format, LEAF),
    ):
        with pytest.raises(UsageError, match=reasons.get(format, "no format named")):
            refused()


def test_no_story_is_no_file() -> None:
    with pytest.raises(UsageError):
        hub.from_storyline("atif", [])
    with pytest.raises(UsageError):
        atif.dump([])


def test_a_bad_member_is_named() -> None:
    with pytest.raises(InputError) as caught:
        hub.into_storyline("atif", f"{LEAF}\n{{\n{LEAF}\n")
    assert caught.value.context["locator"] == 1
    assert caught.value.kind.startswith("member:")


@pytest.mark.parametrize("text", ["", "[]", "{", "not json"])
def test_files_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError):
        hub.into_storyline("atif", text)


# --- documents ----------------------------------------------------------------------------------------------


def test_a_document_is_its_bytes() -> None:
    source = f" [ {ATIF} ,\n {LEAF}]\n".encode()
    found = cut.cut(source)
    documents = [hub.document_of(source, found, one, "sid") for one in found.documents]
    assert [one.text.decode() for one in documents] == [ATIF, LEAF]
    assert [one.id for one in documents] == [identity.document_id("sid", i) for i in (0, 1)]
    assert [part.pointer for part in documents[0].parts] == ["/steps/0", "/steps/1", "/subagent_trajectories/0/steps/0"]
    assert jsontext.parse(documents[1].skeleton).get("steps") == []


def test_stories_know_where_they_came_from() -> None:
    stories = hub.into_storyline("atif", f"{LEAF}\n{ATIF}\n")
    assert [(one.origin.locator, one.origin.pointer, one.origin.container) for one in stories if one.origin] == [
        (0, None, "jsonl"),
        (1, None, "jsonl"),
        (1, "/subagent_trajectories/0", "jsonl"),
    ]
    root, child = stories[1:]
    assert root.story_id == root.origin.document_id  # type: ignore[union-attr]
    assert child.story_id == identity.story_id(root.story_id, "/subagent_trajectories/0")


# --- through a Storyline file -------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["seed", "peer"])
@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("atif", ATIF),
        ("atif", f"[{ATIF}]"),
        ("atif", f"[{ATIF},{LEAF}]"),
        ("openai_msg", MESSAGES),
        ("openai_msg", f"[{MESSAGES}]"),
    ],
)
def test_a_storyline_file_carries_what_it_cannot_say(format: str, text: str, profile: hub.Profile) -> None:
    file = hub.convert(format, "storyline", text, profile=profile)
    assert not differences(text, hub.convert("storyline", format, file))
    assert not differences(file, hub.convert("storyline", "storyline", file))


def test_the_root_carries_the_residual_of_its_document() -> None:
    root, child = jsontext.parse(hub.convert("atif", "storyline", ATIF))
    load = root.get("extra").get("chronicle")
    assert load.get("origin").get("format") == "atif"
    assert load.get("origin").get("schema_version") == "ATIF-v1.6"
    rest = dict(load.get("residual"))
    assert rest["/x"] == "1"
    assert rest["/agent/y"] == "2"
    assert rest["/steps/0/timestamp"] == "5"
    assert rest["/steps/1/tool_calls/0/z"] == "1"
    assert rest["/steps/1/tool_calls/1/tool_call_id"] == '"c"'
    assert rest["/subagent_trajectories/0/steps/0/n"] == "1"
    assert child.get("extra").get("chronicle").get("residual") is None


@pytest.mark.parametrize(
    "residual",
    [
        '{"#":{"a":1}}', '{"#":"x"}', '{"#/agent":null}', '{"/session_id":"{"}', '{"/agent/x/y":"1"}', '{"":null}', '{"a":"1"}',
        '{"/steps/0/x/y":"1"}', '{"/steps/7":"1"}', "[1]",
    ],
)  # fmt: skip
def test_what_is_carried_and_does_not_fit_stops_nothing(residual: str) -> None:
    """Somebody edited the file, or has a member of that name too."""
    extra = {"chronicle": {"origin": {"format": "atif"}, "residual": json.loads(residual)}}
    turns = [{"id": 1, "src": "user", "msg": "hi"}]
    text = json.dumps({"spec": "storyline/v1", "session": "s", "agent": {"id": "a"}, "extra": extra, "turns": turns})
    made = json.loads(hub.convert("storyline", "atif", text))
    assert [step["message"] for step in made["steps"]] == ["hi"]
    assert not differences(text, hub.convert("storyline", "storyline", text))


@pytest.mark.parametrize("extra", ["{}", '{"a":1.10}', "[1]", "null", '"x"', '{"chronicle":{"origin":{"format":"atif"}}}'])
def test_extra_is_given_back_as_it_was(extra: str) -> None:
    text = LEAF.replace('"steps"', f'"extra":{extra},"steps"')
    assert not differences(text, hub.convert("storyline", "atif", hub.convert("atif", "storyline", text)))


def test_dropped_residuals_leave_the_canonical_form() -> None:
    file = hub.convert("atif", "storyline", ATIF, residual="drop")
    assert b"chronicle" not in file
    value = jsontext.parse(hub.convert("storyline", "atif", file))
    assert value.get("schema_version") == "ATIF-v1.7"
    assert [one.get("step_id").text for one in value.get("steps")] == ["1", "2"]
    (child,) = value.get("subagent_trajectories")
    assert child.get("trajectory_id") == "leaf"


def test_an_edit_in_the_storyline_file_reaches_the_other_format() -> None:
    file = json.loads(hub.convert("atif", "storyline", ATIF))
    file[0]["turns"][0]["msg"] = "edited"
    file[0]["turns"][0]["ts"] = "2026-01-02T03:04:05Z"
    value = jsontext.parse(hub.convert("storyline", "atif", json.dumps(file)))
    first = value.get("steps")[0]
    assert (first.get("message"), first.get("timestamp"), first.get("step_id")) == ("edited", "2026-01-02T03:04:05Z", "1")
    assert value.get("x") == jsontext.Number("1")


def test_the_story_itself_does_not_change_when_it_is_written() -> None:
    (story,) = hub.into_storyline("storyline", hub.convert("openai_msg", "storyline", MESSAGES))
    before = msgspec.msgpack.encode(story)
    for format in hub.FORMATS:
        hub.from_storyline(format, [story])
    assert msgspec.msgpack.encode(story) == before
    assert carrier.carried(story).format == "openai_msg"  # type: ignore[union-attr]


# --- links --------------------------------------------------------------------------------------------------


def linked(session: str, children: list[str] | None, parent: str | None) -> str:
    story = {"spec": "storyline/v1", "session": session, "agent": {"id": "w"}, "turns": []}
    more = {"children": children, "parent": parent and {"psid": parent}}
    return json.dumps({**story, **{name: value for name, value in more.items() if value is not None}})


@pytest.mark.parametrize(
    ("stories", "shape"),
    [
        ([("a", ["b"], None), ("b", None, "a")], [("a", ["b"])]),
        ([("a", ["b"], None), ("b", ["c"], "a"), ("c", None, "b")], [("a", ["b"])]),
        ([("a", ["gone"], None)], [("a", None)]),
        ([("a", [], None)], [("a", None)]),
        ([("a", ["b"], "b"), ("b", ["a"], "a")], [("a", ["b"])]),
        ([("a", ["c"], None), ("a", ["c"], None), ("c", None, "a")], [("a", None), ("a", None), ("c", None)]),
        ([("a", None, None), ("b", None, "a")], [("a", None), ("b", None)]),
    ],
)
def test_children_are_embedded_where_that_is_clear(
    stories: list[tuple[str, list[str] | None, str | None]], shape: list[tuple[str, list[str] | None]]
) -> None:
    text = hub.convert("storyline", "atif", f"[{','.join(linked(*one) for one in stories)}]")
    found = json.loads(text)
    documents = found if isinstance(found, list) else [found]
    names = [[child["session_id"] for child in one.get("subagent_trajectories", [])] or None for one in documents]
    assert list(zip([one["session_id"] for one in documents], names, strict=True)) == shape


def test_stories_without_origin_are_written_too() -> None:
    stories = hub.into_storyline("atif", ATIF)
    for story in stories:
        story.origin = None
    value = json.loads(hub.from_storyline("atif", stories))
    assert [one["trajectory_id"] for one in value["subagent_trajectories"]] == ["leaf"]
    assert len(json.loads(hub.from_storyline("storyline", stories))) == 2


# --- files of other tools -----------------------------------------------------------------------------------

FILES = [("atif", path) for path in sorted(CORPUS.glob("atif/[!n]*.json"))]


@pytest.mark.parametrize(("format", "path"), FILES or [("", None)], ids=lambda one: getattr(one, "name", str(one)))
def test_every_pair_of_formats_works(format: str, path: Path | None) -> None:
    if path is None:
        pytest.skip("the corpus is not here")
    stories: list[StorylineDocument] = hub.into_storyline(format, path.read_bytes())
    for other in hub.FORMATS:
        written = hub.from_storyline(other, stories)
        assert hub.into_storyline(other, written)


def test_sessions_of_a_row_corpus_are_not_embedded_in_each_other() -> None:
    made = json.loads(hub.convert("openai_msg", "atif", rows(3)))
    assert [one["session_id"] for one in made] == ["r0", "r1", "r2"]
    assert not any("subagent_trajectories" in one for one in made)
