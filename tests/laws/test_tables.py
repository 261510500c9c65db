"""Tables that were brought up to date again and again are those of one full rebuild, whatever came in between (design 11).

Beside ingests of changed files: maintenance of all kinds between two rebuilds, repeated rows, documents and sources whose rows
come in pieces with other commits between, or never to an end, sources in another order, and inputs forced into another format.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chronicle.maintain import maintain
from chronicle.options import MaintainOptions, VerifyOptions
from chronicle.projection import tables
from chronicle.storyline.source import StorylineDataSource
from chronicle.verify import verify
from tests.lake import Lake
from tests.laws.contents import CONTENTS, atif, chats, child
from tests.laws.test_facts import copy_of, shuffled

REF = {"source_call_id": "c3", "subagent_trajectory_ref": [{"trajectory_id": "bird", "trajectory_path": "in/b.json"}]}
SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
MORE = [
    json.dumps(json.loads(atif("s1", 3)) | {"messages": SAID}).encode(),  # both formats read it
    atif("s1", 6, trajectory_id="main", x_run={"a": 1.50}, continued_trajectory_ref="a-cont-1.json"),
    atif("s2", 3, trajectory_id="bird", subagent_trajectories=[child("bird", 3) | {"x": None}]),
    json.dumps(json.loads(atif("s2", 4)) | {"x": REF}).encode().replace(b'"content": "ok"', json.dumps(REF).encode()[1:-1]),
    chats(range(3, 9)),
    chats(range(2)) + atif("s1", 2).replace(b"\n", b"") + b"\n",
    b"[" + b",".join([atif("s1", 3), atif("s1", 3), atif("s2", 5)]) + b"]",
]
ALL = [data for data in CONTENTS + MORE if data not in (b"", b"{ broken")]
NAMES = ("a.json", "b.jsonl", "sub/c.jsonl")
FORMATS = ("atif", "openai_msg", "storyline")

names, contents_ = st.sampled_from(NAMES), st.sampled_from(range(len(ALL)))
moves = st.one_of(
    st.tuples(st.just("put"), names, contents_),
    st.tuples(st.just("put"), names, contents_),
    st.tuples(st.just("ingest"), st.just(""), st.integers(1, 3)),
    st.tuples(st.just("begin"), names, contents_),
    st.tuples(st.just("go on"), st.sampled_from(["some", "all"]), st.integers(0, 9)),
    st.tuples(st.just("repeat"), st.sampled_from(["documents", "all"]), st.integers(0, 9)),
    st.tuples(st.just("force"), st.sampled_from(FORMATS), st.just(0)),
    st.tuples(st.just("maintain"), st.sampled_from(["merge", "full", "index", "all"]), st.just(0)),
    st.tuples(st.just("rebuild"), st.just(""), st.integers(0, 3)),
)
lives = st.lists(moves, min_size=4, max_size=14)


class Life:
    """Plays moves on a lake; after each rebuild the tables are compared with the facts."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake(root)
        self.begun: list[list[bytes]] = []
        self.tally: Counter[str] = Counter()
        self.attempts = 0

    def play(self, kind: str, name: str, number: int) -> None:
        lake = self.lake
        if kind == "put":
            lake.put(name, ALL[number])
        elif kind == "ingest":
            lake.ingest(batch_bytes=1 if number == 1 else 48 << 20, workers=number)
        elif kind == "force":
            lake.ingest(format=name)
        elif kind == "begin":
            self.attempts += 1
            attempt = f"attempt{self.attempts}".encode()
            records = copy_of(ALL[number], f"file:///{name}", parts=bool(number % 3))
            self._append(shuffled([text.replace(b"attemptTrue", attempt) for text in records], number), number)
        elif kind == "go on" and self.begun:
            self._append(self.begun.pop(0), None if name == "all" else number)
        elif not lake.store.exists():
            return
        elif kind == "repeat":
            self._repeat(name, number)
        elif kind == "maintain":
            self._maintain(name)
        elif kind == "rebuild":
            self.rebuild(full=number == 0)

    def _maintain(self, what: str) -> None:
        merge, index = what != "index", what in ("index", "all")
        full, paths = what == "full", self.lake.paths
        report = maintain(MaintainOptions(paths=paths, compact=merge, index=index, full=full, index_rows=1, retention_seconds=0))
        self.tally["merged"] += len(report.merged)

    def _append(self, records: list[bytes], count: int | None) -> None:
        """The first rows of some, the others later."""
        count = len(records) if count is None else max(1, count)
        self.lake.append(records[:count])
        if records[count:]:
            self.begun.append(records[count:])

    def _repeat(self, which: str, number: int) -> None:
        records = [record.text for record in self.lake.records()]
        chosen = [text for text in records if which == "all" or b'"kind":"document.' in text]
        if which == "all":
            # Binding a key again to what it held is legal, and would be another history: documents and beginnings only.
            chosen = [text for text in chosen if b'"kind":"source.closed"' not in text and b'"kind":"source.bound"' not in text]
        random.Random(number).shuffle(chosen)
        if chosen:
            self.lake.append(chosen[number::3] or chosen)

    def rebuild(self, *, full: bool) -> None:
        report = self.lake.rebuild(full=full)
        assert report.failed == []
        self.tally[report.mode] += 1
        self.tally["removed"] += report.stories_removed
        checked = verify(VerifyOptions(paths=self.lake.paths))
        assert [one for one in checked.differences if one.layer == "tables"] == []
        assert checked.freshness == "fresh"


EVENTFUL = [
    ("put", "a.json", 1),
    ("put", "b.jsonl", 5),
    ("ingest", "", 1),
    ("begin", "a.json", 2),
    ("rebuild", "", 1),
    ("maintain", "full", 0),
    ("repeat", "documents", 1),
    ("put", "b.jsonl", 6),
    ("ingest", "", 3),
    ("go on", "some", 1),
    ("maintain", "merge", 0),
    ("rebuild", "", 1),
    ("go on", "all", 0),
    ("put", "sub/c.jsonl", ALL.index(MORE[0])),
    ("ingest", "", 1),
    ("rebuild", "", 1),
    ("force", "openai_msg", 0),
    ("maintain", "index", 0),
    ("repeat", "all", 2),
    ("rebuild", "", 1),
    ("put", "a.json", 14),
    ("ingest", "", 2),
]


@settings(max_examples=6, deadline=None)
@example(EVENTFUL)
@given(lives)
def test_incremental_equals_full_whatever_happened(life: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Life(Path(folder))
        run.play("put", "a.json", 0)
        run.play("ingest", "", 2)
        run.rebuild(full=False)
        for move in life:
            run.play(*move)
        run.rebuild(full=False)
        rows = run.lake.rows()
        run.rebuild(full=True)
        assert run.lake.rows() == rows
        if life is EVENTFUL:
            assert run.tally["incremental"] == 5
            assert (run.tally["merged"] > 0, run.tally["removed"] > 0) == (True, True)


def test_the_tables_do_not_depend_on_the_size_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path)
    for number, data in enumerate(ALL):
        life.lake.put(f"{number}.jsonl", data)
    life.lake.ingest()
    life.rebuild(full=True)
    source = StorylineDataSource.open(life.lake.paths.storyline)
    rows, stories = life.lake.rows(), list(source.stories())
    monkeypatch.setattr(tables, "_FULL_ROWS", 2)
    life.rebuild(full=True)
    source = StorylineDataSource.open(life.lake.paths.storyline)
    assert (life.lake.rows(), list(source.stories())) == (rows, stories)
    assert max(len(story.turns) for story in stories) > 4
