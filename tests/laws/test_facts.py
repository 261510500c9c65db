"""Laws of the fold of facts: duplicates, shuffles, other copies, damage, and a log that was replayed (design 11)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chronicle import facts, identity
from chronicle.errors import IntegrityError
from chronicle.events import imported
from chronicle.events.row import EventColumns, Run, rows_of
from chronicle.formats.cut import cut
from chronicle.intake.journal import one_line
from chronicle.projection.fold import DocumentFold
from chronicle.projection.sources import wanted_documents
from tests.lake import Lake
from tests.laws.contents import CONTENTS, atif, chats, child

BASE = {f"f{number}.json": data for number, data in enumerate(CONTENTS) if data not in (b"", b"{ broken")}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("facts"))
    for name, data in BASE.items():
        made.put(name, data)
    made.ingest()
    made.put("f5.json", chats(range(6)))
    made.put("f0.json", atif("s1", 7))
    made.ingest()
    return made


def another(lake: Lake, folder: str, records: list[bytes]) -> Lake:
    """A lake with other facts of the same sources."""
    made = Lake(Path(folder), inbox=lake.inbox)
    made.append(records)
    return made


def texts(lake: Lake) -> list[bytes]:
    return [record.text for record in lake.records()]


def key_order(record: bytes) -> str | None:
    """What must keep its order: `source.closed` and `source.bound` of one key."""
    decoded = json.loads(record)
    return decoded["payload"]["source"]["source_key"] if decoded["kind"] in {"source.closed", "source.bound"} else None


def shuffled(records: list[bytes], seed: int) -> list[bytes]:
    """Any order that keeps the order of the source facts of each key."""
    mixed = list(records)
    random.Random(seed).shuffle(mixed)
    for key in {key_order(record) for record in records} - {None}:
        due = iter([record for record in records if key_order(record) == key])
        mixed = [next(due) if key_order(record) == key else record for record in mixed]
    return mixed


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 200), max_size=40))
def test_shuffled_and_repeated_rows_give_the_same_export_and_tables(lake: Lake, seed: int, repeated: list[int]) -> None:
    records = texts(lake)
    document_rows = [record for record in records if b'"kind":"document.' in record]
    extra = [document_rows[number % len(document_rows)] for number in repeated]
    with tempfile.TemporaryDirectory() as folder:
        other = another(lake, folder, shuffled(records + extra, seed))
        assert other.exact() == lake.exact()
        assert contents(other) == contents(lake)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 150), min_size=1, max_size=4))
def test_incremental_equals_full_over_a_shuffled_log_in_any_pieces(lake: Lake, seed: int, pieces: list[int]) -> None:
    records = shuffled(texts(lake), seed)
    with tempfile.TemporaryDirectory() as folder:
        other = Lake(Path(folder), inbox=lake.inbox)
        at = 0
        for piece in [*pieces, len(records)]:
            if records[at : at + piece]:
                other.append(records[at : at + piece])
                assert other.rebuild().failed == []
            at += piece
        incremental = other.rows()
        other.rebuild(full=True)
        assert other.rows() == incremental
        assert contents(other) == contents(lake)


@pytest.mark.parametrize("held_bytes", [0, 2_000, 20_000])
def test_documents_that_were_put_off_are_found_again(lake: Lake, tmp_path: Path, held_bytes: int) -> None:
    """Where the rows of many documents lie among each other, few are held at a time, and all are found."""
    other = another(lake, str(tmp_path), shuffled(texts(lake), 7))
    snapshot = facts.pin(other.paths)
    fold = facts.source_fold(snapshot)
    documents = DocumentFold(wanted_documents(fold, fold.coverage()), held_bytes=held_bytes)
    found = list(documents.feed(facts.document_rows(snapshot)))
    groups = 0
    for few in documents.put_off():
        groups += 1
        found += documents.feed(facts.rows_of_documents(snapshot, few, snapshot.fact_rows))
    expected = {document.ordinal: document.pieces() for document in facts.live_documents(snapshot, fold)}
    assert {document.ordinal: document.pieces() for document in found} == expected
    assert len(found) == len(expected)
    assert documents.incomplete == []
    assert groups > 1


def contents(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables without the row numbers of the log they were made from."""
    lake.rebuild()
    tables = lake.rows()
    for row in tables["runs"]:
        del row["storage_ordinal"]
    return {name: sorted(rows, key=repr) for name, rows in tables.items()}


