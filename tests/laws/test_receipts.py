"""What receipts answer about one key or one content is what a fold of all of them says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.events.imported import Prefix, SourceRef, Stat
from chronicle.intake import receipts, stored
from chronicle.intake.receipts import Receipts
from chronicle.layout import DatasetPaths
from chronicle.projection.sources import SEEN, fold_all

KEYS = [f"in/{number}" for number in range(4)]
CONTENTS = [f"{number:032x}" for number in range(4)]
Told = tuple[str, SourceRef]


@st.composite
def told(draw: st.DrawFn) -> Told:
    """A `source.closed`, a `source.bound` or a note, of few keys and contents; contents may continue others, in a circle too."""
    kind = draw(st.sampled_from(["source.closed", "source.bound", SEEN]))
    ref = SourceRef(
        source_id=draw(st.sampled_from(CONTENTS)),
        source_key=draw(st.sampled_from(KEYS)),
        stat=Stat(size=draw(st.integers(0, 3))),
    )
    if kind == "source.closed":
        ref.format, ref.container = draw(st.sampled_from(["atif", "openai_msg"])), "jsonl"
        ref.documents, ref.size = draw(st.integers(1, 5)), 10
        ref.forced = draw(st.booleans())
        before = draw(st.none() | st.sampled_from(CONTENTS))
        ref.prefix = None if before is None else Prefix(source_id=before, documents=1, size=5)
    return kind, ref


@settings(max_examples=12, deadline=None)
@given(batches=st.lists(st.lists(told(), min_size=1, max_size=6), max_size=4), last=st.lists(told(), max_size=3))
@pytest.mark.parametrize("few", [0, 64], ids=["sorted", "searched"])
def test_answers_are_those_of_the_whole_fold(few: int, batches: list[list[Told]], last: list[Told]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "_FEW", few)
        paths = DatasetPaths(str(Path(folder) / "lake"), "d")
        for batch in batches:
            receipts._write(paths, batch)
        asked = Receipts(paths)
        for kind, ref in last:
            asked.apply(kind, ref)
        whole = fold_all([*(row for batch in batches for row in batch), *last])
        assert {key: asked.get(key) for key in KEYS} == {key: whole.current.get(key) for key in KEYS}
        for content in CONTENTS:
            known = whole.known.get(content)
            assert asked.known(content) == known
            assert asked.coverage(content) == ({} if known is None else dict(whole.chain(known)))
        assert asked.all() == [held for _, held in sorted(whole.current.items())]
        asked.flush()
        assert Receipts(paths).all() == asked.all()
