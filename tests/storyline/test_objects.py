"""Texts that lie in objects.lance: ours that begin with the marker, and those of stores that the peer wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import lance
import pyarrow as pa
import pytest
from blake3 import blake3

from chronicle.errors import IntegrityError
from chronicle.formats import hub
from chronicle.formats.story import StorylineDocument
from chronicle.storyline.objects import MARKER, Filing, Objects, described
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from tests.peer import needed, peer, query
from tests.storyline.stores import PROJECTION, batches, story, visible

LOOKALIKE = f"{MARKER}u:i:{'0' * 64}:3:YWJj"
"""What the peer would take for a descriptor."""


def marked(number: int, text: str) -> StorylineDocument:
    made = story(number)
    made.notes = text
    made.turns[0].msg = json.dumps(text).encode()
    made.turns[1].reason = text
    return made


def committed(root: str, *stories: StorylineDocument) -> None:
    with StorylineLanceStore(root).writer() as writer:
        writer.replace([each.story_id for each in stories], batches(stories), PROJECTION)


def test_our_own_texts_that_begin_with_the_marker_come_back(tmp_path: Path) -> None:
    root = str(tmp_path)
    long = f"{MARKER}{'x' * 300}é"
    stories = [marked(1, LOOKALIKE), story(2), marked(3, long)]
    committed(root, *stories)
    assert visible(root) == stories
    source = StorylineDataSource.open(root)
    assert len(Objects(root, source.snapshot.objects_version)) == 2  # notes and reasoning of a story are one text
    runs = duckdb.from_arrow(source.runs)
    assert runs.filter("notes IS NOT NULL").order("notes").project("notes").fetchall() == sorted([(LOOKALIKE,), (long,)])
    assert source.steps.to_table(columns=["reasoning_content"], filter="document_id = 'nobody'").num_rows == 0


def test_a_text_is_stored_once_and_stays_when_stories_are_replaced(tmp_path: Path) -> None:
    root = str(tmp_path)
    committed(root, marked(1, LOOKALIKE))
    first = StorylineDataSource.open(root)
    committed(root, marked(2, LOOKALIKE))
    committed(root, marked(1, f"{MARKER}new"), story(2))
    assert [each.notes for each in visible(root)] == [f"{MARKER}new", None]
    assert [each.notes for each in first.stories()] == [LOOKALIKE]  # an older state has its texts too
    assert len(Objects(root, StorylineDataSource.open(root).snapshot.objects_version)) == 2


def test_texts_that_a_dead_writer_filed_do_not_hinder_the_next(tmp_path: Path) -> None:
    root = str(tmp_path)
    committed(root, story(1))
    dead = Filing(root, 1)
    assert len(list(dead.of(batches([marked(9, LOOKALIKE)], each=2)))) == 1
    assert dead.version() == 2
    committed(root, marked(2, LOOKALIKE), marked(3, f"{MARKER}more"))
    assert [each.notes for each in visible(root)] == [None, LOOKALIKE, f"{MARKER}more"]


def test_a_text_that_is_missing_is_named_and_only_its_column_suffers(tmp_path: Path) -> None:
    root = str(tmp_path)
    committed(root, marked(1, LOOKALIKE))
    objects = lance.dataset(f"{root}/objects.lance")
    objects.delete("true")
    pin(root, objects.version)
    source = StorylineDataSource.open(root)
    with pytest.raises(IntegrityError, match=r"the text [0-9a-f]{64} is missing"):
        list(source.stories())
    assert source.steps.count_rows() == 2
    with pytest.raises(IntegrityError, match=r"the text [0-9a-f]{64} is missing; run `chronicle rebuild --full`"):
        list(source.sql("SELECT notes FROM runs").batches())
    assert [batch.to_pylist() for batch in source.sql("SELECT session_id FROM runs").batches()] == [[{"session_id": "s-1"}]]


def test_a_new_generation_leaves_texts_that_nobody_needs_to_older_states(tmp_path: Path) -> None:
    root = str(tmp_path)
    committed(root, marked(1, LOOKALIKE), marked(2, f"{MARKER}old"))
    first = StorylineDataSource.open(root)
    stories = [marked(1, LOOKALIKE), story(2)]
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild(batches(stories), PROJECTION)
    assert visible(root) == stories
    assert len(Objects(root, StorylineDataSource.open(root).snapshot.objects_version)) == 1
    assert [each.notes for each in first.stories()] == [LOOKALIKE, f"{MARKER}old"]


@pytest.mark.parametrize("how", ["emptied", "changed", "removed"])
@pytest.mark.parametrize("where", ["data/*.lance", "_versions/*614.manifest", "_versions/*613.manifest"])
def test_damaged_texts_come_back_with_a_new_generation(tmp_path: Path, where: str, how: str) -> None:
    root = str(tmp_path)
    stories = [marked(1, LOOKALIKE), story(2)]
    committed(root, *stories)
    (file,) = (tmp_path / "objects.lance").glob(where)
    data = file.read_bytes()
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(b"" if how == "emptied" else data.replace(b"PCHRONICLE", b"PCHRONICLF"))
    with StorylineLanceStore(root).writer() as writer:
        writer.rebuild(batches(stories), PROJECTION)
    assert visible(root) == stories
    with StorylineLanceStore(root).writer() as writer:  # and it can be gone on from
        writer.replace([stories[0].story_id], batches([marked(1, f"{MARKER}new")]), PROJECTION)
    assert [each.notes for each in visible(root)] == [f"{MARKER}new", None]


@pytest.mark.parametrize("cell", [MARKER, f"{MARKER}u:i:{'0' * 63}:3:", f"{MARKER}x:i:{'0' * 64}:3:", f"{LOOKALIKE}\n", "text"])
def test_what_is_no_descriptor_is_text(cell: str) -> None:
    assert described(cell) is None


class TestPeer:
    pytestmark = needed

    def test_the_peer_reads_our_marked_texts(self, tmp_path: Path) -> None:
        committed(str(tmp_path), marked(1, LOOKALIKE), story(2))
        rows = query(tmp_path, "select reasoning_content, message_value from steps where reasoning_content is not null")
        assert [row["reasoning_content"] for row in rows] == [LOOKALIKE]
        peer("export", "--from", tmp_path, "-o", "storyline", "--to", tmp_path / "out.json")
        (exported,) = [each for each in json.loads((tmp_path / "out.json").read_text()) if each.get("notes")]
        assert exported["notes"] == LOOKALIKE
        assert exported["turns"][0]["msg"] == LOOKALIKE

    def test_long_texts_of_a_store_that_the_peer_wrote(self, tmp_path: Path) -> None:
        document = long_document()
        source = imported(tmp_path, document)
        (found,) = source.stories()
        assert json.loads(hub.from_storyline("atif", [found])) == document
        steps = duckdb.from_arrow(source.steps)
        assert steps.filter("message_value LIKE '%qqq%'").project("length(message_value)").fetchall() == [(70_002,)]
        assert source.runs.schema.field("extra").type == "string"

    def test_texts_that_the_peer_lost_are_named(self, tmp_path: Path) -> None:
        """Its own maintenance removes texts that only members of `extra` name."""
        document = long_document()
        document["extra"] = {"small": 1, "long": "e" * 70_000}
        source = imported(tmp_path, document)
        with pytest.raises(IntegrityError, match="is missing"):
            list(source.stories())
        assert source.runs.to_table(columns=["notes"]).num_rows == 1

    def test_members_of_json_columns_are_filled(self, tmp_path: Path) -> None:
        """As above, with the lost text put back."""
        document = long_document()
        document["extra"] = {"small": 1, "long": "e" * 70_000}
        source = imported(tmp_path, document)
        restore(source, json.dumps("e" * 70_000))
        (found,) = StorylineDataSource.open(source.root).stories()
        assert json.loads(hub.from_storyline("atif", [found])) == document


def long_document() -> dict[str, Any]:
    """Long texts in cells and in fields that ATIF does not know, which the peer keeps under their pointers."""
    call = {"tool_call_id": "c1", "function_name": f"{MARKER}fn", "arguments": {"a": "a" * 70_000}, "odd": 5}
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "long",
        "trajectory_id": "long-1",
        "agent": {"name": "a", "version": "1", "odd": "o" * 70_000},
        "steps": [
            {"step_id": 1, "source": "user", "message": "q" * 70_000, "odd~": {"k/": "k" * 70_000}},
            {
                "step_id": 2,
                "source": "agent",
                "message": f"{MARKER}m",
                "reasoning_content": f"{MARKER}think",
                "tool_calls": [call],
                "observation": {"results": [{"source_call_id": "c1", "content": "r" * 70_000}]},
            },
        ],
    }


def imported(folder: Path, document: dict[str, Any]) -> StorylineDataSource:
    """A store that the peer makes of one document."""
    (folder / "one.json").write_text(json.dumps(document))
    peer("import", "-f", folder / "one.json", "-t", folder / "store", "-o", "storyline", cwd=folder)
    return StorylineDataSource.open(str(folder / "store"))


def restore(source: StorylineDataSource, text: str) -> None:
    """Add a JSON text to the newest objects.lance of a store as the peer stores it, and make that version the pinned one."""
    raw = text.encode()
    packed = pa.compress(raw, codec="zstd", asbytes=True)
    uri = f"{source.root}/objects.lance"
    columns = {
        "content_id": pa.array([blake3(raw).hexdigest()]),
        "logical_type": pa.array([2], pa.uint8()),
        "media_type": pa.array(["application/json"]),
        "raw_length": pa.array([len(raw)], pa.uint64()),
        "stored_length": pa.array([len(packed)], pa.uint64()),
        "codec": pa.array([1], pa.uint8()),
        "preview": pa.array([None], pa.string()),
        "payload": lance.blob_array([packed]),
        "created_at_ms": pa.array([0], pa.int64()),
    }
    new = lance.write_dataset(pa.table(columns), uri, mode="append")
    pin(source.root, new.version)


def pin(root: str, version: int) -> None:
    """Make a version of objects.lance the visible one."""
    current = Path(root, "CURRENT")
    state = json.loads(current.read_text())
    state["committed"]["objects_version"] = version
    current.write_text(json.dumps(state))
