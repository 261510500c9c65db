"""One SELECT over the tables, and nothing else (design 8; environment.md 8)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.bounded import Bounds, run
from chronicle.errors import NotFoundError, UsageError
from chronicle.formats.story import Agent, StorylineDocument, ToolCall, Turn
from chronicle.layout import DatasetPaths
from chronicle.options import QueryOptions
from chronicle.projection.tables import TableBuilder
from chronicle.query import QueryResult, query
from chronicle.storyline.store import StorylineLanceStore


def story(name: str, turns: int = 3) -> StorylineDocument:
    said = [
        Turn(
            id=n,
            src="agent",
            msg=b'"turn"',
            ts=f"2026-02-03T04:05:0{n}Z",
            metrics=b'{"cost":0.10,"n":%d}' % n,
            tool_calls=[ToolCall(tcid=f"t{n}", fn="ls", args=b'{"path":"/tmp"}')],
        )
        for n in range(turns)
    ]
    return StorylineDocument(story_id=name, session=name, agent=Agent(id="wrench"), turns=said)


def tabled(lake: Path, dataset: str, *stories: StorylineDocument) -> None:
    """A dataset with tables, and as much of a log as discovery looks at."""
    paths = DatasetPaths(str(lake), dataset)
    builder = TableBuilder()
    for ordinal, one in enumerate(stories):
        builder.add(one, ordinal)
    with StorylineLanceStore(paths.storyline).writer() as writer:
        writer.rebuild([builder.batches()], None)
    logged(lake, dataset)


def logged(lake: Path, dataset: str) -> None:
    events = Path(DatasetPaths(str(lake), dataset).events)
    events.mkdir(parents=True)
    (events / "_manifest.json").write_text("{}")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    tabled(lake, "team/a", story("s1"), story("s2"))
    tabled(lake, "other.one", story("s3"))
    logged(lake, "bare")
    return lake


@pytest.fixture
def options(lake: Path) -> QueryOptions:
    return QueryOptions(lake=str(lake), sql="", dataset="team/a", timeout_seconds=60, memory="500MB")


def rows(result: QueryResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.Table.from_batches(list(result.batches()), result.schema).to_pylist()
    return found


def ask(options: QueryOptions, sql: str, **changes: Any) -> list[dict[str, Any]]:
    return rows(query(replace(options, sql=sql, **changes)))


def test_tables_of_one_dataset(options: QueryOptions) -> None:
    assert ask(options, "SELECT count(*) AS n FROM steps") == [{"n": 6}]
    joined = "SELECT r.session_id, count(*) AS n FROM runs r JOIN tool_calls t USING (document_id) GROUP BY 1 ORDER BY 1"
    assert ask(options, joined) == [{"session_id": "s1", "n": 3}, {"session_id": "s2", "n": 3}]


@pytest.mark.parametrize(
    "sql", ["FROM runs", "WITH x AS (SELECT * FROM runs) SELECT * FROM x;", "TABLE runs -- all of it", "(SELECT * FROM runs)"]
)
def test_forms_of_a_select(options: QueryOptions, sql: str) -> None:
    assert len(ask(options, sql)) == 2


def test_describe_and_show(options: QueryOptions) -> None:
    assert {row["column_name"] for row in ask(options, "DESCRIBE runs")} >= {"document_id", "residual"}
    assert {row["name"] for row in ask(options, "SHOW TABLES")} >= {"runs", "steps", "tool_calls"}


def test_json_columns_can_be_looked_into(options: QueryOptions) -> None:
    sql = "SELECT metrics, metrics->>'n' AS n, json_extract(metrics, '$.cost') AS c FROM steps WHERE step_id = 1 LIMIT 1"
    assert ask(options, sql) == [{"metrics": '{"cost":0.10,"n":1}', "n": "1", "c": "0.1"}]


def test_time_stamps_are_instants_in_utc(options: QueryOptions) -> None:
    day = "SELECT DISTINCT strftime(date_trunc('hour', timestamp), '%c') AS day FROM steps"
    assert ask(options, day) == [{"day": "2026-02-03 04:00:00"}]
    span = "SELECT max(timestamp::TIMESTAMPTZ) - min(timestamp::TIMESTAMPTZ) = INTERVAL 2 SECONDS AS yes FROM steps"
    assert ask(options, span) == [{"yes": True}]
    with pytest.raises(UsageError) as caught:
        ask(options, "SELECT max(timestamp) - min(timestamp) FROM steps")
    assert "CAST(timestamp AS TIMESTAMPTZ)" in caught.value.hint


def test_a_whole_lake_has_a_dataset_column(options: QueryOptions) -> None:
    result = query(replace(options, dataset=None, sql="SELECT dataset, count(*) AS n FROM steps GROUP BY 1 ORDER BY 1"))
    assert result.columns == ["dataset", "n"]
    assert rows(result) == [{"dataset": "other.one", "n": 3}, {"dataset": "team/a", "n": 6}]
    assert result.warnings == ["without tables, left out: bare; run `chronicle rebuild`"]


def test_limit_and_streaming(options: QueryOptions) -> None:
    assert len(ask(options, "SELECT * FROM steps", limit=4)) == 4
    assert ask(options, "SELECT * FROM steps", limit=0) == []
    with query(replace(options, sql="SELECT * FROM range(100000000000)")) as result:
        batch = next(result.batches())
    assert 0 < batch.num_rows < 100_000
    assert len(ask(options, "SELECT * FROM range(100000000000)", limit=5)) == 5


def test_no_rows_have_columns(options: QueryOptions) -> None:
    result = query(replace(options, sql="SELECT session_id FROM runs WHERE false"))
    assert (result.columns, rows(result)) == (["session_id"], [])


REFUSED = """
    COPY runs TO 'x.csv' | ATTACH ':memory:' AS z | DETACH memory | INSTALL json | LOAD json | CREATE TABLE t AS SELECT 1
    CREATE MACRO m(a) AS a | CREATE VIEW v AS SELECT 1 | DROP VIEW runs | PRAGMA version | PREPARE p AS SELECT 1 | EXECUTE p
    SET threads = 1 | RESET threads | USE memory | BEGIN | VACUUM | CHECKPOINT | CALL pragma_version() | EXPORT DATABASE 'x'
    IMPORT DATABASE 'x' | INSERT INTO runs VALUES (1) | DELETE FROM runs | UPDATE runs SET notes = ''
    EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1 | EXPLAIN (ANALYZE) DROP VIEW runs | EXPLAIN COPY runs TO 'x' | EXPLAIN
    SELECT 1; SELECT 2 | SELECT 1; DROP VIEW runs | ; | -- nothing | SELECT $1 | SELECT ? | PIVOT runs ON agent_id USING count(*)
    WITH x AS (INSERT INTO runs VALUES (1) RETURNING *) SELECT * FROM x | SELECT * FROM query('DROP VIEW runs')
