"""Real exports, through the whole pipeline under Prefect and through the plain verbs: the same facts, everything back."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chronicle.intake.receipts import list_receipts
from chronicle.layout import TABLES, DatasetPaths
from chronicle.storyline.source import StorylineDataSource
from tests.jsoncompare import same_json
from tests.lake import tree
from tests.laws import test_leaves
from tests.long import evidence
from tests.process import REPOSITORY, Done, chronicle

CORPUS = (REPOSITORY.parent / "shared/corpus").resolve()
PARTS = ("atif", "openai_msg")
SEED = 11
"""Of the choice of leaves, where a document has many."""
REFUSED = {
    "atif/not_atif_gemini_cli_native.json": "unsupported:gemini-cli-log",
    "atif/not_atif_openhands_native.json": "unsupported:openhands-log",
    "openai_msg/llamafactory_glaive_toolcall_20.json": "unsupported:sharegpt",
}
OF_THE_READING = ("copy", "ingested_at_unix_ms")
"""What differs from one reading of a source to the next."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (CORPUS / "atif").is_dir(), reason="the corpus of real exports is not beside the repository"),
]


@dataclass(frozen=True)
class Taken:
    """The corpus in a lake."""

    lake: Path
    ingest: dict[str, Any]
    during_ms: tuple[int, int]

    @property
    def paths(self) -> DatasetPaths:
        return DatasetPaths(str(self.lake), "d")

    def call(self, *arguments: object, code: int = 0) -> Done:
        done = chronicle(*arguments, "--lake", self.lake, "--dataset", "d", "--json")
        assert done.code == code, done.err
        return done

    def facts(self) -> list[Any]:
        """All records, without what belongs to one reading."""
        return [_timeless(json.loads(line), self.during_ms) for line in self.call("replay").out.splitlines()]

    def rows(self) -> dict[str, Any]:
        source = StorylineDataSource.open(self.paths.storyline)
        keys = [
            ("document_id", "ascending"),
            ("turn_ordinal", "ascending"),
            ("step_id", "ascending"),
            ("call_index", "ascending"),
        ]
        tables = {name: getattr(source, name).to_table().combine_chunks() for name in TABLES}
        return {name: table.sort_by([key for key in keys if key[0] in table.schema.names]) for name, table in tables.items()}

    def markdown(self) -> dict[str, bytes]:
        return {name: data for name, data in tree(Path(self.paths.agenticmd)).items() if not name.startswith(".")}


