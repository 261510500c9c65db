"""JSON texts of cases: members are written as they are given, so that every spelling is the case's own."""

from __future__ import annotations

AGENT = '{"name":"wrench","version":"0.9"}'

# Order of members as the writers have it; files of cases keep it, but for those that are about the order.
_STEP = (
    "step_id", "timestamp", "source", "message", "model_name", "reasoning_effort", "reasoning_content", "tool_calls",
    "observation", "metrics", "extra", "llm_call_count", "is_copied_context",
)  # fmt: skip
_ROOT = (
    "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics", "continued_trajectory_ref",
    "extra", "subagent_trajectories",
)  # fmt: skip


def obj(**members: str | None) -> str:
    """An object of members given as JSON texts; None leaves a member out."""
    return "{" + ",".join(f'"{name}":{text}' for name, text in members.items() if text is not None) + "}"


def arr(*elements: str) -> str:
    """An array of JSON texts."""
    return "[" + ",".join(elements) + "]"


def ordered(names: tuple[str, ...], members: dict[str, str | None]) -> str:
    """An object with its known members in order, the others after them."""
    known = {name: members[name] for name in names if name in members}
    return obj(**{**known, **members})


def step(**changes: str | None) -> str:
    """An ATIF step of an agent, with members replaced, added or (None) left out."""
    return ordered(_STEP, {"step_id": "1", "source": '"agent"', "message": '"turn the bolt"', **changes})


def atif(*steps: str, **changes: str | None) -> str:
    """An ATIF trajectory with the steps, with members replaced, added or (None) left out."""
    root = {"schema_version": '"ATIF-v1.7"', "session_id": '"s-1"', "agent": AGENT, "steps": arr(*steps)}
    return ordered(_ROOT, {**root, **changes})


def one_step(**changes: str | None) -> bytes:
    """A file with an ATIF trajectory of one step."""
    return atif(step(**changes)).encode()


def root(**changes: str | None) -> bytes:
    """A file with an ATIF trajectory of one plain step and other members in its root."""
    return atif(step(), **changes).encode()


def call(**changes: str | None) -> str:
    """An ATIF tool call."""
    return obj(**{"tool_call_id": '"t1"', "function_name": '"ls"', "arguments": '{"path":"."}', **changes})


def one_call(*, more: str | None = None, **changes: str | None) -> bytes:
    """A file with an ATIF trajectory of one step with one call; `more` is the step's observation."""
    return one_step(tool_calls=arr(call(**changes)), observation=more)
