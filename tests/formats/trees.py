"""Hypothesis strategies for JSON trees with everything that sources hold."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from chronicle.formats.jsontext import Number, Object

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

# In a tree every surrogate is unpaired: a pair would be one character.
strings = st.one_of(
    st.text(max_size=8),
    st.text(st.sampled_from('ab"\\/~#[]{},:\x00\x1f\n\t\x7f\u2028é😀\ud800\udfff'), max_size=8),
).map(lambda text: _PAIR.sub("-", text))

keys = st.one_of(
    st.sampled_from(["", "a", "b", "c", "a/b", "c~d", "~1", "#x", "#", "__proto__", "0", "1", "-", "é", "\ud800"]), strings
)

numbers = st.one_of(
    st.integers().map(str),
    st.floats().map(lambda x: repr(x).replace("inf", "Infinity").replace("nan", "NaN")),
    st.sampled_from(["1", "1.0", "1.10", "-0", "-0.0", "1e2", "1E+2", "1e400", "1e-400", "9" * 40, "18446744073709551616"]),
).map(Number)

scalars = st.one_of(st.none(), st.booleans(), numbers, strings)


def objects(values: st.SearchStrategy) -> st.SearchStrategy:
    """Objects, some with repeated keys."""
    members = st.lists(st.tuples(keys, values), max_size=5)
    return st.one_of(members, st.lists(st.tuples(keys, values), max_size=5, unique_by=lambda member: member[0])).map(Object)


trees = st.recursive(scalars, lambda values: st.one_of(st.lists(values, max_size=4), objects(values)), max_leaves=20)
