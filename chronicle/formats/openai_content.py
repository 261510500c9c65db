"""Content of a message, both ways: images and audio are ATIF parts in a story, inline data is only its digest.

The mark `content` (`openai_message`) lists the indexes of parts that keep their text or address in `value`.
"""

from __future__ import annotations

import binascii
import contextlib
import re

from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.story import JsonText

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_MEDIA_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
}  # fmt: skip
_AUDIO = {"mp3": "mpeg", "m4a": "mp4"}
_PLAIN_PARTS = ("text", "refusal", "file")  # no set: a type may be an object, and has no hash then


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
    import hashlib  # loads OpenSSL, for the few that need it

    data = text.encode("utf-8", "surrogatepass")
    if base64:
        # What is no base64 is told apart by the digest of its own text.
        with contextlib.suppress(binascii.Error):
            data = binascii.a2b_base64(data)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


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


def text_of(msg: JsonText) -> str:
    """All text of a turn's message: the string, or its text parts one after the other."""
    content = jsontext.parse(msg)
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or isinstance(content, Object):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Object))
    return "\n".join(text for text in texts if isinstance(text, str))
