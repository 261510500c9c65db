"""Selecting runs by an expression, and nothing but an expression (design 8: `--where`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.errors import UsageError
from chronicle.layout import DatasetPaths
from chronicle.sql.sandbox import Bounds
from chronicle.sql.selection import evaluated, selected
from chronicle.storyline.source import StorylineDataSource
from infra import samples
from tests.command import chronicle
from tests.lake import Lake
from tests.sql.test_query import story, tabled

BOUNDS = Bounds(seconds=30, memory="500MB")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StorylineDataSource:
    lake = tmp_path_factory.mktemp("lake")
    tabled(lake, "d", story("zeta", 5), story("alpha", 1), story("mid'dle", 3))
    return StorylineDataSource.open(DatasetPaths(str(lake), "d").storyline)


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("true", ["zeta", "alpha", "mid'dle"]),
        ("session_id = 'alpha'", ["alpha"]),
        ("session_id LIKE '%''%' OR storage_ordinal = 0", ["zeta", "mid'dle"]),
        ("document_id IN (SELECT document_id FROM steps GROUP BY 1 HAVING count(*) > 2)", ["zeta", "mid'dle"]),
        ("EXISTS (FROM tool_calls t WHERE t.document_id = runs.document_id AND t.tool_call_id = 't4')", ["zeta"]),
        ("runs.agent_id = 'wrench' -- all of them", ["zeta", "alpha", "mid'dle"]),
        ("session_id IN ('a;b', ')', 'alpha') /* ; ) */", ["alpha"]),
        ("(session_id) > 'm'", ["zeta", "mid'dle"]),
        ("NULL", []),
    ],
)
def test_in_storage_order(source: StorylineDataSource, expression: str, chosen: list[str]) -> None:
    assert evaluated(source, expression, BOUNDS) == chosen


@pytest.mark.parametrize(
    "expression",
    [
        *("", "  ", "-- nothing", ";", "true;", "true; DROP VIEW runs", "true) UNION SELECT session_id FROM runs WHERE (true"),
        *("1=1) UNION SELECT 'x' --", "1=1) OR (1=1", "true) LIMIT 1 --", "true) -- ", "true, true", "true AS a", "* FROM runs"),
        *("true FROM runs", "true ORDER BY 1", "true LIMIT 1", "SELECT true", "true UNION SELECT true", "/* open", "'open"),
        *("(true", "true)", "$1", "?", "nope = 1", "'text'", "count(*) > 1", "row_number() OVER () = 1", "true GROUP BY 1"),
        *("exists (FROM read_csv('/etc/passwd'))", "exists (FROM '/etc/passwd')", "getenv('HOME') = 'x'"),
        *("exists (FROM glob('/*'))", "true THEN 1 END OR CASE WHEN true", "true THEN 1 WHEN true", "DISTINCT true"),
        *("exists (FROM query('SELECT 1'))", "current_setting('temp_directory') = 'x'", "exists (FROM duckdb_settings())"),
        *("exists (FROM duckdb_secrets())", "exists (COPY runs TO 'x.csv')", "true QUALIFY true", "true HAVING true"),
    ],
)
def test_refused_or_wrong(source: StorylineDataSource, expression: str) -> None:
    with pytest.raises(UsageError) as caught:
        evaluated(source, expression, BOUNDS)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_in_a_process_of_its_own(source: StorylineDataSource) -> None:
    assert selected(source, "session_id > 'm'", BOUNDS) == ["zeta", "mid'dle"]
    with pytest.raises(UsageError, match="is not one expression"):
        selected(source, "true) UNION SELECT session_id FROM runs WHERE (true", BOUNDS)


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        ("length(repeat(session_id, 800000000)) > 1", Bounds(seconds=60, memory="100MB")),
        ("levenshtein(repeat(session_id, 200000), repeat('b', 1000000)) > 1", Bounds(seconds=0.5)),
    ],
)
def test_what_duckdb_does_not_stop(source: StorylineDataSource, expression: str, bounds: Bounds) -> None:
    """One function that takes gigabytes is not counted, and one that takes minutes is not interrupted."""
    with pytest.raises(UsageError) as caught:
        selected(source, expression, bounds)
    assert caught.value.kind == "stopped"
    assert caught.value.hint == "write a condition that takes less"


def test_of_an_export(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put("a.json", samples.samples()["eval/leaf-3.json"])
    lake.ingest()
    lake.rebuild()
    where = ("--lake", lake.paths.lake, "--dataset", "d", "--to", tmp_path / "out", "--where")
    done = chronicle("export", "--format", "storyline", *where, "true) UNION SELECT session_id FROM runs WHERE (true")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not (tmp_path / "out").exists()
    assert chronicle("export", "--format", "storyline", *where, "session_id = 'leaf-3' -- it").code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["leaf-3.storyline.json"]


def test_bounded(source: StorylineDataSource) -> None:
    with pytest.raises(UsageError) as caught:
        selected(source, "(SELECT count(*) FROM range(10000000) a, range(10000000) b) > 1", Bounds(seconds=0.3))
    assert caught.value.kind == "stopped"
