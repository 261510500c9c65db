"""Every real ATIF export: where the peer by itself keeps it, it keeps it in our store, and both count the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import peer, peerfiles
from tests.lake import Lake
from tests.long import evidence
from tests.process import REPOSITORY

CORPUS = (REPOSITORY.parent / "shared/corpus/atif").resolve()

pytestmark = [
    pytest.mark.long,
    *peer.needed,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real exports is not beside the repository"),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("peer"), inbox=CORPUS)
    lake.ingest()
    assert lake.rebuild().failed == []
    return lake


def is_in_time(difference: str | None) -> bool:
    """Whether the first difference is one of a time stamp: the peer keeps the instant, not its spelling."""
    return difference is not None and difference.partition(": ")[0].endswith("/timestamp")


def test_files_that_the_peer_keeps_it_keeps_in_our_store(lake: Lake, tmp_path: Path) -> None:
    by_file = peerfiles.story_ids_by_file(lake.paths)
    all_ids = {story_id for ids in by_file.values() for story_id in ids}
    ours = {document["trajectory_id"]: document for document in peerfiles.exported(lake.paths.storyline)}
    counted = peerfiles.counted_by_us(lake.paths)
    assert peerfiles.counted_by_peer(lake.paths.storyline) == counted
    assert peerfiles.listed(lake.paths.storyline) == peerfiles.totals(counted)
    refused, spelled, different = [], [], {}
    unchanged = 0
    for path in sorted(CORPUS.iterdir()):
        store = tmp_path / path.stem / "store"
        if not peerfiles.taken_in(path, store):
            refused.append(path.name)
            continue
        (theirs,) = peerfiles.exported(store)
        source: Any = json.loads(path.read_bytes())
        found = ours[by_file[path.name][0]]
        by_itself = peerfiles.equal(source, theirs)
        assert peerfiles.equal(theirs, peerfiles.read(store)) is None, "we read its store as it does"
        unchanged += by_itself is None
        if by_itself is not None:
            assert is_in_time(by_itself), (path.name, by_itself)
            spelled.append(path.name)
        difference = peerfiles.equal(source if by_itself is None else theirs, found, all_ids)
        if difference is not None:
            different[path.name] = difference
        assert sorted(peerfiles.counted_by_peer(store).values()) == sorted(counted[each] for each in by_file[path.name])
    assert different == {}
    assert by_file.keys().isdisjoint(refused)
    assert unchanged >= 20
    evidence.keep(
        "peer",
        {
            "files": len(refused) + len(spelled) + unchanged,
            "refused_by_both": refused,
            "kept_by_the_peer_alone": unchanged,
            "of_these_equal_through_our_store": unchanged,
            "time_stamps_spelled_anew_by_the_peer_alone": len(spelled),
            "of_these_the_same_through_our_store": len(spelled),
            "different": 0,
            "runs_steps_calls": peerfiles.totals(counted),
        },
    )
