"""A tour of the tables from Python, cell by cell. Needs a lake with a dataset `mine`, as the README makes it.

python -m infra.samples exports
chronicle ingest exports --lake lake --dataset mine; chronicle rebuild --lake lake --dataset mine
python docs/notebook.py
"""

# %% One state of the tables: it does not change while others ingest and rebuild.
from chronicle.storyline.source import StorylineDataSource

source = StorylineDataSource.open("lake", "mine")
print(source.counts())

# %% SQL, as pandas or Arrow. JSON columns are text; json_number and json_text look into them (docs/questions.md).
tokens = source.sql("""
    SELECT agent_id, sum(json_number(metrics, '/prompt_tokens')) AS prompt_tokens
    FROM steps JOIN runs USING (document_id)
    WHERE is_copied_context IS NOT TRUE
    GROUP BY agent_id ORDER BY prompt_tokens DESC NULLS LAST
""")
print(tokens.to_pandas())

# %% A table or some of its columns, whole ...
steps = source.to_pandas("steps", columns=["document_id", "source", "timestamp"], filter="source = 'agent'")
print(steps.groupby("document_id").size().describe())

# %% ... or as a stream of Arrow record batches, for what does not fit into memory.
characters = sum(len(text) for batch in source.stream("steps", ["message_value"]) for text in batch["message_value"].to_pylist())
print(characters, "characters were said")

# %% The tables are Lance datasets: scanners, filters and indices of Lance work.
calls = source.tool_calls.scanner(columns=["function_name"], filter="function_name LIKE 'read%'").to_table()
print(calls.num_rows, "calls read something")

# %% One story as objects.
story = source.story(source.document_ids()[0])
print(story.session, [turn.src for turn in story.turns])

# %% The state that an earlier full rebuild left, as long as maintenance keeps it; here it is the one above.
again = StorylineDataSource.open("lake", "mine", generation=source.snapshot.table_generation)
print(again.snapshot.generation == source.snapshot.generation)
