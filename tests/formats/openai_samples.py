"""Documents and messages of OpenAI data for tests: shorthand, and hypothesis strategies for odd ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from chronicle.formats import jsontext, openai_msg
from chronicle.formats.document import Document
from chronicle.formats.jsontext import Number, Object
from chronicle.formats.openai_rows import values
from chronicle.formats.openai_shapes import members_of
from chronicle.formats.story import StorylineDocument

DOCUMENT_ID = "0123456789abcdef0123456789abcdef"


def top(text: bytes) -> dict[str, bytes] | list[bytes]:
    """The top level of a JSON text, as `recognise` takes it."""
    text = text.strip()
    return [text[a:b] for a, b in jsontext.elements(text, 0)] if text.startswith(b"[") else members_of(text)


def text_of(value: Any) -> bytes:
    """JSON text of a Python value; bytes are text already."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def document(value: Any, form: str = "", container: str = "object") -> Document:
    """A document without parts, in the form that `recognise` finds."""
    text = text_of(value)
    found = openai_msg.recognise(top(text)) if not form else None
    name = form or (found.name if found else "")
    return Document("openai_msg", name, DOCUMENT_ID, text, [], b"", container=container)


def stories(value: Any, form: str = "", container: str = "object") -> list[StorylineDocument]:
    """The stories of a document, after checking that they give it back."""
    source = document(value, form, container)
    made = openai_msg.into(source)
    assert values(openai_msg.dump(made)) == values(source.text)
    return made


def story(*messages: Any, **members: Any) -> StorylineDocument:
    """The one story of a B1 object."""
    (made,) = stories({"messages": list(messages), **members})
    return made


def row(session: Any, step: Any, *messages: Any, **members: Any) -> dict[str, Any]:
    """A row of form A."""
    return {"session_id": session, "step_id": step, "messages": list(messages), **members}


def user(text: Any = "q", **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **members}


def assistant(text: Any = "a", **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **members}


def call(ident: str, name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(ident: Any, text: Any = "r", **members: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": text, **members}


# -- odd ones -----------------------------------------------------------------------------------------------------

_texts = st.sampled_from(
    [
        *("", "a", "b", "c1", "\ud800", "<tool_call>run", "<function=x>"),
        *("data:image/png;base64,aGk=", "https://x.test/a.png", '{"a": 1}', '{"a":1}', '"s"', '{"a":'),
    ]
)
_numbers = st.sampled_from(["1", "2", "3", "0", "1.50", "1e3", "-0", "NaN", "1785329601.25", "9" * 20]).map(Number)
_leaves = st.one_of(st.none(), st.booleans(), _texts, _numbers)


@st.composite
def _objects(draw: st.DrawFn, fields: dict[str, st.SearchStrategy], usual: tuple[str, ...] = ()) -> Object:
    """Objects of some of the fields, the usual ones most often; now and then a key is repeated."""
    keys = draw(st.lists(st.sampled_from(sorted(fields)), max_size=len(fields), unique=draw(st.integers(0, 9)) > 0))
    keys += [key for key in usual if key not in keys and draw(st.integers(0, 9))]
    return Object((key, draw(fields[key])) for key in keys)


_any = st.recursive(
    _leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), _objects(dict.fromkeys(("a", "content", "tools", "messages"), inner))),
    max_leaves=4,
)


