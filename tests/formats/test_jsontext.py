"""JSON text: what is read is written again, and both readers take the same texts."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chronicle.errors import InputError
from chronicle.formats import jsontext
from chronicle.formats.jsontext import Number, Object, dump, elements, end_of_value, members, parse
from tests.formats.trees import keys, strings, trees

TEXTS = [
    b"1", b"-0", b"1.10", b"1E+2", b"9" * 5000, b"NaN", b"-Infinity", b"Infinity", b"true", b"false", b"null", b'""', b"{}",
    b"[]", b' { "a" : [ 1 , 2.50 ] ,\n\t"a":{ } , "":[ [ ] , { "x" : "\\u0000" } ] }\r\n',
    b'["\\ud800", "\\udfff\\ud800", "\\ud83d\\ude00"]',
    b'"a\x00b\x1f\x7f\n"', b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', '["é","\u2028"]'.encode(),
]  # fmt: skip

BROKEN = [
    b"{'a':1}", b"{a:1}", b"[1,]", b'{"a":1,}', b"[,1]", b"[1,,2]", b"[1 2]", b'{"a" 1}', b'{"a":}', b'{"a"}', b'{"a":1 "b":2}',
    b"[1}", b'{"a":1]', b"[1]]", b"{}{}", b"1 2", b"[1]//x", b"/**/1", b"[1,#x\n2]", b"+1", b"01", b".5", b"1.x", b"-x", b"0x10",
    b'"\\x"', b'"\\u12g4"', b"tRue", b"None", b"nan", b"-NaN", b"\xef\xbb\xbf{}", b"\x0b1", b"[1\xc2\xa0]", b"\x00", b'["a"b]',
]  # fmt: skip

CUT = [
    b"[", b"{", b"[1", b"[1,", b"[1.", b"[1e", b"[-", b'{"a', b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":tru', b'"abc',
    b'"a\\', b'"a\\u12', b"nul", b"-", b"-Inf", b"1.", b"1e+", b"[[1]", b"[[1],", b'{"a":{"b":[]}', b'{"a":[]', b"[{}",
]  # fmt: skip


def _accepts(text: bytes) -> bool:
    try:
        parse(text)
    except InputError:
        return False
    return True


def _scanner_accepts(text: bytes) -> bool:
    try:
        return not text[end_of_value(text, 0) :].strip(b" \t\n\r")
    except InputError:
        return False


@given(trees)
def test_what_is_written_is_read_again(tree):
    text = dump(tree)
    assert parse(text) == tree
    assert parse(text.decode()) == tree
    assert end_of_value(text, 0) == len(text)


@given(trees, st.sampled_from([(", ", ": "), (",\n\t", " :"), (" ,", ":")]))
def test_white_space_means_nothing(tree, separators):
    # The builtin writer, over pairs: it takes neither repeated keys nor the text of numbers, so write them here.
    comma, colon = separators

    def text(value):
        if isinstance(value, Object):
            return "{ " + comma.join(jsontext.string(k).decode() + colon + text(v) for k, v in value) + " }"
        if isinstance(value, list):
            return "[ " + comma.join(map(text, value)) + "\r]"
        return dump(value).decode()

    spaced = f" {text(tree)}\n".encode()
    assert parse(spaced) == tree
    assert end_of_value(spaced, 0) == len(spaced) - 1


@pytest.mark.parametrize("text", TEXTS)
def test_odd_but_readable_texts(text):
    assert _scanner_accepts(text)
    assert parse(dump(parse(text))) == parse(text)


def test_spelling_order_and_repeated_keys_survive():
    text = b'{"b":1.10,"a":1E+2,"b":123456789012345678901234567890,"n":NaN,"e":{},"l":[]}'
    assert dump(parse(text)) == text
    value = parse(text)
    assert isinstance(value, Object)
    assert value.get("b") == Number("123456789012345678901234567890")
    assert value.get("x") is None


def test_control_characters_and_lone_surrogates_are_escaped():
    assert dump(parse(b'"a\x00\n\\ud800\\ud83d\\ude00"')) == b'"a\\u0000\\n\\ud800' + "😀".encode() + b'"'
    assert jsontext.string("\udc00é") == b'"\\udc00' + "é".encode() + b'"'
    assert jsontext.plain("a\ud800é😀") == "a\ufffdé😀"


@pytest.mark.parametrize("text", BROKEN)
def test_faults_of_structure_are_refused_with_their_place(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.kind == "unreadable"
    assert 0 <= caught.value.context["offset"] < len(text)
    assert f"byte {caught.value.context['offset']} (line " in str(caught.value)
    assert not _scanner_accepts(text)


@pytest.mark.parametrize("text", CUT)
def test_an_early_end_is_called_truncated(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert (caught.value.kind, caught.value.context["offset"]) == ("truncated", len(text))


@given(trees.filter(lambda tree: isinstance(tree, str | list)), st.data())
def test_every_proper_beginning_is_truncated(tree, data):
    text = dump(tree)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(InputError) as caught:
        parse(cut)
    assert caught.value.kind in ("truncated", "encoding")
    with pytest.raises(InputError) as caught:
        end_of_value(cut, 0)
    assert caught.value.kind == "truncated"


def test_the_line_of_a_fault():
    with pytest.raises(InputError, match=r"byte 13 \(line 3\): a colon after the member name is expected") as caught:
        parse(b'{"a":1,\n\n"b" 2}')
    assert caught.value.context == {"offset": 13, "line": 3}


@pytest.mark.parametrize(
    ("text", "kind"),
    [(b"", "empty"), (b" \n", "empty"), (b'"\xff"', "encoding"), (b'"\xed\xa0\x80"', "encoding")],
)
def test_other_kinds(text, kind):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.kind == kind


def test_a_text_that_is_no_text():
    with pytest.raises(InputError) as caught:
        parse('"é\ud800"')
    assert (caught.value.kind, caught.value.context["offset"]) == ("encoding", 3)


edits = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(b'{}[],:"\\ \n01-.eEtnNIu/\xc3\x00')), max_size=3)


@given(trees, edits, st.booleans())
@example(parse(b'["a"]'), [], False)
def test_parser_and_scanner_take_the_same_texts(tree, edits, insert):
    text = bytearray(dump(tree))
    for at, byte in edits:
        at %= len(text) + 1
        text[at : at if insert else at + 1] = bytes([byte])
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    assert _accepts(bytes(text)) == _scanner_accepts(bytes(text))


tokens = st.sampled_from(["{", "}", "[", "]", ",", ":", '"a"', "1", "-", "true", "NaN", " ", '"', "\\"])


@given(st.lists(tokens, max_size=12).map("".join))
def test_parser_scanner_and_builtin_reader_agree_on_any_tokens(text):
    try:
        json.loads(text, strict=False)
        readable = True
    except json.JSONDecodeError:
        readable = False
    assert _accepts(text.encode()) == _scanner_accepts(text.encode()) == readable


@given(trees)
def test_a_strict_text_is_one_that_other_readers_take(tree):
    text = dump(tree)
    strict = jsontext.is_strict(text)
    assert strict == (not any(map(_is_odd, _walk(tree))))


def _walk(tree):
    yield tree
    for item in tree if isinstance(tree, list) else []:
        yield from [item[0], *_walk(item[1])] if isinstance(tree, Object) else _walk(item)


def _is_odd(value):
    if isinstance(value, Number):
        return value.text.strip("-") in ("NaN", "Infinity")
    return isinstance(value, str) and value != jsontext.plain(value)


@pytest.mark.parametrize(
    "text", [b"NaN", b'"\\ud800"', b'"\x01"', b'"\xff"', b"\xef\xbb\xbf1", b"", b"1 2", b"[" * 101 + b"]" * 101]
)
def test_what_is_not_strict(text):
    assert not jsontext.is_strict(text)


def test_nesting_in_strings_does_not_count():
    assert jsontext.is_strict(b'["' + b"[" * 200 + b'"]')
    assert jsontext.is_strict(b"[" * 100 + b"]" * 100)
    assert jsontext.depth(b'{"a\\"[[":["\\\\",[{}],"\\\\\\"]["]}') == 4
    assert jsontext.depth('"é["') == 0


@given(trees)
def test_depth_of_a_tree(tree):
    def depth(value):
        if not isinstance(value, list):
            return 0
        return 1 + max((depth(item[1] if isinstance(value, Object) else item) for item in value), default=0)

    assert jsontext.depth(dump(tree)) == depth(tree)


@pytest.mark.parametrize(
    ("left", "right", "levels"),
    [(b"[", b"]", 1000), (b'{"a":', b"}", 1000), (b'[{"a\\n":"[","b":', b',"c":true},1]', 500)],
)
def test_deep_nesting(left, right, levels):
    text = left * levels + b"1.0" + right * levels
    value = parse(text)
    assert dump(value) == text
    assert jsontext.equal(value, parse(text))
    assert not jsontext.equal(value, parse(text.replace(b"1.0", b"1")))
    with pytest.raises(InputError, match="nesting") as caught:
        parse(b"[" + text + b"]")
    assert caught.value.kind == "unreadable"


def test_the_scanner_has_no_limit_of_depth():
    text = b' [{"a":' * 50_000 + b"1" + b"}\n]" * 50_000
    assert end_of_value(text + b" x", 0) == len(text)
    assert jsontext.depth(text) == 100_000
    assert [text[start:end] for start, end in elements(text, 0)] == [text[2:-2]]


def test_long_strings_cost_one_pass():
    text = b'{"a":"' + b"\\n" * 1_000_000 + b'","b":"' + b"x" * 3_000_000
    with pytest.raises(InputError, match="not closed"):
        end_of_value(text, 0)
    assert end_of_value(text + b'"}', 0) == len(text) + 2


@given(trees.filter(lambda tree: isinstance(tree, list)), st.sampled_from([b"", b" ", b"\n\t"]))
def test_members_and_elements_are_those_of_the_parser(tree, lead):
    text = lead + dump(tree) + b"]"
    if isinstance(tree, Object):
        assert [(key, parse(text[start:end])) for key, start, end in members(text, 0)] == list(tree)
    else:
        assert [parse(text[start:end]) for start, end in elements(text, 0)] == tree


def test_members_decode_their_keys_and_keep_repeated_ones():
    text = b'x{"st\\u0065ps" : [ ] , "a":{"b":NaN},"a": "\\ud800" }y'
    assert [(key, text[start:end]) for key, start, end in members(text, 1)] == [
        ("steps", b"[ ]"),
        ("a", b'{"b":NaN}'),
        ("a", b'"\\ud800"'),
    ]
    assert [key for key, _, _ in members(b'{"\\ud800":1}', 0)] == ["\ud800"]


@pytest.mark.parametrize(
    ("walk", "text"),
    [
        (members, b"[1]"), (members, b'{"a":1,}'), (members, b'{"a":1 "b":2}'), (members, b'{"a":[1,]}'), (members, b'{"a":1'),
        (members, b'{"\xff":1}'), (elements, b"{}"), (elements, b"[1,]"), (elements, b"[1 2]"),
        (elements, b"[[1,2,]]"), (elements, b"[1"),
    ],
)  # fmt: skip
def test_walks_refuse_what_is_broken(walk, text):
    with pytest.raises(InputError):
        list(walk(text, 0))


def test_equality_is_of_form_and_spelling():
    assert Object() != []
    assert (parse(b"[]") == parse(b"{}")) is False
    assert [Object()] != [[]]
    assert Object([("a", Number("1"))]) == Object([("a", Number("1"))])
    assert Object([("a", Number("1"))]) != [("a", Number("1"))]
    assert Number("1") != Number("1.0")
    assert Number("1") != "1"
    assert Number("1") is not True
    assert Number("NaN") == Number("NaN")
    assert pickle.loads(pickle.dumps(parse(b'{"a":[1,{}]}'))) == parse(b'{"a":[1,{}]}')


@given(st.lists(keys | strings))
def test_pointers(names):
    assert jsontext.split(jsontext.pointer(*names)) == names


def test_pointer_of_the_standard():
    assert jsontext.pointer("a/b", "m~n", 3, "") == "/a~1b/m~0n/3/"
    assert jsontext.split("/~01") == ["~1"]
    with pytest.raises(InputError):
        jsontext.split("a")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'{"a": 1.10}', b'{"a": 1.10}'),
        (b'{\r\n  "a": [\n    1,\n    "x \\n y"\n  ]\n}', b'{"a": [1,"x \\n y"]}'),
        (b'["a\nb", "\\"\n"]', b'["a\\nb", "\\"\\n"]'),
    ],
)
def test_one_line_is_the_same_value(text: bytes, line: bytes) -> None:
    assert jsontext.one_line(text) == line
    assert jsontext.parse(line) == jsontext.parse(text)