"""
WRONG = """
    SELEC 1 | SELECT * FROM runs /* | SELECT nope FROM runs | SELECT * FROM nope | SELECT 1 + | SELECT 'a'::INT
    SELECT error(concat('two', chr(10), 'lines')) | SELECT * FROM arrow_scan(0, 0, 0)
"""
OUTSIDE = """
    SELECT * FROM read_csv('/etc/passwd') | SELECT * FROM read_text('/etc/passwd') | SELECT * FROM read_blob('/etc/passwd')
    SELECT * FROM read_json('/etc/passwd') | SELECT * FROM read_parquet('s3://a/b') | SELECT * FROM sniff_csv('/etc/passwd')
    SELECT * FROM glob('/etc/*') | SELECT * FROM '/etc/passwd' | SELECT getenv('HOME') | SELECT * FROM secret | FROM options
"""
HOSTILE = [sql.strip() for line in (REFUSED + WRONG + OUTSIDE).strip().splitlines() for sql in line.split(" | ")]


@pytest.mark.parametrize("sql", ["", *HOSTILE])
def test_refused_or_wrong(options: QueryOptions, sql: str) -> None:
    secret = pa.table({"a": [1]})
    with pytest.raises(UsageError) as caught:
        ask(options, sql)
    assert caught.value.exit_code == 2
    assert caught.value.message
    assert "\n" not in str(caught.value)
    assert secret.num_rows == 1
    assert ask(options, "SELECT count(*) AS n FROM runs") == [{"n": 2}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(10000000) a, range(10000000) b",
        "SELECT count(*) FROM steps a, steps b, range(100000000) c, range(100000) d",
        "SELECT * FROM range(100000000000)",
        "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t",
    ],
)
def test_time_is_bounded(options: QueryOptions, sql: str) -> None:
    with pytest.raises(UsageError) as caught:
        ask(options, sql, timeout_seconds=0.3)
    assert caught.value.kind == "stopped"


def test_no_time_at_all(options: QueryOptions) -> None:
    with pytest.raises(UsageError) as caught:
        ask(options, "SELECT 1", timeout_seconds=0)
    assert caught.value.kind == "stopped"


def test_memory_is_bounded(options: QueryOptions) -> None:
    with pytest.raises(UsageError) as caught:
        ask(options, "SELECT list(range) FROM range(10000000000)", memory="100MB")
    assert caught.value.kind == "stopped"
    assert "100MB" in caught.value.message


@pytest.mark.parametrize("memory", ["", "lots", "-1", "none", "80%", "1"])
def test_memory_is_a_size(options: QueryOptions, memory: str) -> None:
    with pytest.raises(UsageError):
        ask(options, "SELECT 1", memory=memory)


def test_what_is_missing_is_said(options: QueryOptions, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no tables"):
        ask(options, "SELECT 1", dataset="bare")
    with pytest.raises(NotFoundError, match="team/a"):
        ask(options, "SELECT 1", dataset="nope")
    with pytest.raises(NotFoundError, match="no dataset"):
        ask(options, "SELECT 1", lake=str(tmp_path), dataset=None)
    with pytest.raises(UsageError):
        ask(options, "SELECT 1", dataset="../x")


def test_tables_may_come_from_elsewhere() -> None:
    tables = {name: pa.table({"a": [1, 2]}) for name in ("runs", "steps", "tool_calls")}
    result = run("SELECT max(dataset) AS d, sum(a) AS s FROM steps", [("a", tables), ("it's", tables)], Bounds())
    assert rows(result) == [{"d": "it's", "s": 6}]


def test_instants_finer_than_a_microsecond_are_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    from chronicle.console import Console
    from chronicle.rows import write_rows

    nanos = [1_767_323_045_123_456_789, 1_767_323_045_250_000_000, 1_767_323_045_000_000_000, None]
    batch = pa.record_batch({"at": pa.array(nanos, pa.timestamp("ns", "UTC"))})
    write_rows("jsonl", batch.schema, [batch], Console())
    expected = ['"2026-01-02T03:04:05.123456789Z"', '"2026-01-02T03:04:05.25Z"', '"2026-01-02T03:04:05Z"', "null"]
    assert capfdbinary.readouterr().out.decode().splitlines() == [f'{{"at":{text}}}' for text in expected]
