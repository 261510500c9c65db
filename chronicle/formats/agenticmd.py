"""AgenticMD, the readable view: writing a document, and the names of its files (formats/agenticmd.md 1, 2, 4, 5, 8).

Pure: values in, bytes out. What cannot be UTF-8 (unpaired surrogates) becomes U+FFFD, so every story can be written.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chronicle.formats.jsontext import plain
from chronicle.identity import fingerprint

SUFFIX = ".md"
MAX_NAME = 128

_HEADER_START = "<!-- persisting:block"
_HEADER_IN_BODY = re.compile(rf"^([ \t]*\\*)({_HEADER_START})", re.MULTILINE)
_NOT_SPEAKER = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]")
_HEX = re.compile(r"[0-9a-f]{16,}\Z")
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))})

# Whatever ends a comment or a line for some reader; none of it can stand outside a JSON string.
_COMMENT = re.compile("(--!?)>|<(!--)|([\x7f-\x9f\u2028\u2029])")

# Strings that every YAML 1.1 and 1.2 reader takes for a string when they stand bare.
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./+@-]*(?: [A-Za-z0-9_./+@-]+)*\Z")
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_YAML_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class Block(msgspec.Struct, frozen=True):
    """One block: who speaks, what the header says besides `length` and `esc`, and the text."""

    speaker: str
    header: Mapping[str, Any] = {}
    """Values that JSON can hold; None is left out."""
    body: str = ""


def document(frontmatter: Mapping[str, Any], blocks: Sequence[Block]) -> bytes:
    """The bytes of one AgenticMD file.

    Frontmatter values are strings, numbers, booleans, lists and mappings of these; None is left out, and the whole
    of it where nothing is left. Raises TypeError for any other value.
    """
    pieces = [_frontmatter(frontmatter)]
    for block in blocks:
        body = plain(block.body)
        escaped = _HEADER_IN_BODY.sub(r"\1\\\2", body) if _HEADER_START in body else body
        data = escaped.encode()
        pieces += (_header(block, len(data), escaped != body), b"\n\n", data, b"\n\n")
    return b"".join(pieces)


def _header(block: Block, length: int, escaped: bool) -> bytes:
    values = {key: value for key, value in block.header.items() if value is not None and key not in {"length", "esc"}}
    ordered = {"type": values.pop("type", "text"), "length": length}
    if escaped:
        values["esc"] = 1
    ordered.update(sorted(values.items()))
    text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    text = _COMMENT.sub(_unicode_escape, plain(text))
    speaker = _NOT_SPEAKER.sub("_", block.speaker)
    return f"<!-- persisting:block{':' if speaker else ''}{speaker} {text} -->".encode()


def _unicode_escape(match: re.Match[str]) -> str:
    dashes, bang, character = match.groups()
    if dashes:
        return f"{dashes}\\u003e"
    return f"\\u003c{bang}" if bang else f"\\u{ord(character):04x}"


def _frontmatter(values: Mapping[str, Any]) -> bytes:
    lines = [f"{_yaml(key)}: {_yaml(value)}\n" for key, value in values.items() if value is not None]
    return plain(f"---\n{''.join(lines)}---\n\n").encode() if lines else b""


def _yaml(value: Any) -> str:
    """A value as YAML on one line, such that every reader's safe loader gives it back."""
    if isinstance(value, str):
        return _yaml_string(plain(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _yaml_float(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml_quoted(plain(str(key)))}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if value is None:
        return "null"
    raise TypeError(f"frontmatter cannot hold {type(value).__name__}")


def _yaml_string(text: str) -> str:
    if _BARE.match(text) and text.lower() not in _YAML_WORDS:
        return text
    return _yaml_quoted(text)


def _yaml_quoted(text: str) -> str:
    # A JSON string is a YAML one, but for characters that YAML calls unprintable; `\/` is never written.
    return _YAML_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _yaml_float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    # YAML 1.1 takes a number with an exponent for a string unless it has a point.
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}" if e else text


def file_names(stories: Iterable[tuple[str, str]]) -> dict[str, str]:
    """`story id -> file name` for all live stories, given as (story id, session); ids are distinct.

    `{session}.md` where the session has one story, else `{session}~{8 hex of the story id}.md` for each of them (16
    where two would be equal). No two names are equal, not even on a file system that ignores case.
    """
    by_session: dict[str, list[str]] = {}
    for story, session in stories:
        by_session.setdefault(session, []).append(story)
    names = {session: safe_name(session) for session in by_session}
    same_but_for_case = Counter(name.lower() for name in names.values())
    stems: dict[str, str] = {}
    for session, ids in by_session.items():
        stem = safe_name(session, taken=same_but_for_case[names[session].lower()] > 1)
        if len(ids) == 1:
            stems[ids[0]] = stem
            continue
        hexes = {story: _hex(story) for story in ids}
        digits = 8 if len({text[:8] for text in hexes.values()}) == len(ids) else 16
        stems.update((story, f"{stem}~{text[:digits]}") for story, text in hexes.items())
    again = Counter(stem.lower() for stem in stems.values())
    return {
        story: f"{stem}~{fingerprint(story)}{SUFFIX}" if again[stem.lower()] > 1 else f"{stem}{SUFFIX}"
        for story, stem in stems.items()
    }


def safe_name(session: str, *, taken: bool = False) -> str:
    """A file name without its suffix for a session id: at most 137 characters of `[A-Za-z0-9._~-]`.

    `~` and 8 hex of a hash of the id follow where the plain name says less than the id, is hidden, is a device of
    some system, or is `taken`: another one is equal but for case.
    """
    name = _safe(session)
    device = name.partition(".")[0].lower() in _DEVICES
    return f"{name}~{fingerprint(session)[:8]}" if name != session or name.startswith(".") or device or taken else name


def _safe(session: str) -> str:
    return _NOT_NAME.sub("_", session.strip())[:MAX_NAME] or "session"


def _hex(story: str) -> str:
    """Hex digits of a story id; of a hash of it, should it be none."""
    return story if _HEX.match(story) else fingerprint(story)
