"""An object store that is killed and started again while processes of every kind work in it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chronicle.options import VerifyOptions
from chronicle.verify import verify
from tests.crash.matrix import BATCH_BYTES
from tests.crash.sites import Disk, Ground, ObjectStore, Work
from tests.kills import Contents
from tests.laws.contents import atif, chats
from tests.s3.server import Running

BREATH_SECONDS = 0.4
FATES = {0, 69, 73, 75}
"""Done; the store was away; another writer won; nobody knows: run again."""
VERBS = (("ingest",), ("rebuild",), ("maintain", "--compact", "--full"))


@dataclass
class _Loop:
    """One verb again and again, in processes of its own."""

    site: ObjectStore
    ground: Ground
    verb: tuple[str, ...]
    stopped: threading.Event
    begun: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    """What processes said that ended as none should."""

    def run(self) -> None:
        """Until told to stop."""
        while not self.stopped.is_set():
            self.begun += 1
            ran = self.site.run(self.ground, _work(self.verb, self.ground))
            self.codes[ran.code] += 1
            if ran.code not in FATES:
                self.texts.append(ran.text)
                return
            time.sleep(BREATH_SECONDS)


def restarted_under_load(running: Running, remote: ObjectStore, disk: Disk, inbox: Path, restarts: int) -> dict[str, Any]:
    """Kill the store again and again under an ingest, a rebuild and a maintenance; then nothing is missing.

    What the store shows in the end is what a lake on disk shows that nobody disturbed. Returns how the processes ended.
    """
    ground, stopped = remote.empty(), threading.Event()
    _load(inbox, 0)
    assert remote.run(ground, _work(VERBS[0], ground)).code == 0
    loops = [_Loop(remote, ground, verb, stopped) for verb in VERBS]
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        for turn in range(1, restarts + 1):
            seen = [loop.begun for loop in loops]
            while any(loop.begun == before for loop, before in zip(loops, seen, strict=True)) and all(map(_is_at_work, threads)):
                time.sleep(0.05)
            _load(inbox, turn)
            time.sleep(0.1 + 0.2 * (turn % 5))
            running.kill()
            running.start()
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert [text for loop in loops for text in loop.texts] == []
    for verb in (*VERBS, ("materialize",)):
        again = remote.run(ground, _work(verb, ground))
        assert again.code == 0, again.text
    undisturbed = disk.empty()
    for verb in VERBS[:2]:
        assert disk.run(undisturbed, _work(verb, undisturbed)).code == 0
    assert Contents.of(ground) == Contents.of(undisturbed)
    assert verify(VerifyOptions(paths=ground.paths)).differences == []
    return {"restarts": restarts, "ended": {" ".join(loop.verb): dict(sorted(loop.codes.items())) for loop in loops}}


def _is_at_work(thread: threading.Thread) -> bool:
    return thread.is_alive()


def _load(inbox: Path, turn: int) -> None:
    """More sources: new ones, and one that is replaced. None grows: its documents would remember where runs had been."""
    folder = inbox / "in"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        (folder / f"{turn}-{number}.json").write_bytes(atif(f"s{turn}-{number}", 3 + number))
    (folder / "changes.jsonl").write_bytes(chats(range(9 * turn, 9 * turn + 3)))


def _work(verb: tuple[str, ...], ground: Ground) -> Work:
    sources = [str(ground.inbox / "in")] if verb[0] == "ingest" else []
    lake = ["--lake", ground.paths.lake, "--dataset", "d"]
    return Work([*verb, *sources, *lake], None, {"CHRONICLE_LIMITS_BATCH_BYTES": str(BATCH_BYTES)})
