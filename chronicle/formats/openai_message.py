"""One OpenAI message and one Storyline turn, both ways (openai_msg.md, "Message fields" and "Mapping").

`read` takes a message apart, `write_message` and `write_result` make the canonical message of a turn or of a tool
result. Where a message has a known shape other than the canonical one, `read` notes it in `marks`, by member:

    content            indexes of content parts that keep their text or address in `value`
    reasoning_content  the member that holds the reasoning instead (`reasoning`, `thinking`)
    tool_calls         `function_call` for the legacy member, else `<index>:<shape>` with the shapes `flat`
                       (`function` is the name), `custom`, `value` (arguments are no string)

With the marks `write_message` gives that shape back, so that long texts need not be kept a second time.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from chronicle.errors import InputError
from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Number, Object
from chronicle.formats.story import JsonText, ToolCall, Turn

Marks = Mapping[str, list[str]]

REASONING = ("reasoning_content", "reasoning", "thinking")
_SRC = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_MEDIA_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
}  # fmt: skip
_AUDIO = {"mp3": "mpeg", "m4a": "mp4"}
_EMBEDDED = re.compile(r"<tool_call>\s*([A-Za-z_][\w.\-]*)|<function=([^>\s]+)>")
_PLAIN_PARTS = frozenset(("text", "refusal", "file"))


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


# -- content ------------------------------------------------------------------------------------------------------


def read_content(content: Json, marks: dict[str, list[str]], lints: list[str]) -> Json:
    """Content as the story has it: images and audio as ATIF parts, inline data replaced by its digest."""
    if not isinstance(content, list) or isinstance(content, Object):
        return content
    parts: list[Json] = []
    beside: list[str] = []
    for i, part in enumerate(content):
        made, by_value = _part(part) if isinstance(part, Object) else (None, False)
        if made is None:
            lints.append("non-text-part")
        elif by_value:
            beside.append(str(i))
        parts.append(part if made is None else made)
    if beside:
        marks["content"] = beside
    return parts


def _part(part: Object) -> tuple[Object | None, bool]:
    """(the part in the story, whether its text or address stood in `value`); (None, False) for an unknown part."""
    kind, value = part.get("type"), part.get("value")
    by_value = isinstance(value, str)
    if kind in ("text", "input_text", "output_text"):
        text = part.get("text")
        if isinstance(text, str):
            return (part if kind == "text" else Object([("type", "text"), ("text", text)])), False
        return (Object([("type", "text"), ("text", value)]), True) if by_value else (None, False)
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Object) else image
        if isinstance(url, str):
            return _media("image", url), False
        return (_media("image", value), True) if isinstance(value, str) else (None, False)
    if kind == "input_audio":
        audio = part.get("input_audio")
        data = audio.get("data") if isinstance(audio, Object) else None
        if isinstance(audio, Object) and isinstance(data, str):
            form = audio.get("format")
            media = f"audio/{_AUDIO.get(form, form)}" if isinstance(form, str) else None
            return _source_part("audio", media, _digest(data, base64=True)), False
        return None, False
    if kind == "file":
        return _file(part), False
    return (part, False) if kind in _PLAIN_PARTS else (None, False)


def _file(part: Object) -> Object:
    """A file part without its inline data."""
    inner = part.get("file")
    data = inner.get("file_data") if isinstance(inner, Object) else None
    if not isinstance(inner, Object) or not isinstance(data, str):
        return part
    short = Object((key, inline_digest(data) if key == "file_data" else value) for key, value in inner)
    return Object((key, short if key == "file" else value) for key, value in part)


def _media(kind: str, url: str) -> Object:
    match = _DATA_URL.match(url)
    if match:
        return _source_part(kind, match[1] or None, inline_digest(url))
    suffix = url.split("?")[0].split("#")[0].rpartition(".")[2].lower()
    return _source_part(kind, _MEDIA_TYPES.get(suffix), url)


def _source_part(kind: str, media_type: str | None, path: str) -> Object:
    source = Object([("media_type", media_type)] if media_type else [])
    source.append(("path", path))
    return Object([("type", kind), ("source", source)])


def inline_digest(url: str) -> str:
    """`sha256:<hex>` of what a data URL (or bare base64) holds."""
    match = _DATA_URL.match(url)
    if match is None:
        return _digest(url, base64=True)
    return _digest(url[match.end() :], base64=";base64" in match[2].lower())


def _digest(text: str, *, base64: bool) -> str:
    data = text.encode("utf-8", "surrogatepass")
    if base64:
        # What is no base64 is told apart by the digest of its own text.
        with contextlib.suppress(binascii.Error):
            data = binascii.a2b_base64(data)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


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
            lints.append("missing-call-id")
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
        return jsontext.dump(jsontext.parse(value)), []
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


def write_content(content: Json, by_value: list[str] | tuple[str, ...]) -> Json:
    """Content of a message from that of a story; `by_value` names the parts that use the member `value`."""
    if not isinstance(content, list) or isinstance(content, Object):
        return content
    return [_write_part(part, str(i) in by_value) for i, part in enumerate(content)]


def _write_part(part: Json, by_value: bool) -> Json:
    if not isinstance(part, Object):
        return part
    kind, source = part.get("type"), part.get("source")
    if kind == "text" and by_value:
        return Object([("type", "text"), ("value", part.get("text"))])
    path = source.get("path") if isinstance(source, Object) else None
    if not isinstance(source, Object) or not isinstance(path, str):
        return part
    if kind == "image":
        if by_value:
            return Object([("type", "image_url"), ("value", path)])
        return Object([("type", "image_url"), ("image_url", Object([("url", path)]))])
    if kind == "audio":
        media = source.get("media_type")
        word = media.rpartition("/")[2] if isinstance(media, str) else "wav"
        form = next((short for short, long in _AUDIO.items() if long == word), word)
        return Object([("type", "input_audio"), ("input_audio", Object([("data", path), ("format", form)]))])
    return part


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


def text_of(msg: JsonText) -> str:
    """All text of a turn's message: the string, or its text parts one after the other."""
    content = jsontext.parse(msg)
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or isinstance(content, Object):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Object))
    return "\n".join(text for text in texts if isinstance(text, str))


def results_of(turn: Turn) -> list[Json]:
    """The observation results of a turn as values; [] where it has none."""
    if turn.observation is None:
        return []
    observation = jsontext.parse(turn.observation)
    results = observation.get("results") if isinstance(observation, Object) else None
    return list(results) if isinstance(results, list) and not isinstance(results, Object) else []
