"""Counts in sentences for people."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 file`, `2 files`; `plural` where it is not the noun with an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def be(count: int) -> str:
    """`is` or `are`, for so many."""
    return "is" if count == 1 else "are"
