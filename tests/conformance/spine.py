"""Take files through the whole tool once, and look at what became of each of them.

A module writes its cases as files of one ingest: facts, tables and exports are made once a module, and every case is a
look at its own file. `Laws` holds what is true of every input, whatever the case is about.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from chronicle import identity
from chronicle.export import export
from chronicle.ingest import ingest
from chronicle.layout import TABLES, DatasetPaths
from chronicle.materialize import materialize
from chronicle.options import ExportOptions, IngestOptions, MaterializeOptions, RebuildOptions
from chronicle.quarantine import Quarantine
from chronicle.rebuild import rebuild
from chronicle.reports import IngestReport, RebuildReport
from chronicle.storyline.source import StorylineDataSource
from tests.jsoncompare import same_json

Row = dict[str, Any]

_ORDER = ("storage_ordinal", "document_id", "turn_ordinal", "call_index")
_FORMATS = ("atif", "openai_msg", "storyline")
_OLDER_THAN_THE_CLOCK = 0.03
"""A file younger than the clock's grain is read once more; cases are not about that."""


# --- cases --------------------------------------------------------------------------------------------------


@dataclass
class Cases:
    """The files of a module, one for each variant of a case."""

    files: dict[str, bytes] = field(default_factory=dict)
    converted: dict[str, bytes] = field(default_factory=dict)
    """What the export in a file's own format holds, where it is not the same values as the file."""
    suffix: str = ".json"

    def __call__(self, number: int | None, variants: Mapping[str, Any], suffix: str | None = None) -> pytest.MarkDecorator:
        """Parametrise a test with (`seen`, `expected`), one for each variant: `{id: source}` or `{id: (source, expected)}`.

        Where a test is about several cases `number` is None, and the ids begin with their numbers.
        """
        rows = []
        for variant, given in variants.items():
            source, expected = given if isinstance(given, tuple) else (given, None)
            variant = variant if number is None else f"{number}-{variant}"
            name = variant + (self.suffix if suffix is None else suffix)
            assert name not in self.files, f"case {name} is there twice"
            self.files[name] = source
            rows.append(pytest.param(name, expected, id=f"case{variant}"))
        return pytest.mark.parametrize(("seen", "expected"), rows, indirect=["seen"])


# --- the lake -----------------------------------------------------------------------------------------------


@dataclass
class Lake:
    """Files that were ingested, projected and exported."""

    paths: DatasetPaths
    root: Path
    """The directory that holds the files."""
    files: dict[str, bytes]
    reports: list[IngestReport]
    """Of the first half of the files, of all, of all again."""
    rebuilds: list[RebuildReport]
    """Of the first half, of all, again, and in full."""
    rows: dict[str, list[Row]]
    """By table, sorted; of the incremental rebuild."""
    rows_in_full: dict[str, list[Row]]
    exact: dict[str, bytes]
    formatted: dict[str, dict[str, bytes]]
    """By format: relative path -> bytes."""
    converted: dict[str, bytes]

    def of(self, name: str) -> Seen:
        """What became of one file."""
        return Seen(self, name)

    @cached_property
    def by_story(self) -> dict[str, dict[str, list[Row]]]:
        """Rows by table and story id."""
        found: dict[str, dict[str, list[Row]]] = {name: {} for name in TABLES}
        for name, rows in self.rows.items():
            for row in rows:
                found[name].setdefault(row["document_id"], []).append(row)
        return found

    @cached_property
    def by_source(self) -> dict[str, list[Row]]:
        """Rows of `runs` by source id, by document, the root first."""
        found: dict[str, list[tuple[int, int, Row]]] = {}
        for row in self.rows["runs"]:
            origin = origin_of(row)
            found.setdefault(origin["source_id"], []).append((origin.get("locator", 0), origin.get("index", 0), row))
        return {source: [row for *_, row in sorted(rows, key=lambda at: at[:2])] for source, rows in found.items()}

    @cached_property
    def entries(self) -> dict[str, list[tuple[int | None, str]]]:
        """(locator, kind) of the quarantine entries, by file name."""
        found: dict[str, list[tuple[int | None, str]]] = {}
        for entry in Quarantine(self.paths).entries.values():
            name = entry.source_key.removeprefix(f"file://{self.root.resolve()}/")
            found.setdefault(name, []).append((entry.locator, entry.kind))
        return found


def make_lake(where: Path, files: Mapping[str, bytes], converted: Mapping[str, bytes] | None = None) -> Lake:
    """Ingest half of the files, rebuild, ingest all, rebuild, once more both, rebuild in full, export in every way."""
    root = where / "in"
    root.mkdir()
    rounds: list[dict[str, bytes]] = [dict(list(files.items())[at::2]) for at in (0, 1)]
    return _taken(where, root, [*rounds, {}], dict(files), dict(converted or {}))


