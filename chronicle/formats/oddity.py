"""What is odd about the text of a document, whatever its format: JSON that only a lenient reader takes (design 4.2). Pure."""

from __future__ import annotations

import re
from collections import Counter

from chronicle.formats.document import Document

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<unpaired>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a string; two that make a pair together."""

_WORD = re.compile(rb'"[^"\\]*+(?>\\.[^"\\]*+)*+"|(?P<word>NaN|Infinity)', re.DOTALL)
"""A string, or a number that JSON does not have."""


def oddities(document: Document) -> Counter[str]:
    """Lints on the text: `unpaired-surrogate` and `not-a-number`, each with how many there are.

    Parts of a strict document are not looked at: most documents are strict, and most bytes lie in parts.
    """
    parts = [] if document.strict else [part.text for part in document.parts]
    found: Counter[str] = Counter()
    for text in (document.opening, *parts, document.closing):
        if b"\\ud" in text or b"\\uD" in text:
            found["unpaired-surrogate"] += sum(match["unpaired"] is not None for match in _ESCAPE.finditer(text))
        if b"NaN" in text or b"Infinity" in text:
            found["not-a-number"] += sum(match["word"] is not None for match in _WORD.finditer(text))
    return +found
