"""The transitions of the fencing manifest, one by one and in random order."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import ConfigError, ConflictError, EpochAlreadyOwned, IntegrityError, PublicationChanged, StaleFence
from chronicle.events import manifest as m
from chronicle.events.manifest import ActiveWriter, EventWriterFence, Manifest, Segment
from chronicle.layout import are_safe_segments, is_safe_segment


def segment(name, rows=1, *, version=1, level=0, sealed=True):
    return Segment(name, version, rows, level, sealed)


def state(*segments, epoch=1, writer="w"):
    return Manifest(5, 3, sum(s.rows for s in segments), ActiveWriter(epoch, writer), segments)


FENCE = EventWriterFence(1, "w")
GOOD = {
    "revision": 7,
    "fact_version": 2,
    "fact_rows": 3,
    "active_writer": {"epoch": 1, "writer_id": "w", "more": 1},
    "segments": [
        {"id": "e1-a", "version": 1, "rows": 1, "level": 0, "sealed": True},
        {"id": "e1-b", "version": 4, "rows": 2, "level": 1, "sealed": False, "digest": "x"},
    ],
    "unknown": {},
}


def changed(path, value):
    data = json.loads(json.dumps(GOOD))
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(data).encode()


def test_decode_takes_what_the_peer_writes():
    found = m.decode(json.dumps(GOOD).encode())
    assert found.segments == (segment("e1-a"), segment("e1-b", 2, version=4, level=1, sealed=False))
    assert m.decode(m.encode(found)) == found
    assert m.decode(changed(["segments"], ...).replace(b'"fact_rows": 3', b'"fact_rows": 0')).segments == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["revision"], ...),
        (["revision"], -1),
        (["fact_version"], ...),
        (["fact_rows"], 4),
        (["fact_rows"], "3"),
        (["active_writer"], ...),
        (["active_writer", "epoch"], 0),
        (["active_writer", "writer_id"], " "),
        (["segments", 0, "id"], "e1-b"),
        (["segments", 0, "id"], ""),
        (["segments", 0, "id"], ".."),
        (["segments", 0, "id"], "../../other"),
        (["segments", 0, "id"], "a/b"),
        (["segments", 0, "version"], 0),
        (["segments", 0, "rows"], -1),
        (["segments", 0, "level"], 256),
        (["segments", 0, "sealed"], ...),
        (["segments", 0, "sealed"], 1),
        (["segments"], None),
    ],
)
def test_decode_refuses(path, value):
    with pytest.raises(IntegrityError):
        m.decode(changed(path, value))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"revision":1'])
def test_broken_json_fails_closed(data):
    with pytest.raises(IntegrityError):
        m.decode(data)


def test_the_first_activation():
    first = m.activate(None, "w")
    assert first == Manifest(1, 0, 0, ActiveWriter(1, "w"))
    assert m.fence_of(m.activate(None, "w", EventWriterFence(9, "lease"))) == EventWriterFence(9, "lease")


def test_activation_takes_the_next_epoch_and_seals():
    before = state(segment("a"), segment("b", sealed=False))
    after = m.activate(before, "other")
    assert after.active_writer == ActiveWriter(2, "other")
    assert [s.sealed for s in after.segments] == [True, True]
    assert (after.revision, after.fact_version, after.fact_rows) == (before.revision + 1, before.fact_version, before.fact_rows)


def test_activation_of_a_requested_fence():
    before = state(segment("a", sealed=False), epoch=5)
    assert m.activate(before, "w", EventWriterFence(5, "w")) is before
    assert m.activate(before, "x", EventWriterFence(8, "x")).active_writer == ActiveWriter(8, "x")
    with pytest.raises(StaleFence):
        m.activate(before, "w", EventWriterFence(4, "w"))
    with pytest.raises(EpochAlreadyOwned):
        m.activate(before, "x", EventWriterFence(5, "x"))


@pytest.mark.parametrize(("epoch", "writer"), [(0, "w"), (-1, "w"), (1, ""), (1, "  "), (2**63, "w")])
def test_fences_that_are_none(epoch, writer):
    with pytest.raises(ConfigError):
        EventWriterFence(epoch, writer)


def test_publish_appends_at_the_end():
    before = state(segment("a", 2))
    after = m.publish(before, FENCE, segment("b", 3))
    assert [s.id for s in after.segments] == ["a", "b"]
    assert (after.revision, after.fact_version, after.fact_rows) == (6, 4, 5)
    assert m.publish(after, FENCE, segment("b", 3)) is after


def test_publish_of_no_rows_shows_no_new_facts():
    after = m.publish(state(segment("a")), FENCE, segment("b", 0))
    assert (after.revision, after.fact_version) == (6, 3)


@pytest.mark.parametrize("fence", [EventWriterFence(2, "w"), EventWriterFence(1, "x")])
def test_only_the_active_fence_publishes(fence):
    before = state(segment("a"))
    for act in (
        lambda: m.publish(before, fence, segment("b")),
        lambda: m.publish(before, fence, segment("a")),
        lambda: m.seal(before, fence, ["a"]),
        lambda: m.replace_group(before, fence, [segment("a")], segment("b")),
    ):
        with pytest.raises(StaleFence):
            act()


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (segment("a", 2, version=2), segment("a", 2, version=1)),
        (segment("a", 2, version=2), segment("a", 1, version=3)),
        (segment("a", 2, version=2), segment("a", 2, version=3, level=1)),
        (segment("a", 2, version=2), segment("a", 2, version=3, sealed=False)),
        (segment("a", 2, version=2), segment("a", 3, version=2)),
        (segment("a", 2, version=2, sealed=False), segment("a", 3, version=2, sealed=True)),
    ],
)
def test_a_known_segment_never_goes_back(known, new):
    with pytest.raises(IntegrityError):
        m.publish(state(known), FENCE, new)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (segment("a", 2, sealed=False), segment("a", 2, sealed=True)),
        (segment("a", 2), segment("a", 2, version=2)),
        (segment("a", 2, sealed=False), segment("a", 5, version=3, sealed=False)),
    ],
)
def test_a_known_segment_advances_in_its_place(known, new):
    after = m.publish(state(known, segment("z")), FENCE, new)
    assert after.segments == (new, segment("z"))
    assert after.fact_version == 3 + (new.rows > known.rows)


def test_seal():
    before = state(segment("a", sealed=False), segment("b"))
    after = m.seal(before, FENCE, ["a"])
    assert after.segments[0].sealed
    assert (after.revision, after.fact_version) == (6, 3)
    assert m.seal(after, FENCE, ["a", "b"]) is after
    with pytest.raises(PublicationChanged):
        m.seal(before, FENCE, ["c"])


def test_replace_group_keeps_the_place_and_the_fact_version():
    a, b, c, d = (segment(name, 2) for name in "abcd")
    merged = segment("m", 4, level=1)
    before = state(a, b, c, d)
    after = m.replace_group(before, FENCE, [b, c], merged)
    assert after.segments == (a, merged, d)
    assert (after.revision, after.fact_version, after.fact_rows) == (6, 3, 8)
    assert m.replace_group(after, FENCE, [b, c], merged) is after


@pytest.mark.parametrize("expected", [[], ["b", "a"], ["a", "c"], ["c", "d", "e"], ["x"]])
def test_replace_group_wants_neighbours(expected):
    before = state(*(segment(name) for name in "abcd"))
    with pytest.raises(PublicationChanged):
        m.replace_group(before, FENCE, [segment(name) for name in expected], segment("m", len(expected)))


def test_replace_group_checks_what_it_puts_in():
    before = state(segment("a"), segment("b"), segment("c"))
    with pytest.raises(PublicationChanged):
        m.replace_group(before, FENCE, [segment("a", version=2), segment("b")], segment("m", 2))
    with pytest.raises(IntegrityError):
        m.replace_group(before, FENCE, [segment("a"), segment("b")], segment("m", 3))
    with pytest.raises(IntegrityError):
        m.replace_group(before, FENCE, [segment("a"), segment("b")], segment("c", 2))
    with pytest.raises(IntegrityError):
        m.replace_group(before, FENCE, [segment("a"), segment("b")], segment("..", 2))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["activate", "request", "publish", "repeat", "advance", "seal", "merge"]),
        st.integers(0, 2),
        st.integers(0, 6),
    ),
    max_size=40,
)


class Model:
    """Three writers at one log; keeps what it would have to show by itself."""

    def __init__(self):
        self.state = None
        self.fences = {}
        self.order = []
        self.made = 0

    def apply(self, act, writer, number):
        """One step; returns the new manifest, or raises as the transition does."""
        fence = self.fences.get(writer, EventWriterFence(99, f"never-{writer}"))
        if act in {"activate", "request"}:
            wanted = EventWriterFence(number + 1, f"w{writer}") if act == "request" else None
            after = m.activate(self.state, f"w{writer}", wanted)
            self.fences[writer] = m.fence_of(after)
            return after
        if self.state is None:
            return None
        if act == "publish":
            self.made += 1
            after = m.publish(self.state, fence, segment(f"s{self.made}", number, sealed=number % 2 == 0))
            self.order.append(f"s{self.made}")
            return after
        if not self.state.segments:
            return self.state
        chosen = self.state.segments[number % len(self.state.segments)]
        if act == "repeat":
            return m.publish(self.state, fence, chosen)
        if act == "advance":
            return m.publish(self.state, fence, msgspec.structs.replace(chosen, version=chosen.version + 1))
        if act == "seal":
            return m.seal(self.state, fence, [chosen.id])
        return self.merge(fence, chosen)

    def merge(self, fence, chosen):
        at = self.state.segments.index(chosen)
        group = self.state.segments[at : at + 2]
        self.made += 1
        merged = segment(f"s{self.made}", sum(s.rows for s in group), level=1)
        after = m.replace_group(self.state, fence, group, merged)
        place = self.order.index(chosen.id)
        self.order[place : place + len(group)] = [merged.id]
        return after


@settings(max_examples=200)
@given(STEPS)
def test_any_sequence_keeps_the_rules(steps):
    model = Model()
    for act, writer, number in steps:
        before = model.state
        fence = model.fences.get(writer)
        try:
            after = model.apply(act, writer, number)
        except ConflictError:
            assert model.state is before
            continue
        if after is None or after is before:
            continue
        m.check(after)
        assert m.decode(m.encode(after)) == after
        assert [s.id for s in after.segments] == model.order
        if before is not None:
            assert after.revision == before.revision + 1
            assert after.fact_version == before.fact_version + (after.fact_rows > before.fact_rows)
            assert after.fact_rows >= before.fact_rows
            assert after.active_writer.epoch >= before.active_writer.epoch
            if act not in {"activate", "request"}:
                assert fence == m.fence_of(before), "a fenced-out writer published"
        model.state = after


NAMES = st.text("aZ9._-", max_size=130) | st.text(max_size=3) | st.sampled_from([".", "..", "a/b", "a\n", "é", "a" * 128])


@given(st.lists(NAMES, max_size=4))
def test_names_that_are_checked_together_are_checked_as_each_alone(names):
    assert are_safe_segments(names) == all(map(is_safe_segment, names))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_the_end_of_a_segment_is_where_the_next_begins(rows):
    segments = [segment(f"s{number}", count) for number, count in enumerate(rows)]
    shown = state(*segments)
    assert [m.end_of(shown, each) for each in segments] == [sum(rows[: at + 1]) for at in range(len(rows))]