def lake_of(where: Path, root: Path, converted: Mapping[str, bytes]) -> Lake:
    """The same for the files of a directory that is there already, all of them at once."""
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return _taken(where, root, [{}, {}, {}], files, dict(converted))


def _taken(where: Path, root: Path, rounds: list[dict[str, bytes]], files: dict[str, bytes], converted: dict[str, bytes]) -> Lake:
    (where / "lake").mkdir()
    paths = DatasetPaths(str(where / "lake"), "cases")
    reports, rebuilds = [], []
    for new in rounds:
        for name, data in new.items():
            (root / name).write_bytes(data)
        time.sleep(_OLDER_THAN_THE_CLOCK)
        reports.append(ingest(IngestOptions(paths=paths, sources=(str(root),))))
        rebuilds.append(rebuild(RebuildOptions(paths=paths)))
    rows = _tables(paths)
    rebuilds.append(rebuild(RebuildOptions(paths=paths, full=True)))
    rows_in_full = _tables(paths)
    export(ExportOptions(paths=paths, to=str(where / "exact"), exact=True))
    for format in _FORMATS:
        export(ExportOptions(paths=paths, to=str(where / format), format=format))
    return Lake(
        paths=paths,
        root=root,
        files=files,
        reports=reports,
        rebuilds=rebuilds,
        rows=rows,
        rows_in_full=rows_in_full,
        exact=_read_below(where / "exact"),
        formatted={format: _read_below(where / format) for format in _FORMATS},
        converted=converted,
    )


def _read_below(root: Path) -> dict[str, bytes]:
    """Files of an export of one root, by the path below that root's directory."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {"/".join(path.relative_to(root).parts[1:]): path.read_bytes() for path in files}


def _tables(paths: DatasetPaths) -> dict[str, list[Row]]:
    source = StorylineDataSource.open(paths.storyline)
    found = {}
    ordinals: dict[str, int] = {}
    for name in TABLES:
        table = getattr(source, name).to_table()
        # Nanoseconds are more than a `datetime` holds.
        columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
        rows = pa.Table.from_arrays(columns, names=table.column_names).to_pylist()
        ordinals = ordinals or {row["document_id"]: row["storage_ordinal"] for row in rows}
        turns = {(row["document_id"], row["step_id"]): row["turn_ordinal"] for row in found.get("steps", ())}
        found[name] = sorted(rows, key=lambda row: _place(row, ordinals, turns))
    return found


def _place(row: Row, ordinals: Mapping[str, int], turns: Mapping[tuple[str, int], int]) -> tuple[int, str, int, int]:
    document = row["document_id"]
    turn = row.get("turn_ordinal", turns.get((document, row.get("step_id", 0)), 0))
    return ordinals[document], document, turn, row.get("call_index", 0)


# --- one file -----------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What became of one file: its rows, its quarantine entries and its exports."""

    lake: Lake
    name: str

    @property
    def source(self) -> bytes:
        """The bytes of the file."""
        return self.lake.files[self.name]

    @cached_property
    def data(self) -> bytes:
        """The decompressed bytes of the file."""
        if any(locator is None for locator, _ in self.quarantine):
            return self.source
        if self.source.startswith(b"\x1f\x8b"):
            return gzip.decompress(self.source)
        if self.source.startswith(b"\x28\xb5\x2f\xfd"):
            return zstandard.ZstdDecompressor().decompressobj().decompress(self.source)
        return self.source

    @property
    def target(self) -> str:
        """Where exact export writes it."""
        return self.name if self.data is self.source else self.name.removesuffix(".gz").removesuffix(".zst")

    @property
    def exported(self) -> bytes | None:
        """What exact export gives back; None where the file is not among the facts."""
        return self.lake.exact.get(self.target)

    @property
    def quarantine(self) -> list[tuple[int | None, str]]:
        """(locator, kind) of its entries; a locator of None is the whole file."""
        return self.lake.entries.get(self.name, [])

    @cached_property
    def runs(self) -> list[Row]:
        """Its stories, by document, the root first."""
        return self.lake.by_source.get(identity.source_id(self.data), [])

    @property
    def run(self) -> Row:
        """Its only story."""
        assert len(self.runs) == 1, f"{self.name} has {len(self.runs)} stories"
        return self.runs[0]

    def steps_of(self, run: Row) -> list[Row]:
        """Steps of a story in order."""
        return self.lake.by_story["steps"].get(run["document_id"], [])

    def calls_of(self, run: Row) -> list[Row]:
        """Tool calls of a story in order."""
        return self.lake.by_story["tool_calls"].get(run["document_id"], [])

    @property
    def steps(self) -> list[Row]:
        """Steps of its only story."""
        return self.steps_of(self.run)

    @property
    def step(self) -> Row:
        """Its only step."""
        assert len(self.steps) == 1, f"{self.name} has {len(self.steps)} steps"
        return self.steps[0]

    @property
    def calls(self) -> list[Row]:
        """Tool calls of its only story."""
        return self.calls_of(self.run)

    @property
    def call(self) -> Row:
        """Its only tool call."""
        assert len(self.calls) == 1, f"{self.name} has {len(self.calls)} tool calls"
        return self.calls[0]

    @property
    def lints(self) -> dict[str, int]:
        """Lints of its only story."""
        return lints_of(self.run)

    def as_format(self, format: str) -> bytes:
        """Its export in a format; of another format than its own the suffix is another one."""
        stem = self.target.rpartition(".")[0]
        names = (self.target, f"{stem}.storyline.json", f"{stem}.json", f"{stem}.jsonl")
        made = self.lake.formatted[format]
        return next(made[name] for name in names if name in made)

    def check_laws(self) -> None:
        """Exact export gives back the bytes, the export in its own format the JSON values; nothing failed."""
        is_whole = any(locator is None for locator, _ in self.quarantine)
        assert self.exported == (None if is_whole else self.data)
        if is_whole:
            assert self.runs == []
        for run in self.runs:
            assert run["schema_version"] == "storyline/v1"
            steps = self.steps_of(run)
            assert [step["turn_ordinal"] for step in steps] == list(range(len(steps)))
            assert len({step["step_id"] for step in steps}) == len(steps)
            calls = self.calls_of(run)
            assert len({call["tool_call_id"] for call in calls}) == len(calls)
        if self.runs:
            format = origin_of(self.runs[0])["format"]
            wanted = self.lake.converted.get(self.name, self.data)
            assert same_json(wanted, self.as_format(format)) is None


