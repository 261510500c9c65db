"""maintain on a whole dataset: facts, tables, receipts; what it leaves equal, and what it takes away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.errors import NotFoundError
from chronicle.export import export
from chronicle.ingest import ingest
from chronicle.intake.receipts import Receipts
from chronicle.layout import TABLES, generation_path
from chronicle.maintain import maintain, stock
from chronicle.options import ExportOptions, IngestOptions, MaintainOptions, QueryOptions, VerifyOptions
from chronicle.query import query
from chronicle.reports import MaintainReport
from chronicle.storage import files, lanceio
from chronicle.storyline.maintenance import INDICES
from chronicle.storyline.source import StorylineDataSource
from chronicle.storyline.store import StorylineLanceStore
from chronicle.verify import verify
from tests.command import chronicle
from tests.lake import Lake, tree
from tests.laws.contents import CONTENTS, atif, chats, child

ROOT = Path(__file__).resolve().parents[1]
SQL = "SELECT source, count(*), sum(length(message_value)) FROM steps GROUP BY ALL ORDER BY ALL"


def tend(lake: Lake, **options: Any) -> MaintainReport:
    """Maintenance with small sizes."""
    return maintain(MaintainOptions(paths=lake.paths, **{"group": 4, "index_rows": 40, **options}))


def one_by_one(lake: Lake, contents: dict[str, bytes], *, rebuild_every: int) -> None:
    """Ingest each file with a run of its own."""
    for number, (name, data) in enumerate(contents.items()):
        lake.put(name, data)
        ingest(IngestOptions(paths=lake.paths, sources=(f"in={lake.inbox / name}",)))
        if number % rebuild_every == 0:
            lake.rebuild()


def said(lake: Lake) -> dict[str, Any]:
    """Everything that a dataset tells."""
    with query(QueryOptions(lake=lake.paths.lake, dataset="d", sql=SQL)) as result:
        asked = [row for batch in result.batches() for row in batch.to_pylist()]
    return {
        "exact": lake.exact(),
        "rows": lake.rows(),
        "facts": [record.text for record in lake.records()],
        "fact_version": lake.store.manifest().fact_version,
        "stories": lake.exported("storyline"),
        "sql": asked,
        "receipts": Receipts(lake.paths).all(),
    }


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A dataset after eighteen runs, with tables in many pieces; a grown and a changed file among its sources."""
    lake = Lake(tmp_path_factory.mktemp("worked"))
    contents = {f"{number:02}.json": atif(f"s{number}", 4 + number % 4) for number in range(14)}
    contents["helpers.json"] = atif("helped", 3, subagent_trajectories=[child("bird", 3)])
    one_by_one(lake, contents, rebuild_every=1)
    one_by_one(lake, {"03.json": atif("s3", 9), "chats.jsonl": chats(range(3))}, rebuild_every=1)
    one_by_one(lake, {"chats.jsonl": chats(range(6))}, rebuild_every=1)
    return lake


@pytest.fixture
def lake(worked: Lake, tmp_path: Path) -> Lake:
    shutil.copytree(worked.root, tmp_path, dirs_exist_ok=True)
    copied = Lake(tmp_path)
    copied._clock = worked._clock
    return copied


def test_everything_is_the_same_before_and_after(lake: Lake) -> None:
    before = said(lake)
    markdown = lake.markdown()
    report = tend(lake)
    assert said(lake) == before
    assert report.rewritten == list(TABLES)
    assert report.before.rows == report.after.rows
    assert report.after.segments == {"0": 2, "2": 1}
    assert {name: report.after.fragments[name] for name in TABLES} == dict.fromkeys(TABLES, 1)
    assert {each for each in report.indexed if not each.startswith("segment")} == {f"{i.table}.{i.name}" for i in INDICES}
    assert (report.removed, report.skipped) == ([], [])
    assert report.waiting >= len(report.retired)
    assert lake.markdown() == markdown
    assert lake.rebuild().mode == "fresh", "nothing derived goes stale"
    checked = verify(VerifyOptions(paths=lake.paths))
    assert (checked.differences, checked.freshness) == ([], "fresh")
    again = tend(lake)
    assert (again.merged, again.rewritten, again.indexed, again.retired, again.removed) == ([], [], [], [], [])


def test_rebuild_goes_on_from_maintained_tables(lake: Lake) -> None:
    tend(lake, retention_seconds=0)
    lake.put("03.json", atif("s3", 5))
    lake.put("chats.jsonl", chats(range(9)))
    lake.put("new.json", atif("new", 3))
    lake.ingest()
    done = lake.rebuild()
    assert (done.mode, done.why) == ("incremental", "")
    rows = lake.rows()
    report = tend(lake)
    behind = [each for each in report.indexed if not each.startswith("segment")]
    assert "steps.pchronicle_fts_message_value_idx" in behind, "rows that came later are indexed too"
    assert lake.rows() == rows
    lake.rebuild(full=True)
    assert lake.rows() == rows
    assert tend(lake, retention_seconds=0).after.generations == 1


