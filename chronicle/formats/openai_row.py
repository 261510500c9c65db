"""One row of form A: what in it is history, what is new, and what it states about its call (openai_msg.md A)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from chronicle.errors import InputError
from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Number, Object
from chronicle.formats.openai_message import merged, read, result_marks, role_of
from chronicle.formats.openai_story import NOWHERE, Slot
from chronicle.formats.story import Turn

_STEP = re.compile(r"[1-9][0-9]{0,8}")
_PLACE = re.compile(r"-?[0-9]{1,18}")


class Row:
    """One row on its way: what is history, what is new, where the request and the output are."""

    def __init__(self, row: Object, known: list[tuple[bytes, Slot]], *, first: bool) -> None:
        self.row, self.first = row, first
        member = dict(row)
        listed, response = member.get("messages"), member.get("response")
        self.messages: list[Json] = []
        self.has_messages = isinstance(listed, list) and not isinstance(listed, Object)
        if isinstance(listed, list) and not isinstance(listed, Object):
            self.messages += listed
        self.answer = response if isinstance(response, Object) else None
        self.step, self.model = step_of(row), model_of(member)
        self.keys = [key_of(message) for message in self.messages]
        self.slots, self.prefix = _history(self.keys, known)
        self._was_known = [slot != NOWHERE for slot in self.slots]
        roles = [role_of(message) for message in self.messages]
        self.request_at = max((i for i, role in enumerate(roles) if role == "user"), default=None)
        self.output_at = None if _says(self.answer) else self._output(roles)
        ends = (self.request_at, self.output_at, len(roles))
        self.boundary = next(end for end in ends if end is not None)
        self.reset = False
        self.request: int | None = None
        self.response: int | None = None
        self.waiting: list[tuple[int, Object]] = []
        self.same_as_response: list[int] = []
        self.shapes: dict[str, list[str]] = {}
        self._answer_key = key_of(self.answer) if _says(self.answer) else None

    def _output(self, roles: Sequence[str]) -> int | None:
        """The last assistant message after the request that says something, unless it is history."""
        after = -1 if self.request_at is None else self.request_at
        for i in range(len(roles) - 1, after, -1):
            if roles[i] == "assistant" and _says(self.messages[i]):
                return None if self._was_known[i] and i < len(roles) - 1 else i
        return None

    def is_history(self, i: int) -> bool:
        """Whether a message was given before, and not asked once more."""
        return self._was_known[i] and i < len(self.messages) - 1

    def is_response(self, i: int) -> bool:
        """Whether a message says the same as the row's response."""
        return self.keys[i] == self._answer_key

    def note(self, message: Json, where: str, *, result: bool = False) -> None:
        """Note the shape of a message that makes no turn of its own here."""
        if not isinstance(message, Object):
            return
        tool = result or role_of(message) in ("tool", "function")
        marks = result_marks(message) if tool else read(message).marks
        self.shapes.update((f"{where}/{key}", words) for key, words in marks.items())


def _history(keys: Sequence[bytes], known: Sequence[tuple[bytes, Slot]]) -> tuple[list[Slot], int]:
    """Slots of the messages that are known, and how many of the first are the same in the same places.

    After the common prefix messages are found again in their order, so history that lost something in the middle
    or got another system prompt is still history.
    """
    prefix = 0
    while prefix < min(len(keys), len(known)) and keys[prefix] == known[prefix][0]:
        prefix += 1
    places: dict[bytes, list[int]] = {}
    for at in range(prefix, len(known)):
        places.setdefault(known[at][0], []).append(at)
    slots = [slot for _, slot in known[:prefix]]
    cursor = prefix
    for key in keys[prefix:]:
        found = places.get(key, [])
        at = bisect_left(found, cursor)
        slots.append(known[found[at]][1] if at < len(found) else NOWHERE)
        cursor = found[at] + 1 if at < len(found) else cursor
    return slots, prefix


def key_of(message: Json) -> bytes:
    """What makes two messages the same: role, content, calls, answered call; not how absence is spelled."""
    if not isinstance(message, Object):
        return jsontext.dump(message)
    member = dict(message)
    content, calls = member.get("content"), member.get("tool_calls")
    said = ["" if content is None else content, member.get("refusal"), calls or None, member.get("function_call")]
    return jsontext.dump([member.get("role", "assistant"), *said, member.get("tool_call_id"), member.get("name")])


def _says(message: Json) -> bool:
    """Whether a message has content, a refusal or calls."""
    if not isinstance(message, Object):
        return False
    member = dict(message)
    return any(member.get(key) not in (None, "", []) for key in ("content", "refusal", "tool_calls", "function_call"))


def step_of(row: Json) -> int | None:
    """The step id where it is a positive integer of a size that a table holds."""
    value = row.get("step_id") if isinstance(row, Object) else None
    return int(value.text) if isinstance(value, Number) and _STEP.fullmatch(value.text) else None


def place_of(row: Object) -> int | None:
    """Where a row stands among others: its step id where it is an integer, of whatever sign."""
    value = row.get("step_id")
    return int(value.text) if isinstance(value, Number) and _PLACE.fullmatch(value.text) else None


def model_of(member: Mapping[str, Json]) -> str | None:
    """The model that a row names."""
    for key in ("agent_model", "llm_model"):
        value = member.get(key)
        if isinstance(value, str) and value:
            return jsontext.plain(value)
    return None


def row_turn(turn: Turn, row: Object) -> None:
    """Metrics and latencies of a row on the turn that it made."""
    state = _object(_object(row.get("meta_json")).get("env_state"))
    metrics = Object((key, value) for key, value in row if "reward" in key and isinstance(value, Number))
    for key, value in state:
        if isinstance(value, Number) and any(word in key for word in ("token", "latency", "ttft")):
            metrics.append(("latency_ms" if key == "total_latency_ms" else key, value))
    if metrics:
        turn.metrics = merged(turn.metrics, metrics)
    turn.latency_ms = _integer(state.get("total_latency_ms"))
    turn.ttft_ms = _integer(state.get("ttft_ms"))


def _object(value: Json) -> Object:
    """An object, also one that stands in a string; empty for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = jsontext.parse(value)
        except InputError:
            return Object()
    return value if isinstance(value, Object) else Object()


def _integer(value: Json) -> int | None:
    return int(value.text) if isinstance(value, Number) and re.fullmatch(r"-?[0-9]{1,15}", value.text) else None


def instant(value: Json) -> str | None:
    """A row's time as text: a string as it is, Unix seconds (from 1e11 on milliseconds) as RFC 3339."""
    if isinstance(value, str):
        return value if value and value == jsontext.plain(value) else None
    if not isinstance(value, Number) or not re.fullmatch(r"[0-9]{1,14}(\.[0-9]{1,12})?", value.text):
        return None
    whole, _, part = value.text.partition(".")
    seconds = int(whole)
    if seconds >= 10**11:
        seconds, millis = divmod(seconds, 1000)
        part = f"{millis:03d}"
    if seconds >= 253_402_300_800:  # the year 10000
        return None
    fraction = part.rstrip("0")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{'.' if fraction else ''}{fraction}Z"
