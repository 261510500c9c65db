"""The three tables as Parquet files: the same columns and rows, for pandas, DuckDB and Arrow (design 5.2)."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as parquet
import pytest

from chronicle.export import export
from chronicle.layout import TABLES
from chronicle.options import ExportOptions
from chronicle.projection.schemas import SCHEMAS
from infra import samples
from tests.lake import ORDER, Lake
from tests.laws.contents import atif

ODD = '{"list":[NaN],"id":12345678901234567890123,"price":1.10,"price":2.50,"text":"\\ud800"}'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("full"))
    samples.write(lake.inbox)
    odd = json.loads(atif("odd", 2))
    odd["steps"][0]["metrics"] = "ODD"
    lake.put("odd.json", json.dumps(odd).replace('"ODD"', ODD).encode())
    lake.ingest()
    lake.rebuild()
    return lake


def test_all_rows_and_columns(lake: Lake, tmp_path: Path) -> None:
    report = export(ExportOptions(paths=lake.paths, to=str(tmp_path / "out"), format="parquet"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["runs.parquet", "steps.parquet", "tool_calls.parquet"]
    assert (report.files, report.stories) == (3, 16)
    stored = lake.rows()
    for table in TABLES:
        found = parquet.read_table(tmp_path / f"out/{table}.parquet")
        assert found.schema.equals(SCHEMAS[table])
        assert sorted(found.to_pylist(), key=lambda row: [row[key] for key in ORDER[table]]) == stored[table]
    assert ODD in parquet.read_table(tmp_path / "out/steps.parquet")["metrics"].to_pylist()


def test_selected_rows(lake: Lake, tmp_path: Path) -> None:
    where = "run_id = 'bird-1' OR session_id = 'kiln-5'"
    export(ExportOptions(paths=lake.paths, to=str(tmp_path / "out"), format="parquet", where=where))
    tables = {table: parquet.read_table(tmp_path / f"out/{table}.parquet") for table in TABLES}
    assert [row["agent_id"] for row in tables["runs"].to_pylist()] == ["spotter", "potter"], "exactly these, in storage order"
    assert {table: found.num_rows for table, found in tables.items()} == {"runs": 2, "steps": 4, "tool_calls": 2}
    empty = tmp_path / "empty"
    export(ExportOptions(paths=lake.paths, to=str(empty), format="parquet", since_ns=2_000_000_000 * 10**9))
    assert parquet.read_table(empty / "steps.parquet").schema.equals(SCHEMAS["steps"])


def test_duckdb_and_pandas_read_them(lake: Lake, tmp_path: Path) -> None:
    export(ExportOptions(paths=lake.paths, to=str(tmp_path / "out"), format="parquet"))
    sql = f"""SELECT r.agent_id, count(*) AS calls, min(s.timestamp)::TIMESTAMPTZ AS first
        FROM '{tmp_path}/out/runs.parquet' r JOIN '{tmp_path}/out/tool_calls.parquet' t USING (document_id)
        JOIN '{tmp_path}/out/steps.parquet' s USING (document_id, step_id) GROUP BY ALL ORDER BY calls DESC, 1 LIMIT 1"""
    ((agent, calls, first),) = duckdb.sql(sql).fetchall()
    assert (agent, calls, first.year) == ("wrench", 8, 2026)
    frame = pd.read_parquet(tmp_path / "out/steps.parquet")
    assert str(frame["timestamp"].dtype) == "datetime64[ns, UTC]"
    assert set(frame.columns) == set(SCHEMAS["steps"].names)