class Rows:
    """Collects rows as record texts."""

    def __init__(self) -> None:
        self.columns = EventColumns()

    def add(self, *row: object) -> None:
        self.columns.add(*row)  # type: ignore[arg-type]

    def extend(self, run: Run) -> None:
        self.columns.extend(run)

    def texts(self) -> list[bytes]:
        return [row.payload_json for row in rows_of(self.columns.batch())]


def copy_of(data: bytes, key: str, *, parts: bool) -> list[bytes]:
    """All facts of one source, cut by our rules or not at all."""
    found = cut(data)
    if not parts:
        whole = [replace(document, parts=()) for document in found.documents]
        found = replace(found, documents=whole)
    stat = imported.Stat(size=len(data))
    attempt = f"attempt{parts}"
    context = imported.ImportContext(identity.source_id(data), key, "file:///x", stat, attempt, 1_700_000_000_000, False)
    sink = Rows()
    imported.put_opened(sink, context, found, None)
    for index in range(len(found.documents)):
        imported.put_document(sink, context, data, found, index)
    extent = imported.Extent(len(found.documents), len(data), identity.digest(data))
    imported.put_closed(sink, context, found, None, extent)
    return [record if parts else record.replace(b'"cut":"1"', b'"cut":"0"') for record in sink.texts()]


