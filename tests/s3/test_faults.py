"""What goes wrong between a writer and an object store, and what must not come of it."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from chronicle.errors import CommitStateUnknown, ConfigError, StorageError
from chronicle.events.log import RawEventLanceStore
from chronicle.events.record import parse
from chronicle.ingest import ingest
from chronicle.layout import DatasetPaths
from chronicle.options import IngestOptions, RebuildOptions
from chronicle.rebuild import rebuild
from chronicle.storage import files, probe, s3client
from chronicle.storage.objects import MISSING, atomic_object, update
from chronicle.storage.s3object import S3Object
from tests.command import chronicle
from tests.laws.contents import atif
from tests.s3.conftest import Place
from tests.s3.proxy import Proxy, Request


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3client, "_FIRST_PAUSE", 0.001)


def record(number: int) -> bytes:
    return b'{"seq":%d,"source":"t","kind":"note","timestamp_unix_ms":1,"event_id":"e%d","payload":{}}' % (number, number)


def is_put_of(request: Request, name: str) -> bool:
    return request.method == "PUT" and request.path.partition("?")[0].endswith(name)


def test_a_store_that_ignores_conditions_is_refused(place: Place, between: Proxy, tmp_path: Path) -> None:
    between.forgets_conditions = True
    (tmp_path / "a.json").write_bytes(atif("s", 2))
    lake = ("--lake", f"{place.uri}/lake", "--dataset", "d", "--json")
    done = chronicle("ingest", tmp_path / "a.json", *lake)
    assert done.code == 78
    assert done.json["error"]["kind"] == "no-conditional-writes"
    assert "If-None-Match" in done.json["error"]["message"]
    assert place.names() == []
    looked = chronicle("doctor", *lake)
    assert looked.code == 78
    assert [one["check"] for one in looked.json["findings"] if not one["ok"]] == ["conditional writes"]
    assert place.names() == []


def test_a_single_writer_may_take_it(place: Place, between: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    between.forgets_conditions = True
    monkeypatch.setenv("CHRONICLE_SINGLE_WRITER", "true")
    (tmp_path / "a.json").write_bytes(atif("s", 2))
    lake = ("--lake", f"{place.uri}/lake", "--dataset", "d", "--json")
    maintain = ("maintain", "--full", "--retention", "0")
    for verb in (("ingest", tmp_path / "a.json"), ("rebuild",), maintain, ("verify",), ("doctor",)):
        assert chronicle(*verb, *lake).code == 0, verb


def test_a_store_is_probed_once_a_process(place: Place, between: Proxy) -> None:
    for number in range(3):
        files.write_atomic(f"{place.uri}/x/{number}", b"1")
    assert sum(probe.NAME in path for _, path in between.log) == 6
    assert place.names() == ["x/0", "x/1", "x/2"]


@pytest.mark.parametrize("conditions", [("IfNoneMatch",), ("IfMatch",)])
def test_one_condition_is_not_enough(place: Place, between: Proxy, conditions: tuple[str, ...]) -> None:
    name = {"IfNoneMatch": "if-none-match", "IfMatch": "if-match"}[conditions[0]]
    between.before = lambda request: request.headers.pop(name, None) and None
    with pytest.raises(ConfigError) as caught:
        files.write_atomic(f"{place.uri}/x", b"1")
    assert caught.value.kind == "no-conditional-writes"


def test_a_lost_answer_is_a_win_that_is_recognised(place: Place, between: Proxy) -> None:
    store = RawEventLanceStore(f"{place.uri}/events.lance")
    store.append([parse(record(0))])
    between.loses = lambda request: is_put_of(request, "_manifest.json") and between.lost < 2
    report = store.append([parse(record(1))])
    assert between.lost == 2, "of the activation and of the publication"
    manifest = store.manifest()
    assert [segment.rows for segment in manifest.segments] == [1, 1]
    assert len({segment.id for segment in manifest.segments}) == 2
    assert (manifest.fact_version, report.fact_version) == (2, 2)
    assert [number for number, _ in store.replay()] == [0, 1]


def test_a_lost_answer_under_a_win_of_others_is_unknown(place: Place, between: Proxy) -> None:
    path = f"{place.uri}/x.json"
    ours, other = S3Object(path), S3Object(path)
    ours.swap(b"1", MISSING)
    token = ours.read()[1]

    def lost_and_replaced(request: Request) -> bool:
        if is_put_of(request, "x.json") and not between.lost:
            place.put("x.json", b"a stranger's")
            return True
        return False

    between.loses = lost_and_replaced
    with pytest.raises(CommitStateUnknown):
        ours.swap(b"2", token)
    assert other.read()[0] == b"a stranger's"


def test_an_append_goes_on_when_nobody_knows(place: Place, between: Proxy) -> None:
    """The log itself decides what the swap could not: its segment is there, or it is published again."""
    store = RawEventLanceStore(f"{place.uri}/events.lance")
    store.append([parse(record(0))])
    rival = RawEventLanceStore(f"{place.uri}/events.lance")

    def lost_and_overtaken(request: Request) -> bool:
        if is_put_of(request, "_manifest.json") and between.lost == 0 and "rival" not in threading.current_thread().name:
            between.lost = 1
            taken = threading.Thread(target=lambda: rival.append([parse(record(9))]), name="rival")
            taken.start()
            taken.join()
            return True
        return False

    between.loses = lost_and_overtaken
    store.append([parse(record(1))])
    assert sorted(found.seq for _, found in store.replay()) == [0, 1, 9]


def test_failures_of_the_server_are_tried_again(place: Place, between: Proxy) -> None:
    plain, failures = between.forward, [500, 503, 500]

    def unsteady(request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        if failures:
            return failures.pop(), [("Content-Type", "application/xml")], b"<Error><Code>InternalError</Code></Error>"
        return plain(request, body)

    files.write_atomic(f"{place.uri}/x", b"0")
    between.forward = unsteady  # type: ignore[method-assign]
    files.write_atomic(f"{place.uri}/x", b"1")
    failures += [500, 503]
    assert files.read(f"{place.uri}/x") == b"1"
    failures += [500]
    counter = atomic_object(f"{place.uri}/x", "")
    assert update(counter, lambda data: (b"2", data), rng=random.Random(1)) == b"1"
    token = counter.read()[1]
    failures += [503] * 50
    with pytest.raises(CommitStateUnknown):
        counter.swap(b"3", token)
    with pytest.raises(StorageError) as caught:
        counter.read()
    assert caught.value.transient
    assert len(failures) > 30, "the number of tries is bounded"
    failures.clear()
    assert counter.read()[0] == b"2"


def test_a_server_that_answers_and_did_not_write_leaves_no_doubt(place: Place, between: Proxy) -> None:
    counter = atomic_object(f"{place.uri}/x", "")
    counter.swap(b"1", MISSING)
    plain = between.forward

    def takes_no_writes(request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        return (503, [], b"") if request.method == "PUT" else plain(request, body)

    between.forward = takes_no_writes  # type: ignore[method-assign]
    with pytest.raises(StorageError) as caught:
        counter.swap(b"2", counter.read()[1])
    assert caught.value.transient


def test_a_store_that_is_away_is_said_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for swap in (lambda: S3Object(f"{place.uri}/x").read(), lambda: files.write_atomic(f"{place.uri}/x", b"1")):
        with pytest.raises(StorageError) as caught:
            swap()
        assert caught.value.transient
        assert caught.value.exit_code == 69


def test_wrong_keys_are_the_operators_and_never_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    lake = ("--lake", f"{place.uri}/lake", "--dataset", "d", "--json")
    for verb in ("rebuild", "stats", "doctor"):
        done = chronicle(verb, *lake)
        assert done.code == 78, verb
        assert b"not-the-secret" not in done.out
        assert "not-the-secret" not in done.err


def test_an_outage_is_no_damage(place: Place, between: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that cannot be reached are not taken for broken ones."""
    place.put("in/a.json", atif("s", 2))
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/in",)))
    rebuild(RebuildOptions(paths=paths))
    monkeypatch.setattr(s3client, "LANCE_RETRIES", 1)
    plain = between.forward

    def away(request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        if ".lance/_versions" in request.path or ".lance%2F_versions" in request.path:
            return 503, [], b""
        return plain(request, body)

    between.forward = away  # type: ignore[method-assign]
    with pytest.raises(StorageError) as caught:
        rebuild(RebuildOptions(paths=paths))
    assert caught.value.transient


def test_two_ingests_at_once_keep_everything(place: Place) -> None:
    for number in range(12):
        place.put(f"in/{number % 2}/{number}.json", atif(f"s{number}", 2))
    paths = DatasetPaths(f"{place.uri}/lake", "d")
    failures: list[BaseException] = []

    def work(half: int) -> None:
        try:
            ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/in/{half}",), batch_bytes=1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(half,)) for half in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    rebuild(RebuildOptions(paths=paths))
    again = ingest(IngestOptions(paths=paths, sources=(f"{place.uri}/in",)))
    assert (again.unchanged, again.files_opened) == (12, 0)
    assert os.environ["AWS_ENDPOINT_URL"]
