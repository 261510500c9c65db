"""Bars of ingest and rebuild: beside the peer and the floor, with bytes on disk; as a flow, and when little or nothing is new."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from infra.prefect_server import TemporaryServer, environment
from tests.bench import corpus
from tests.bench.measure import Turns, Used, run, together
from tests.bench.report import Bar
from tests.bench.setting import CHRONICLE, Setting, chronicle, peer_import, same_bytes, tree_bytes

OURS, INDEXED, PEER, FLOOR = "ingest + rebuild", "ingest + rebuild + maintain --index", "pchronicle import", "floor script"
VERBS, FLOW = "ingest, rebuild, materialize, verify", "chronicle run"
MOST_MIB = 600


def bars(setting: Setting) -> Iterator[Bar]:
    """All bars but those beside the peer, one after the other."""
    yield as_a_flow(setting)
    yield little_new(setting)
    yield nothing_new(setting)
    yield larger(setting)
    yield help_page(setting)


def ingest_and_rebuild(source: Path, lake: Path, *more: tuple[str, ...]) -> Used:
    """Two cold processes into a new lake, and one for each further verb."""
    shutil.rmtree(lake, ignore_errors=True)
    used = [chronicle("ingest", source, lake=lake), chronicle("rebuild", lake=lake)]
    return together(*used, *(chronicle(verb, *arguments, lake=lake) for verb, *arguments in more))


def beside_the_peer(setting: Setting) -> Iterator[Bar]:
    """Ours, with and without indices, the peer's import and the floor, in turns over the same corpus."""
    source, root = setting.corpus(), setting.folder("peer")
    work: dict[str, Callable[[], Used | None]] = {
        OURS: partial(ingest_and_rebuild, source, root / "lake"),
        INDEXED: partial(ingest_and_rebuild, source, root / "indexed", ("maintain", "--index")),
        FLOOR: lambda: run([sys.executable, "-m", "tests.bench.floor", source, root]),
        PEER: partial(peer_import, source, root / "store"),
    }
    turns = setting.take(work)
    taken, ours = turns.taken, turns.median(OURS)
    floor = ours / turns.median(FLOOR)
    peak = max(used.peak_bytes for used in taken[OURS]) >> 20
    chronicle("export", "--exact", "--to", root / "out", lake=root / "lake")
    assert same_bytes(source, root / "out"), "the export is not what came in: speed without fidelity does not count"
    plain = Bar("Ingest and rebuild", "at least 10x faster than the peer, at most 2x the floor, under 600 MiB")
    plain.turns = Turns({name: taken[name] for name in (OURS, PEER, FLOOR) if name in taken})
    plain.figures = {"to_the_floor": round(floor, 2), "peak_mib": peak}
    indexed = Bar("The same with indices", "at least 4x faster than the peer, whose import builds its own")
    indexed.turns = Turns({name: taken[name] for name in (INDEXED, PEER) if name in taken})
    if PEER in taken:
        faster = {bar.name: turns.median(PEER) / turns.median(name) for bar, name in ((plain, OURS), (indexed, INDEXED))}
        for bar in (plain, indexed):
            bar.figures["faster_than_the_peer"] = round(faster[bar.name], 1)
        plain.met = setting.judged(faster[plain.name] >= 10 and floor <= 2 and peak < MOST_MIB)
        indexed.met = setting.judged(faster[indexed.name] >= 4)
    yield plain
    yield indexed
    yield on_disk(setting, source, root)


def on_disk(setting: Setting, source: Path, root: Path) -> Bar:
    """Bytes of what the last turns left."""
    size = tree_bytes(source)
    facts, tables = tree_bytes(root / "lake/events"), tree_bytes(root / "lake/storyline")
    indexed = tree_bytes(root / "indexed/events") + tree_bytes(root / "indexed/storyline")
    ratio = (facts + tables) / size
    figures = {"source_bytes": size, "facts_bytes": facts, "tables_bytes": tables, "to_the_source": round(ratio, 3)}
    figures["with_indices_to_the_source"] = round(indexed / size, 3)
    if (root / "store").exists():
        figures["peer_store_to_the_source"] = round(tree_bytes(root / "store") / size, 3)
    met = setting.judged(ratio <= 1.3)
    return Bar("Bytes on disk", "facts and tables, without full-text indices, at most 1.3x of the source", Turns(), figures, met)


@contextmanager
def prefect(setting: Setting) -> Iterator[dict[str, str]]:
    """A running server, and the variables that lead a flow to it."""
    home = setting.folder("prefect")
    variables = {**environment({}), "PREFECT_HOME": str(home)}
    with TemporaryServer({**os.environ, **variables}) as server:
        server.wait_until_healthy()
        yield {**variables, "PREFECT_API_URL": server.url}