def test_indices_are_used_and_belong_to_the_visible_versions(lake: Lake) -> None:
    tend(lake)
    source = StorylineDataSource.open(lake.paths.storyline)
    for table in TABLES:
        names = {index.name for index in getattr(source, table).describe_indices()}
        assert names == {index.name for index in INDICES if index.table == table}
    assert "ScalarIndexQuery" in source.steps.scanner(filter="session_id = 's3'").explain_plan()
    found = source.steps.to_table(full_text_query="message", columns=["message_value"])
    assert found.num_rows > 40


def test_parts_can_be_asked_for_alone(lake: Lake) -> None:
    report = tend(lake, compact=False, index=False)
    assert (report.merged, report.rewritten, report.indexed, report.retired) == ([], [], [], [])
    report = tend(lake, index=False, vacuum=False)
    assert report.merged
    assert report.indexed == []
    assert report.after.segment_directories > report.before.segment_directories
    report = tend(lake, compact=False, vacuum=False)
    assert (report.merged, report.rewritten) == ([], [])
    assert report.indexed


def test_full_leaves_one_segment_and_zero_retention_nothing_else(lake: Lake) -> None:
    before = said(lake)
    report = tend(lake, full=True, retention_seconds=0)
    assert said(lake) == before
    assert report.warnings
    after = report.after
    assert (sum(after.segments.values()), after.segment_directories, after.generations) == (1, 1, 1)
    assert set(after.versions.values()) == {1}
    assert sum(after.bytes.values()) < sum(report.before.bytes.values()) / 2
    assert report.removed_bytes > sum(report.before.bytes.values()) / 2


def test_dry_run_tells_exactly_and_writes_nothing(lake: Lake) -> None:
    for options in ({"retention_seconds": 0}, {"full": True}, {"full": True, "retention_seconds": 0}, {"index": False}):
        other = Lake(lake.root / "other")
        shutil.rmtree(other.root)
        shutil.copytree(lake.root / "lake", other.root / "lake")
        tend(other, dry_run=False, vacuum=False, full=False, group=5)
        before = tree(other.root)
        would = tend(other, dry_run=True, **options)
        assert tree(other.root) == before
        did = tend(other, **options)
        assert [(m.segments, m.rows, m.bytes) for m in would.merged] == [(m.segments, m.rows, m.bytes) for m in did.merged]
        assert would.rewritten == did.rewritten
        made = {f"merge-{number}": merged.into for number, merged in enumerate(did.merged, 1)}
        named = [f"segment {made[each.split()[1]]}" if each.startswith("segment merge") else each for each in would.indexed]
        assert named == did.indexed
        # What this very maintenance makes and supersedes again has no name yet.
        new = {merged.into for merged in did.merged} | {each.name for each in did.removed if each.kind == "versions"}
        expected = sorted((r.kind, r.name, r.bytes) for r in did.removed if r.name not in new)
        assert sorted((r.kind, r.name, r.bytes) for r in would.removed if r.kind != "versions") == expected


MAINTAIN = st.fixed_dictionaries({"full": st.booleans(), "retention_seconds": st.sampled_from([0, 604800])})


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(CONTENTS)),
            st.sampled_from(["rebuild", "maintain"]),
            MAINTAIN,
        ),
        min_size=2,
        max_size=8,
    )
)
def test_incremental_equals_full_with_maintenance_in_between(tmp_path_factory: pytest.TempPathFactory, history: Any) -> None:
    lake = Lake(tmp_path_factory.mktemp("history"))
    lake.put("first.json", atif("first", 3))
    lake.ingest()
    for act in history:
        if isinstance(act, tuple):
            lake.put(*act)
            lake.ingest()
        elif act == "rebuild":
            lake.rebuild()
        else:
            facts, version = [r.text for r in lake.records()], lake.store.manifest().fact_version
            tend(lake, group=2, index_rows=1, **({} if act == "maintain" else act))
            assert [r.text for r in lake.records()] == facts
            assert lake.store.manifest().fact_version == version
    lake.rebuild()
    tend(lake, group=2, index_rows=1, retention_seconds=0)
    exact, rows = lake.exact(), lake.rows()
    assert lake.rebuild(full=True).mode == "full"
    assert (lake.exact(), lake.rows()) == (exact, rows)
    idle = lake.ingest()
    assert (idle.files_opened, idle.events) == (0, 0)


