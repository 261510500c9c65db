"""One SELECT over the tables, and nothing else (design 8; environment.md 8)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from chronicle.errors import NotFoundError, UsageError
from chronicle.formats.story import Agent, StorylineDocument, ToolCall, Turn
from chronicle.layout import DatasetPaths
from chronicle.options import QueryOptions
from chronicle.projection.tables import TableBuilder
from chronicle.query import QueryResult, query
from chronicle.sql.sandbox import Bounds, run
from chronicle.storyline.store import StorylineLanceStore
from infra import samples
from tests.command import chronicle
from tests.lake import Lake


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
        builder.add([one], ordinal)
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


@pytest.mark.parametrize(
    "sql",
    [
        *("EXPLAIN SELECT 1", "EXPLAIN ANALYZE FROM runs", "EXPLAIN (FORMAT json) FROM runs", "EXPLAIN (FROM runs)"),
        "/* EXPLAIN */ explain -- it\n analyze SELECT ')'",
    ],
)
def test_explain(options: QueryOptions, sql: str) -> None:
    assert ask(options, sql)


def test_statements_may_be_deep(options: QueryOptions) -> None:
    assert ask(options, f"SELECT {'1 + ' * 900} 1 AS n") == [{"n": 901}]
    assert ask(options, 'SELECT \'glob("type":"TABLE_FUNCTION")\' AS x') == [{"x": 'glob("type":"TABLE_FUNCTION")'}]


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
    FROM duckdb_secrets() | FROM duckdb_settings() | FROM pg_catalog.pg_settings | SELECT current_setting('temp_directory')
    FROM query('SELECT 1') | FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1')) | FROM which_secret('a', 's3')
    FROM runs, LATERAL (FROM duckdb_settings()) | SELECT (SELECT count(*) FROM system.main.glob('x')) | FROM enable_logging()
    EXPLAIN ANALYZE FROM read_text('/etc/passwd') | SELECT getvariable('x') | SELECT repeat('x', 10000000000)
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


def test_what_comes_out_is_bounded(options: QueryOptions) -> None:
    result = query(replace(options, sql="SELECT repeat('x', 100000) FROM range(100000)", max_bytes="1GB"))
    with pytest.raises(UsageError, match="more than 1GB") as caught:
        for _ in result.batches():
            pass
    assert caught.value.kind == "stopped"


def test_memory_is_bounded(options: QueryOptions) -> None:
    with pytest.raises(UsageError) as caught:
        ask(options, "SELECT list(range) FROM range(10000000000)", memory="100MB")
    assert caught.value.kind == "stopped"
    assert "100MB" in caught.value.message


def test_one_function_may_not_take_more_either(lake: Path) -> None:
    done = chronicle(
        "query", "SELECT printf('%2000000000d', 1)", "--lake", lake, "--memory", "100MB", "--timeout", "60", "--quiet"
    )
    assert (done.code, done.out) == (2, b"")
    assert done.err == "error: query stopped: it needs more than 100MB; narrow it, or raise --memory\n"


def test_one_function_that_is_not_interrupted(lake: Path) -> None:
    sql = "SELECT levenshtein(repeat('a', 200000), repeat('b', 1000000))"
    done = chronicle("query", sql, "--lake", lake, "--timeout", "0.5")
    assert (done.code, done.err.splitlines()[-1]) == (2, "error: query stopped after 0.5 seconds; narrow it, or raise --timeout")


def test_an_endless_statement_ends_with_its_limit(lake: Path) -> None:
    sql = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT a FROM t"
    done = chronicle("query", sql, "--lake", lake, "--limit", "2", "--timeout", "5", "--quiet")
    assert (done.code, done.out, done.err) == (0, b'{"a":1}\n{"a":2}\n', "")


def test_time_without_an_end(options: QueryOptions) -> None:
    assert ask(options, "SELECT 1 AS n", timeout_seconds=math.inf) == [{"n": 1}]


@pytest.mark.parametrize("memory", ["", "lots", "-1", "none", "80%", "1"])
def test_memory_is_a_size(options: QueryOptions, memory: str) -> None:
    with pytest.raises(UsageError):
        ask(options, "SELECT 1", memory=memory)


def test_stale_tables_are_said(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put("a.json", samples.samples()["eval/survey-7.json"])
    lake.ingest()
    lake.rebuild()
    asked = ("query", "SELECT count(*) AS n FROM runs", "--lake", lake.paths.lake)
    assert chronicle(*asked).err == ""
    lake.put("b.json", samples.samples()["eval/survey-7.json"].replace(b"survey-7", b"survey-8"))
    events = lake.ingest().events
    done = chronicle(*asked, "--dataset", "d")
    assert done.json == {"n": 2}
    warning = f"warning: not from all facts: d (stale by {events} facts); run `chronicle rebuild`\n"
    assert done.err == warning
    place = ("--lake", lake.paths.lake, "--dataset", "d")
    out = tmp_path / "out"
    assert chronicle("find", "survey-7", *place).err == warning
    assert chronicle("report", "--to", tmp_path / "r.html", *place).err == warning
    assert chronicle("export", "--exact", "--to", out / "exact", *place).err == ""
    for format in ("storyline", "agenticmd", "parquet"):
        assert chronicle("export", "--format", format, "--to", out / format, *place).err == warning
    assert chronicle("export", "--format", "atif", "--session", "survey-7", "--to", out / "one", *place).err == warning
    none = chronicle("export", "--format", "atif", "--where", "false", "--to", out / "none", *place)
    assert none.err.startswith(f"{warning}nothing was written: ")


def test_macros_for_json_in_text(options: QueryOptions) -> None:
    texts = """ '{"a":1.5,"b":[1,"x",{"y":2}],"s":"5","i":"Infinity","a/b":true}', '{cut', '', '["p"]', 'NaN', NULL """
    from_texts = f"FROM (SELECT unnest([{texts}]) AS j)"
    numbers = "json_number(j, '/a') AS a, json_number(j, '/s') AS s, json_number(j, '/i') AS i, json_number(j, '$.b[2].y') AS y"
    assert ask(options, f"SELECT {numbers} {from_texts}") == [
        {"a": 1.5, "s": 5.0, "i": None, "y": 2.0},
        *[dict.fromkeys("asiy")] * 5,
    ]
    words = ask(options, f"SELECT json_text(j, '/s') AS s, json_text(j, '/a~1b') AS t, json_items(j, '/b') AS b {from_texts}")
    assert words == [{"s": "5", "t": "true", "b": ["1", "x", '{"y":2}']}, *[{"s": None, "t": None, "b": []}] * 5]
    assert ask(options, f"SELECT json_items(j, '') AS i {from_texts}")[3] == {"i": ["p"]}
    assert ask(options, "SELECT sum(json_number(metrics, '/n')) AS n FROM steps") == [{"n": 6.0}]


def test_what_is_missing_is_said(options: QueryOptions, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no tables"):
        ask(options, "SELECT 1", dataset="bare")
    with pytest.raises(NotFoundError, match="team/a"):
        ask(options, "SELECT 1", dataset="nope")
    for dataset in ("d", None):
        with pytest.raises(NotFoundError, match="nowhere does not exist"):
            ask(options, "SELECT 1", lake=str(tmp_path / "nowhere"), dataset=dataset)
    with pytest.raises(NotFoundError, match="no dataset"):
        ask(options, "SELECT 1", lake=str(tmp_path), dataset=None)
    with pytest.raises(UsageError):
        ask(options, "SELECT 1", dataset="../x")


def test_tables_may_come_from_elsewhere() -> None:
    tables = {name: pa.table({"a": [1, 2]}) for name in ("runs", "steps", "tool_calls")}
    result = run("SELECT max(dataset) AS d, sum(a) AS s FROM steps", [("a", tables), ("it's", tables)], Bounds())
    assert rows(result) == [{"d": "it's", "s": 6}]


def test_instants_finer_than_a_microsecond_are_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    from chronicle.commandline.console import Console
    from chronicle.commandline.rows import write_rows

    nanos = [1_767_323_045_123_456_789, 1_767_323_045_250_000_000, 1_767_323_045_000_000_000, None]
    batch = pa.record_batch({"at": pa.array(nanos, pa.timestamp("ns", "UTC"))})
    write_rows("jsonl", batch.schema, [batch], Console())
    expected = ['"2026-01-02T03:04:05.123456789Z"', '"2026-01-02T03:04:05.25Z"', '"2026-01-02T03:04:05Z"', "null"]
    assert capfdbinary.readouterr().out.decode().splitlines() == [f'{{"at":{text}}}' for text in expected]


VALUES = {
    "INTERVAL 0 SECOND": "PT0S",
    "INTERVAL 5 MONTH": "P5M",
    "INTERVAL 1 DAY + INTERVAL 3540 SECOND": "P1DT3540S",
    "INTERVAL (-90.5) SECOND": "PT-90.5S",
    "TIMESTAMPTZ '2026-01-03 00:59:00Z' - TIMESTAMPTZ '2026-01-02 00:00:00Z'": "P1DT3540S",
    "DATE '0001-01-01'": "0001-01-01",
    "DATE '-0044-03-15'": "-0044-03-15",
    "'x'::BLOB": "eA==",
    "NULL::INTERVAL": None,
}


def test_values_that_python_has_no_good_text_for(lake: Path) -> None:
    sql = "SELECT " + ", ".join(f"{value} AS c{at}" for at, value in enumerate(VALUES))
    done = chronicle("query", sql, "--lake", lake)
    assert list(done.json.values()) == list(VALUES.values())
    line = chronicle("query", sql, "--lake", lake, "--format", "csv").out.decode().splitlines()[1]
    assert line.split(",") == [value or "" for value in VALUES.values()]


@pytest.mark.parametrize(
    ("value", "format", "code"),
    [
        ("DATE '290000-01-01'", "jsonl", 0),
        ("'infinity'::TIMESTAMP", "csv", 0),
        ("{'at': 'infinity'::DATE}", "jsonl", 2),
        ("['-infinity'::TIMESTAMP]", "csv", 2),
        ("INTERVAL 1 DAY", "parquet", 2),
        ("union_value(k := 1)", "parquet", 2),
    ],
)
def test_values_out_of_any_range(lake: Path, value: str, format: str, code: int) -> None:
    done = chronicle("query", f"SELECT {value} AS x", "--lake", lake, "--format", format, "--quiet")
    assert done.code == code
    assert done.err.count("\n") == (code == 2)
    assert ("CAST" in done.err) == (code == 2)
