"""Frames of a journal: whole ones come back, and everything else is said to be none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.events import frames

TEXTS = st.lists(st.tuples(st.sampled_from([frames.RECORD, frames.ASIDE]), st.binary(max_size=40)), max_size=5)


def whole(data):
    return [(piece.kind, piece.text) for piece in frames.pieces(data) if piece.kind]


@given(TEXTS, st.binary(max_size=60), TEXTS)
def test_all_bytes_are_told_and_whole_frames_come_back(before, garbage, after):
    parts = [b"".join(frames.frame(*one) for one in some) for some in (before, after)]
    data = parts[0] + garbage + b"\n" + parts[1]
    found = list(frames.pieces(data))
    assert b"".join(data[piece.start : piece.end] for piece in found) == data
    assert [piece.start for piece in found] == [0, *(piece.end for piece in found)][: len(found)]
    kept = whole(data)
    assert kept[: len(before)] == before
    assert kept[len(kept) - len(after) :] == after


@given(TEXTS.filter(bool), st.integers(0), st.integers(1, 255))
def test_a_changed_byte_costs_its_frame_and_at_most_the_next(texts, place, by):
    data = bytearray(b"".join(frames.frame(*one) for one in texts))
    data[place % len(data)] ^= by
    kept = whole(bytes(data))
    assert len(kept) >= len(texts) - 2
    assert all(one in texts for one in kept)


def test_a_record_never_becomes_something_set_aside():
    framed = bytearray(frames.frame(frames.RECORD, b""))
    framed[0:1] = frames.ASIDE
    assert whole(bytes(framed)) == []


@pytest.mark.parametrize("text", [b"", b"\n", b'{\n "a": 1\n}', b"x" * 5000])
def test_texts_of_any_kind(text):
    framed = frames.frame(frames.RECORD, text)
    assert len(framed) == len(text) + frames.OVERHEAD
    assert whole(framed * 2) == [(b"r", text)] * 2
    for cut in range(1, len(framed), max(len(framed) // 50, 1)):
        *_, torn = frames.pieces(framed + framed[:cut])
        assert frames.is_torn(torn, len(framed) + cut)
        assert frames.is_cut_short(torn.text)
        assert torn.text == framed[:cut]


@given(TEXTS.filter(bool), st.integers(0))
def test_only_the_beginning_of_a_frame_is_cut_short(texts, place):
    """Of a whole frame that was damaged its length still says that it was written to its end."""
    framed = frames.frame(*texts[0])
    at = place % len(framed)
    if not 2 <= at < 10:  # a length that was damaged may be a longer one
        assert not frames.is_cut_short(framed[:at] + b"?" + framed[at + 1 :])
    assert not frames.is_cut_short(b"?" + framed[:at])


def test_a_text_cannot_pose_as_a_frame():
    forged = frames.frame(frames.RECORD, b"forged")
    data = frames.frame(frames.RECORD, b'{"payload":"' + forged) + frames.frame(frames.RECORD, b"next")
    assert whole(data[:30] + b"?" + data[31:]) == [(b"r", b"next")]