@pytest.mark.parametrize("size", [1, 5_000, 2_000_000])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_step_too_deep_for_a_value_stands_as_text_wherever_it_lies(size: int, at: int) -> None:
    def nested(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    extras = ['"[{[{"', nested(98), json.dumps("{[" * 200)]
    extras.insert(at, nested(100))
    head = '{"schema_version":"ATIF-v1.7","session_id":"s","agent":{"name":"a","version":"1"},"steps":['
    said = "x" * size
    steps = [f'{{"step_id":{i},"source":"user","message":"{said}","extra":{{"k":{more}}}}}' for i, more in enumerate(extras)]
    data = f"{head}{','.join(steps)}]}}".encode()
    payloads = [json.loads(record)["payload"] for record in copy_of(data, "file:///x/deep.json", parts=True)]
    members = [payload for payload in payloads if "part" in payload.get("document", {})]
    assert ["text" in payload for payload in members] == [place == at for place in range(4)]
    assert members[at]["text"] == steps[at]


def test_copies_by_other_cut_rules_are_never_mixed(tmp_path: Path) -> None:
    data = atif("s2", 3, subagent_trajectories=[child("bird", 3)])
    whole, pieces = copy_of(data, "file:///x/a.json", parts=False), copy_of(data, "file:///x/a.json", parts=True)
    assert len(whole) < len(pieces)
    for number, records in enumerate((whole + pieces, pieces[:-3] + whole, pieces[2:4] + whole[:1] + pieces + whole[1:])):
        lake = Lake(tmp_path / str(number))
        lake.append(records)
        assert lake.exact() == {"x/a.json": data}
    first = contents(Lake(tmp_path / "0"))
    assert contents(Lake(tmp_path / "2")) == first


def test_a_damaged_copy_is_passed_over_and_a_damaged_source_is_refused(tmp_path: Path) -> None:
    data = atif("s2", 3)
    good = copy_of(data, "file:///x/a.json", parts=True)
    bad = [record.replace(b"message 2", b"message 9") for record in good]
    assert bad != good
    lake = Lake(tmp_path / "other-copy")
    lake.append([record.replace(b"attemptTrue", b"x") for record in bad] + copy_of(data, "file:///x/a.json", parts=False))
    assert lake.exact() == {"x/a.json": data}
    assert lake.rebuild().lints["document-digest-mismatch"] == 1

    lake = Lake(tmp_path / "only-copy")
    lake.append(bad)
    with pytest.raises(IntegrityError, match="do not give back"):
        lake.exact()
    assert lake.rebuild().incomplete


@pytest.mark.parametrize("missing", ["document.closed", "document.part", "document.opened"])
def test_an_incomplete_document_is_reported_and_its_neighbours_are_projected(tmp_path: Path, missing: str) -> None:
    lake = Lake(tmp_path)
    broken = copy_of(atif("s2", 3), "file:///x/a.json", parts=True)
    at = next(number for number, record in enumerate(broken) if f'"kind":"{missing}"'.encode() in record)
    lake.append(broken[:at] + broken[at + 1 :] + copy_of(atif("s3", 4), "file:///x/b.json", parts=True))
    report = lake.rebuild()
    assert len(report.incomplete) == 1
    assert report.warnings == ["1 document is not whole in the facts and left out: run `chronicle verify`"]
    assert [row["session_id"] for row in lake.rows()["runs"]] == ["s3"]


def test_a_source_without_its_end_does_not_displace_the_version_before(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    old, new = atif("s2", 3), atif("s2", 5)
    begun = [record for record in copy_of(new, "file:///x/a.json", parts=True) if b'"kind":"source.closed"' not in record]
    lake.append(copy_of(old, "file:///x/a.json", parts=True) + begun)
    assert lake.exact() == {"x/a.json": old}
    assert lake.rebuild().incomplete == ["source file:///x/a.json"]
    assert lake.rows()["runs"][0]["session_id"] == "s2"
    assert len(lake.rows()["steps"]) == 3


def test_sources_that_continue_nothing_known_are_reported_and_poison_nothing(lake: Lake) -> None:
    """Journals of strangers may name prefixes that go in a circle or nowhere, or bind a key to bytes nobody has seen."""
    before, rows = lake.exact(), contents(lake)
    circle = {"source_id": "zz", "documents": 1, "size": 1}
    odd: list[tuple[str, dict[str, Any]]] = [
        ("source.closed", {"source_id": "zz", "source_key": "odd/circle", "documents": 3, "size": 9, "prefix": circle}),
        (
            "source.closed",
            {"source_id": "yy", "source_key": "odd/gone", "documents": 2, "size": 9, "prefix": {**circle, "source_id": "no"}},
        ),
        ("source.bound", {"source_id": "never", "source_key": "odd/bound"}),
    ]
    for kind, source in odd:
        record = {
            "event_id": str(source["source_key"]),
            "timestamp_unix_ms": 1,
            "producer": "x",
            "seq": 0,
            "source": "x",
            "kind": kind,
        }
        lake.append([json.dumps({**record, "trace_id": source["source_id"], "payload": {"source": source}}).encode()])
    report = lake.rebuild()
    assert {"source odd/bound", "source odd/circle", "source odd/gone"} <= set(report.incomplete)
    assert lake.exact() == before
    assert contents(lake) == rows
    assert lake.exported("storyline")


def test_replay_into_ingest_gives_the_same_export(lake: Lake, tmp_path: Path) -> None:
    journal = b"".join(one_line(record.text) + b"\n" for record in lake.records())
    assert journal.count(b"\n") == len(lake.records())
    command = (
        "import sys; from chronicle.ingest import ingest; from chronicle.layout import DatasetPaths; "
        "from chronicle.options import IngestOptions; "
        "print(ingest(IngestOptions(paths=DatasetPaths(sys.argv[1], 'd'), sources=('-',))).exit_code())"
    )
    other = Lake(tmp_path)
    done = subprocess.run([sys.executable, "-c", command, other.paths.lake], input=journal, capture_output=True, check=True)
    assert done.stdout == b"0\n"
    assert other.exact() == lake.exact()
    assert contents(other) == contents(lake)
    assert {record.event_id for record in lake.records()} <= {record.event_id for record in other.records()}


LEAVES = json.loads(atif("s2", 3, subagent_trajectories=[child("bird", 3)], extra={"k": [1, {"z": None}]}, notes="n"))


def leaves(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    if isinstance(value, dict):
        return [leaf for key, child_value in value.items() for leaf in leaves(child_value, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, child_value in enumerate(value) for leaf in leaves(child_value, (*path, index))]
    return [path]


def test_one_changed_leaf_always_shows(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put("original.json", json.dumps(LEAVES).encode())
    paths = leaves(LEAVES)
    for number, path in enumerate(paths):
        changed = msgspec.json.decode(json.dumps(LEAVES))
        at = changed
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = f"{at[path[-1]]}~" if isinstance(at[path[-1]], str) else 987
        lake.put(f"{number}.json", json.dumps(changed).encode())
    lake.ingest()
    lake.rebuild()
    seen: dict[str, set[str]] = {}
    ids = ("document_id", "storage_ordinal", "parent", "child_session_ids", "meta")
    tables = lake.rows()
    for name, rows in tables.items():
        for row in rows:
            document = row["document_id"]
            clean = {key: value for key, value in row.items() if key not in ids}
            if name == "runs":
                clean["residual"] = {k: v for k, v in json.loads(row["residual"] or "{}").items() if k != "origin"}
            seen.setdefault(document, set()).add(f"{name} {clean!r}")
    roots: dict[str, set[str]] = {}
    for row in tables["runs"]:
        origin = json.loads(json.loads(row["residual"])["origin"])
        roots.setdefault(origin["document_id"], set()).update(seen[row["document_id"]])
    assert len(roots) == len(paths) + 1
    assert len({frozenset(rows) for rows in roots.values()}) == len(paths) + 1, "two sources that differ have equal rows"
