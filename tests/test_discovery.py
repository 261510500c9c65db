"""Finding event logs below a root (design 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle import discovery
from chronicle.discovery import check_alone, expand_story_locations
from chronicle.errors import ConfigError, UsageError
from chronicle.layout import DatasetPaths


def log(root: Path, relative: str, name: str = "events.lance") -> Path:
    path = root / relative / name
    path.mkdir(parents=True)
    (path / "_manifest.json").write_text("{}")
    return path


def test_datasets_of_a_lake_in_stable_order(tmp_path: Path) -> None:
    for dataset in ("team/b", "a", "team/a"):
        log(tmp_path, f"events/{dataset}")
    found = expand_story_locations(str(tmp_path))
    assert [(place.name, place.kind) for place in found] == [("a", "lake"), ("team/a", "lake"), ("team/b", "lake")]
    assert found[1].events == f"{tmp_path}/events/team/a/events.lance"
    assert found[1].storyline == f"{tmp_path}/storyline/team/a"
    assert not found[1].has_tables


def test_trees_of_the_peer_and_lakes_below_the_root(tmp_path: Path) -> None:
    log(tmp_path, "agent/run-1")
    log(tmp_path, "lakes/x/events/d")
    found = {place.name: place for place in expand_story_locations(str(tmp_path))}
    assert set(found) == {"agent/run-1", "lakes/x/d"}
    assert found["agent/run-1"].kind == "run"
    assert found["agent/run-1"].storyline == f"{tmp_path}/agent/run-1/storyline"
    assert found["lakes/x/d"].storyline == f"{tmp_path}/lakes/x/storyline/d"
    (tmp_path / "agent/run-1/storyline").mkdir()
    (tmp_path / "agent/run-1/storyline/CURRENT").write_text("{}")
    assert found["agent/run-1"].has_tables


def test_what_is_no_log_is_not_found(tmp_path: Path) -> None:
    log(tmp_path, "events/d", "myevents.lance")
    log(tmp_path, ".hidden")
    log(tmp_path, "x.lance")
    log(tmp_path, "storyline/d/generations")
    (tmp_path / "storyline/d/CURRENT").write_text("{}")
    (tmp_path / "events/empty/events.lance").mkdir(parents=True)
    (tmp_path / "events/note.md").write_text("---\nformat: persisting\n---\n")
    (tmp_path / "link").symlink_to(tmp_path)
    assert expand_story_locations(str(tmp_path)) == []
    assert expand_story_locations(str(tmp_path / "missing")) == []


def test_the_root_may_be_the_run_itself(tmp_path: Path) -> None:
    log(tmp_path, "agent/run-1")
    [place] = expand_story_locations(str(tmp_path / "agent/run-1"))
    assert (place.name, place.kind) == (".", "run")


def test_the_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(discovery, "MAX_DIRECTORIES", 3)
    with pytest.raises(ConfigError):
        expand_story_locations(str(tmp_path))


def test_names_that_mean_something_elsewhere_hide_no_dataset(tmp_path: Path) -> None:
    names = ["CURRENT", ".dot", "events", "ops", "storyline", "team/CURRENT", "team/.dot/x"]
    for dataset in names:
        log(tmp_path, f"events/{dataset}")
    found = expand_story_locations(str(tmp_path))
    assert [place.name for place in found] == sorted(names)
    assert all(place.kind == "lake" for place in found)


def test_no_dataset_inside_another(tmp_path: Path) -> None:
    log(tmp_path, "events/a/b")
    for allowed in ("a/b", "a/c", "a/bb", "b"):
        check_alone(DatasetPaths(str(tmp_path), allowed))
    for refused in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(UsageError, match="inside another"):
            check_alone(DatasetPaths(str(tmp_path), refused))
