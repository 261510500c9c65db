"""Odd documents for the format tests: strategies that build JSON text, and a comparison by exact value."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from chronicle.formats import jsontext, residual

ODD_TEXTS = (
    "null", "true", "0", "-0", "1.0", "1e2", "1E+2", "-1.50", "9223372036854775808", "123456789012345678901234567890",
    "1e400", "NaN", "-Infinity", '""', '"x"', '"\\u00e9\\/"', '"\\ud800"', '"a\\udc00b"', '"\\ud83d\\ude00"',
    '"2026-01-02T03:04:05Z"', "[]", "{}", "[1,2]", '{"a":1,"a":2}', '{"z":{"y":[1.10]},"b":null}', '"5"',
    '[{"type":"text","text":"hi"}]',
)  # fmt: skip
"""Values that a member of the wrong kind may hold."""

ODD_KEYS = ('"x"', '""', '"a/b"', '"c~d"', '"\\u0061gent"', '"__proto__"', '"_storyline"', '"\\ud800"')


def differences(a: bytes | str, b: bytes | str) -> dict[str, Any]:
    """What differs between two JSON texts as exact values: number spelling, order and repeated keys count."""
    return residual.diff(jsontext.parse(a), jsontext.parse(b))


odd = st.sampled_from(ODD_TEXTS)
words = st.text(st.characters(codec="utf-8"), max_size=6).map(json.dumps) | st.sampled_from(['"a"', '"b"', '"user"', '"agent"'])


@st.composite
def objects(draw: st.DrawFn, **members: st.SearchStrategy[str]) -> str:
    """JSON text of an object: any of the members, in any order and spacing, rarely odd, repeated or unknown."""
    names = draw(st.permutations(sorted(members)))
    pairs = []
    for name in names:
        roll = draw(st.integers(0, 19))
        if roll >= 4:
            pairs.append((f'"{name}"', draw(members[name])))
        elif roll == 0:
            pairs.append((f'"{name}"', draw(odd)))
        elif roll == 1:
            pairs += [(f'"{name}"', draw(members[name])), (f'"{name}"', draw(members[name]))]
    if draw(st.integers(0, 9)) == 0:
        pairs.insert(draw(st.integers(0, len(pairs))), (draw(st.sampled_from(ODD_KEYS)), draw(odd)))
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (",\n  ", ": "), (" ,", " :")]))
    inside = comma.join(f"{name}{colon}{value}" for name, value in pairs)
    return f"{{\n  {inside}\n}}" if "\n" in comma else f"{{{inside}}}"


def arrays(items: st.SearchStrategy[str], most: int = 3) -> st.SearchStrategy[str]:
    """JSON text of an array."""
    return st.lists(items, max_size=most).map(lambda texts: f"[{', '.join(texts)}]")


integers = st.integers(-2, 5).map(str)
results = arrays(objects(source_call_id=words, content=words))
observations = objects(results=results)
metrics = objects(prompt_tokens=integers, latency_ms=integers | odd, ttft_ms=odd, elapsed_ms=integers)
extras = objects(duration_ms=integers | odd, note=words)
sources = st.sampled_from(['"user"', '"agent"', '"system"', '"tool"'])
stamps = st.sampled_from(['"2026-01-02T03:04:05Z"', '"2026-01-02"', '"2016-12-31T23:59:60Z"', '"soon"'])
booleans = st.sampled_from(["true", "false"])

atif_calls = objects(tool_call_id=words, function_name=words, arguments=odd, extra=extras)
atif_steps = objects(
    step_id=integers, timestamp=stamps, source=sources, message=words, model_name=words, reasoning_effort=words,
    reasoning_content=words, tool_calls=arrays(atif_calls | odd), observation=observations, metrics=metrics,
    extra=extras, llm_call_count=integers, is_copied_context=booleans,
)  # fmt: skip
atif_agents = objects(name=words, version=words, model_name=words, tool_definitions=odd, extra=extras)


def _trajectories(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return objects(
        schema_version=st.just('"ATIF-v1.7"'), session_id=words, trajectory_id=words, agent=atif_agents,
        steps=arrays(atif_steps | odd, 4), notes=words, final_metrics=metrics, continued_trajectory_ref=words,
        extra=extras, subagent_trajectories=arrays(inner, 2),
    )  # fmt: skip


atif_documents = _trajectories(_trajectories(_trajectories(st.just("{}"))) | odd)
"""Text of an object that may be called ATIF."""


def _either(*names: str) -> st.SearchStrategy[str]:
    return st.sampled_from(names)


@st.composite
def _renamed(draw: st.DrawFn, text: str, names: dict[str, tuple[str, ...]]) -> str:
    for short, long in names.items():
        text = text.replace(f'"{short}":', f'"{draw(_either(short, *long))}":', 1)
    return text


@st.composite
def storyline_documents(draw: st.DrawFn) -> str:
    """Text of a Storyline document that must not be rejected, with odd optional members."""

    def required(more: str, *fixed: str) -> str:
        inside = more.strip()[1:-1].strip()
        return "{" + ", ".join([*fixed, *([inside] if inside else [])]) + "}"

    def turn(i: int) -> str:
        calls = [
            required(
                draw(objects(duration_ms=integers, extra=extras)), f'"tcid":{draw(words)}', f'"fn":{draw(words)}', '"args":[1.0]'
            )
            for _ in range(draw(st.integers(0, 2)))
        ]
        optional = draw(
            objects(
                ts=stamps, model=words, effort=words, reason=words, observation=observations, metrics=metrics,
                nllm=integers, copied=booleans, extra=extras, kind=words, latency_ms=integers, ttft_ms=odd,
            )
        )  # fmt: skip
        text = required(
            optional, f'"id": {i}', f'"src":{draw(sources)}', f'"msg":{draw(words | odd)}', f'"tool_calls":[{",".join(calls)}]'
        )
        aliases = {"src": ("source",), "msg": ("message",), "ts": ("timestamp",), "tcid": ("tool_call_id",)}
        return draw(_renamed(text, aliases))

    ids = draw(st.lists(st.integers(-3, 9), unique=True, max_size=3))
    agent = required(draw(objects(name=words, ver=words, model=words, tools=odd, extra=extras)), '"id":"a"')
    optional = draw(
        objects(
            run=words, notes=words, final_metrics=metrics, continued_trajectory_ref=words, extra=extras,
            children=arrays(words), parent=objects(psid=words, scid=words, ptid=integers, rel=words),
        )
    )  # fmt: skip
    spec = draw(st.sampled_from(['"spec":"storyline/v1"', '"schema_version" : "storyline/v1"', '"spec":"other"']))
    turns = ",".join(turn(i) for i in ids)
    text = required(optional, spec, '"session":"s"', f'"agent":{agent}', f'"turns":[ {turns}]')
    return draw(_renamed(text, {"session": ("session_id", "story_id"), "run": ("run_id", "trajectory_id")}))