def as_a_flow(setting: Setting) -> Bar:
    """`chronicle run` on a running server beside its four verbs as four cold processes."""
    source, root = setting.corpus(), setting.folder("flow")

    def verbs() -> Used:
        return ingest_and_rebuild(source, root / "plain", ("materialize",), ("verify",))

    def flow(variables: dict[str, str]) -> Used:
        shutil.rmtree(root / "flow", ignore_errors=True)
        return chronicle("run", source, lake=root / "flow", **variables)

    with prefect(setting) as variables:
        turns = setting.take({VERBS: verbs, FLOW: partial(flow, variables)})
    plain, run_seconds = turns.median(VERBS), turns.median(FLOW)
    figures = {"to_the_verbs": round(run_seconds / plain, 2), "seconds_more": round(run_seconds - plain, 2)}
    bar = Bar("As a Prefect flow on a running server", "at most 1.15x of the plain verbs and 3 s", turns, figures)
    bar.met = setting.judged(run_seconds <= 1.15 * plain + 3)
    return bar


def little_new(setting: Setting) -> Bar:
    """Ingest and rebuild when one file in a hundred is new, beside both of all."""
    source, root = setting.folder("growing"), setting.folder("little")
    documents = setting.size(corpus.DOCUMENTS)
    new = max(1, documents // 100)
    numbers = itertools.count(documents, new)
    shutil.copytree(setting.corpus(), source, dirs_exist_ok=True)
    ingest_and_rebuild(source, root / "kept")

    def whole() -> Used:
        shutil.rmtree(root / "lake", ignore_errors=True)
        return chronicle("ingest", setting.corpus(), lake=root / "lake")

    def little() -> Used:
        corpus.write(source, new, first=next(numbers))
        return chronicle("ingest", source, lake=root / "kept")

    work = {
        "all new": whole,
        "all new, rebuild": lambda: chronicle("rebuild", lake=root / "lake"),
        "1% new": little,
        "1% new, rebuild": lambda: chronicle("rebuild", lake=root / "kept"),
        "nothing new, rebuild": lambda: chronicle("rebuild", lake=root / "kept"),
    }
    turns = setting.take(work)
    ingested = [json.loads(used.out)["ingested"] for used in turns.taken["1% new"]]
    assert set(ingested) == {new}, ingested
    allowed = {verb: 0.03 * turns.median(f"all new{verb}") + 1 for verb in ("", ", rebuild")}
    said = {f"1% new{verb}": round(seconds, 2) for verb, seconds in allowed.items()}
    figures = {"documents": documents, "new": new, "seconds_allowed": said}
    bar = Bar("When 1% of the files are new", "ingest and rebuild each at most 3% of the full time and 1 s", turns, figures)
    bar.met = setting.judged(all(turns.median(f"1% new{verb}") <= seconds for verb, seconds in allowed.items()))
    return bar


def nothing_new(setting: Setting) -> Bar:
    """Ingest of ten thousand known files."""
    source, root = setting.folder("small"), setting.folder("nothing")
    documents = setting.size(10_000)
    corpus.write_small(source, documents)
    chronicle("ingest", source, lake=root / "lake")
    chronicle("ingest", source, lake=root / "lake")  # files that were younger than the clock's grain are digested once more
    turns = setting.take({"nothing new": lambda: chronicle("ingest", source, lake=root / "lake")})
    opened = max(json.loads(used.out)["files_opened"] for used in turns.taken["nothing new"])
    figures = {"files": documents, "files_opened": opened}
    bar = Bar("Ingest when nothing is new", "10,000 files in less than 2 s, none of them opened", turns, figures)
    bar.met = setting.judged(turns.median("nothing new") < 2 and opened == 0)
    return bar


def larger(setting: Setting) -> Bar:
    """Memory and time when the corpus is three and ten times as large."""
    root = setting.folder("larger")
    bar = Bar("As the corpus grows", "under 600 MiB, at 10x within 20% of 1x; time linear")
    peaks: dict[str, dict[str, int]] = {}
    for times in (1, 3, 10):
        source = root / "corpus"
        corpus.write(source, setting.size(corpus.DOCUMENTS * times))
        shutil.rmtree(root / "lake", ignore_errors=True)
        used = {verb: chronicle(verb, *where, lake=root / "lake") for verb, where in (("ingest", (source,)), ("rebuild", ()))}
        peaks[f"{times}x"] = {verb: each.peak_bytes >> 20 for verb, each in used.items()}
        for verb, each in used.items():
            bar.turns.note(f"{verb} {times}x", each)
    bar.figures = {"peak_mib": peaks}
    highest = max(peak for each in peaks.values() for peak in each.values())
    growth = max(peaks["10x"].values()) / max(peaks["1x"].values())
    small, large = (sum(bar.turns.median(f"{verb} {times}") for verb in ("ingest", "rebuild")) for times in ("1x", "10x"))
    bar.figures |= {"memory_to_10x": round(growth, 2), "time_to_10x": round(large / small, 2)}
    bar.met = setting.judged(highest < MOST_MIB and growth <= 1.2 and large / small <= 11)
    shutil.rmtree(root)
    return bar


def help_page(setting: Setting) -> Bar:
    """Start of the command."""
    turns = setting.take({"chronicle --help": lambda: run([CHRONICLE, "--help"])}, 3)
    bar = Bar("chronicle --help", "under 300 ms", turns)
    bar.met = setting.judged(turns.median("chronicle --help") < 0.3)
    return bar
