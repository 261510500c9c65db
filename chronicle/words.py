r"""Words in the text of the tables (pure): what `find` looks for, in cells that hold JSON as its source wrote it.

A cell matches when it holds every word of the search, whole and in any order; case does not count. A word is what stands between
white space, quotes and backslashes. It is whole where no letter or digit stands beside it; escapes do not hide it: `\nword` and
`\u201cword` hold it. Beside what is no ASCII letter or digit nothing is asked, for many scripts write no spaces.

Whoever narrows the cells down first must not lose one: `in_cell` and `index_query` say how.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from chronicle.errors import UsageError

_BETWEEN = re.compile(r'[\s"\\]+')
_UNICODE_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SLASH = re.compile(r"\\+/")
_PLAIN = re.compile(r"[a-z0-9]+")
_OTHER = re.compile(r"[^\x00-\x7f]+")
_TOKEN = re.compile(r"[^\W_]+")
_BREAKS = re.compile(r"(?:\\+[nrt]|\s)+")
_SHORT_ESCAPES = "nrtbf"
_LONGEST_TOKEN = 34
"""An index drops tokens of 40 bytes and more; five of them may be an escape."""
_AROUND = 60
_BESIDE_LETTERS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]")


class Words:
    """The words of one search."""

    def __init__(self, text: str) -> None:
        self._words = list(dict.fromkeys(word for word in _BETWEEN.split(text.lower()) if word))
        if not self._words:
            raise UsageError(f"{text!r} holds no word to look for", hint="name an id, or words of a message")

    def snippet(self, cell: str) -> str | None:
        """The text around the first word in a cell, on one line; None where the cell does not match."""
        text = _unescaped(cell)
        lowered = text.lower()
        places = [_place(lowered, word) for word in self._words]
        if None in places:
            return None
        first = min(place for place in places if place is not None)
        shown = text if len(text) == len(lowered) else lowered
        start, end = max(first - _AROUND, 0), first + len(self._words[0]) + _AROUND
        middle = _BREAKS.sub(" ", shown[start:end]).strip(' "')
        return f"{'…' if start else ''}{middle}{'…' if end < len(shown) else ''}"

    def in_cell(self, column: str) -> str:
        """A condition in SQL that every matching cell of a column fulfils, and few others."""
        parts = []
        for word in self._words:
            parts += [f"contains(lower({column}), '{run}')" for run in _PLAIN.findall(word)]
            parts += [f"(contains(lower({column}), '{run}') OR contains({column}, '\\u'))" for run in _OTHER.findall(word)]
        return " AND ".join(dict.fromkeys(parts)) or f"{column} IS NOT NULL"

    def index_query(self) -> str | None:
        """Words for a full-text index, one of which every matching cell holds as a token; None where no index can tell.

        An index cuts the text at what is no letter or digit, so the end of an escape is a part of the token behind it.
        """
        tokens = [token for word in self._words for token in _TOKEN.findall(word) if token.isascii()]
        known = [token for token in tokens if len(token) <= _LONGEST_TOKEN]
        if not known:
            return None
        longest = max(known, key=len)
        return " ".join(f"{escape}{longest}" for escape in ("", *_SHORT_ESCAPES, *_separators()))


@cache
def _separators() -> tuple[str, ...]:
    r"""`uXXXX` of every character that separates words: before one it is no part of it."""
    return tuple(f"u{code:04x}" for code in range(0x10000) if not _is_letter(chr(code)))


def _place(text: str, word: str) -> int | None:
    """Where a word stands in a text, whole; both in lower case."""
    at = text.find(word)
    while at >= 0:
        if _begins(text, at) and _ends(text, at + len(word)):
            return at
        at = text.find(word, at + 1)
    return None


def _begins(text: str, at: int) -> bool:
    if not at or not _is_plain(text[at]) or not _is_letter(text[at - 1]):
        return True
    return text[at - 1] in _SHORT_ESCAPES and text[at - 2 : at - 1] == "\\"


def _ends(text: str, at: int) -> bool:
    return at >= len(text) or not _is_plain(text[at - 1]) or not _is_letter(text[at])


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _is_letter(character: str) -> bool:
    """A letter, a digit, or what an index may take for a part of a word: most marks, and what is no character."""
    if character.isascii() or character.isalnum():
        return character.isalnum()
    kind = unicodedata.category(character)
    if kind[0] == "M":
        return not _BESIDE_LETTERS.match(character)
    return kind == "Cn" or "\ud800" <= character < "\udc00"


def _unescaped(cell: str) -> str:
    r"""The text with `\uXXXX` as characters, at whatever depth JSON stands in JSON; escapes of ASCII letters stay."""
    if "\\" not in cell:
        return cell
    if "\\u" in cell:
        cell = _PAIR.sub(_joined, _UNICODE_ESCAPE.sub(_character, cell))
    return _SLASH.sub("/", cell)


def _character(match: re.Match[str]) -> str:
    found = chr(int(match[1], 16))
    return match[0] if any(map(_is_plain, found.lower())) else found


def _joined(match: re.Match[str]) -> str:
    return match[0].encode("utf-16", "surrogatepass").decode("utf-16")
