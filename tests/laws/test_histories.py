"""Laws over histories: whatever happened to the files and in whatever pieces it was taken in (design 11)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.formats.cut import cut
from chronicle.intake.receipts import list_receipts, rebuild_receipts
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
from tests.jsoncompare import same_json
from tests.lake import Lake
from tests.laws.contents import CONTENTS

NAMES = ("a.json", "b.jsonl", "sub/c.jsonl")
STORED = [index for index, data in enumerate(CONTENTS) if data not in (b"", b"{ broken")]

puts = st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(0, len(CONTENTS) - 1))
moves = st.one_of(
    puts,
    puts,
    st.tuples(st.just("touch"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("ingest"), st.just(""), st.integers(1, 3)),
    st.tuples(st.just("rebuild"), st.just(""), st.just(0)),
    st.tuples(st.just("forget receipts"), st.just(""), st.just(0)),
    st.tuples(st.just("append again"), st.just(""), st.integers(0, 9)),
    st.tuples(st.just("maintain"), st.just(""), st.integers(0, 1)),
)
histories = st.lists(moves, min_size=3, max_size=10)


class History:
    """Plays moves on a lake and remembers what each key must hold in the end."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake(root)
        self.pending: dict[str, bytes] = {}
        self.held: dict[str, bytes] = {}

    def play(self, kind: str, name: str, number: int) -> None:
        lake = self.lake
        if kind == "put":
            lake.put(name, CONTENTS[number])
            self.pending[name] = CONTENTS[number]
        elif kind == "touch" and name in self.pending:
            lake.put(name, self.pending[name])
        elif kind == "ingest":
            lake.ingest(batch_bytes=1 if number == 1 else 48 << 20, workers=number)
            self.held |= {key: data for key, data in self.pending.items() if CONTENTS.index(data) in STORED}
        elif kind == "rebuild" and lake.store.exists():
            lake.rebuild()
        elif kind == "forget receipts":
            shutil.rmtree(lake.paths.receipts, ignore_errors=True)
        elif kind == "append again" and lake.store.exists():
            records = [record.text for record in lake.records()]
            document = [text for text in records if b'"kind":"document.' in text]
            lake.append(document[number::3])
        elif kind == "maintain" and lake.store.exists():
            maintain(MaintainOptions(paths=lake.paths, full=number == 1, index=False, retention_seconds=0))

    def play_all(self, moves: list[tuple[str, str, int]]) -> None:
        """All moves, and a last ingest, so that nothing is pending."""
        for move in moves:
            self.play(*move)
        self.play("ingest", "", 2)


@settings(max_examples=10, deadline=None)
@given(histories)
def test_incremental_equals_full_and_export_gives_the_files_back(history: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = History(Path(folder))
        run.play_all(history)
        lake = run.lake
        if not lake.store.exists():
            assert not run.held
            return
        assert lake.exact() == {f"in/{name}": data for name, data in run.held.items()}

        lake.rebuild()
        incremental, markdown = lake.rows(), lake.markdown()
        assert lake.rebuild(full=True).failed == []
        assert lake.rows() == incremental
        assert lake.markdown() == markdown
        for format in ("atif", "openai_msg", "storyline"):
            exported = lake.exported(format)
            for name, data in run.held.items():
                if is_whole(data, format):
                    assert same_json(data, exported[f"in/{name}"]) is None


def is_whole(data: bytes, format: str) -> bool:
    """Whether all of a file is documents of one format that are projected."""
    found = cut(data)
    return found.format == format and not any(document.fault or document.invalid for document in found.documents)


@settings(max_examples=8, deadline=None)
@given(histories)
def test_a_second_ingest_changes_nothing_and_opens_nothing(history: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = History(Path(folder))
        run.play_all(history)
        lake = run.lake
        before = lake.store.manifest() if lake.store.exists() else None
        again = lake.ingest()
        assert again.files_opened == 0
        assert again.events == again.quarantined_new == again.ingested == 0
        assert again.sources == again.unchanged + len([entry for entry in again.quarantine if entry.locator is None])
        assert (lake.store.manifest() if lake.store.exists() else None) == before


@settings(max_examples=8, deadline=None)
@given(histories)
def test_receipts_rebuilt_from_facts_say_the_same_but_for_seen(history: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = History(Path(folder))
        run.play_all(history)
        if not run.lake.store.exists():
            return
        kept = list_receipts(run.lake.paths)
        for receipt in kept:
            receipt.seen = None
        if any(move[0] == "forget receipts" for move in history):
            # Forgotten receipts of files that are gone from the inbox come back from the facts only.
            kept = [receipt for receipt in kept if receipt in rebuild_receipts(run.lake.paths, dry_run=True)]
            assert {receipt.source_key for receipt in kept} <= {r.source_key for r in rebuild_receipts(run.lake.paths)}
        else:
            assert rebuild_receipts(run.lake.paths) == kept
        assert run.lake.ingest().events == 0
