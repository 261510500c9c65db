"""Turns of one story from messages, and the slots by which a writer finds every message again.

A *slot* is where a message went: (turn, 0) for the message of a turn, (turn, k) for its k-th tool result. In a
residual slots are written as `3` (turn 3, from 1) and `3.1` (its first result); `2-5.1` is the run from one slot to
another, with all turns and results between; `` stands for a message that is in no turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from chronicle.formats import jsontext
from chronicle.formats.jsontext import Json, Object
from chronicle.formats.openai_content import read_content
from chronicle.formats.openai_message import (
    DERIVED,
    Marks,
    Reading,
    answered_id,
    results_of,
    role_of,
    write_message,
    write_result,
)
from chronicle.formats.story import StorylineDocument, ToolCall, Turn

Slot: TypeAlias = tuple[int, int]
"""(index of the turn, 0 for its message or k for its k-th result)."""

NOWHERE: Slot = (-1, 0)


class Builder:
    """Collects the turns of one story in the order of its messages. Each message costs the same, whatever came before."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.lints: Counter[str] = Counter()
        self._results: list[list[Object]] = []
        self._seen: dict[tuple[int, str | None, bytes], Slot] = {}
        self._tcids: set[str] = set()
        self._repeats: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._by_id: dict[str, list[tuple[int, str]]] = {}
        self._by_name: dict[str, list[tuple[int, str]]] = {}
        self._last_agent: int | None = None

    def add(self, reading: Reading) -> int:
        """A new turn; returns its index."""
        self.lints.update(reading.lints)
        index = len(self.turns)
        turn = Turn(id=index + 1, src=reading.src, msg=reading.msg, ts=reading.ts, reason=reading.reason)
        turn.model, turn.metrics = reading.model, reading.metrics
        if reading.weight is not None:
            turn.extra = b'{"weight":' + reading.weight + b"}"
        self.turns.append(turn)
        self._results.append([])
        if reading.src == "agent":
            self._last_agent = index
        if reading.calls is not None:
            turn.tool_calls = []
            for i, call in enumerate(reading.calls):
                stated = f"call-{index + 1}-{i + 1}" if call.id is None else call.id
                turn.tool_calls.append(ToolCall(tcid=self._distinct(stated), fn=call.fn, args=call.args))
            for call, made in reversed(list(zip(reading.calls, turn.tool_calls, strict=True))):
                self._by_id.setdefault(call.id or made.tcid, []).append((index, made.tcid))
                self._by_name.setdefault(call.fn, []).append((index, made.tcid))
        return index

    def answer(self, message: Object) -> Slot:
        """A tool or function message: a result of the nearest earlier call that it answers, else of the last agent turn."""
        ident = answered_id(message)
        holder = self._open_call(self._by_id.get(ident, ())) if ident is not None else None
        name = message.get("name")
        if holder is None and role_of(message) == "function" and isinstance(name, str):
            holder = self._open_call(self._by_name.get(jsontext.plain(name), ()))
        if holder is not None:
            self._answered.add(holder[1])
            return self.result(holder[0], holder[1], message)
        self.lints["repeated-tool-message" if ident in self._by_id else "orphan-tool-message"] += 1
        if self._last_agent is None:
            self.add(Reading("system", b'""', None, None, None, None, None, None, {}, []))
            return self.result(len(self.turns) - 1, ident, message)
        return self.result(self._last_agent, ident, message)

    def derive(self, turn: Turn, tcid: str, fn: str) -> None:
        """Give a turn a call that its text states and the message does not."""
        turn.tool_calls = [ToolCall(tcid=self._distinct(tcid), fn=fn, args=b"{}", extra=DERIVED)]

    def latest_call(self, message: Object) -> tuple[int, str] | None:
        """(turn, tcid) of the latest call that a tool or function message can mean, answered or not."""
        ident, name = answered_id(message), message.get("name")
        found: list[tuple[int, str]] | None = None
        if ident is not None:
            found = self._by_id.get(ident)
        elif role_of(message) == "function" and isinstance(name, str):
            found = self._by_name.get(jsontext.plain(name))
        return found[-1] if found else None

    def result(self, turn: int, call: str | None, message: Object, *, collapse: bool = False) -> Slot:
        """Put a result on a turn. `collapse` gives the slot of an exact duplicate instead."""
        lints: list[str] = []
        made = Object([] if call is None else [("source_call_id", call)])
        if any(key == "content" for key, _ in message):
            made.append(("content", read_content(message.get("content"), {}, lints)))
        self.lints.update(lints)
        if collapse:
            key = (turn, call, jsontext.dump(made))
            if key in self._seen:
                return self._seen[key]
            self._seen[key] = (turn, len(self._results[turn]) + 1)
        self._results[turn].append(made)
        return turn, len(self._results[turn])

    def finish(self) -> list[Turn]:
        """The turns with their observations."""
        for turn, results in zip(self.turns, self._results, strict=True):
            if results:
                turn.observation = jsontext.dump(Object([("results", list(results))]))
        return self.turns

    def _open_call(self, calls: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
        """The nearest call without a result; those that have one are dropped, so nothing is looked at twice."""
        while calls and calls[-1][1] in self._answered:
            if isinstance(calls, list):
                calls.pop()
        return calls[-1] if calls else None

    def _distinct(self, stated: str) -> str:
        if stated not in self._tcids:
            self._tcids.add(stated)
            return stated
        self.lints["repeated-tool-call-id"] += 1
        while True:
            self._repeats[stated] += 1
            made = f"{stated}#{self._repeats[stated] + 1}"
            if made not in self._tcids:
                self._tcids.add(made)
                return made


# -- slots --------------------------------------------------------------------------------------------------------


class Slots:
    """The messages of a story in canonical order: every turn's message, then its results."""

    def __init__(self, story: StorylineDocument) -> None:
        self._turns = story.turns
        self._results = [results_of(turn) for turn in story.turns]
        self.all: list[Slot] = [(t, k) for t, results in enumerate(self._results) for k in range(len(results) + 1)]
        self._at = {slot: i for i, slot in enumerate(self.all)}

    def default(self) -> list[Slot]:
        """What a writer emits where no mark says otherwise: results that name no call have no place in messages."""
        return [(t, k) for t, k in self.all if k == 0 or self._names_call(self._results[t][k - 1])]

    def message(self, slot: Slot, marks: Marks) -> Json:
        """The canonical message at a slot; null where there is none."""
        turn, k = slot
        if slot not in self._at:
            return None
        return write_result(self._results[turn][k - 1], marks) if k else write_message(self._turns[turn], marks)

    def encode(self, slots: Iterable[Slot]) -> list[str]:
        """Slots as short strings, with runs drawn together."""
        out: list[str] = []
        run: list[Slot] = []
        for slot in slots:
            at = self._at.get(slot)
            if run and at is not None and self._at[run[-1]] + 1 == at:
                run.append(slot)
                continue
            out += _run(run)
            run = [] if at is None else [slot]
            if at is None:
                out.append("")
        return out + _run(run)

    def decode(self, words: Iterable[str]) -> list[Slot]:
        """The inverse of `encode`; what names no slot of the story becomes NOWHERE."""
        out: list[Slot] = []
        for word in words:
            first, dash, last = word.partition("-")
            a, b = self._at.get(_slot(first)), self._at.get(_slot(last if dash else first))
            out += self.all[a : b + 1] if a is not None and b is not None else [NOWHERE]
        return out

    @staticmethod
    def _names_call(result: Json) -> bool:
        return isinstance(result, Object) and isinstance(result.get("source_call_id"), str)


def _run(slots: Sequence[Slot]) -> list[str]:
    if not slots:
        return []
    words = [f"{t + 1}.{k}" if k else str(t + 1) for t, k in (slots[0], slots[-1])]
    return words[:1] if len(slots) == 1 else ["-".join(words)]


def _slot(word: str) -> Slot:
    turn, _, result = word.partition(".")
    return (int(turn) - 1 if turn.isdecimal() else -1, int(result) if result.isdecimal() else 0)


def marks_at(marks: Mapping[str, list[str]], pointer: str) -> dict[str, list[str]]:
    """The marks of the message at `pointer`, by member."""
    found = {}
    for member in ("content", "reasoning_content", "tool_calls"):
        words = marks.get(f"#{pointer}/{member}")
        if words is not None:
            found[member] = words
    return found
