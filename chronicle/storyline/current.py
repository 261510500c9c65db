"""CURRENT: which versions of the tables are the visible ones, and who is writing (physical.md 2.2, 2.3).

The states and their transitions, without the swap around them (pure). Unknown keys are read over, and lost on the
next change, as with the peer.
"""

from __future__ import annotations

import msgspec

from chronicle.errors import CurrentConflict, IntegrityError
from chronicle.layout import is_safe_segment

GENERATION_PREFIX = "gen-"
MAX_VERSION = 2**63 - 1


class EventsSource(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The facts that a projection was made from.

    Of kind `canonical_events` the peer wants every field but `snapshot_ref`; other kinds have others.
    """

    kind: str = ""
    source_uri: str = ""
    fact_version: int | None = None
    fact_rows: int | None = None
    layout_revision: int | None = None
    snapshot_ref: str | None = None


class Projection(msgspec.Struct, kw_only=True):
    """What the tables hold and who made them. No string may be blank."""

    source_id: str
    """`events:` and the BLAKE3 hex digest of the source's URI."""
    source_file: str
    source: EventsSource
    projector_name: str
    recipe_hash: str
    completeness: str


class Snapshot(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One visible state of the store (`committed`): exact versions of the tables of one generation."""

    schema_version: int
    generation: str
    """Id of this state, new for every commit."""
    parent_generation: str | None = None
    table_generation: str
    """Names the directory below `generations/`."""
    runs_version: int
    steps_version: int
    tool_calls_version: int
    objects_version: int
    projection: Projection | None = None

    @property
    def versions(self) -> dict[str, int]:
        """Pinned version of each table, `objects` left out."""
        return {"runs": self.runs_version, "steps": self.steps_version, "tool_calls": self.tool_calls_version}


class Lease(msgspec.Struct, kw_only=True):
    """Who writes, from when and until when (ms since 1970, the holder's clock)."""

    epoch: int
    owner_id: str
    issued_at_unix_ms: int
    expires_at_unix_ms: int
    base_generation: str


class Current(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The whole of CURRENT."""

    control_version: int
    revision: int
    committed: Snapshot
    lease: Lease | None = None


def decode(data: bytes, path: str) -> Current:
    """CURRENT from its bytes: the envelope, or the bare pointer (its revision is 0).

    Raises IntegrityError where it is neither, of another version, or names a generation that is no safe path segment.
    """
    try:
        bare = "committed" not in msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if bare:
            current = Current(control_version=1, revision=0, committed=msgspec.json.decode(data, type=Snapshot))
        else:
            current = msgspec.json.decode(data, type=Current)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise _broken(path, str(exc)) from exc
    committed = current.committed
    if (current.control_version, committed.schema_version) != (1, 1):
        raise _broken(
            path, f"control_version {current.control_version}, schema_version {committed.schema_version}; both must be 1"
        )
    pinned = (*committed.versions.values(), committed.objects_version)
    if not all(0 < version <= MAX_VERSION for version in pinned):
        raise _broken(path, f"versions {', '.join(map(str, pinned))}; all must be over 0")
    for name in (committed.generation, committed.table_generation):
        if not (name.startswith(GENERATION_PREFIX) and is_safe_segment(name)):
            raise _broken(path, f"generation {name!r} is not allowed")
    return current


def encode(current: Current) -> bytes:
    """The bytes of CURRENT, always the envelope."""
    return msgspec.json.encode(current)


def encode_state(snapshot: Snapshot) -> bytes:
    """One state alone: the bare pointer that `decode` takes too."""
    return msgspec.json.encode(snapshot)


def first(snapshot: Snapshot, owner: str, now_ms: int, lease_ms: int) -> Current:
    """The first CURRENT of a store, with the lease of who makes it."""
    return Current(control_version=1, revision=1, committed=snapshot, lease=_lease(1, owner, now_ms, lease_ms, snapshot))


def leased(current: Current, owner: str, now_ms: int, lease_ms: int) -> Current:
    """Take the lease, whoever has it: the caller knows that the holder is dead or gone."""
    lease = _lease(current.revision + 1, owner, now_ms, lease_ms, current.committed)
    return _next(current, current.committed, lease)


def renewed(current: Current | None, owner: str, now_ms: int, lease_ms: int) -> Current:
    """Put off the end of the own lease. Raises CurrentConflict when somebody else has taken it."""
    held, lease = _own(current, owner)
    later = msgspec.structs.replace(lease, issued_at_unix_ms=now_ms, expires_at_unix_ms=now_ms + lease_ms)
    return _next(held, held.committed, later)


def committed(current: Current | None, owner: str, snapshot: Snapshot) -> Current:
    """Make a new state visible under the own lease, which goes on. Raises CurrentConflict as `renewed` does."""
    held, lease = _own(current, owner)
    if snapshot.parent_generation != held.committed.generation:
        raise CurrentConflict(
            f"{held.committed.generation} is visible now, not {snapshot.parent_generation}", hint="run again", owner=owner
        )
    return _next(held, snapshot, msgspec.structs.replace(lease, base_generation=snapshot.generation))


def released(current: Current | None, owner: str) -> Current | None:
    """Give up the own lease; None where it is not held any more and there is nothing to write."""
    if current is None or current.lease is None or current.lease.owner_id != owner:
        return None
    return _next(current, current.committed, None)


def _lease(epoch: int, owner: str, now_ms: int, lease_ms: int, base: Snapshot) -> Lease:
    return Lease(
        epoch=epoch,
        owner_id=owner,
        issued_at_unix_ms=now_ms,
        expires_at_unix_ms=now_ms + lease_ms,
        base_generation=base.generation,
    )


def _next(current: Current, snapshot: Snapshot, lease: Lease | None) -> Current:
    return Current(control_version=1, revision=current.revision + 1, committed=snapshot, lease=lease)


def _own(current: Current | None, owner: str) -> tuple[Current, Lease]:
    if current is None or current.lease is None or current.lease.owner_id != owner:
        holder = None if current is None or current.lease is None else current.lease.owner_id
        raise CurrentConflict(
            f"the lease of {owner} is lost, held now by {holder}", hint="run again when the other writer is done", owner=owner
        )
    return current, current.lease


def _broken(path: str, reason: str) -> IntegrityError:
    return IntegrityError(f"{path} does not read: {reason}", hint="run `chronicle rebuild --full`: it moves it aside", path=path)
