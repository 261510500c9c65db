"""Writing AgenticMD (formats/agenticmd.md 1, 2, 4, 5, 8)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chronicle.formats.agenticmd import Block, document, file_names, safe_name
from chronicle.identity import fingerprint

HEADER = re.compile(rb"<!-- persisting:block(?::([A-Za-z0-9_-]+))? (\{.*\}) -->")
TEXT = st.text(st.characters())  # with unpaired surrogates


def blocks_of(data: bytes) -> list[tuple[str, dict[str, Any], bytes]]:
    """A reader that trusts `length` alone: what an unedited file needs (formats/agenticmd.md 3)."""
    at, found = 0, []
    while at < len(data):
        line, rest = data[at:].split(b"\n", 1)
        match = HEADER.fullmatch(line)
        assert match, line
        header = json.loads(match[2])
        body = rest[1 : 1 + header["length"]]
        assert rest[:1] == b"\n"
        assert rest[1 + header["length"] :][:2] == b"\n\n"
        if header.get("esc"):
            body = re.sub(rb"^([ \t]*\\*)\\(<!-- persisting:block)", rb"\1\2", body, flags=re.MULTILINE)
        found.append(((match[1] or b"").decode(), header, body))
        at += len(line) + 2 + header["length"] + 2
    return found


def frontmatter_of(data: bytes) -> Any:
    lines = data.split(b"\n")
    assert lines[0] == b"---"
    end = lines.index(b"---", 1)
    return yaml.safe_load(b"\n".join(lines[1:end]))


def utf8(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def test_the_layout_is_that_of_the_page() -> None:
    blocks = [
        Block("user", {"call_id": "k1", "source": "user", "step_id": 1}, "Fix it ✓"),
        Block("agent", {"call_id": "k1", "source": "agent", "step_id": 2}, "Opening hinge."),
    ]
    assert document({"format": "persisting", "session_id": "s-9", "agent_id": "wrench"}, blocks).decode() == (
        "---\nformat: persisting\nsession_id: s-9\nagent_id: wrench\n---\n\n"
        '<!-- persisting:block:user {"type":"text","length":10,"call_id":"k1","source":"user","step_id":1} -->\n\n'
        "Fix it ✓\n\n"
        '<!-- persisting:block:agent {"type":"text","length":14,"call_id":"k1","source":"agent","step_id":2} -->\n\n'
        "Opening hinge.\n\n"
    )


@given(st.lists(TEXT, max_size=4))
def test_every_body_can_be_cut_out_by_its_length(bodies: list[str]) -> None:
    data = document({}, [Block("user", {}, body) for body in bodies])
    assert [body.decode() for _, _, body in blocks_of(data)] == [utf8(body) for body in bodies]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n\n\n",
        "\nleading",
        "no end",
        "---\nrule",
        "a\r\nb\rc",
        "nul \0 here",
        "see <!-- persisting:block:user {} --> inline",
        "<!-- persisting:block:user {} -->",
        "   \t<!-- persisting:block",
        "x\n\\<!-- persisting:block:user -->\n\\\\<!-- persisting:block",
        "```\n<!-- persisting:block:agent {} -->\n```",
        "<!-- other --> -->",
    ],
)
def test_bodies_that_look_like_structure(body: str) -> None:
    data = document({"session_id": "s"}, [Block("user", {}, body), Block("agent", {}, "next")])
    found = blocks_of(data.split(b"---\n\n", 1)[1])
    assert [text.decode() for _, _, text in found] == [body, "next"]
    assert ("esc" in found[0][1]) == bool(re.search(r"^[ \t]*\\*<!-- persisting:block", body, re.MULTILINE))
    lines = data.decode().split("\n")
    assert sum(bool(re.match(" {0,3}<!-- persisting:block", line)) for line in lines) == 2, "also safe after a hand edit"


@given(st.dictionaries(TEXT, TEXT | st.integers() | st.booleans() | st.lists(TEXT, max_size=2), max_size=5))
def test_header_values_come_back_and_never_end_the_comment(values: dict[str, Any]) -> None:
    data = document({}, [Block("agent", values, "b")])
    line = data.split(b"\n", 1)[0]
    assert line.decode().count("-->") == 1
    assert line.decode().count("<!--") == 1
    assert len(line.decode().splitlines()) == 1
    header = json.loads(line[len(b"<!-- persisting:block:agent ") : -len(b" -->")])
    expected = json.loads(utf8(json.dumps(values, ensure_ascii=False)))
    for known in ("type", "length", "esc"):
        header.pop(known, None)
        expected.pop(known, None)
    assert header == expected


def test_marks_of_comments_are_escaped_in_header_values() -> None:
    line = document({}, [Block("user", {"call_id": "a-->b<!--c--!>"}, "")]).decode().split("\n")[0]
    assert '"call_id":"a--\\u003eb\\u003c!--c--!\\u003e"' in line


@pytest.mark.parametrize(("speaker", "written"), [("user", ":user"), ("", ""), ("weird x\n-->", ":weird_x_--_")])
def test_speakers(speaker: str, written: str) -> None:
    line = document({}, [Block(speaker, {}, "")]).decode().split("\n")[0]
    assert line == f'<!-- persisting:block{written} {{"type":"text","length":0}} -->'


HAZARDS = [
    "0123", "1e5", "yes", "No", "null", "~", "2026-01-01", "a: b", "a #b", "#x", "", " ", "x ", "- a", "*a", "&a", "!a", "=",
    "<<", "1_000", "0x1F", "1:30", ".inf", "---", "...", "'", '"', "\\", "a\nb", "%a", "@a", "`a", "{a", "[a", "a,b", "?",
    "true", "ON", "y", "é", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe", "😀", "\0", "\t", "a:", "-", "1.5", "+1",
]  # fmt: skip


@pytest.mark.parametrize("text", HAZARDS)
def test_yaml_hazards_load_as_the_same_string(text: str) -> None:
    data = document({"session_id": text, text: "key", "list": [text], "map": {text: text}}, [])
    assert frontmatter_of(data) == {"session_id": text, text: "key", "list": [text], "map": {text: text}}


SCALARS = TEXT | st.integers() | st.floats(allow_nan=False) | st.booleans()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6)


def well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, dict):
        return {utf8(key): well_formed(item) for key, item in value.items()}
    return [well_formed(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(TEXT.filter(lambda key: len(key) < 100), VALUES, min_size=1, max_size=4))
def test_frontmatter_loads_equal(values: dict[str, Any]) -> None:
    assert frontmatter_of(document(values, [])) == well_formed(values)


def test_frontmatter_leaves_out_what_is_unknown() -> None:
    assert document({"a": None, "b": 0}, []) == b"---\nb: 0\n---\n\n"
    assert document({"a": None}, []) == b""
    with pytest.raises(TypeError):
        document({"a": object()}, [])


def test_names_of_ordinary_sessions() -> None:
    a, b, c = (fingerprint(x) for x in "abc")
    assert file_names([(a, "one"), (b, "two"), (c, "two")]) == {a: "one.md", b: f"two~{b[:8]}.md", c: f"two~{c[:8]}.md"}


def test_sixteen_digits_where_eight_are_equal() -> None:
    first, second, third = "12345678" + "a" * 24, "12345678" + "b" * 24, "9" * 32
    names = file_names([(first, "s"), (second, "s"), (third, "s")])
    assert names == {story: f"s~{story[:16]}.md" for story in (first, second, third)}


@pytest.mark.parametrize(
    ("session", "stem"),
    [("a/b", "a_b"), ("..", ".."), ("", "session"), (" x", "x"), ("CON", "CON"), ("lpt1.txt", "lpt1.txt"), ("😀", "_"),
     ("x" * 300, "x" * 128), (".hidden", ".hidden")],
)  # fmt: skip
def test_names_that_are_made_safe_say_so(session: str, stem: str) -> None:
    assert safe_name(session) == f"{stem}~{fingerprint(session)[:8]}"


def test_names_that_differ_in_case_only() -> None:
    a, b, c = (fingerprint(x) for x in "abc")
    names = file_names([(a, "Run"), (b, "run"), (c, "other")])
    assert names == {a: f"Run~{fingerprint('Run')[:8]}.md", b: f"run~{fingerprint('run')[:8]}.md", c: "other.md"}


def test_a_made_name_does_not_take_the_name_of_another_session() -> None:
    a, b = fingerprint("a"), fingerprint("b")
    assert file_names([(a, "a/b"), (b, "a_b")]) == {a: f"a_b~{fingerprint('a/b')[:8]}.md", b: "a_b.md"}


@given(st.lists(st.sampled_from(["a", "A", "a/b", "a_b", "..", "", "session", "con", " a"]) | TEXT, max_size=12))
def test_names_are_safe_and_distinct(sessions: list[str]) -> None:
    names = file_names([(fingerprint(str(number)), session) for number, session in enumerate(sessions)])
    assert len({name.lower() for name in names.values()}) == len(sessions)
    assert all(re.fullmatch(r"[A-Za-z0-9._~-]{1,200}\.md", name) for name in names.values())
    assert file_names(reversed([(fingerprint(str(n)), s) for n, s in enumerate(sessions)])) == names