def test_receipts_keep_what_counts(lake: Lake) -> None:
    lake.ingest()  # the files were copied: their inodes are others
    touched = lake.inbox / "05.json"
    for second in (1, 2, 3):
        os.utime(touched, ns=(second * 10**9 + 1, second * 10**9 + 1))
        lake._written = time.monotonic()
        assert lake.ingest().files_opened == 1
    before = Receipts(lake.paths).all()
    report = tend(lake, index=False, full=True)
    assert "receipts" in report.rewritten
    assert Receipts(lake.paths).all() == before
    assert stock(lake.paths).fragments["receipts"] == 1
    assert lake.ingest().files_opened == 0


def test_a_reader_of_tables_keeps_its_state_inside_the_retention(lake: Lake) -> None:
    source = StorylineDataSource.open(lake.paths.storyline)
    expected = [story.story_id for story in source.stories()]
    for folder, _, names in os.walk(lake.paths.storyline):
        for name in names:
            os.utime(f"{folder}/{name}", (1, 1))
    tend(lake)
    assert [story.story_id for story in StorylineDataSource.stories(source)] == expected
    tend(lake, retention_seconds=0)
    fresh = StorylineDataSource(lake.paths.storyline, source.snapshot, 0, source.runs, source.steps, source.tool_calls)
    with pytest.raises(NotFoundError, match="not kept any more"):
        list(fresh.stories())
    assert [story.story_id for story in StorylineDataSource.open(lake.paths.storyline).stories()] == expected


def test_leftover_generations_and_versions_wait_and_strangers_stay(lake: Lake) -> None:
    store = StorylineLanceStore(lake.paths.storyline)
    left = f"{lake.paths.storyline}/generations/gen-1-2-3"
    mine = f"{lake.paths.storyline}/generations/gen-mine"
    for folder in (left, mine):
        os.makedirs(f"{folder}/runs.lance")
    report = tend(lake, compact=False, index=False)
    assert (report.removed, os.path.exists(left)) == ([], True)
    report = tend(lake, compact=False, index=False, retention_seconds=0)
    assert [each.name for each in report.removed if each.kind == "generation"] == ["gen-1-2-3"]
    assert os.path.exists(mine)
    current = store.current()
    assert current is not None
    assert current.lease is None
    assert {name: report.after.versions[name] for name in TABLES} == dict.fromkeys(TABLES, 1)
    assert lake.rebuild().mode == "fresh"


def test_tables_of_a_dead_writer_are_written_anew(lake: Lake) -> None:
    rows = lake.rows()
    store = StorylineLanceStore(lake.paths.storyline)
    with store.writer() as writer:
        assert writer.pinned is not None
        old = writer.pinned.table_generation
        path = generation_path(lake.paths.storyline, old, "runs")
        lanceio.open_version(path, writer.pinned.runs_version).delete("true")
        kept = files.read(f"{lake.paths.storyline}/CURRENT")
    assert kept is not None
    files.write_atomic(f"{lake.paths.storyline}/CURRENT", kept)  # its lease stays behind
    report = tend(lake)
    assert "steps" in report.rewritten
    assert lake.rows() == rows
    current = store.current()
    assert current is not None
    assert current.committed.table_generation != old


def test_export_of_a_snapshot_while_maintenance_loops_is_whole_or_refused(lake: Lake) -> None:
    expected = lake.exact()
    done = threading.Event()
    errors: list[Exception] = []

    def loop() -> None:
        number = 0
        try:
            while not done.is_set():
                lake.store.append(lake.records()[:1])  # the same fact again: legal, and invisible
                tend(lake, group=2, retention_seconds=0, full=number % 2 == 0, index=False)
                number += 1
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    outcomes = []
    for number in range(8):
        out = lake.root / f"out-{number}"
        try:
            export(ExportOptions(paths=lake.paths, to=str(out), exact=True))
        except NotFoundError:
            outcomes.append("refused")
        else:
            assert tree(out) == expected
            outcomes.append("whole")
    done.set()
    thread.join()
    assert errors == []
    assert len(outcomes) == 8


DIE = """
import os, shutil, signal, sys
left = int(sys.argv[2])
def counted(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call
os.replace, shutil.rmtree, os.fsync = map(counted, (os.replace, shutil.rmtree, os.fsync))
from chronicle.layout import DatasetPaths
from chronicle.maintain import maintain
from chronicle.options import MaintainOptions
maintain(MaintainOptions(paths=DatasetPaths(sys.argv[1], "d"), group=4, index_rows=40, retention_seconds=float(sys.argv[3])))
print(10**9 - left)
"""


def killed(lake: Lake, at: int, retention: float) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", DIE, lake.paths.lake, str(at), str(retention)]
    return subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)


def test_killed_at_any_step_and_run_again(lake: Lake) -> None:
    before = kept(lake)
    steps = int(killed(copy_of(lake, "whole"), 10**9, 0).stdout)
    for retention, fraction in ((0, 0.25), (604800, 0.5), (0, 0.9)):
        copied = copy_of(lake, f"killed-{fraction}")
        assert killed(copied, int(steps * fraction), retention).returncode == -signal.SIGKILL
        assert kept(copied) == before
        tend(copied, retention_seconds=0)
        assert kept(copied) == before
        after = stock(copied.paths)
        assert after.segment_directories == sum(after.segments.values())
        assert after.generations == 1
        copied.rebuild()
        assert copied.rows() == before["rows"]


