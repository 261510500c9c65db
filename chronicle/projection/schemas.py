"""Arrow schemas of the three tables (design 5.2, physical.md 2.4). No schema metadata, no field metadata.

Every JSON column is plain utf8 with the source's own text; `residual` is the last column of each.
"""

from __future__ import annotations

import pyarrow as pa

from chronicle.projection.columns import TIMESTAMP

STORYLINE_VERSION = "storyline/v1"

_KINDS = {
    "t": pa.string(),
    "i": pa.int64(),
    "b": pa.bool_(),
    "z": TIMESTAMP,
}


def _schema(columns: str) -> pa.Schema:
    """Fields from `name:kind` words; an upper-case kind is not nullable."""
    fields = []
    for word in columns.split():
        name, kind = word.split(":")
        fields.append(pa.field(name, _KINDS[kind.lower()], nullable=kind.islower()))
    return pa.schema(fields)


RUNS: pa.Schema = _schema("""
    schema_version:T origin:t document_id:T storage_ordinal:I trajectory_id_explicit:B run_id:t attempt_id:t session_id:T
    agent_id:T agent_name:t agent_version:t agent_model_name:t agent_tool_definitions:t agent_extra:t parent:t
    child_session_ids:t notes:t final_metrics:t continued_trajectory_ref:t extra:t meta:t unknown_fields:t
    unknown_key_counts:t task:t started_at:z finished_at:z prompt:t residual:t
""")
"""One row a story; `document_id` is the story id, `storage_ordinal` where its facts begin."""

STEPS: pa.Schema = _schema("""
    document_id:T run_id:t session_id:T step_id:I turn_ordinal:I kind:t effective_kind:T timestamp:z source:T
    message_kind:T message_value:T reasoning_content:t reasoning_effort_kind:t reasoning_effort_value:t metrics:t
    model_name:t llm_call_count:i is_copied_context:b latency:i ttft:i had_tool_calls:B had_observation:B observation:t
    extra:t env:t finished_at:z prompt:t residual:t
""")
"""One row a turn, `turn_ordinal` from 0 in every story; `latency` and `ttft` in milliseconds."""

TOOL_CALLS: pa.Schema = _schema("""
    document_id:T run_id:t session_id:T step_id:I call_index:I tool_call_id:T function_name:T arguments:T result:t
    results:T duration:i extra:t kind:t response:t residual:t
""")
"""One row a tool call, `call_index` from 0 in every step; `duration` in milliseconds."""

SCHEMAS: dict[str, pa.Schema] = {"runs": RUNS, "steps": STEPS, "tool_calls": TOOL_CALLS}

ENCODE_RUNS = ("agent_tool_definitions", "agent_extra", "notes", "final_metrics", "extra", "residual")
ENCODE_STEPS = ("message_value", "reasoning_content", "observation", "metrics", "extra", "residual")
ENCODE_TOOL_CALLS = ("arguments", "results", "extra", "residual")
ENCODE: dict[str, tuple[str, ...]] = {"runs": ENCODE_RUNS, "steps": ENCODE_STEPS, "tool_calls": ENCODE_TOOL_CALLS}
"""Wide text columns of each table, to be compressed with zstd."""
