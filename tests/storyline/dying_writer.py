"""A process that commits to a store and kills itself on the way: `python -m tests.storyline.dying_writer ROOT VERB MOMENT`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

from chronicle.storyline.current import Snapshot
from chronicle.storyline.store import StorylineLanceStore
from chronicle.storyline.writer import Batches
from tests.storyline.stores import batches, story


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(root: str, verb: str, moment: str) -> None:
    def parts() -> Iterator[Batches]:
        yield from batches([story(1, "second"), story(8), story(9)])
        if moment == "writing":
            die()

    with StorylineLanceStore(root).writer() as writer:
        commit = writer._commit

        def dying(snapshot: Snapshot) -> None:
            if moment == "before the swap":
                die()
            commit(snapshot)
            die()

        writer._commit = dying
        if verb == "rebuild":
            writer.rebuild(parts(), None)
        else:
            writer.replace([story(1).story_id], parts(), None)


if __name__ == "__main__":
    main(*sys.argv[1:])
