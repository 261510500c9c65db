"""Which results of a turn's observation belong to which of its tool calls (physical.md 2.4) (pure)."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from chronicle.formats import jsontext
from chronicle.formats.story import JsonText, Turn

_Text: TypeAlias = "bytes | msgspec.Raw"
_Entry: TypeAlias = "tuple[Any, _Text]"
"""The id of the call that a result names, and its source text."""


class _Observation(msgspec.Struct):
    results: list[msgspec.Raw] = []


class _Result(msgspec.Struct):
    source_call_id: Any = msgspec.UNSET
    tool_call_id: Any = None

    def link(self) -> Any:
        # Where `source_call_id` is there it decides, even if it is null: the peer reads it so.
        return self.tool_call_id if self.source_call_id is msgspec.UNSET else self.source_call_id


_observation = msgspec.json.Decoder(_Observation).decode
_result = msgspec.json.Decoder(_Result).decode


def results_of(turn: Turn) -> list[JsonText]:
    """For each call of a turn the JSON array of the observation's results that name it, as source text."""
    calls = turn.tool_calls or []
    if not turn.observation or not turn.observation.startswith(b"{"):
        return [b"[]"] * len(calls)
    named: dict[str, list[_Text]] = {call.tcid: [] for call in calls}
    for call_id, text in _entries(turn.observation):
        if isinstance(call_id, str) and call_id in named:
            named[call_id].append(text)
    return [_array(named[call.tcid]) for call in calls]


def _array(texts: list[_Text]) -> JsonText:
    if len(texts) == 1:  # nearly always, and the one copy of a large text is enough
        return b"".join((b"[", texts[0], b"]"))
    return b"[%b]" % b",".join(texts)


def _entries(observation: JsonText) -> list[_Entry]:
    """The results of an observation, in order."""
    try:
        found: list[_Entry] = []
        for text in _observation(observation).results:
            found.append((_result(text).link(), text))
        return found
    except (msgspec.DecodeError, RecursionError):
        # What msgspec refuses: results of other types, and JSON that only a lenient reader takes.
        return _lenient(observation)


def _lenient(observation: JsonText) -> list[_Entry]:
    found: list[_Entry] = []
    for key, start, _ in jsontext.members(observation, 0):
        if key != "results":
            continue
        found = []  # of repeated keys the last counts
        if observation[start : start + 1] != b"[":
            continue
        for first, last in jsontext.elements(observation, start):
            text = observation[first:last]
            if text.startswith(b"{"):
                found.append((_link(text), text))
    return found


def _link(text: bytes) -> str | None:
    ids = {key: _string(text[start:end]) for key, start, end in jsontext.members(text, 0) if key.endswith("_call_id")}
    return ids["source_call_id"] if "source_call_id" in ids else ids.get("tool_call_id")


def _string(text: bytes) -> str | None:
    if not text.startswith(b'"'):
        return None
    value = jsontext.parse(text)
    return jsontext.plain(value) if isinstance(value, str) else None