def _mostly(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.integers(0, 6).flatmap(lambda n: strategy if n else _any)


_part = _mostly(
    _objects(
        {
            "type": st.sampled_from(
                ["text", "image_url", "input_text", "input_audio", "file", "refusal", "input_image", "image", "audio", "?"]
            ),
            "text": _mostly(_texts),
            "value": _mostly(_texts),
            "image_url": _mostly(st.one_of(_texts, _objects({"url": _texts, "detail": _texts}))),
            "input_audio": _mostly(_objects({"data": _texts, "format": _texts})),
            "file": _mostly(_objects({"file_data": _texts, "filename": _texts})),
            "source": _mostly(_objects({"media_type": _texts, "path": _texts})),
        },
        ("type",),
    )
)
_function = _mostly(_objects({"name": _mostly(_texts), "arguments": _mostly(_texts), "x": _leaves}, ("name", "arguments")))
_call = _mostly(
    _objects(
        {
            "id": _mostly(st.sampled_from(["c1", "c2", "c1#2", "call-1-1", ""])),
            "type": _leaves,
            "function": st.one_of(_function, _texts),
            "custom": _mostly(_objects({"name": _texts, "input": _texts})),
            "arguments": _mostly(_texts),
            "args": _any,
            "name": _texts,
            "index": _numbers,
        },
        ("id", "function"),
    )
)
_message = _mostly(
    _objects(
        {
            "role": _mostly(
                st.sampled_from(["user", "assistant", "assistant", "tool", "system", "developer", "function", "weird"])
            ),
            "content": _mostly(st.one_of(_texts, st.lists(_part, max_size=3))),
            "tool_calls": _mostly(st.lists(_call, max_size=3)),
            "function_call": _function,
            "tool_call_id": _mostly(st.sampled_from(["c1", "c2", "zz"])),
            "tool_call_ids": _mostly(st.lists(_texts, max_size=2)),
            "name": _mostly(_texts),
            "refusal": _mostly(_texts),
            "reasoning_content": _mostly(_texts),
            "reasoning": _mostly(_texts),
            "thinking": _any,
            "weight": _any,
            "usage": _mostly(
                _objects({"prompt_tokens": _numbers, "prompt_tokens_details": _objects({"cached_tokens": _numbers})})
            ),
            "model": _leaves,
            "timestamp": _leaves,
        },
        ("role", "content"),
    )
)
_messages = st.lists(_message, max_size=5)
_tools = _mostly(st.lists(_any, max_size=2))
_common = {"tools": _tools, "functions": _tools, "model": _leaves, "id": _leaves, "session_id": _leaves}
_common |= {"metadata": _any, "usage": _any, "agent_id": _leaves, "run_id": _leaves, "x": _any}
_state = _objects({"total_latency_ms": _numbers, "ttft_ms": _leaves, "tokens": _leaves})
_row = _objects(
    {
        "session_id": _mostly(st.sampled_from(["s", "t"])),
        "step_id": _mostly(_numbers),
        "messages": _mostly(_messages),
        "response": _mostly(_message),
        "created_at": _leaves,
        "agent_model": _leaves,
        "reward": _leaves,
        "meta_json": _mostly(st.one_of(_texts, _objects({"source": _texts, "env_state": _mostly(_state)}))),
        "tools": _tools,
        "x": _any,
    },
    ("session_id", "step_id", "messages", "response"),
)


@st.composite
def _rows(draw: st.DrawFn) -> list[Any]:
    """Rows of which some were given the first messages of one and the same list, as agents give them."""
    base = draw(st.lists(_message, max_size=8))
    made: list[Any] = []
    for row in draw(st.lists(_row, min_size=1, max_size=4)):
        if draw(st.booleans()):
            given = base[draw(st.integers(0, 1)) : draw(st.integers(0, len(base)))]
            row = Object([*((key, value) for key, value in row if key != "messages"), ("messages", given)])
        made.append(row)
    return made


_asked = _mostly(_objects({"messages": _messages, "tools": _tools}, ("messages",)))
_preference = {"input": _asked, "preferred_output": _messages, "non_preferred_output": _messages}

odd_documents: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("B1"), _objects({**_common, "messages": _messages}, ("messages",))),
    st.tuples(st.just("B1:traj"), _objects({**_common, "traj": _messages}, ("traj",))),
    st.tuples(st.just("B3"), _messages),
    st.tuples(st.just("B9"), _objects({**_common, **_preference}, ("input", "preferred_output"))),
    st.tuples(st.just("B10"), _objects({**_common, "prompt": _messages, "completion": _messages}, ("prompt", "completion"))),
    st.tuples(st.just("A"), st.one_of(_rows(), st.lists(_mostly(_row), max_size=3))),
    st.tuples(st.just("A:session_steps"), _rows().map(lambda rows: Object([("x", None), ("session_steps", rows)]))),
    st.tuples(st.just("A:row"), _row),
    st.tuples(st.just("A:lines"), _rows()),
)
"""(form, value) of documents that hold anything at every place."""
