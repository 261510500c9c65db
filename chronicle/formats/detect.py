"""Which format a JSON value is in, from its top level (formats/atif.md 8, openai_msg.md B, storyline.md 7).

The order matters: what says its name, then captures and native logs of other tools (they must never be taken
for ATIF), then what has the shape of a format, last ATIF by the look of its steps.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from chronicle.formats import openai_msg
from chronicle.formats.slices import ARRAY, OBJECT, STRING, elements_of, members_of, string_of

FORMATS = ("atif", "openai_msg", "storyline", "actf", "agenticmd")
"""Names of the formats; `events` is refused by name (design 5.1)."""

READABLE = ("atif", "openai_msg", "storyline")
"""Formats that the cutter takes apart."""

Top = dict[str, bytes] | list[bytes]
"""Top level of a value: texts of its members or elements."""


class Verdict(NamedTuple):
    """What a value was taken for."""

    format: str
    """A name of `READABLE`, or `` when the value is not taken."""
    reason: str
    """Why, for people."""
    form: str = ""
    """Form id of OpenAI messages."""
    lists: tuple[str, ...] = ()
    """Pointers of the arrays whose elements are parts (OpenAI messages)."""
    unsupported: str = ""
    """What it is, where it is not taken: the quarantine kind is `unsupported:<what>`."""


_LATER = "a reader for it comes later"
_CONVERT = "convert it to ATIF or to OpenAI messages with that tool's own exporter, then ingest the result"

WHAT: dict[str, tuple[str, str]] = {
    "gemini-cli-log": ("a native session log of Gemini CLI", _CONVERT),
    "openhands-log": ("native events of OpenHands", _CONVERT),
    "claude-code-log": ("a native session log of Claude Code", _CONVERT),
    "codex-log": ("a native rollout log of Codex CLI", _CONVERT),
    "pi-log": ("a native session log of pi", _CONVERT),
    "atof-log": ("an ATOF event log", _CONVERT),
    "vcr-cassette": ("a VCR cassette of recorded HTTP", _LATER),
    "har": ("a HAR file of recorded HTTP", _LATER),
    "sse-capture": ("a captured event stream of a model's answer", _LATER),
    "event-journal": ("a journal of event records", _LATER),
    "openai-completion": ("a chat completion response without its request", _LATER),
    "openai-response": ("a Responses API object", _LATER),
    "openai-exchange": ("a captured request with its response", _LATER),
    "openai-batch": ("a line of the Batch API", _LATER),
    "anthropic-response": ("an Anthropic response without its request", _LATER),
    "actf": ("an ACTF document", _LATER),
    "agenticmd": ("an AgenticMD file", _LATER),
    "sharegpt": ("a ShareGPT conversation (from/value)", "convert it to OpenAI messages (role/content), then ingest"),
    "json-scalar": ("a single JSON scalar", "a trajectory is an object or an array"),
    "json-object": ("a JSON object of no known shape", "name the format with --format if it is one of them"),
    "json-array": ("a JSON array of no known shape", "name the format with --format if it is one of them"),
}
"""What the names of unsupported shapes mean, and what to do about them."""


def describe(what: str) -> tuple[str, str]:
    """(what it is, what to do) for people, for the name of an unsupported shape."""
    return WHAT.get(what, (f"data in the shape `{what}`, which is not read", _CONVERT))


def recognise(value: Top) -> Verdict:
    """The verdict on one value. A list that is no document itself is `unsupported`: its elements may be documents."""
    if isinstance(value, list):
        return _of_list(value)
    return (
        _by_name(value)
        or _foreign(value)
        or _by_shape(value)
        or _openai(value)
        or _by_steps(value)
        or _refused(_known(value) or "json-object", value)
    )


def forced(format: str, value: Top) -> Verdict:
    """The verdict on one value whose format the caller names: only its shape must fit."""
    if format == "openai_msg":
        found = _openai(value)
        return found or _refused(_known(value) or _shape(value), value)
    if isinstance(value, dict):
        return Verdict(format, f"{format} was asked for")
    return _refused("json-array", value)


def of_text(source: bytes) -> str | None:
    """The name of an unsupported format that is not JSON; None for one that nobody knows."""
    head = source[:65536].removeprefix(b"\xef\xbb\xbf")
    if _BLOCK.search(source) or _FRONTMATTER.match(head):
        return "agenticmd"
    if _CASSETTE.match(head):
        return "vcr-cassette"
    if _STREAM.match(head):
        return "sse-capture"
    return None


_BLOCK = re.compile(rb"^ {0,3}<!-- persisting:block", re.MULTILINE)
_FRONTMATTER = re.compile(rb"---[ \t]*\r?\n(?:(?!---)[^\n]*\n)*?format:[ \t]*[\"']?persisting[\"']?[ \t]*\r?\n")
_CASSETTE = re.compile(rb"(?:---[ \t]*\r?\n|#[^\n]*\n|\s)*(?:version:[^\n]*\n|recorded_with:[^\n]*\n)*interactions:")
_STREAM = re.compile(rb"\s*(?::[^\n]*\n\s*|(?:id|event|retry):[^\n]*\n\s*)*(?:data|event):")

_CLAUDE_MARKS = ("parentUuid", "leafUuid", "isSidechain")
_CLAUDE_TYPES = ("user", "assistant", "system", "summary", "progress", "attachment", "queue-operation", "file-history-snapshot")
_CODEX_TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_STREAM_TYPES = ("message_start", "message_delta", "message_stop", "ping")
_SESSION_KEYS = ("session", "session_id", "story_id")


def _by_name(value: dict[str, bytes]) -> Verdict | None:
    """What the value calls itself."""
    for key in ("spec", "schema_version"):
        name = string_of(value.get(key))
        if name and name.lower().startswith("storyline/"):
            return Verdict("storyline", f"`{key}` says {name}")
    if _is_actf(value):
        return _refused("actf", value)
    version = string_of(value.get("schema_version"))
    if version and version[:4].upper() == "ATIF" and not _opens(value, "attempts", OBJECT):
        return Verdict("atif", f"`schema_version` says {version}")
    return None


def _is_actf(value: dict[str, bytes]) -> bool:
    if "task_id" not in value or not _opens(value, "attempts", OBJECT):
        return False
    attempts = members_of(value["attempts"]).values()
    return bool(attempts) and all("trajectory" in members_of(each) for each in attempts)


def _foreign(value: dict[str, bytes]) -> Verdict | None:
    what = _journal(value) or _native_log(value) or _capture(value)
    return _refused(what, value) if what else None


def _journal(value: dict[str, bytes]) -> str | None:
    if "atof_version" in value:
        return "atof-log"
    if all(key in value for key in ("seq", "source", "kind", "payload")):
        return "event-journal"
    return None


def _native_log(value: dict[str, bytes]) -> str | None:
    """A log, or one line of a log, in which an agent keeps its own sessions."""
    kind = string_of(value.get("type"))
    if "sessionId" in value and ("projectHash" in value or _typed_messages(value)):
        return "gemini-cli-log"
    if kind == "gemini" and "content" in value:
        return "gemini-cli-log"
    if "messages" in value:
        return None
    if _is_openhands_event(value):
        return "openhands-log"
    if kind is None:
        return None
    if kind in _CODEX_TYPES and "payload" in value:
        return "codex-log"
    if any(key in value for key in _CLAUDE_MARKS):
        return "claude-code-log"
    if kind in _CLAUDE_TYPES and ("sessionId" in value or "messageId" in value):
        return "claude-code-log"
    if ("parentId" in value and "timestamp" in value) or (kind == "session" and "cwd" in value):
        return "pi-log"
    return None


def _typed_messages(value: dict[str, bytes]) -> bool:
    first = next(iter(elements_of(value.get("messages"))), None)
    message = members_of(first)
    return "type" in message and "role" not in message


def _is_openhands_event(value: dict[str, bytes]) -> bool:
    if "source" not in value or "step_id" in value or not ("id" in value or "timestamp" in value):
        return False
    if _opens(value, "action", STRING) or _opens(value, "observation", STRING):
        return True
    return (string_of(value.get("kind")) or "").endswith("Event")


def _capture(value: dict[str, bytes]) -> str | None:
    """Traffic with a model, or one message of it."""
    if _opens(value, "interactions", ARRAY):
        return "vcr-cassette"
    if _opens(value, "log", OBJECT) and "entries" in members_of(value["log"]):
        return "har"
    if _opens(value, "messages", ARRAY):
        return None
    if "custom_id" in value and ("body" in value or "response" in value or "error" in value):
        return "openai-batch"
    if _opens(value, "response", OBJECT) and (_opens(value, "request", OBJECT) or _opens(value, "body", OBJECT)):
        return "openai-exchange"
    return _answer(value)


def _answer(value: dict[str, bytes]) -> str | None:
    kind, name = string_of(value.get("type")) or "", string_of(value.get("object")) or ""
    if name.endswith(".chunk") or kind in _STREAM_TYPES or kind.startswith("content_block_"):
        return "sse-capture"
    if kind.startswith("response.") and ("sequence_number" in value or "response" in value):
        return "sse-capture"
    if _opens(value, "choices", ARRAY):
        choice = members_of(next(iter(elements_of(value["choices"])), None))
        return "sse-capture" if "delta" in choice and "message" not in choice else "openai-completion"
    if name == "response" or (_opens(value, "output", ARRAY) and ("usage" in value or "model" in value)):
        return "openai-response"
    if kind == "message" and _opens(value, "content", ARRAY) and "stop_reason" in value:
        return "anthropic-response"
    return None


def _by_shape(value: dict[str, bytes]) -> Verdict | None:
    """What has the members that make a format."""
    if _opens(value, "turns", ARRAY) and any(key in value for key in _SESSION_KEYS):
        return Verdict("storyline", "it has a session and turns")
    if _opens(value, "steps", ARRAY) and _opens(value, "agent", OBJECT) and not _opens(value, "attempts", OBJECT):
        return Verdict("atif", "it has an agent and an array of steps")
    return None


def _openai(value: Top) -> Verdict | None:
    form = openai_msg.recognise(value)
    if form is None:
        return None
    return Verdict("openai_msg", _form_reason(form.name, form.lists), form=form.name, lists=form.lists)


@cache
def _form_reason(name: str, lists: tuple[str, ...]) -> str:
    # One text for all documents of a file, not one each.
    return f"form {name} of OpenAI messages, in {', '.join(filter(None, lists)) or 'the value itself'}"


def _by_steps(value: dict[str, bytes]) -> Verdict | None:
    """ATIF by the look of its steps alone: low confidence, so every one of the first must have it."""
    if not _opens(value, "steps", ARRAY) or _opens(value, "attempts", OBJECT):
        return None
    first = [members_of(step) for step in elements_of(value["steps"])[:8]]
    if any(_is_openhands_event(step) for step in first):
        return _refused("openhands-log", value)
    if first and all("source" in step and "message" in step for step in first):
        return Verdict("atif", "its steps have a source and a message (low confidence)")
    return None


def _of_list(value: list[bytes]) -> Verdict:
    """A list that is one document (rows, or the messages of one conversation), or holds lists of messages."""
    if value and _foreign(members_of(value[0])) is None:
        found = _openai(value)
        if found:
            return found
    return _refused(_known(value) or "json-array", value)


_ALIASES = {
    "claude-code": "claude-code-log",
    "codex": "codex-log",
    "gemini-cli": "gemini-cli-log",
    "openhands": "openhands-log",
    "pi": "pi-log",
    "openai-stream": "sse-capture",
    "anthropic-stream": "sse-capture",
}


def _known(value: Top) -> str | None:
    """The name of a shape that the reader of OpenAI messages knows and does not take."""
    what = openai_msg.unsupported(value)
    return _ALIASES.get(what, what) if what else None


def _refused(what: str, value: Top) -> Verdict:
    text, _ = describe(what)
    if what == "json-object" and isinstance(value, dict):
        names = ", ".join(f"`{key[:40]}`" for key in list(value)[:6]) or "no members"
        text = f"an object with {names}: neither ATIF steps, Storyline turns nor a list of OpenAI messages"
    return Verdict("", text, unsupported=what)


def _shape(value: Top) -> str:
    return "json-object" if isinstance(value, dict) else "json-array"


def _opens(value: dict[str, bytes], key: str, kind: int) -> bool:
    text = value.get(key)
    return bool(text) and text[0] == kind  # type: ignore[index]
