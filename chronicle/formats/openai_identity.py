"""Session, agent and run that a document or a row of OpenAI messages states (openai_msg.md, "Session id")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chronicle.errors import InputError
from chronicle.formats import jsontext
from chronicle.formats.openai_shapes import REFUSED, ROW, RowProbe, Top, decoded, members_of, probe


def identity(value: Top) -> tuple[str | None, str | None, str | None]:
    """(session id, agent id, run id) that a document states at its top level; of rows those of the first row."""
    if not isinstance(value, Mapping):
        first = members_of(value[0]) if value else {}
        return identity(first) if "step_id" in first or "session_id" in first else (None, None, None)
    if "session_steps" in value:
        rows = _first_element(value["session_steps"])
        if rows is not None:
            return identity([rows])
    session = _first(value, ("session_id", "conversation_id", "thread_id", "id"))
    if session is None and "metadata" in value:
        session = name_of(members_of(value["metadata"]).get("session_id"))
    if session is None:
        session = _first(value, ("custom_id",))
    agent = _first(value, ("agent_id",)) or _meta_source(value) or _first(value, ("agent_model", "llm_model", "model"))
    return session, agent, _first(value, ("run_id", "run_bucket", "job_id"))


def _first(value: Mapping[str, bytes], keys: Sequence[str]) -> str | None:
    for key in keys:
        if key in value:
            found = name_of(value[key])
            if found is not None:
                return found
    return None


def _first_element(text: bytes) -> bytes | None:
    start = len(text) - len(text.lstrip())
    if not text.startswith(b"[", start):
        return None
    try:
        for a, b in jsontext.elements(text, start):
            return text[a:b]
    except InputError:
        pass
    return None


def _meta_source(value: Mapping[str, bytes]) -> str | None:
    """`source` of a row's `meta_json`, which is an object or a string that holds one."""
    if "meta_json" not in value or "step_id" not in value:
        return None
    text = value["meta_json"]
    inner = decoded(text)
    if isinstance(inner, str):
        text = inner.encode("utf-8", "replace")
    return name_of(members_of(text).get("source"))


def name_of(text: bytes | None) -> str | None:
    """A string or number text as a name: not empty, without unpaired surrogates; None for any other value."""
    text = (text or b"").strip()
    if text[:1] == b'"':
        try:
            found = msgspec.json.decode(text)
        except REFUSED:
            try:
                found = jsontext.parse(text)
            except InputError:
                return None
        return (jsontext.plain(found) or None) if isinstance(found, str) else None
    if text[:1].isdigit() or text[:1] == b"-":
        return text.decode("ascii", "replace")
    return None


def row_sessions(rows: Sequence[bytes]) -> list[str | None]:
    """The session id that each row of form A states; None where it states none."""
    found: list[str | None] = []
    for text in rows:
        row = probe(ROW, RowProbe, text)
        found.append(None if row is None else name_of(bytes(row.session_id)))
    return found