def kept(lake: Lake) -> dict[str, Any]:
    """What must survive everything."""
    facts = [record.text for record in lake.records()]
    return {"facts": facts, "fact_version": lake.store.manifest().fact_version, "rows": lake.rows(), "exact": lake.exact()}


def copy_of(lake: Lake, name: str) -> Lake:
    copied = Lake(lake.root / name, inbox=lake.inbox)
    shutil.copytree(lake.root / "lake", copied.root / "lake")
    return copied


def test_many_small_runs_are_as_good_as_one_large(tmp_path: Path) -> None:
    check_many_small_runs(tmp_path, 73)


def check_many_small_runs(root: Path, runs: int, note: Callable[[dict[str, Any]], None] = lambda found: None) -> None:
    """So many one-file ingests, maintained without retention, beside one ingest of everything, maintained the same way."""
    small, large = Lake(root / "small"), Lake(root / "large", inbox=root / "small/in")
    contents = {f"{number:04}.json": atif(f"s{number}", 20 + number % 5) for number in range(runs)}
    one_by_one(small, contents, rebuild_every=runs // 10)
    small.rebuild()
    facts = [record.text for record in small.records()]
    before = stock(small.paths)
    report = maintain(MaintainOptions(paths=small.paths, retention_seconds=0))
    assert [record.text for record in small.records()] == facts
    after, manifest = report.after, small.store.manifest()
    assert manifest.active_writer.writer_id.startswith("maintenance-"), "no writer that is older shows anything any more"
    assert ["without retention" in each for each in report.warnings] == [True], "it says what it gave up"
    assert max(after.segments.values()) <= 7
    assert after.segment_directories == sum(after.segments.values()) == len(manifest.segments)
    assert after.fact_version == before.fact_version == runs
    ingest(IngestOptions(paths=large.paths, sources=(f"in={large.inbox}",)))
    large.rebuild()
    whole = maintain(MaintainOptions(paths=large.paths, retention_seconds=0))
    for layer in ("events", "storyline", "receipts"):
        spare = 0 if layer == "events" else 20_000
        assert after.bytes[layer] <= 1.3 * whole.after.bytes[layer] + spare, layer
    assert small.exact() == large.exact()
    ratio = round(after.bytes["events"] / whole.after.bytes["events"], 3)
    note({"before": before.bytes, "after": after.bytes, "one_ingest": whole.after.bytes, "facts_to_one_ingest": ratio})
    note({"segments": after.segments, "segment_directories": after.segment_directories, "seconds": report.seconds})
    report = maintain(MaintainOptions(paths=small.paths, full=True, retention_seconds=0))
    assert list(report.after.segments.values()) == [1]
    assert [record.text for record in small.records()] == facts


def test_merging_keeps_the_dense_encoding(tmp_path: Path) -> None:
    lake, other = Lake(tmp_path / "a"), Lake(tmp_path / "b")
    contents = {f"{number}.json": atif(f"s{number}", 200) for number in range(8)}
    one_by_one(lake, contents, rebuild_every=1)
    for name, data in contents.items():
        other.put(name, data)
    other.ingest()
    other.rebuild()
    report = maintain(MaintainOptions(paths=lake.paths, index=False, full=True, retention_seconds=0))
    assert report.after.bytes["events"] <= 1.05 * stock(other.paths).bytes["events"]
    assert report.after.bytes["storyline"] <= 1.05 * stock(other.paths).bytes["storyline"]


def test_command(lake: Lake) -> None:
    where = ("--lake", lake.paths.lake, "--dataset", "d")
    assert chronicle("maintain", "--lake", lake.paths.lake, "--dataset", "nobody").code == 66
    assert chronicle("maintain", *where, "--retention", "soon").code == 2
    dry = chronicle("maintain", *where, "--dry-run", "--retention", "0")
    assert (dry.code, dry.json["dry_run"]) == (0, True)
    merged = dry.json["merged"]
    assert [each["level"] for each in merged] == [1, 1]
    done = chronicle("maintain", *where, "--compact", "--retention", "30m")
    assert done.code == 0
    assert [each["segments"] for each in done.json["merged"]] == [each["segments"] for each in merged]
    assert done.json["indexed"] == []
    assert chronicle("maintain", *where, "--retention", "0").json["after"]["generations"] == 1
    reports = sorted(path.name for path in Path(lake.paths.reports).glob("*-maintain-*.json"))
    assert len(reports) == 2
    assert chronicle("verify", *where).code == 0
