"""Sources in an object store: which objects a SOURCE names, under which keys, and what is read of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from chronicle.errors import NotFoundError, UsageError
from chronicle.events.imported import Stat
from chronicle.export import export
from chronicle.ingest import ingest
from chronicle.intake.reading import ChangedWhileRead, Limits, read_source
from chronicle.intake.receipts import list_receipts
from chronicle.layout import DatasetPaths
from chronicle.options import ExportOptions, IngestOptions, VerifyOptions
from chronicle.quarantine import Quarantine
from chronicle.reports import IngestReport
from chronicle.storage.listing import Listing, file_at, list_sources
from chronicle.verify import verify
from tests.lake import tree
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.proxy import Proxy, Request

HOSTILE = (
    "a [1].json",
    "b#1?.json",
    "c%2Fd+e.json",
    "o'brien;--.json",
    "sp ace.json",
    "日本.json",
    "plus+sign.json",
    "e\u0301 and é.json",
    'amp&<>".json',
    "%41.json",
    "~tilde*star.json",
    "deep er/[x]/{y}.json",
    "a=b.json",
    "-",
)
LIMITS = Limits(1 << 20, 200)


def listed(*sources: str, lake: str = "/nowhere") -> list[str]:
    return [file.key for file in list_sources(sources, lake).files]


def ingested(tmp_path: Path, *sources: str, **options: object) -> tuple[DatasetPaths, IngestReport]:
    paths = DatasetPaths(str(tmp_path / "lake"), "d")
    return paths, ingest(IngestOptions(paths=paths, sources=sources, **options))  # type: ignore[arg-type]


def test_hostile_keys_come_in_and_go_out(place: Place, tmp_path: Path) -> None:
    for name in HOSTILE:
        place.put(f"in/{name}", atif(name, 2))
    paths, report = ingested(tmp_path, f"{place.uri}/in")
    assert (report.ingested, report.warnings) == (len(HOSTILE), [])
    assert sorted(receipt.source_key for receipt in list_receipts(paths)) == sorted(f"{place.uri}/in/{n}" for n in HOSTILE)
    export(ExportOptions(paths=paths, to=str(tmp_path / "out"), exact=True))
    assert tree(tmp_path / "out/in") == {name: atif(name, 2) for name in HOSTILE}
    found = verify(VerifyOptions(paths=paths))
    assert (found.sources, found.sources_gone, found.sources_changed) == (len(HOSTILE), 0, 0)


def test_a_hostile_key_can_be_named_by_itself(place: Place) -> None:
    for name in HOSTILE:
        place.put(f"in/{name}", b"{}")
    for name in HOSTILE:
        assert listed(f"{place.uri}/in/{name}") == [f"{place.uri}/in/{name}"]


def test_objects_prefixes_globs_and_names(place: Place) -> None:
    for name in ("a.json", "a.json.bak", "ab/c.json", "ab/d.jsonl", "ab/e/f.json", "x/.hidden.json", ".h/g.json", "x/y.txt", "z"):
        place.put(name, b"{}")
    uri = place.uri
    both = [f"{uri}/a.json", f"{uri}/ab/c.json"]
    assert listed(f"{uri}/a.json") == [f"{uri}/a.json"]
    assert listed(f"{uri}/a.json.bak") == [f"{uri}/a.json.bak"], "what is named by itself is always read"
    assert listed(f"{uri}/ab") == listed(f"{uri}/ab/") == [f"{uri}/ab/{name}" for name in ("c.json", "d.jsonl", "e/f.json")]
    assert listed(f"{uri}/*.json") == [f"{uri}/a.json"]
    assert listed(f"{uri}/a*") == [*both[:1], f"{uri}/a.json.bak", *listed(f"{uri}/ab")]
    assert listed(f"{uri}/*/[c-d].json*") == [f"{uri}/ab/c.json", f"{uri}/ab/d.jsonl"]
    assert listed(f"{uri}/**/*.json") == [*both, f"{uri}/ab/e/f.json"]
    assert listed(f"{uri}/x/.h*") == [f"{uri}/x/.hidden.json"]
    assert listed(f"{uri}") == [*both, f"{uri}/ab/d.jsonl", f"{uri}/ab/e/f.json", f"{uri}/z"]
    assert list_sources((uri,), "/nowhere").ignored == {".bak": 1, ".txt": 1}
    assert [(f.key, f.root) for f in list_sources((f"N={uri}/ab/e",), "/nowhere").files] == [("N/f.json", "N")]
    assert [f.root for f in list_sources((f"{uri}/ab/e/*.json", f"{uri}/a.json"), "/x").files] == [uri, f"{uri}/ab/e"]
    assert listed(f"{uri}/ab", f"{uri}/ab/c.json", f"{uri}/ab/*") == listed(f"{uri}/ab")
    for nothing in ("none", "a.js", "*.md", "ab/c.json/", "q/"):
        with pytest.raises(NotFoundError):
            listed(f"{uri}/{nothing}")
    with pytest.raises(NotFoundError):
        listed("s3://no-such-bucket-here/x")


def test_a_walk_leaves_out_the_lake_lance_and_foreign_markdown(place: Place) -> None:
    for name in ("a.json", "lake/events/d/x.json", "lakes/b.json", "t.lance/c.json", "plain.md", "ours.md"):
        place.put(name, b"---\nformat: persisting\n---\n" if name == "ours.md" else b"{}")
    found: Listing = list_sources((place.uri,), f"{place.uri}/lake")
    assert [file.key.rpartition("/")[2] for file in found.files] == ["a.json", "b.json", "ours.md"]
    assert found.ignored == {".md": 1}


def test_a_listing_is_never_a_stale_one(place: Place) -> None:
    place.put("in/a.json", b"{}")
    assert len(listed(f"{place.uri}/in")) == 1
    with pytest.raises(NotFoundError):
        listed(f"{place.uri}/in/b.json")
    place.put("in/b.json", b"{}")
    assert len(listed(f"{place.uri}/in")) == 2
    assert listed(f"{place.uri}/in/b.json") == [f"{place.uri}/in/b.json"]


def test_many_objects_are_more_than_one_page(place: Place, monkeypatch: pytest.MonkeyPatch, between: Proxy) -> None:
    for number in range(7):
        place.put(f"in/{number}.json", b"{}")
    asked: list[str] = []

    def small_pages(request: Request) -> None:
        if "list-type=2" in request.path and "max-keys" not in request.path:
            request.path += "&max-keys=3"
            asked.append(request.path)

    between.before = small_pages
    assert len(listed(f"{place.uri}/in")) == 7
    assert len(asked) == 3


def test_what_changes_after_the_listing_is_read_whole(place: Place) -> None:
    place.put("in/a.json", atif("before", 2))
    file = list_sources((f"{place.uri}/in",), "/nowhere").files[0]
    place.put("in/a.json", atif("after", 5))
    read = read_source(file, LIMITS)
    assert read.data == atif("after", 5)
    now = file_at(file.key)
    assert now is not None
    assert read.stat.etag == now.etag != file.etag
    place.client.delete("chronicle-test", f"{place.prefix}/in/a.json")
    with pytest.raises(ChangedWhileRead):
        read_source(file, LIMITS)


def test_what_changes_while_it_is_read_is_never_mixed(place: Place, between: Proxy) -> None:
    first, second = atif("before", 200), atif("after", 300)
    place.put("in/a.json", first)
    file = list_sources((f"{place.uri}/in",), "/nowhere").files[0]

    def lose_the_first_answer(request: Request) -> bool:
        if request.method == "GET" and not between.lost:
            place.put("in/a.json", second)
            return True
        return False

    between.loses = lose_the_first_answer
    read = read_source(file, LIMITS)
    assert (read.data, read.stat.size) == (second, len(second))


def test_the_stat_of_an_object(place: Place) -> None:
    place.put("in/a.json", b"{}")
    listing = list_sources((f"{place.uri}/in",), "/nowhere").files[0]
    read = read_source(listing, LIMITS).stat
    assert read.same_file_state(Stat(size=2, etag=listing.etag, last_modified=listing.last_modified))
    assert not read.racy
    assert not read.same_file_state(Stat(size=2, etag="other", last_modified=listing.last_modified))
    assert not Stat(size=2, version_id="1").same_file_state(Stat(size=2, version_id="2"))
    assert Stat(size=2, version_id="1").same_file_state(Stat(size=2))


def test_limits_and_compression(place: Place, tmp_path: Path) -> None:
    place.put("in/large.json", b" " * 5000)
    place.put("in/packed.json.gz", gzip.compress(atif("s", 3)))
    paths, report = ingested(tmp_path, f"{place.uri}/in", max_source_bytes=4000)
    assert (report.ingested, report.quarantined_new) == (1, 1)
    entry = next(iter(Quarantine(paths).entries.values()))
    assert (entry.kind, entry.size, entry.stored) == ("too-large", 5000, False)
    assert ingested(tmp_path, f"{place.uri}/in", max_source_bytes=4000)[1].files_opened == 0


def test_a_window_of_time_goes_by_last_modified(place: Place, tmp_path: Path) -> None:
    place.put("in/a.json", atif("s", 2))
    modified = list_sources((f"{place.uri}/in",), "/x").files[0].mtime_ns
    assert ingested(tmp_path, f"{place.uri}/in", since_ns=modified + 1)[1].sources == 0
    assert ingested(tmp_path, f"{place.uri}/in", since_ns=modified)[1].sources == 1


def test_sources_on_disk_and_elsewhere_in_one_run(place: Place, tmp_path: Path) -> None:
    place.put("in/a.json", atif("s", 2))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_bytes(atif("t", 2))
    paths, report = ingested(tmp_path, f"{place.uri}/in", str(tmp_path / "in"))
    assert report.ingested == 2
    export(ExportOptions(paths=paths, to=str(tmp_path / "out"), exact=True))
    assert sorted(tree(tmp_path / "out").values()) == sorted([atif("s", 2), atif("t", 2)])
    clash = list_sources((f"N={place.uri}/in", f"N={tmp_path / 'in'}"), "/x")
    assert (len(clash.files), len(clash.warnings)) == (1, 1)


def test_keys_that_cannot_be_paths_are_left_out(place: Place, between: Proxy) -> None:
    """The test store folds such keys itself, so another listing is put in its place."""
    place.put("in/good.json", b"{}")
    place.put("in/bad.json", b"{}")
    plain = between.forward

    def renamed(request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        status, headers, data = plain(request, body)
        return status, headers, data.replace(b"/in/bad.json", b"/in//bad.json") if request.method == "GET" else data

    between.forward = renamed  # type: ignore[method-assign]
    found = list_sources((f"{place.uri}/in",), "/nowhere")
    assert [file.key.rpartition("/")[2] for file in found.files] == ["good.json"]
    assert "empty, '.' or '..' segment" in found.warnings[0]


def test_an_unsafe_key_by_name_is_refused(place: Place, between: Proxy) -> None:
    place.put("in/bad.json", b"{}")
    between.before = lambda request: setattr(request, "path", request.path.replace("/in//bad", "/in/bad"))
    with pytest.raises(UsageError):
        listed(f"{place.uri}/in//bad.json")
