"""Looking into JSON texts for people: single members, strings, and a pretty form that loses nothing.

Total: whatever cannot be read comes back as None or as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import cast

import msgspec

from chronicle.errors import InputError
from chronicle.formats import jsontext

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_a_string = msgspec.json.Decoder(str).decode

MAX_PRETTY_DEPTH = 64
"""JSON nested deeper is shown as it came: indentation would be most of it."""


def pretty(text: bytes) -> str:
    """JSON with two blanks a level; numbers and repeated keys as they came. What is no JSON is shown as it is."""
    if text.count(b"[") + text.count(b"{") > MAX_PRETTY_DEPTH and jsontext.depth(text) > MAX_PRETTY_DEPTH:
        return text.decode("utf-8", "replace")
    if b"\\u" not in text and b"\\/" not in text:  # else escapes are better read when they are decoded
        try:
            return msgspec.json.format(text, indent=2).decode("utf-8", "replace")
        except msgspec.DecodeError:
            pass
    try:
        return _printed(jsontext.parse(text), "\n")
    except InputError:
        return text.decode("utf-8", "replace")


def _printed(value: jsontext.Json, line: str) -> str:
    inner = f"{line}  "
    if isinstance(value, jsontext.Object):
        items = [f"{encode_basestring(key)}: {_printed(item, inner)}" for key, item in value]
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}" if items else "{}"
    if isinstance(value, list):
        items = [_printed(item, inner) for item in cast("list[jsontext.Json]", value)]
        return f"[{inner}{f',{inner}'.join(items)}{line}]" if items else "[]"
    return encode_basestring(value) if isinstance(value, str) else jsontext.dump(value).decode()


def members_of(text: bytes | None) -> dict[str, bytes] | None:
    """Member texts of a JSON object, the last of repeated ones; None for what is no object."""
    if text is None or text.lstrip()[:1] != b"{":
        return None
    try:
        return {key: bytes(value) for key, value in _members(text).items()}
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return {key: text[start:end] for key, start, end in jsontext.members(text, 0)}
    except InputError:
        return None


def elements_of(text: bytes | None) -> list[bytes] | None:
    """Texts of the elements of a JSON array; None for what is no array."""
    if text is None or text.lstrip()[:1] != b"[":
        return None
    try:
        return [bytes(value) for value in _elements(text)]
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return [text[start:end] for start, end in jsontext.elements(text, 0)]
    except InputError:
        return None


def string_of(text: bytes | None) -> str | None:
    """The string that a JSON text is; None for what is no string."""
    if text is None or text.lstrip()[:1] != b'"':
        return None
    try:
        return _a_string(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        value = jsontext.parse(text)
    except InputError:
        return text.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def first_string(members: Mapping[str, bytes], *names: str) -> str | None:
    """The first of the named members that is a string."""
    return next((said for name in names if (said := string_of(members.get(name))) is not None), None)


def number_of(text: bytes | None) -> int | float | None:
    """A JSON number that is finite, as far as Python can hold it; None for anything else."""
    try:
        value = msgspec.json.decode(text, type=int | float) if text else None
    except msgspec.DecodeError:
        return None
    return value if value is not None and abs(value) < 2**63 else None
