"""The producer's own fence: every outcome of physical.md 1.5, through the store as a producer uses it."""

import os
from pathlib import Path

import pytest

from chronicle.errors import CommitStateUnknown, EpochAlreadyOwned, IntegrityError, PublicationChanged, StaleFence
from chronicle.events import manifest as transitions
from chronicle.events.log import EventWriterFence
from chronicle.events.manifest import Segment
from chronicle.events.row import EventColumns, row_of
from tests.events.helpers import events, log_at, seqs

LEASE = EventWriterFence(5, "lease")


def batch_of(records):
    columns = EventColumns()
    for record in records:
        columns.add_row(row_of(record))
    return columns.batch()


@pytest.fixture
def store(tmp_path):
    """Rows 0, 1, 2 under the lease; the manifest has revision 2."""
    found = log_at(tmp_path)
    found.append(events(3), fence=LEASE)
    assert found.manifest().revision == 2
    return found


def state(store):
    """The manifest's bytes, and the directories of segments."""
    return Path(store.events, "_manifest.json").read_bytes(), sorted(os.listdir(f"{store.events}/segments"))


def active(store):
    return transitions.fence_of(store.manifest())


def written(store, fence=None, first=3):
    """A writer that has written two rows and published nothing."""
    writer = store.writer(fence)
    writer.write(batch_of(events(2, first)))
    return writer


def test_without_a_fence_the_next_epoch_is_taken(tmp_path, store):
    fresh = log_at(tmp_path / "fresh")
    fresh.append(events(1))
    assert active(fresh).epoch == 1
    with store.writer(writer_id="mine") as writer:
        assert active(store) == LEASE, "before the first write nothing happens"
        writer.write(batch_of(events(1, 3)))
        assert active(store) == writer.fence == EventWriterFence(6, "mine")
        assert store.manifest().revision == 3


def test_the_active_fence_again_writes_no_manifest(store):
    before, _ = state(store)
    with written(store, LEASE) as writer:
        assert state(store)[0] == before
        writer.publish()
    assert store.manifest().revision == 3, "of the publication alone"
    assert seqs(store) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fence", "error"),
    [
        (EventWriterFence(4, "lease"), StaleFence),
        (EventWriterFence(4, "other"), StaleFence),
        (EventWriterFence(5, "other"), EpochAlreadyOwned),
        (EventWriterFence(5, "Lease"), EpochAlreadyOwned),
    ],
)
def test_a_fence_that_is_not_accepted_changes_nothing(store, fence, error):
    before = state(store)
    with store.writer(fence) as writer, pytest.raises(error) as caught:
        writer.write(batch_of(events(2, 3)))
    assert (type(caught.value), caught.value.exit_code) == (error, 73)
    assert state(store) == before
    store.append(events(1, 9), fence=LEASE)
    assert seqs(store) == [0, 1, 2, 9], "the owner goes on"


def test_a_higher_fence_takes_over_and_seals(store):
    open_one = Segment("open", 1, 0, 0, False)
    store.change(lambda manifest: transitions.publish(manifest, LEASE, open_one))
    later = EventWriterFence(9, "next lease")
    with written(store, later) as writer:
        manifest = store.manifest()
        assert (active(store), manifest.revision) == (later, 4)
        assert [segment.sealed for segment in manifest.segments] == [True, True]
        writer.publish()
    assert store.manifest().segments[-1].id.startswith("e9-"), "at the end of the list"
    with pytest.raises(StaleFence):
        store.change(lambda manifest: transitions.seal(manifest, LEASE, ["open"]))


@pytest.mark.parametrize("rival", [EventWriterFence(6, "lease"), EventWriterFence(6, "rival")])
def test_a_lease_that_was_taken_over_publishes_nothing(store, rival):
    with written(store, LEASE) as writer:
        store.append(events(1, 9), fence=rival)
        before = state(store)
        for _ in range(2):
            with pytest.raises(StaleFence):
                writer.publish()
        assert state(store) == before, "its segment lies there, unseen"
        assert active(store) == rival, "it does not take another epoch by itself"
    assert len(state(store)[1]) == 2, "and goes with the writer"
    assert seqs(store) == [0, 1, 2, 9]


def test_the_new_lease_of_a_producer_brings_what_the_old_one_could_not(store):
    store.append(events(1, 9))
    with pytest.raises(StaleFence):
        store.append(events(2, 3), fence=LEASE)
    store.append(events(2, 3), fence=EventWriterFence(active(store).epoch + 1, "lease"))
    assert seqs(store) == [0, 1, 2, 9, 3, 4]


def test_a_publication_whose_answer_was_lost_is_repeated_unchanged(store):
    real = store._object

    class Deaf:
        def read(self):
            return real.read()

        def swap(self, data, token):
            real.swap(data, token)
            raise CommitStateUnknown("no answer")

    with written(store, LEASE) as writer:
        store._object = Deaf()
        segment = writer.publish()
        store._object = real
        before = state(store)
        assert store.change(lambda manifest: transitions.publish(manifest, LEASE, segment)) == store.manifest()
        assert state(store) == before
    assert seqs(store) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"rows": 2, "version": 2},
        {"level": 1, "version": 2},
        {"sealed": False, "version": 2},
        {"rows": 4},
    ],
)
def test_a_published_segment_never_goes_back(store, change):
    known = store.manifest().segments[0]
    values = {name: getattr(known, name) for name in ("id", "version", "rows", "level", "sealed")}
    before = state(store)
    with pytest.raises(IntegrityError):
        store.change(lambda manifest: transitions.publish(manifest, LEASE, Segment(**(values | change))))
    assert state(store) == before


def test_replacement_wants_its_segments_as_they_were(store):
    store.append(events(2, 3), fence=LEASE)
    one, two = store.manifest().segments
    merged = Segment("merged", 1, 5, 1, True)
    for expected in ([two, one], [one, Segment(two.id, 9, 2, 0, True)], [one, two, merged]):
        before = state(store)
        with pytest.raises(PublicationChanged):
            store.change(lambda manifest, e=expected: transitions.replace_group(manifest, LEASE, e, merged))
        assert state(store) == before
    with pytest.raises(IntegrityError):
        store.change(lambda manifest: transitions.replace_group(manifest, LEASE, [one, two], Segment("m", 1, 4, 1, True)))
    with pytest.raises(StaleFence):
        store.change(lambda manifest: transitions.replace_group(manifest, EventWriterFence(4, "x"), [one, two], merged))
    manifest = store.change(lambda manifest: transitions.replace_group(manifest, LEASE, [one, two], merged))
    assert (manifest.segments, manifest.fact_rows) == ((merged,), 5)
