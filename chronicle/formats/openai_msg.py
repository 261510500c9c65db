"""OpenAI messages data and Storyline, both ways (openai_msg.md)."""

from __future__ import annotations

from chronicle.formats.openai_shapes import Form, identity, recognise, row_sessions, unsupported

__all__ = ["Form", "identity", "recognise", "row_sessions", "unsupported"]
