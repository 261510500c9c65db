"""One OpenAI message and one Storyline turn, both ways (openai_msg.md, "Message fields" and "Mapping").

`read` takes a message apart, `write_message` and `write_result` make the canonical message of a turn or of a tool
result. Where a message has a known shape other than the canonical one, `read` notes it in `marks`, by member:

    content            see `openai_content`
    reasoning_content  the member that holds the reasoning instead (`reasoning`, `thinking`)
    tool_calls         `function_call` for the legacy member, else `<index>:<shape>` with the shapes `flat`
                       (`function` is the name), `custom`, `value` (arguments are no string)

With the marks `write_message` gives that shape back, so that long texts need not be kept a second time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from chronicle.errors import InputError
from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Number, Object
from chronicle.formats.openai_content import read_content, text_of, write_content
from chronicle.formats.story import JsonText, ToolCall, Turn

Marks = Mapping[str, list[str]]

REASONING = ("reasoning_content", "reasoning", "thinking")
_SRC = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_EMBEDDED = re.compile(r"<tool_call>\s*([A-Za-z_][\w.\-]*)|<function=([^>\s]+)>")


class Call(NamedTuple):
    """A tool call as the message states it."""

    id: str | None
    fn: str
    args: JsonText


class Reading(NamedTuple):
    """A message that makes a turn, taken apart."""

    src: str
    msg: JsonText
    reason: str | None
    calls: list[Call] | None
    """None where the message has no list of calls; an empty list is not the same."""
    weight: JsonText | None
    model: str | None
    ts: str | None
    metrics: JsonText | None
    marks: dict[str, list[str]]
    lints: list[str]


# -- reading ------------------------------------------------------------------------------------------------------


def read(message: Json) -> Reading:
    """Take a message apart. Anything is taken: what is no message becomes the text of a turn without a source."""
    if not isinstance(message, Object):
        return Reading("", jsontext.dump(message), None, None, None, None, None, None, {}, ["not-a-message"])
    member = dict(message)
    lints: list[str] = []
    marks: dict[str, list[str]] = {}
    src = _source(member.get("role"), lints)
    content = member.get("content", "")
    refusal = member.get("refusal")
    if content in (None, "") or (content == [] and refusal):
        content = refusal if isinstance(refusal, str) and refusal else ""
    content = read_content(content, marks, lints)
    reason = _reason(member, marks)
    calls = _calls(member, marks, lints) if src == "agent" else None
    weight = jsontext.dump(member["weight"]) if "weight" in member else None
    model, ts = member.get("model"), member.get("timestamp", member.get("created_at"))
    return Reading(
        src=src,
        msg=jsontext.dump(content),
        reason=reason,
        calls=calls,
        weight=weight,
        model=jsontext.plain(model) if isinstance(model, str) and model and src == "agent" else None,
        ts=ts if isinstance(ts, str) and ts == jsontext.plain(ts) else None,
        metrics=usage_metrics(member.get("usage")) if src == "agent" else None,
        marks=marks,
        lints=lints,
    )


def result_marks(message: Object) -> dict[str, list[str]]:
    """The marks of a message that becomes a tool result."""
    marks: dict[str, list[str]] = {}
    read_content(message.get("content"), marks, [])
    return marks


def role_of(message: Json) -> str:
    """The role of a message; empty where it states none."""
    role = message.get("role") if isinstance(message, Object) else None
    return role if isinstance(role, str) else ""


def identifier(value: Json) -> str | None:
    """A call id as text: a string that is not empty, or a number by its spelling."""
    if isinstance(value, Number):
        return value.text
    return jsontext.plain(value) if isinstance(value, str) and value else None


def answered_id(message: Object) -> str | None:
    """The id of the call that a tool message answers; SWE-agent states it as the one member of `tool_call_ids`."""
    several = message.get("tool_call_ids")
    if isinstance(several, list) and not isinstance(several, Object) and len(several) == 1:
        return identifier(message.get("tool_call_id", several[0]))
    return identifier(message.get("tool_call_id"))


def _source(role: Json, lints: list[str]) -> str:
    if not isinstance(role, str):
        lints.append("unknown-role")
        return ""
    if role not in _SRC:
        lints.append("unknown-role")
        return jsontext.plain(role)
    return _SRC[role]


def _reason(member: Mapping[str, Json], marks: dict[str, list[str]]) -> str | None:
    """The first reasoning that says something, else the first that is a string."""
    found = [key for key in REASONING if isinstance(member.get(key), str)]
    if not found:
        return None
    key = next((name for name in found if member[name]), found[0])
    if key != REASONING[0]:
        marks[REASONING[0]] = [key]
    text = member[key]
    return jsontext.plain(text) if isinstance(text, str) else None


def usage_metrics(usage: Json) -> JsonText | None:
    """Turn metrics of a `usage` object; None where there is nothing to say."""
    if not isinstance(usage, Object):
        return None
    out = Object()
    for key in ("prompt_tokens", "completion_tokens"):
        if isinstance(count := usage.get(key), Number):
            out.append((key, count))
    details = usage.get("prompt_tokens_details")
    if isinstance(details, Object) and isinstance(cached := details.get("cached_tokens"), Number):
        out.append(("cached_tokens", cached))
    details = usage.get("completion_tokens_details")
    if isinstance(details, Object) and isinstance(thought := details.get("reasoning_tokens"), Number):
        out.append(("extra", Object([("reasoning_tokens", thought)])))
    return jsontext.dump(out) if out else None


# -- calls --------------------------------------------------------------------------------------------------------


def _calls(member: Mapping[str, Json], marks: dict[str, list[str]], lints: list[str]) -> list[Call] | None:
    listed, legacy = member.get("tool_calls"), member.get("function_call")
    if isinstance(legacy, Object) and not listed:
        marks["tool_calls"] = ["function_call"]
        args, _ = _arguments(legacy, "arguments", lints)
        return [Call(None, _name(legacy.get("name")), args)]
    if not isinstance(listed, list) or isinstance(listed, Object):
        return None
    shapes: list[str] = []
    calls: list[Call] = []
    for call in listed:
        if not isinstance(call, Object):
            lints.append("not-a-call")
            continue
        made, shape = _call(call, lints)
        shapes += (f"{len(calls)}:{word}" for word in shape)
        if made.id is None:
            lints.append("no-tool-call-id")
        calls.append(made)
    if shapes:
        marks["tool_calls"] = shapes
    return calls


def _call(call: Object, lints: list[str]) -> tuple[Call, list[str]]:
    """One call and the words for its shape."""
    name, custom = call.get("function"), call.get("custom")
    ident = identifier(call.get("id"))
    if isinstance(name, Object):
        args, shape = _arguments(name, "arguments", lints)
        return Call(ident, _name(name.get("name")), args), shape
    if isinstance(custom, Object):
        text = custom.get("input")
        return Call(ident, _name(custom.get("name")), jsontext.dump("" if text is None else text)), ["custom"]
    if isinstance(name, str):
        args, shape = _arguments(call, "arguments", lints)
        return Call(ident, _name(name), args), ["flat", *shape]
    args, _ = _arguments(call, "arguments" if call.get("arguments") is not None else "args", lints)
    return Call(ident, _name(call.get("name")), args), []


def _name(value: Json) -> str:
    return jsontext.plain(value) if isinstance(value, str) else ""


def _arguments(holder: Object, key: str, lints: list[str]) -> tuple[JsonText, list[str]]:
    """Arguments as compact JSON text: what the string says, the string itself where it says no JSON."""
    if not any(name == key for name, _ in holder):
        lints.append("missing-arguments")
        return b"{}", []
    value = holder.get(key)
    if not isinstance(value, str):
        return jsontext.dump(value), ["value"]
    try:
        parsed = jsontext.parse(value)
        if ("NaN" in value or "Infinity" in value) and not jsontext.is_strict(value.encode("utf-8", "surrogatepass")):
            raise InputError("not a number", kind="unreadable")
        return jsontext.dump(parsed), []
    except InputError:
        lints.append("invalid-arguments")
        return jsontext.string(value), []


# -- writing ------------------------------------------------------------------------------------------------------


def write_message(turn: Turn, marks: Marks) -> Object:
    """The canonical message of a turn, in the shape that the marks tell."""
    role = "assistant" if turn.src == "agent" else turn.src
    content = write_content(jsontext.parse(turn.msg), marks.get("content", ()))
    out = Object([("role", role), ("content", content)])
    if turn.reason is not None:
        out.append((marks.get(REASONING[0], REASONING)[0], turn.reason))
    if turn.tool_calls is not None:
        shapes = marks.get("tool_calls", ())
        calls = [call for call in turn.tool_calls if not is_derived(call)]
        if "function_call" in shapes:
            out += (("function_call", _write_function(call, value=False)) for call in calls[:1])
        elif calls or not turn.tool_calls:
            out.append(("tool_calls", [_write_call(call, shapes, i) for i, call in enumerate(calls)]))
    if turn.extra is not None:
        extra = jsontext.parse(turn.extra)
        if isinstance(extra, Object) and any(key == "weight" for key, _ in extra):
            out.append(("weight", extra.get("weight")))
    return out


def write_result(result: Json, marks: Marks) -> Object:
    """The canonical tool message of one observation result."""
    out = Object([("role", "tool")])
    for key, value in result if isinstance(result, Object) else ():
        if key == "source_call_id" and isinstance(value, str):
            out.append(("tool_call_id", value))
        elif key == "content":
            out.append(("content", write_content(value, marks.get("content", ()))))
    return out


def is_derived(call: ToolCall) -> bool:
    """Whether the call was found in the text of a message and is no call that the source states."""
    return call.extra is not None and call.extra == DERIVED


DERIVED = b'{"derived":"text"}'


def _write_call(call: ToolCall, shapes: list[str] | tuple[str, ...], index: int) -> Object:
    value = f"{index}:value" in shapes
    out = Object([("id", call.tcid)])
    if f"{index}:custom" in shapes:
        inner = Object([("name", call.fn), ("input", jsontext.parse(call.args))])
        return Object([*out, ("type", "custom"), ("custom", inner)])
    function = _write_function(call, value=value)
    if f"{index}:flat" in shapes:
        return Object([*out, ("function", call.fn), ("arguments", function.get("arguments"))])
    return Object([*out, ("type", "function"), ("function", function)])


def _write_function(call: ToolCall, *, value: bool) -> Object:
    args = jsontext.parse(call.args)
    if not value:
        args = _argument_text(args)
    return Object([("name", call.fn), ("arguments", args)])


def _argument_text(args: Json) -> str:
    """The arguments string: a text that is no JSON stands for itself, all else is dumped compactly."""
    if isinstance(args, str):
        try:
            jsontext.parse(args)
        except InputError:
            return args
    return jsontext.dump(args).decode()


def embedded_call(msg: JsonText) -> str | None:
    """The name of a call that a model wrote into its text (`<tool_call>name`, `<function=name>`), or None."""
    if b"<tool_call>" not in msg and b"<function=" not in msg:
        return None
    found = _EMBEDDED.search(text_of(msg))
    return jsontext.plain(found[1] or found[2]) if found else None


def with_extra(turn: Turn, key: str, value: Json) -> None:
    """Set a member of a turn's extra."""
    turn.extra = merged(turn.extra, Object([(key, value)]))


def merged(first: JsonText | None, second: Object) -> JsonText:
    """The members of two objects; those of the second win."""
    old = jsontext.parse(first) if first is not None else None
    names = {key for key, _ in second}
    kept = [(key, value) for key, value in old if key not in names] if isinstance(old, Object) else []
    return jsontext.dump(Object([*kept, *second]))


def results_of(turn: Turn) -> list[Json]:
    """The observation results of a turn as values; [] where it has none."""
    if turn.observation is None:
        return []
    observation = jsontext.parse(turn.observation)
    results = observation.get("results") if isinstance(observation, Object) else None
    return list(results) if isinstance(results, list) and not isinstance(results, Object) else []
