"""Bars of much and many: a hundred thousand small files, ten thousand segments, and rows that repeat the whole history."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chronicle.events.log import RawEventLanceStore
from chronicle.layout import DatasetPaths
from tests import biglog
from tests.bench import corpus
from tests.bench.measure import timed
from tests.bench.report import Bar
from tests.bench.setting import Setting, chronicle, same_bytes, tree_bytes
from tests.laws.contents import atif

MOST_MIB = 600
SEGMENTS = 10_000
TURNS = (10, 20, 40)
MOST_OF_THE_NEW = 3


def bars(setting: Setting) -> Iterator[Bar]:
    """All bars of this group, one after the other."""
    yield small_files(setting)
    yield many_segments(setting)
    yield repeated_history(setting)


def small_files(setting: Setting) -> Bar:
    """A hundred thousand files of three steps: taken in, projected, looked at again."""
    source, root = setting.folder("many"), setting.folder("many-lake")
    files = setting.size(100_000)
    corpus.write_small(source, files)
    bar = Bar("Very many small files", "under 600 MiB; nothing new: no file opened")
    bar.turns.note("ingest", chronicle("ingest", source, lake=root / "lake"))
    bar.turns.note("rebuild", chronicle("rebuild", lake=root / "lake"))
    again = [chronicle("ingest", source, lake=root / "lake") for _ in range(2)]  # the first looks at files that were very young
    bar.turns.note("ingest, nothing new", again[-1])
    bar.turns.note("rebuild, nothing new", chronicle("rebuild", lake=root / "lake"))
    opened = json.loads(again[-1].out)["files_opened"]
    peak = bar.turns.peak_mib()
    bar.figures = {"files": files, "files_opened_again": opened, "peak_mib": peak}
    bar.met = setting.judged(peak < MOST_MIB and opened == 0)
    shutil.rmtree(source)
    shutil.rmtree(root)
    return bar


def many_segments(setting: Setting) -> Bar:
    """A log that nobody maintained: what reading and adding to it costs, before and after maintenance."""
    root, segments = setting.folder("segments"), setting.size(SEGMENTS)
    paths = DatasetPaths(str(root / "lake"), "d")
    written = max(1, segments // 100)
    biglog.fill(paths, sources=written, steps=10, sources_a_segment=1)
    biglog.multiply(RawEventLanceStore(paths.events), segments // written)
    bar = Bar("A log of very many segments", "counted and timed; at most 7 segments a level after maintenance, under 600 MiB")

    def use(when: str) -> None:
        (source := root / f"{when}.json").write_bytes(atif(when, 10))
        bar.turns.note(f"ingest of one file, {when}", chronicle("ingest", source, lake=paths.lake))
        replay = RawEventLanceStore(paths.events).replay
        bar.turns.note(f"replay of one session, {when}", timed(lambda: list(replay(biglog.session(written // 2)))))

    use("before")
    bar.turns.note("maintain", used := chronicle("maintain", lake=paths.lake))
    use("after")
    levels = [segment.level for segment in RawEventLanceStore(paths.events).manifest().segments]
    fullest = max(levels.count(level) for level in levels)
    bar.figures = {"segments_before": segments, "segments_after": len(levels), "most_of_a_level": fullest}
    bar.met = setting.judged(fullest <= 7 and used.peak_bytes >> 20 < MOST_MIB)
    shutil.rmtree(root)
    return bar


def repeated_history(setting: Setting) -> Bar:
    """Chats of which each row holds all messages so far: bytes of the facts by those of the messages that are new in a row."""
    bar = Bar("Rows that repeat the whole history", f"facts at most {MOST_OF_THE_NEW}x of what is new in each row")
    figures: dict[str, dict[str, float]] = {}
    for form, turns in itertools.product(("array of rows", "JSONL of messages"), TURNS):
        root = setting.folder("history")
        new = write_history(root / "in", form, turns, chats=max(2, setting.size(2_000) // turns))
        chronicle("ingest", root / "in", lake=root / "lake")
        chronicle("rebuild", lake=root / "lake")
        chronicle("export", "--exact", "--to", root / "out", lake=root / "lake")
        assert same_bytes(root / "in", root / "out"), f"{form}: the export is not what came in"
        of = {"source": root / "in", "facts": root / "lake/events", "tables": root / "lake/storyline"}
        figures[f"{form}, {turns} turns"] = {name: round(tree_bytes(path) / new, 2) for name, path in of.items()}
        shutil.rmtree(root)
    bar.figures = dict(figures)
    bar.met = setting.judged(all(each["facts"] <= MOST_OF_THE_NEW for each in figures.values()))
    return bar


def write_history(folder: Path, form: str, turns: int, *, chats: int) -> int:
    """Write so many chats, one a file; returns the bytes of their messages, each counted once."""
    noise, new = corpus.Words(turns), 0
    folder.mkdir(parents=True)
    for chat in range(chats):
        messages = [{"role": "system", "content": noise.text(200)}]
        rows: list[dict[str, Any]] = []
        for turn in range(1, turns + 1):
            asked, answer = {"role": "user", "content": noise.text(60)}, {"role": "assistant", "content": noise.text(120)}
            messages.append(asked)
            if form == "array of rows":
                rows.append({"session_id": f"chat-{chat}", "step_id": turn, "messages": [*messages], "response": answer})
            else:
                rows.append({"messages": [*messages, answer]})
            messages.append(answer)
        new += sum(len(json.dumps(message)) for message in messages)
        if form == "array of rows":
            (folder / f"chat-{chat:05}.json").write_text(json.dumps(rows))
        else:
            (folder / f"chat-{chat:05}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return new
