"""Residuals: what a canonical form leaves out comes back exactly."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chronicle.errors import InputError, ProjectionError
from chronicle.formats.jsontext import Number, Object, dump, equal, parse, split
from chronicle.formats.residual import apply, decode, diff, encode, prefixed, under
from tests.formats.trees import keys, scalars, trees


@st.composite
def _edited(draw, tree):
    """`tree` with members changed, taken out, added, moved: what a canonical form does to a source."""
    if isinstance(tree, Object):
        members = [(key, draw(_edited(value))) for key, value in tree if draw(st.integers(0, 4))]
        members += draw(st.lists(st.tuples(keys, scalars), max_size=2))
        return Object(draw(st.permutations(members)) if draw(st.booleans()) else members)
    if isinstance(tree, list):
        return [draw(_edited(value)) for value in tree] + draw(st.lists(scalars, max_size=1))
    return draw(scalars) if draw(st.integers(0, 3)) == 0 else tree


pairs = st.one_of(st.tuples(trees, trees), trees.flatmap(lambda tree: st.tuples(st.just(tree), _edited(tree))))


@given(pairs)
@example((Object(), []))
@example(([], Object()))
@example((Object([("a", Number("1.0"))]), Object([("a", Number("1"))])))
@example((Object([("a", None), ("a", None)]), Object([("a", None)])))
@example((Object([("a", None)]), Object([("a", None), ("a", None)])))
@example((Object([("z", None), ("y", None)]), Object()))
@example((True, Number("1")))
def test_what_is_left_out_comes_back(pair):
    source, made = pair
    before = dump(made)
    assert apply(made, diff(source, made)) == source
    assert dump(made) == before


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_entries_means_nothing(pair, random):
    source, made = pair
    entries = list(diff(source, made).items())
    random.shuffle(entries)
    assert apply(made, dict(entries)) == source


@given(pairs)
def test_text_of_a_residual(pair):
    source, made = pair
    residual = diff(source, made)
    text = encode(residual)
    assert decode(text) == residual
    assert (text is None) == (not residual) == (source == made)
    if text is not None:
        assert decode(text.decode()) == residual
        json.loads(text)
        assert apply(made, decode(text)) == source


@given(pairs, pairs, st.lists(keys, max_size=3))
def test_residuals_of_parts_make_one_of_the_whole(first, second, path):
    one, two = diff(*first), diff(*second)
    prefix = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)
    whole = prefixed(one, f"{prefix}/x") | prefixed(two, f"{prefix}/xy")
    inside, rest = under(whole, f"{prefix}/x")
    assert (inside, prefixed(rest, "")) == (one, prefixed(two, f"{prefix}/xy"))
    assert under(whole, "") == (whole, {})
    source, made = (Object([("x", one), ("xy", two)]) for one, two in zip(first, second, strict=True))
    for key in reversed(path):
        source, made = (Object([(f"{key}'", None), (key, value)]) for value in (source, made))
    assert apply(made, whole) == source


def test_entries_of_a_residual():
    source = parse(b'{"b":1.10,"new":{"x":null},"a":[1,{"k":2}],"g":[1],"r":{"x":1,"x":2},"s":{"t":1,"u":2}}')
    made = parse(b'{"a":[1,{"k":3}],"b":1.1,"gone":0,"g":[],"r":{"x":2},"s":{"u":2,"t":1}}')
    assert diff(source, made) == {
        "/b": "1.10",
        "/new": '{"x":null}',
        "/a/1/k": "2",
        "/g": "[1]",
        "/r": '{"x":1,"x":2}',
        "#/s": ["t", "u"],
        "/gone": None,
        "#": ["b", "new", "a", "g", "r", "s"],
    }


def test_no_order_where_adding_gives_it():
    assert diff(parse(b'{"a":1,"x":2,"y":3}'), parse(b'{"a":1}')) == {"/x": "2", "/y": "3"}
    assert diff(parse(b'{"a":1,"y":2,"x":3}'), parse(b'{"a":1}'))["#"] == ["a", "y", "x"]
    assert diff(parse(b'{"b":1,"c":1}'), parse(b'{"a":0,"b":1,"c":1}')) == {"/a": None}


def test_equal_values_leave_nothing():
    tree = parse(b'{"a":[1,{"a":1,"a":2}]}')
    assert diff(tree, parse(dump(tree))) == {}
    assert encode({}) is None
    assert decode(None) == {}
    assert apply(tree, {}) is tree


def test_what_is_not_touched_is_shared():
    made = parse(b'{"a":{"x":[1]},"b":{"c":1}}')
    result = apply(made, {"/b/c": "2"})
    assert isinstance(made, Object)
    assert isinstance(result, Object)
    assert result.get("a") is made.get("a")
    assert dump(result) == b'{"a":{"x":[1]},"b":{"c":2}}'


def test_deep_values():
    def nested(leaf):
        return parse(b'[{"a":' * 499 + leaf + b"}]" * 499)

    source, made = nested(b'{"x":1,"y":{"r":1,"r":1}}'), nested(b'{"x":2,"y":{"r":1,"r":1}}')
    residual = diff(source, made)
    assert [len(split(key)) for key in residual] == [999]
    assert equal(apply(made, residual), source)
    assert diff(source, nested(b'{"x":1,"y":{"r":1,"r":1}}')) == {}


@pytest.mark.parametrize(
    ("made", "residual"),
    [
        (b"{}", {"/a/b": "1"}),
        (b'{"a":1}', {"/a/b": "1"}),
        (b"[1]", {"/1": "2"}),
        (b"[1]", {"/x": "2"}),
        (b"[1]", {"/-1": "2"}),
        (b"[1]", {"/0": None}),
        (b"[1]", {"#": ["a"]}),
        (b"1", {"#": ["a"]}),
        (b"1", {"": None}),
    ],
)
def test_a_residual_that_does_not_fit(made, residual):
    with pytest.raises(ProjectionError):
        apply(parse(made), residual)


@pytest.mark.parametrize(
    "text",
    [b"[]", b"1", b'{"a":"1"}', b'{"/a":1}', b'{"/a":["b"]}', b'{"#/a":"1"}', b'{"#a":["b"]}', b'{"/\\ud800":[1]}', b"{"],
)
def test_text_that_is_no_residual(text):
    with pytest.raises(InputError):
        decode(text)


def test_a_residual_with_broken_text():
    with pytest.raises(InputError):
        apply(parse(b"{}"), {"/a": "{"})
