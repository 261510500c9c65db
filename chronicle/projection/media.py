"""Placeholders for what is not text in a message: stable across runs, never the bulk itself (formats/agenticmd.md 6)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chronicle.formats import jsontext
from chronicle.identity import digest
from chronicle.projection.jsonview import members_of, string_of

HASH_LENGTH = 12

_WORDS = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "input_audio": "audio", "audio_url": "audio",
    "video": "video", "input_video": "video", "video_url": "video",
    "file": "file", "input_file": "file", "document": "file",
}  # fmt: skip
_HOLDERS = ("source", "image_url", "input_audio", "audio_url", "video_url", "image", "audio", "video", "file", "document")
_WHERE = ("url", "file_url", "path", "value", "file_id")
_DATA = ("data", "file_data", "base64")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*?;base64,([A-Za-z0-9+/_=-]{64,})")
_ANY_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


def short_hash(text: str | bytes) -> str:
    """First 12 hex digits of the content hash of a text."""
    return digest(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))[:HASH_LENGTH]


def media_word(kind: str) -> str | None:
    """`image`, `audio`, `video` or `file` for the type of a content part that is one of these, else None."""
    return _WORDS.get(kind)


def placeholder(word: str, text: bytes) -> str:
    """The placeholder of one content part; `text` is the part's JSON."""
    facts = _facts(text)
    media = facts.get("media_type") or facts.get("mime_type") or _media_of_format(word, facts.get("format"))
    where, data = _first(facts, _WHERE), _first(facts, _DATA)
    inline = _ANY_DATA_URL.match(where or "") or _ANY_DATA_URL.match(data or "")
    if inline is not None:
        media, where, data = inline[1] or media, None, inline[3]
    name = facts.get("filename") or facts.get("name") or facts.get("title")
    said = [name] if name and word == "file" else []
    hashed = ""
    if data:
        hashed = short_hash(data)
        said += [] if said else [f"base64:{_size(data)}"]
    elif where and where.startswith("sha256:"):
        hashed = where.removeprefix("sha256:")[:HASH_LENGTH]
    elif where:
        said.append(f"{_scheme(where, facts)}:{where}")
    elif not said:
        hashed = short_hash(text)
    said += [media or "", _duration(facts.get("duration_sec")), f"hash={hashed}" if hashed else ""]
    return f"[{word}: {_one_line(' '.join(filter(None, said)))}]"


def unknown_part(kind: str, text: bytes) -> str:
    """The placeholder of a part whose type says nothing to us."""
    return f"[part: {_one_line(kind)} hash={short_hash(text)}]"


def without_data_urls(text: str) -> str:
    """`text` with a placeholder for every `data:` URL in it that holds base64 of some length."""
    return _DATA_URL.sub(_inline, text) if ";base64," in text else text


def _inline(match: re.Match[str]) -> str:
    media, data = match[1] or "", match[2]
    word = media.partition("/")[0]
    said = [f"base64:{_size(data)}", media, f"hash={short_hash(data)}"]
    return f"[{word if word in {'image', 'audio', 'video'} else 'file'}: {' '.join(filter(None, said))}]"


def _facts(text: bytes) -> dict[str, str]:
    """Scalars of the part and of the object that holds its source, by name."""
    own = members_of(text) or {}
    found = {key: value for key, raw in own.items() if (value := _scalar(raw)) is not None}
    for holder in _HOLDERS:
        if holder not in own:
            continue
        inner = members_of(own[holder])
        if inner is not None:
            found.update((key, value) for key, raw in inner.items() if (value := _scalar(raw)) is not None)
        elif holder in found:
            found.setdefault("url", found[holder])
    return found


def _scalar(raw: bytes) -> str | None:
    text = string_of(raw)
    if text is not None:
        return text
    return raw.decode("ascii", "replace") if raw[:1] in b"-0123456789" else None


def _first(facts: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((facts[name] for name in names if facts.get(name)), None)


def _scheme(where: str, facts: Mapping[str, str]) -> str:
    if facts.get("file_id") == where:
        return "id"
    return "url" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", where) else "path"


def _media_of_format(word: str, form: str | None) -> str | None:
    return f"{word}/{form}" if form and "/" not in form else form


def _size(data: str) -> str:
    size = len(data.rstrip("=")) * 3 // 4
    if size < 1 << 10:
        return f"{size}B"
    return f"{size >> 10}KB" if size < 1 << 20 else f"{size >> 20}MB"


def _duration(seconds: str | None) -> str:
    return f"{seconds}s" if seconds else ""


def _one_line(text: str) -> str:
    return jsontext.plain(_SPACE.sub(" ", text)).strip()
