"""One AgenticMD file a story, and what happens to files that changed meanwhile (design 5.3)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from chronicle.errors import NotFoundError
from chronicle.events.log import LogSnapshot
from chronicle.formats.story import Agent, StorylineDocument, Turn
from chronicle.identity import fingerprint
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.materialize import materialize, write_stories
from chronicle.options import IngestOptions, MaterializeOptions, VerifyOptions
from chronicle.stats import stats
from chronicle.storage import files
from chronicle.verify import verify
from tests.lake import Lake
from tests.laws.contents import atif

Stories = list[tuple[int, StorylineDocument]]


def story(session: str, text: str = "hi", name: str = "") -> StorylineDocument:
    turns = [Turn(id=1, src="user", msg=json.dumps(text).encode(), reason="thought")]
    return StorylineDocument(story_id=fingerprint(name or session), session=session, agent=Agent(id="a"), turns=turns)


def of(*stories: StorylineDocument) -> Stories:
    return list(enumerate(stories))


def never(*_: object, **__: object) -> Iterator[tuple[int, StorylineDocument]]:
    raise AssertionError("stories were read")
    yield  # pragma: no cover


@pytest.fixture
def options(tmp_path: Path) -> MaterializeOptions:
    return MaterializeOptions(paths=DatasetPaths(str(tmp_path), "d/e"))


@pytest.fixture
def folder(options: MaterializeOptions) -> Path:
    return Path(options.paths.agenticmd)


def shown(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_first_run_writes_and_second_reads_nothing(options: MaterializeOptions, folder: Path) -> None:
    first = write_stories(3, of(story("one"), story("two")), options)
    assert (first.stories, first.written, first.unchanged, first.fact_version) == (2, 2, 0, 3)
    assert shown(folder) == ["one.md", "two.md"]
    assert b"session_id: one\n" in (folder / "one.md").read_bytes()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    second = write_stories(3, never(), options)
    assert (second.stories, second.written, second.unchanged) == (2, 0, 2)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_only_what_changed_is_written(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one"), story("two")), options)
    inode = (folder / "one.md").stat().st_ino
    report = write_stories(2, of(story("one"), story("two", "ho")), options)
    assert (report.written, report.unchanged) == (1, 1)
    assert (folder / "one.md").stat().st_ino == inode
    assert (folder / "two.md").read_text().endswith("ho\n\n")


def test_a_missing_file_is_written_again(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one"), story("two")), options)
    (folder / "one.md").unlink()
    assert write_stories(1, of(story("one"), story("two")), options).written == 1
    assert shown(folder) == ["one.md", "two.md"]


def test_another_option_writes_again(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one")), options)
    report = write_stories(1, of(story("one")), replace(options, reasoning=True))
    assert report.written == 1
    assert "thought" in (folder / "one.md").read_text()


def test_a_second_story_of_a_session_renames_the_first(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("s", name="a")), options)
    report = write_stories(2, of(story("s", name="a"), story("s", "ho", name="b")), options)
    assert shown(folder) == sorted(f"s~{fingerprint(name)[:8]}.md" for name in "ab")
    assert (report.written, report.removed, report.edited) == (2, 1, [])


def test_files_that_are_no_longer_due_are_removed_and_others_stay(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one"), story("two")), options)
    (folder / "notes.md").write_text("mine")
    assert write_stories(2, of(story("two")), options).removed == 1
    assert shown(folder) == ["notes.md", "two.md"]
    assert write_stories(3, of(), options).removed == 1
    assert shown(folder) == ["notes.md"]


def test_an_edited_file_is_left_alone_and_named(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one"), story("two")), options)
    (folder / "one.md").write_text("by hand")
    for version, text in ((2, "changed"), (3, "changed"), (4, "again")):
        report = write_stories(version, of(story("one", text), story("two")), options)
        assert (report.edited, report.written, report.unchanged) == (["one.md"], 0, 1)
        assert "one.md" in report.warnings[0]
        assert (folder / "one.md").read_text() == "by hand"
    gone = write_stories(5, of(story("two")), options)
    assert (gone.edited, gone.removed) == (["one.md"], 0)
    assert (folder / "one.md").read_text() == "by hand"


def test_an_edit_that_was_taken_back_is_ours_again(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one")), options)
    ours = (folder / "one.md").read_bytes()
    (folder / "one.md").write_text("by hand")
    write_stories(2, of(story("one", "changed")), options)
    (folder / "one.md").write_bytes(ours)
    assert write_stories(3, of(story("one", "changed")), options).written == 1
    assert "changed" in (folder / "one.md").read_text()


def test_a_file_of_somebody_else_is_not_overwritten(options: MaterializeOptions, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "one.md").write_text("mine")
    assert write_stories(1, of(story("one")), options).edited == ["one.md"]
    assert (folder / "one.md").read_text() == "mine"


@pytest.mark.parametrize("crash_at", [1, 2, 3, 4, 5])
def test_files_of_a_run_that_died_do_not_look_edited(
    options: MaterializeOptions, folder: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    write_stories(1, of(story("one"), story("two"), story("gone")), options)
    real, left = files.replace_file, [crash_at]

    def dies(path: str, data: bytes, **how: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        real(path, data, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace_file", dies)
        try:
            write_stories(2, of(story("one", "2"), story("two", "2"), story("new")), options)
        except KeyboardInterrupt:
            assert crash_at <= 5
    report = write_stories(3, of(story("one", "3"), story("two", "3"), story("new", "3")), options)
    assert report.edited == []
    assert shown(folder) == ["new.md", "one.md", "two.md"]
    assert all(path.read_text().endswith("\n\n3\n\n") for path in folder.glob("*.md"))


def test_leftovers_of_a_killed_writer_are_removed(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one")), options)
    (folder / f".one.md.{'0' * 16}.tmp").write_text("half")
    write_stories(2, of(story("one", "2")), options)
    assert sorted(path.name for path in folder.iterdir()) == [".index.json", ".index.lock", "one.md"]


def test_a_broken_index_is_said_and_adopts_what_is_due(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one"), story("two")), options)
    (folder / "gone.md").write_text("x")
    (folder / ".index.json").write_text("{")
    report = write_stories(2, of(story("one"), story("two", "2")), options)
    assert (report.unchanged, report.edited) == (1, ["two.md"])
    assert ".index.json does not read and is made anew" in report.warnings[0]
    assert report.warnings[1:] == ["of no run that there is, and left alone: gone.md", "edited by hand and left alone: two.md"]
    (folder / "two.md").unlink()
    report = write_stories(2, of(story("one"), story("two", "2")), options)
    assert (report.written, report.edited, report.warnings) == (1, [], [])
    assert shown(folder) == ["gone.md", "one.md", "two.md"]


def test_a_dry_run_changes_nothing(options: MaterializeOptions, folder: Path) -> None:
    report = write_stories(1, of(story("one")), replace(options, dry_run=True))
    assert (report.written, report.dry_run) == (1, True)
    assert not folder.exists()


def test_from_facts(options: MaterializeOptions, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(name: str, message: str) -> None:
        steps = [{"step_id": 1, "source": "user", "message": message}]
        document = {"schema_version": "ATIF-v1.7", "session_id": name, "agent": {"name": "a", "version": "1"}, "steps": steps}
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.json").write_text(json.dumps(document))

    def ingested() -> None:
        ingest(IngestOptions(paths=options.paths, sources=(str(tmp_path / "in"),)))

    with pytest.raises(NotFoundError):
        materialize(options)
    put("one", "hi")
    put("two", "hi")
    ingested()
    assert materialize(options).written == 2
    with monkeypatch.context() as patch:
        patch.setattr(LogSnapshot, "scan", never)
        assert materialize(options).unchanged == 2
    put("two", "ho")
    ingested()
    report = materialize(options)
    assert (report.written, report.unchanged, report.removed) == (1, 1, 0)
    assert shown(folder) == ["one.md", "two.md"]
    assert (folder / "two.md").read_text().endswith("\n\nho\n\n")


def test_files_that_a_power_cut_emptied_are_written_again(options: MaterializeOptions, folder: Path) -> None:
    write_stories(1, of(story("one"), story("two"), story("gone")), options)
    whole = (folder / "one.md").read_bytes()
    (folder / "one.md").write_bytes(b"")
    report = write_stories(1, of(story("one"), story("two"), story("gone")), options)
    assert (report.written, report.edited, (folder / "one.md").read_bytes()) == (1, [], whole)
    (folder / "gone.md").write_bytes(b"")
    report = write_stories(2, of(story("one"), story("two")), options)
    assert (report.removed, report.edited, shown(folder)) == (1, [], ["one.md", "two.md"])


def test_files_of_another_log_are_not_current(tmp_path: Path) -> None:
    """Facts that were restored or begun anew may have the version of those that the files were made from."""
    lake = Lake(tmp_path)
    lake.put("a.json", atif("a", 2))
    lake.ingest()
    materialize(MaterializeOptions(paths=lake.paths))
    (lake.inbox / "a.json").unlink()
    lake.put("b.json", atif("b", 2))
    shutil.rmtree(lake.paths.events)
    assert lake.ingest().fact_version == 1
    assert stats(lake.paths).markdown == "stale"
    assert [one.layer for one in verify(VerifyOptions(paths=lake.paths)).differences] == []
    report = materialize(MaterializeOptions(paths=lake.paths))
    assert (report.written, report.removed) == (1, 1)
    assert shown(Path(lake.paths.agenticmd)) == ["b.md"]
    assert materialize(MaterializeOptions(paths=lake.paths)).unchanged == 1
    assert stats(lake.paths).markdown == "fresh"
