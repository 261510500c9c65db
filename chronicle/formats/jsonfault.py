"""The grammar of JSON as the scanner knows it, and what is wrong with a text that does not follow it.

Pure helpers of `jsontext`: regular expressions over bytes, and errors for people that say what is expected, what
stands there, and at which byte and line.
"""

from __future__ import annotations

import re

from chronicle.errors import InputError

# Everything is possessive: a long string costs one pass and no memory, whether it matches or not. What is repeated is atomic
# too: up to Python 3.11.4 a possessive repeat goes back into what it has matched.
SPACE = rb"[ \t\n\r]*+"
_ESCAPE = rb'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})'
_OPEN_STRING = rb'"[^"\\]*+(?>' + _ESCAPE + rb'[^"\\]*+)*+'
STRING = _OPEN_STRING + rb'"'
PLAIN = rb"(?:-?+(?:0|[1-9][0-9]*+)(?>\.[0-9]++)?+(?>[eE][+-]?+[0-9]++)?+|true|false|null|NaN|-?+Infinity)"
_EMPTY = rb"\{" + SPACE + rb"\}|\[" + SPACE + rb"\]"
FLAT = rb"(?:" + STRING + rb"|" + PLAIN + rb"|" + _EMPTY + rb")"
KEY = STRING + SPACE + rb":" + SPACE
COMMA = SPACE + rb"," + SPACE
OPEN = rb"(\{(?!" + SPACE + rb"\})|\[(?!" + SPACE + rb"\]))"  # of a container that is not empty

_SPACES = re.compile(SPACE)
_RUN_OF_MEMBERS = SPACE + rb"(?>" + KEY + FLAT + COMMA + rb")*+"
_RUN_OF_ELEMENTS = SPACE + rb"(?>" + FLAT + COMMA + rb")*+"
_CUT_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{0,3})?\Z")
CUT_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.|(?:\.[0-9]+)?[eE][+-]?)\Z")
_BLANKS = b" \t\n\r"
_LITERALS = (b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity")
_QUOTE = ord('"')


def skip_space(text: bytes, at: int) -> int:
    """Offset of the first byte at or behind `at` that is not white space."""
    match = _SPACES.match(text, at)
    return match.end() if match else at


def fault(text: bytes, offset: int, what: str, *, kind: str = "unreadable") -> InputError:
    """An error that names the byte and the line of `offset`, to be raised by the caller."""
    line = text.count(b"\n", 0, offset) + 1
    return InputError(f"JSON at byte {offset} (line {line}): {what}", kind=kind, offset=offset, line=line)


def value_fault(text: bytes, at: int, *, after_comma: bool = False) -> InputError:
    """Why no value begins at `at`."""
    pos = skip_space(text, at)
    if pos >= len(text):
        if not text.strip(_BLANKS):
            return fault(text, pos, "there is no value", kind="empty")
        return fault(text, pos, "the input ends where a value is expected", kind="truncated")
    if text[pos] == _QUOTE:
        return _string_fault(text, pos)
    rest = text[pos : pos + 10]
    if pos + len(rest) == len(text) and any(word.startswith(rest) for word in _LITERALS):
        return fault(text, len(text), "the input ends inside a value", kind="truncated")
    if text.startswith(b"\xef\xbb\xbf", pos):
        return fault(text, pos, "a byte order mark stands before the value")
    if after_comma and rest[:1] in b"]}":
        return fault(text, pos, "no value follows the last comma")
    return fault(text, pos, f"a value is expected, not {_seen(rest)}")


def _match(pattern: bytes, text: bytes, at: int) -> re.Match[bytes] | None:
    """Compiled at the first fault: most processes meet none."""
    return re.compile(pattern).match(text, at)


def _string_fault(text: bytes, pos: int) -> InputError:
    """Why the string that begins at `pos` is none."""
    match = _match(_OPEN_STRING, text, pos)
    end = match.end() if match else pos
    if end >= len(text) or _CUT_ESCAPE.match(text, end):
        return fault(text, len(text), f"the string that begins at byte {pos} is not closed", kind="truncated")
    return fault(text, end, f"a string holds {_seen(text[end : end + 6])}, which is no escape sequence")


def container_fault(text: bytes, pos: int, in_object: bool) -> InputError:
    """What is wrong in the members or elements that begin at `pos`, none of which opens another container."""
    run = _match(_RUN_OF_MEMBERS if in_object else _RUN_OF_ELEMENTS, text, pos)
    pos = run.end() if run else pos
    after_comma = text[max(0, pos - 80) : pos].rstrip(_BLANKS).endswith(b",")
    if in_object:
        name = _match(STRING, text, pos)
        if name is None:
            return _name_fault(text, pos, after_comma)
        pos = skip_space(text, name.end())
        if text[pos : pos + 1] != b":":
            return _expected(text, pos, "a colon after the member name")
        pos = skip_space(text, pos + 1)
    if CUT_NUMBER.match(text, pos):
        return fault(text, len(text), "the input ends inside a number", kind="truncated")
    value = _match(FLAT, text, pos)
    if value is None:
        return value_fault(text, pos, after_comma=after_comma and not in_object)
    return separator_fault(text, value.end(), in_object)


def _name_fault(text: bytes, pos: int, after_comma: bool) -> InputError:
    if text[pos : pos + 1] == b'"':
        return _string_fault(text, pos)
    if after_comma and text[pos : pos + 1] == b"}":
        return fault(text, pos, "no member follows the last comma")
    return _expected(text, pos, "a member name in double quotes")


def separator_fault(text: bytes, at: int, in_object: bool) -> InputError:
    """Why neither a comma nor the end of the container follows the value that ends at `at`."""
    return _expected(text, skip_space(text, at), "a comma or `}`" if in_object else "a comma or `]`")


def _expected(text: bytes, pos: int, what: str) -> InputError:
    if pos >= len(text):
        return fault(text, pos, f"the input ends where {what} is expected", kind="truncated")
    return fault(text, pos, f"{what} is expected, not {_seen(text[pos : pos + 6])}")


def _seen(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if text.startswith(("//", "/*", "#")):
        return f"a comment ({text!r})"
    return repr(text)
