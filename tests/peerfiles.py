"""Files through the peer alone and through our store: what `pchronicle` makes of each, compared as JSON values.

The peer writes ids that a file does not state: the session of an embedded trajectory, and `trajectory_id`, where it always
puts the id of the row, which in our tables is the story id. Nothing else may differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chronicle.formats import hub
from chronicle.formats.atif import EMBEDDED
from chronicle.formats.story import StorylineDocument
from chronicle.intake.receipts import list_receipts
from chronicle.layout import DatasetPaths
from chronicle.options import QueryOptions
from chronicle.query import query
from chronicle.storyline.source import StorylineDataSource
from tests import peer
from tests.jsoncompare import same_json

COUNTS = """select r.document_id as id, (select count(*) from steps s where s.document_id = r.document_id) as steps,
    (select count(*) from tool_calls c where c.document_id = r.document_id) as calls from runs r"""
PEER_COUNTS = (
    "select document_id as id, count(*) as n from runs group by 1",
    "select document_id as id, count(*) as n from steps group by 1",
    "select document_id as id, count(*) as n from tool_calls group by 1",
)
Counts = dict[str, tuple[int, int]]


def taken_in(sources: Path, store: Path) -> bool:
    """Whether the peer takes a file or a directory into a new store of its own. Leaves its log beside the store."""
    store.parent.mkdir(parents=True, exist_ok=True)
    try:
        peer.peer("import", "--from", sources, "--to", store, "--output-format", "storyline", cwd=store.parent)
    except AssertionError:
        return False
    return True


def exported(store: object) -> list[dict[str, Any]]:
    """All ATIF documents that the peer exports of a store."""
    found = json.loads(peer.peer("export", "--from", store, "--to", "-", "--output-format", "atif"))
    return found if isinstance(found, list) else [found]


def equal(source: Any, found: Any, story_ids: set[str] | None = None) -> str | None:
    """None where an exported document says what its source does but for added ids, else the first difference.

    `story_ids` are those that may stand as `trajectory_id` in the place of what the source says.
    """
    source, found = json.loads(json.dumps(source)), json.loads(json.dumps(found))
    _without_ids(source, found, story_ids, None)
    ours, theirs = (json.dumps(each, sort_keys=True).encode() for each in (source, found))
    return same_json(ours, theirs)


def _without_ids(source: Any, found: Any, story_ids: set[str] | None, session: str | None) -> None:
    """Take the ids away that the peer adds to a trajectory and to those in it."""
    if not (isinstance(source, dict) and isinstance(found, dict)):
        return
    if story_ids is not None and found.get("trajectory_id") in story_ids:
        del found["trajectory_id"]
        source.pop("trajectory_id", None)
    own = found.get("session_id")
    if "session_id" not in source and session is not None and own == session:
        del found["session_id"]
    for one, other in zip(source.get(EMBEDDED) or (), found.get(EMBEDDED) or (), strict=False):
        _without_ids(one, other, story_ids, own)


def counted_by_peer(store: object) -> Counts:
    """Document id -> (steps, calls), as the peer counts them."""
    runs, steps, calls = ({row["id"]: row["n"] for row in peer.query(store, sql)} for sql in PEER_COUNTS)
    assert set(runs.values()) <= {1}
    assert steps.keys() | calls.keys() <= runs.keys()
    return {document: (steps.get(document, 0), calls.get(document, 0)) for document in runs}


def counted_by_us(paths: DatasetPaths) -> Counts:
    """The same by `chronicle query`."""
    with query(QueryOptions(lake=paths.lake, dataset=paths.dataset, sql=COUNTS)) as result:
        rows = [row for batch in result.batches() for row in batch.to_pylist()]
    return {row["id"]: (row["steps"], row["calls"]) for row in rows}


def listed(store: object) -> tuple[int, int, int]:
    """Runs, steps and calls that `pchronicle stats` tells of a store that it lists as ready."""
    (source,) = json.loads(peer.peer("list", store, "--sources", "--format", "json"))["sources"]
    assert (source["status"], source["error"]) == ("ready", None)
    counts = json.loads(peer.peer("stats", store, "--format", "json", "--errors", "strict"))["counts"]
    return counts["runs"], counts["steps"], counts["tool_calls"]


def totals(counts: Counts) -> tuple[int, int, int]:
    """Runs, steps and calls of all documents."""
    return len(counts), sum(steps for steps, _ in counts.values()), sum(calls for _, calls in counts.values())


def story_ids_by_file(paths: DatasetPaths) -> dict[str, list[str]]:
    """File name -> ids of the stories of its documents, the root of the first one first. Names must be distinct."""
    source = StorylineDataSource.open(paths.storyline)
    files = {receipt.source_id: receipt.source_key.rpartition("/")[2] for receipt in list_receipts(paths)}
    found: dict[str, list[tuple[int, int, str]]] = {}
    for story_id, origin in source.origins():
        found.setdefault(files[origin.source_id or ""], []).append((origin.locator or 0, origin.index, story_id))
    return {name: [story_id for *_, story_id in sorted(rows)] for name, rows in found.items()}


def read(store: object, sessions: set[str] | None = None) -> Any:
    """The ATIF document of a store that the peer wrote, or of some of its sessions, as we read it."""
    source = StorylineDataSource.open(str(store))
    rows = source.runs.to_table(columns=["document_id", "session_id"]).to_pylist()
    ids = [row["document_id"] for row in rows if sessions is None or row["session_id"] in sessions]
    stories = {story.story_id: story for story in source.stories(ids)}
    ordered: list[StorylineDocument] = []
    todo = [story for story in stories.values() if story.parent is None]
    while todo:
        ordered.append(todo.pop())
        todo += [stories[child] for child in reversed(ordered[-1].child_stories)]
    assert len(ordered) == len(stories)
    return json.loads(hub.from_storyline("atif", ordered))
