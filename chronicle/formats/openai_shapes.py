"""Recognition of OpenAI messages data: which form a JSON value has, or which known shape it is instead (openai_msg.md).

Works on the top level of a document as texts of its members or elements, and looks no deeper than needed:
a cutter asks it once for every line of a JSONL file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from chronicle.errors import InputError
from chronicle.formats import jsontext

Top = Mapping[str, bytes] | Sequence[bytes]
"""The top level of a document: member texts of an object, or element texts of an array."""


class Form(NamedTuple):
    """A form of OpenAI messages data and where its messages (form A: rows) are."""

    name: str
    lists: tuple[str, ...]
    """JSON Pointers of the arrays whose elements make the story, in story order. Empty: the whole value is one row."""


_ABSENT = msgspec.Raw(b"")


class _Message(msgspec.Struct):
    """What tells a list of messages from other lists."""

    role: msgspec.Raw = _ABSENT
    content: msgspec.Raw = _ABSENT
    type: msgspec.Raw = _ABSENT
    parts: msgspec.Raw = _ABSENT
    sender: msgspec.Raw = msgspec.field(default=_ABSENT, name="from")
    value: msgspec.Raw = _ABSENT
    action: msgspec.Raw = _ABSENT
    observation: msgspec.Raw = _ABSENT
    source: msgspec.Raw = _ABSENT


class RowProbe(msgspec.Struct):
    """What tells a row of form A."""

    session_id: msgspec.Raw = _ABSENT
    step_id: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
    response: msgspec.Raw = _ABSENT


_LIST = msgspec.json.Decoder(list[_Message])
_ONE = msgspec.json.Decoder(_Message)
ROW = msgspec.json.Decoder(RowProbe)
_RAWS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()
# What msgspec raises for text that is not JSON to it, or whose strings are not UTF-8.
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

ENVELOPES = ("messages", "conversations", "conversation", "traj", "history", "trajectory", "dialog", "dialogue", "chat")
"""Members whose list holds the messages of one conversation, in the order in which they are tried."""

_TRIGGERS = frozenset((*ENVELOPES, "session_steps", "response", "preferred_output", "chosen", "chosen_messages", "completion"))
_BLOCKS = (b'"tool_use"', b'"tool_result"')
_ITEMS = (b'"function_call"', b'"function_call_output"', b'"reasoning"', b'"item_reference"')


# -- forms --------------------------------------------------------------------------------------------------------


def recognise(value: Top) -> Form | None:
    """The form of a document given by its top level, or None where it is no OpenAI messages data that is taken.

    Names: `A` (array of rows), `A:session_steps`, `A:row`; `B1` and `B1:<member>` (a conversation in another
    member); `B3` (bare list); `B9`, `B9:prompt`, `B9:chosen`, `B9:chosen_messages` (preferences); `B10`.
    """
    if not isinstance(value, Mapping):
        return _array(value)
    if _TRIGGERS.isdisjoint(value):
        return None
    if "session_steps" in value and value["session_steps"].lstrip().startswith(b"["):
        return Form("A:session_steps", ("/session_steps",))
    if "session_id" in value and "step_id" in value and ("messages" in value or "response" in value):
        return Form("A:row", ())
    if _is_wire(value):
        return None
    return _preference(value) or _conversation(value)


def _array(elements: Sequence[bytes]) -> Form | None:
    if not elements:
        return None
    kind = _kind(elements)
    if kind == "messages":
        return Form("B3", ("",))
    rows = [probe(ROW, RowProbe, element) for element in elements]
    named = [row for row in rows if row is not None and (_set(row.messages) or _set(row.response))]
    # A row that lost its id is still a row among rows; an array without any is a container of documents.
    if len(named) == len(rows) and any(_set(row.session_id) and _set(row.step_id) for row in named):
        return Form("A", ("",))
    return None


def _preference(value: Mapping[str, bytes]) -> Form | None:
    if "preferred_output" in value and "input" in value:
        inner = members_of(value["input"])
        if "messages" in inner and _is_messages(inner["messages"]) and _is_messages(value["preferred_output"]):
            return Form("B9", ("/input/messages", "/preferred_output"))
    prompt = "prompt" in value and _is_messages(value["prompt"])
    if "chosen" in value and _is_messages(value["chosen"]):
        if prompt:
            return Form("B9:prompt", ("/prompt", "/chosen"))
        # Some sets carry the chosen conversation a second time as `messages`: that one is the story then.
        if "messages" not in value:
            return Form("B9:chosen", ("/chosen",))
    if "chosen_messages" in value and _is_messages(value["chosen_messages"]):
        return Form("B9:chosen_messages", ("/chosen_messages",))
    if prompt and "completion" in value and _is_messages(value["completion"]):
        return Form("B10", ("/prompt", "/completion"))
    return None


def _conversation(value: Mapping[str, bytes]) -> Form | None:
    for key in ENVELOPES:
        if key not in value:
            continue
        kind = _list_kind(value[key])
        if kind == "messages" or (kind == "empty" and key == "messages"):
            name = "B1" if key == "messages" else f"B1:{key}"
            if key == "history" and "trajectory" in value:
                name = "B1:swe-agent"
            return Form(name, ("/" + key,))
    return None


def lists_of(form: str) -> tuple[str, ...]:
    """The list pointers of a form by its name; () for unknown names. One row, or lines of rows, count as an array."""
    fixed = {
        "A": ("",),
        "A:row": ("",),
        "A:lines": ("",),
        "A:session_steps": ("/session_steps",),
        "B1": ("/messages",),
        "B1:swe-agent": ("/history",),
        "B3": ("",),
        "B9": ("/input/messages", "/preferred_output"),
        "B9:prompt": ("/prompt", "/chosen"),
        "B9:chosen": ("/chosen",),
        "B9:chosen_messages": ("/chosen_messages",),
        "B10": ("/prompt", "/completion"),
    }
    head, _, member = form.partition(":")
    if form not in fixed and head == "B1" and member in ENVELOPES:
        return ("/" + member,)
    return fixed.get(form, ())


# -- shapes that are known and not taken ---------------------------------------------------------------------------


def unsupported(value: Top) -> str | None:
    """Name of a shape that is known and not taken as a document (`unsupported:<name>` in quarantine), or None.

    Wire exports (`openai-completion`, `openai-stream`, `openai-response`, `openai-exchange`, `openai-batch`) are
    named too; who can take captures looks for them first.
    """
    if not isinstance(value, Mapping):
        kind = _kind(value)
        return None if kind in ("messages", "empty", "other") else kind
    for name, holds in _SHAPES:
        if holds(value):
            return name
    for key in (*ENVELOPES, "prompt", "chosen", "completion", "output"):
        if key in value:
            kind = _list_kind(value[key])
            if kind not in ("messages", "empty", "other"):
                return kind
    return None


def _text(value: Mapping[str, bytes], key: str) -> str:
    """The string at a key; empty where there is none."""
    if key in value:
        found = decoded(value[key])
        if isinstance(found, str):
            return found
    return ""


def _starts(value: Mapping[str, bytes], key: str, mark: bytes) -> bool:
    return key in value and value[key].lstrip().startswith(mark)


def _is_batch(value: Mapping[str, bytes]) -> bool:
    return "custom_id" in value and ("body" in value or "response" in value or "error" in value)


def _is_exchange(value: Mapping[str, bytes]) -> bool:
    asked = _starts(value, "request", b"{") or _starts(value, "body", b"{")
    return asked and "response" in value and "messages" not in value


def _is_stream(value: Mapping[str, bytes]) -> bool:
    if _text(value, "object").endswith(".chunk") or "prompt_filter_results" in value:
        return True
    return _has_choices(value) and b'"delta"' in value["choices"]


def _has_choices(value: Mapping[str, bytes]) -> bool:
    if not _starts(value, "choices", b"[") or ("messages" in value and _is_messages(value["messages"])):
        return False
    return any(key in value["choices"] for key in (b'"message"', b'"delta"', b'"text"', b'"finish_reason"'))


def _is_completion(value: Mapping[str, bytes]) -> bool:
    return _text(value, "object") in ("chat.completion", "text_completion") or _has_choices(value)


def _is_response(value: Mapping[str, bytes]) -> bool:
    if _text(value, "object") == "response":
        return True
    return "output" in value and _list_kind(value["output"]) == "openai-items"


def _is_wire(value: Mapping[str, bytes]) -> bool:
    return (
        _is_batch(value)
        or ("choices" in value and _is_completion(value))
        or (("output" in value or "object" in value) and _is_response(value))
        or ("response" in value and _is_exchange(value))
    )


def _is_string_pair(value: Mapping[str, bytes], *keys: str) -> bool:
    return all(_starts(value, key, b'"') for key in keys)


_SHAPES: tuple[tuple[str, Callable[[Mapping[str, bytes]], bool]], ...] = (
    ("openai-batch", _is_batch),
    ("openai-stream", _is_stream),
    ("openai-completion", _is_completion),
    ("openai-response", _is_response),
    ("openai-exchange", _is_exchange),
    ("claude-code", lambda v: "message" in v and "type" in v and ("sessionId" in v or "parentUuid" in v)),
    ("codex", lambda v: "payload" in v and "type" in v and "timestamp" in v),
    ("pi", lambda v: "type" in v and ("parentId" in v or (_text(v, "type") == "session" and "cwd" in v))),
    ("anthropic-response", lambda v: _text(v, "type") == "message" and "content" in v and "role" in v),
    ("anthropic-stream", lambda v: _text(v, "type").startswith(("message_", "content_block_"))),
    ("claude-export", lambda v: "chat_messages" in v),
    ("chatgpt-export", lambda v: _starts(v, "mapping", b"{") and ("current_node" in v or "title" in v)),
    ("gemini-response", lambda v: "candidates" in v),
    ("gemini", lambda v: _starts(v, "contents", b"[") and b'"parts"' in v["contents"]),
    ("gemini-cli", lambda v: "sessionId" in v and _starts(v, "messages", b"[") and not _is_messages(v["messages"])),
    ("langchain", lambda v: "lc" in v and "kwargs" in v),
    ("otel", lambda v: "resourceSpans" in v or ("traceId" in v and "spanId" in v)),
    ("alpaca", lambda v: "instruction" in v and ("output" in v or "response" in v or "chosen" in v)),
    ("preference-text", lambda v: _is_string_pair(v, "chosen", "rejected")),
    ("prompt-completion", lambda v: _is_string_pair(v, "prompt") and ("completion" in v or "response" in v)),
    ("question-answer", lambda v: _is_string_pair(v, "question") and ("answer" in v or "answers" in v)),
    ("text", lambda v: _is_string_pair(v, "text") and len(v) <= 3),
)


# -- lists --------------------------------------------------------------------------------------------------------


def _is_messages(text: bytes) -> bool:
    return _list_kind(text) == "messages"


def _list_kind(text: bytes) -> str:
    """What an array text holds: `messages`, `empty`, `other` (also where it is no array), or a known shape."""
    if not text.lstrip().startswith(b"["):
        return "other"
    try:
        return _judge(_LIST.decode(text))
    except REFUSED:
        pass
    try:
        start = len(text) - len(text.lstrip())
        return _judge(probe(_ONE, _Message, text[a:b]) for a, b in jsontext.elements(text, start))
    except InputError:
        return "other"


def _kind(elements: Sequence[bytes]) -> str:
    if not elements:
        return "empty"
    first = probe(_ONE, _Message, elements[0])
    if first is None or not (_set(first.role) or _set(first.type) or _set(first.sender) or _set(first.action)):
        return "other"
    return _judge(probe(_ONE, _Message, element) for element in elements)


def _judge(messages: Iterable[_Message | None]) -> str:
    """One word for a list by its members; elements that are no objects are passed over."""
    kind = "empty"
    for message in messages:
        if message is None:
            kind = "other" if kind == "empty" else kind
            continue
        if not bytes(message.role).startswith(b'"'):
            if _set(message.type) and bytes(message.type) in _ITEMS:
                return "openai-items"
            if kind in ("empty", "other"):
                kind = _other(message)
            continue
        if _set(message.content):
            content = bytes(message.content)
            if content.startswith(b"[") and any(mark in content for mark in _BLOCKS) and _has_blocks(content):
                return "anthropic"
        elif _set(message.parts):
            return "ui-messages" if b'"type"' in bytes(message.parts) else "gemini"
        if kind in ("empty", "other"):
            kind = "messages"
    return kind


def _other(message: _Message) -> str:
    if _set(message.sender) and _set(message.value):
        return "sharegpt"
    if _set(message.action) and (_set(message.source) or _set(message.observation)):
        return "openhands" if _set(message.source) else "swe-agent-trajectory"
    if _set(message.type) and _set(message.content) and bytes(message.type) in (b'"human"', b'"ai"'):
        return "langchain"
    return "other"


def _has_blocks(content: bytes) -> bool:
    parts = decoded(content)
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result") for part in parts
    )


def _set(value: msgspec.Raw) -> bool:
    return bytes(value) != b""


def probe(decoder: msgspec.json.Decoder[Any], shape: type[Any], text: bytes) -> Any:
    """Some members of one object; None where the text is no object."""
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        return decoder.decode(text)
    except REFUSED:
        pass
    members = members_of(text)
    fields = [(field.name, field.encode_name) for field in msgspec.structs.fields(shape)]
    return shape(**{name: msgspec.Raw(members[key]) for name, key in fields if key in members})


def members_of(text: bytes) -> dict[str, bytes]:
    """Member texts of an object text, the last of a repeated key; {} where it is no object."""
    start = len(text) - len(text.lstrip())
    if not text.startswith(b"{", start):
        return {}
    try:
        return {key: bytes(found) for key, found in _RAWS.decode(text).items()}
    except REFUSED:
        pass
    try:
        return {key: text[a:b] for key, a, b in jsontext.members(text, start)}
    except InputError:
        return {}


def decoded(text: bytes) -> Any:
    """A value that any reader takes; None for all others."""
    try:
        return _ANY.decode(text)
    except REFUSED:
        return None