def lints_of(run: Row) -> dict[str, int]:
    """Lints of a story, by code."""
    return json.loads(run["meta"])["lints"] if run["meta"] else {}


def residual_of(row: Row) -> dict[str, Any]:
    """The residual of a row: pointer -> source text, None for absent. Orders of members and our own keys are left out."""
    found = json.loads(row["residual"]) if row["residual"] else {}
    return {at: text for at, text in found.items() if at[:1] in ("", "/")}


def order_of(row: Row) -> list[str] | None:
    """The member names of a row's object as the source has them, where they are not in canonical order."""
    return json.loads(row["residual"] or "{}").get("#")


def origin_of(run: Row) -> dict[str, Any]:
    """Where a story came from."""
    rest = json.loads(run["residual"] or "{}").get("origin", "{}")
    return {**json.loads(run["origin"]), **json.loads(rest)}


def columns(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    """Some cells of a row."""
    return tuple(row[name] for name in names)


# --- laws ---------------------------------------------------------------------------------------------------


class Laws:
    """What is true of every lake (design 11); a module of cases inherits it."""

    def test_every_file_is_known(self, lake: Lake) -> None:
        report = lake.reports[1]
        whole = {name for name, found in lake.entries.items() for locator, _ in found if locator is None}
        assert report.sources == len(lake.files)
        assert report.changed_while_read == []
        assert lake.entries.keys() <= lake.files.keys()
        assert len(lake.exact) == len(lake.files) - len(whole)

    def test_ingest_twice_is_ingest_once(self, lake: Lake) -> None:
        before, again = lake.reports[1:]
        whole = sum(1 for found in lake.entries.values() for locator, _ in found if locator is None)
        assert (again.files_opened, again.ingested, again.bound, again.events) == (0, 0, 0, 0)
        assert again.quarantined_new == 0
        assert again.unchanged == len(lake.files) - whole
        assert again.fact_version == before.fact_version
        assert lake.rebuilds[2].mode == "fresh"

    def test_incremental_rebuild_is_full_rebuild(self, lake: Lake) -> None:
        assert [report.mode for report in lake.rebuilds] == ["full", "incremental", "fresh", "full"]
        for table in TABLES:
            assert lake.rows[table] == lake.rows_in_full[table]

    def test_no_document_fails(self, lake: Lake) -> None:
        assert [report.failed for report in lake.rebuilds] == [[], [], [], []]
        assert [report.incomplete for report in lake.rebuilds] == [[], [], [], []]

    def test_every_story_has_a_page(self, lake: Lake) -> None:
        options = MaterializeOptions(paths=lake.paths)
        made, again = materialize(options), materialize(options)
        pages = list(Path(lake.paths.agenticmd).glob("*.md"))
        assert made.stories == len(pages) == len(lake.rows["runs"])
        assert (again.written, again.removed, again.edited) == (0, 0, [])