def _timeless(value: Any, during: tuple[int, int]) -> Any:
    record = {key: part for key, part in value.items() if key != "event_id"}
    if during[0] <= record["timestamp_unix_ms"] <= during[1]:
        record["timestamp_unix_ms"] = "of the import"
    document = record["payload"].get("document", {})
    kept = {key: part for key, part in document.items() if key not in OF_THE_READING}
    return record | {"payload": record["payload"] | {"document": kept}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """By one `chronicle run`, with a Prefect server of its own."""
    home = tmp_path_factory.mktemp("run")
    began = _now_ms()
    sources = [CORPUS / part for part in PARTS]
    arguments = ("--lake", home / "lake", "--dataset", "d", "--json")
    done = chronicle("run", *sources, *arguments, PREFECT_HOME=home / "prefect")
    assert done.code == 65, done.err
    report = done.json
    assert (report["failures"], report["skipped"]) == ({}, "")
    assert report["verify"]["differences"] == []
    assert report["rebuild"]["failed"] == []
    return Taken(home / "lake", report["ingest"], (began, _now_ms()))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """By the plain verbs."""
    lake = tmp_path_factory.mktemp("plain") / "lake"
    began = _now_ms()
    where = ("--lake", lake, "--dataset", "d", "--json")
    done = chronicle("ingest", *(CORPUS / part for part in PARTS), *where)
    assert done.code == 65, done.err
    taken = Taken(lake, done.json, (began, _now_ms()))
    taken.call("rebuild")
    taken.call("materialize")
    return taken


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {}


def files() -> dict[str, bytes]:
    return {f"{part}/{name}": data for part in PARTS for name, data in tree(CORPUS / part).items()}


def ingested(taken: Taken) -> set[str]:
    root = f"file://{CORPUS}/"
    return {receipt.source_key.removeprefix(root) for receipt in list_receipts(taken.paths)}


def test_every_file_is_ingested_or_set_aside_with_its_kind(run: Taken, found: dict[str, Any]) -> None:
    report = run.ingest
    refused = {entry["source_key"].removeprefix(f"file://{CORPUS}/"): entry["kind"] for entry in report["quarantine"]}
    assert refused == REFUSED
    assert ingested(run) | refused.keys() == files().keys()
    assert ingested(run).isdisjoint(refused)
    assert (report["sources"], report["ingested"], report["ignored"]) == (len(files()), len(files()) - len(REFUSED), {})
    found["files"] = {
        "all": len(files()),
        "ingested": report["ingested"],
        "quarantined": refused,
        "documents": report["documents"],
    }


def test_exact_export_gives_the_files_back(run: Taken, found: dict[str, Any], tmp_path: Path) -> None:
    run.call("export", "--exact", "--to", tmp_path / "out")
    wanted = {name: data for name, data in files().items() if name not in REFUSED}
    assert tree(tmp_path / "out") == wanted
    compared = [subprocess.run(["diff", "-r", CORPUS / part, tmp_path / "out" / part], capture_output=True) for part in PARTS]
    lines = [line for done in compared for line in done.stdout.decode().splitlines()]
    assert sorted(lines) == sorted(f"Only in {CORPUS / name.split('/')[0]}: {name.split('/')[1]}" for name in REFUSED)
    found["exact"] = {"files": len(wanted), "bytes": sum(map(len, wanted.values())), "different": 0}


@pytest.mark.parametrize("format", PARTS)
def test_export_through_the_hub_gives_equal_values(run: Taken, format: str, found: dict[str, Any], tmp_path: Path) -> None:
    run.call("export", "--format", format, "--to", tmp_path / "out")
    out = tree(tmp_path / "out")
    assert len(out) == len(ingested(run))
    wanted = sorted(name for name in ingested(run) if name.startswith(f"{format}/"))
    differences = {name: same_json(files()[name], out[name]) for name in wanted}
    counts = Counter("equal" if difference is None else "different" for difference in differences.values())
    found[f"export_{format}"] = {"files": len(wanted), **counts}
    assert {name: difference for name, difference in differences.items() if difference is not None} == {}
    assert counts["equal"] == len([name for name in files() if name.startswith(f"{format}/") and name not in REFUSED])


def test_json_lines_give_equal_values(run: Taken, found: dict[str, Any], tmp_path: Path) -> None:
    """Every ATIF document of the corpus stands once in one file of JSON lines, and nothing else does."""
    where = "document_id IN (SELECT document_id FROM runs WHERE json_extract_string(origin, '$.format') = 'atif')"
    run.call("export", "--format", "atif", "--where", where, "--to", tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_bytes().splitlines()
    wanted = [data for name, data in sorted(files().items()) if name.startswith("atif/") and name not in REFUSED]
    left = list(lines)
    for data in wanted:
        equal = [line for line in left if same_json(data, line) is None]
        assert equal, data[:200]
        left.remove(equal[0])
    assert left == []
    found["json_lines_atif"] = {"documents": len(lines), "different": 0}


def leaves_of_all(format: str, look: Callable[[bytes, random.Random, int], tuple[int, list[str]]], most: int) -> int:
    """How many leaves of all files of a format were changed, so many a document; `look` found nothing to say of any."""
    dice = random.Random(SEED)
    tried, wrong = 0, {}
    for name, data in sorted(files().items()):
        if name.startswith(f"{format}/") and name not in REFUSED:
            count, said = look(data, dice, most if len(data) < 1 << 20 else 1)
            tried += count
            if said:
                wrong[name] = said
    assert wrong == {}
    return tried


@pytest.mark.parametrize("format", PARTS)
def test_no_leaf_is_ignored(format: str, found: dict[str, Any]) -> None:
    """One changed leaf of a source changes the Storyline or the residual (design 11)."""
    tried = leaves_of_all(format, test_leaves.ignored, most=40)
    assert tried > 500
    found[f"leaves_{format}"] = {"changed": tried, "ignored": 0}


@pytest.mark.parametrize("format", PARTS)
def test_a_changed_leaf_comes_out_of_the_tables(format: str, found: dict[str, Any]) -> None:
    """The tables give back the changed document, which `verify` would then tell from the one before."""
    tried = leaves_of_all(format, test_leaves.lost, most=12)
    assert tried > 150
    found[f"leaves_through_tables_{format}"] = {"changed": tried, "lost": 0}


def test_the_plain_verbs_give_the_same(run: Taken, plain: Taken, found: dict[str, Any]) -> None:
    assert plain.facts() == run.facts()
    assert plain.rows() == run.rows()
    assert plain.markdown() == run.markdown()
    own = ("seconds", "touched", "freshness")  # the last is said once, by whoever was called: here the verb, there the run
    assert {name: value for name, value in plain.ingest.items() if name not in own} == {
        name: value for name, value in run.ingest.items() if name not in own
    }
    found["by_both_ways"] = {
        "facts": len(run.facts()),
        **{name: table.num_rows for name, table in run.rows().items()},
        "markdown_files": len(run.markdown()),
    }
    evidence.keep("corpus", found, seed=SEED)
