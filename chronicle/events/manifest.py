"""The fencing manifest: the only authority on what a log shows. Pure transitions (physical.md 1.2, 1.5).

A transition takes the manifest that was read and returns the one to write, or the same object where the change is
there already: a repeat after a lost reply is harmless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from chronicle.errors import ConfigError, EpochAlreadyOwned, IntegrityError, PublicationChanged, StaleFence
from chronicle.layout import are_safe_segments, check_id

MAX_COUNT = 2**63 - 1
MAX_LEVEL = 255
LONG = 1000
"""Segments of a manifest that nobody reads by eye."""


class Segment(msgspec.Struct, frozen=True):
    """One visible segment: `rows` rows at exactly this Lance `version`. The bounds are checked where it is read."""

    id: str
    version: Annotated[int, Meta(gt=0, le=MAX_COUNT)]
    rows: Annotated[int, Meta(ge=0, le=MAX_COUNT)]
    level: Annotated[int, Meta(ge=0, le=MAX_LEVEL)]
    sealed: bool


class ActiveWriter(msgspec.Struct, frozen=True):
    """Who may publish."""

    epoch: int
    writer_id: str


class Manifest(msgspec.Struct, frozen=True):
    """State of a log. Append order is the order of `segments`, then that of the rows in each.

    `revision` counts manifests, `fact_version` those that showed more rows.
    """

    revision: int
    fact_version: int
    fact_rows: int
    active_writer: ActiveWriter
    segments: tuple[Segment, ...] = ()


class EventWriterFence(msgspec.Struct, frozen=True):
    """What a writer shows to publish. Raises ConfigError for epoch 0 or a blank writer id."""

    epoch: int
    writer_id: str

    def __post_init__(self) -> None:
        if not 0 < self.epoch <= MAX_COUNT or not self.writer_id.strip():
            raise ConfigError(f"fence {self.epoch}/{self.writer_id!r}: epoch must be over 0 and the writer id not blank")


_decode = msgspec.json.Decoder(Manifest).decode
_HINT = "restore _manifest.json; the segments under it are untouched"


def decode(data: bytes) -> Manifest:
    """Read a manifest; unknown keys are ignored. Raises IntegrityError where any check of physical.md 1.2 fails."""
    try:
        manifest = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IntegrityError(f"event manifest does not read: {error}", hint=_HINT) from error
    check(manifest)
    return manifest


def check(manifest: Manifest) -> None:
    """Raise IntegrityError where a manifest, as it was read, contradicts itself or names what must not become a path."""
    counts = (manifest.revision, manifest.fact_version, manifest.fact_rows)
    _require(all(0 <= n <= MAX_COUNT for n in counts), "a count is negative or too large")
    writer = manifest.active_writer
    _require(0 < writer.epoch <= MAX_COUNT, "active_writer.epoch must be over 0")
    _require(bool(writer.writer_id.strip()), "active_writer.writer_id is blank")
    ids = [segment.id for segment in manifest.segments]
    unique = set(ids)
    if not are_safe_segments(unique):  # one question: a log may have ten thousand
        for each in ids:
            check_id(each, "segment id of the event manifest")
    if len(unique) < len(ids):
        raise IntegrityError(f"event manifest: segment {Counter(ids).most_common(1)[0][0]!r} is named twice", hint=_HINT)
    total = sum([segment.rows for segment in manifest.segments])
    _require(manifest.fact_rows == total, f"fact_rows is {manifest.fact_rows}, its segments hold {total}")


def _check_segment(segment: Segment) -> None:
    check_id(segment.id, "segment id of the event manifest")
    _require(0 < segment.version <= MAX_COUNT, f"segment {segment.id!r}: version must be over 0")
    _require(0 <= segment.rows <= MAX_COUNT, f"segment {segment.id!r}: rows is negative or too large")
    _require(0 <= segment.level <= MAX_LEVEL, f"segment {segment.id!r}: level is not in 0 … {MAX_LEVEL}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise IntegrityError(f"event manifest: {what}", hint=_HINT)


def encode(manifest: Manifest) -> bytes:
    """JSON, indented as the peer writes it; in one line where it is long, because every append writes it twice."""
    data = msgspec.json.encode(manifest)
    return data if len(manifest.segments) > LONG else msgspec.json.format(data, indent=2)


def fence_of(manifest: Manifest) -> EventWriterFence:
    """The active fence."""
    return EventWriterFence(manifest.active_writer.epoch, manifest.active_writer.writer_id)


def end_of(manifest: Manifest, segment: Segment) -> int:
    """Rows of the log up to the end of a segment that it shows."""
    if segment == manifest.segments[-1]:
        return manifest.fact_rows
    return sum(each.rows for each in manifest.segments[: manifest.segments.index(segment) + 1])


def activate(manifest: Manifest | None, writer_id: str, requested: EventWriterFence | None = None) -> Manifest:
    """Make a writer the active one: at the next epoch, or at the requested one. Unsealed segments get sealed with it.

    The requested fence that is active already changes nothing. Raises StaleFence (requested epoch below the active
    one) or EpochAlreadyOwned (the active one, under another writer id).
    """
    if manifest is None:
        fence = requested or EventWriterFence(1, writer_id)
        return Manifest(1, 0, 0, ActiveWriter(fence.epoch, fence.writer_id))
    active = fence_of(manifest)
    if requested == active:
        return manifest
    fence = requested or EventWriterFence(active.epoch + 1, writer_id)
    if fence.epoch < active.epoch:
        raise StaleFence(f"epoch {fence.epoch} is over: epoch {active.epoch} is active", epoch=active.epoch)
    if fence.epoch == active.epoch:
        raise EpochAlreadyOwned(
            f"epoch {fence.epoch} belongs to writer {active.writer_id!r}", hint="take a higher epoch", epoch=active.epoch
        )
    return msgspec.structs.replace(
        manifest,
        revision=manifest.revision + 1,
        active_writer=ActiveWriter(fence.epoch, fence.writer_id),
        segments=_all_sealed(manifest.segments),
    )


def publish(manifest: Manifest, fence: EventWriterFence, segment: Segment) -> Manifest:
    """Show a segment: a new one at the end, a known one at a later version or now sealed.

    Raises StaleFence for a fence that is not the active one, IntegrityError where a known segment would go back.
    """
    _require_active(manifest, fence)
    _check_segment(segment)
    place = _place(manifest, segment.id)
    if place is None:
        return _shown(manifest, (*manifest.segments, segment))
    known = manifest.segments[place]
    if known == segment:
        return manifest
    _check_advance(known, segment)
    return _shown(manifest, (*manifest.segments[:place], segment, *manifest.segments[place + 1 :]))


def _check_advance(known: Segment, segment: Segment) -> None:
    backwards = segment.version < known.version or segment.rows < known.rows
    changed = segment.level != known.level or (known.sealed and not segment.sealed)
    stands = segment.version == known.version and (segment.rows != known.rows or segment.sealed == known.sealed)
    if backwards or changed or stands:
        raise IntegrityError(
            f"segment {segment.id!r} may not go from version {known.version} ({known.rows} rows) "
            f"to version {segment.version} ({segment.rows} rows)",
            hint="publish a new segment instead",
            id=segment.id,
        )


def seal(manifest: Manifest, fence: EventWriterFence, ids: Iterable[str]) -> Manifest:
    """Close segments for good. Raises StaleFence, or PublicationChanged where one is not there."""
    _require_active(manifest, fence)
    wanted = set(ids)
    known = {segment.id for segment in manifest.segments}
    if not wanted <= known:
        raise PublicationChanged(f"segments {sorted(wanted - known)} are not in the event manifest", hint="run again")
    segments = tuple(sealed(s) if s.id in wanted else s for s in manifest.segments)
    return manifest if segments == manifest.segments else _shown(manifest, segments)


def replace_group(manifest: Manifest, fence: EventWriterFence, expected: Sequence[Segment], replacement: Segment) -> Manifest:
    """Put one segment in the place of neighbouring ones that hold the same rows; `fact_version` stays.

    Raises StaleFence; PublicationChanged where `expected` is not there, in one run and unchanged; IntegrityError where
    the row counts differ or the replacement's id is taken.
    """
    _require_active(manifest, fence)
    _check_segment(replacement)
    gone = set(expected)
    if replacement in manifest.segments and gone.isdisjoint(manifest.segments):
        return manifest
    start = _run_of(manifest.segments, tuple(expected))
    if replacement.rows != sum(segment.rows for segment in expected):
        raise IntegrityError(f"segment {replacement.id!r} does not hold the rows of those it replaces", hint="keep those")
    if _place(manifest, replacement.id) is not None:
        raise IntegrityError(f"segment id {replacement.id!r} is taken", hint="write the replacement under a new id")
    rest = manifest.segments[start + len(expected) :]
    return _shown(manifest, (*manifest.segments[:start], replacement, *rest))


def maintained(
    manifest: Manifest, writer_id: str, change: Callable[[Manifest, EventWriterFence], Manifest]
) -> Manifest:
    """Take the fence and apply a change under it, as one new manifest; the same one where the change is there already.

    So maintenance holds the fence for one swap only, and an ingest at work re-activates at its next one.
    """
    taken = activate(manifest, writer_id)
    changed = change(taken, fence_of(taken))
    return manifest if changed is taken else msgspec.structs.replace(changed, revision=manifest.revision + 1)


def _run_of(segments: tuple[Segment, ...], expected: tuple[Segment, ...]) -> int:
    for start in range(len(segments) - len(expected) + 1):
        if expected and segments[start : start + len(expected)] == expected:
            return start
    raise PublicationChanged("the segments to replace have changed meanwhile", hint="plan again from the new manifest")


def _require_active(manifest: Manifest, fence: EventWriterFence) -> None:
    active = fence_of(manifest)
    if fence != active:
        raise StaleFence(
            f"the fence of writer {fence.writer_id!r} (epoch {fence.epoch}) is over: epoch {active.epoch} is active",
            hint="activate a new epoch",
            epoch=active.epoch,
        )


def _place(manifest: Manifest, segment_id: str) -> int | None:
    ids = [segment.id for segment in manifest.segments]
    return ids.index(segment_id) if segment_id in ids else None


def sealed(segment: Segment) -> Segment:
    """The same segment, closed for good."""
    return segment if segment.sealed else msgspec.structs.replace(segment, sealed=True)


def _all_sealed(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    return segments if all(map(attrgetter("sealed"), segments)) else tuple(map(sealed, segments))


def _shown(manifest: Manifest, segments: tuple[Segment, ...]) -> Manifest:
    rows = sum([segment.rows for segment in segments])
    return msgspec.structs.replace(
        manifest,
        revision=manifest.revision + 1,
        fact_version=manifest.fact_version + (rows > manifest.fact_rows),
        fact_rows=rows,
        segments=segments,
    )
