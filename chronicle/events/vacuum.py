"""Vacuum of a log: segments that no manifest names, and versions of segments that it does not pin (design 6).

A segment without a name may be a live writer's, who will publish it. So vacuum first sets a mark beside it, then takes the fence,
and spares it if it has a name now. A writer that is fenced out looks for the mark before it publishes again: the segment is
either shown or removed, never both.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from chronicle.errors import PublicationChanged
from chronicle.events import manifest as transitions
from chronicle.layout import going_path, is_safe_segment, segment_path
from chronicle.storage import files
from chronicle.vacuum import Vacuum

if TYPE_CHECKING:
    from chronicle.events.log import RawEventLanceStore
    from chronicle.events.manifest import Manifest
    from chronicle.retired import Noted

_OURS = re.compile(r"(e[0-9]+|compact)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
"""Ids that writers give (the peer's too). A directory of another name is no leftover of theirs."""
_MARK = re.compile(r"\.(.+)\.going\Z")
_SUFFIX = ".lance"


def vacuum_log(store: RawEventLanceStore, vacuum: Vacuum) -> None:
    """Remove what is due. Raises IntegrityError where a pinned version does not read afterwards."""
    manifest = store.manifest()
    names = files.list_dir(f"{store.events}/segments")
    visible = {segment.id for segment in manifest.segments}
    if vacuum.dry_run:  # what compaction would drop
        visible -= {segment_id for merged in vacuum.report.merged for segment_id in merged.segments}
    _remove_segments(store, vacuum, names, visible)
    for segment in manifest.segments:
        if segment.sealed:
            vacuum.versions(segment.id, segment_path(store.events, segment.id), (segment.version,))
    vacuum.finish(lambda name: "/" not in name)


def directories(events: str) -> list[str]:
    """Ids of all segments that lie in a log, visible or not."""
    names = files.list_dir(f"{events}/segments")
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX) and is_safe_segment(name)]


def _remove_segments(store: RawEventLanceStore, vacuum: Vacuum, names: list[str], visible: Collection[str]) -> None:
    known = {noted.record.name for noted in vacuum.retired.noted("segment") if noted.record.was_visible}
    ids = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    due = vacuum.due("segment", [each for each in ids if _OURS.match(each) or each in known], visible)
    leftovers = [noted for noted in due if not noted.record.was_visible]
    if leftovers and not vacuum.dry_run:
        still = _fenced(store, leftovers)
        due = [noted for noted in due if noted not in leftovers or noted in still]
    for noted in due:
        vacuum.remove_directory(noted, segment_path(store.events, noted.record.name))
    if not vacuum.dry_run:
        _remove_marks(store.events)


def _fenced(store: RawEventLanceStore, leftovers: list[Noted]) -> list[Noted]:
    """Mark leftovers, take the fence, and return those that nobody published before."""
    for noted in leftovers:
        files.write_atomic(going_path(store.events, noted.record.name), b"")
    writer_id = f"vacuum-{store.ambient.new_id()}"
    visible = {segment.id for segment in store.change(lambda manifest: _activated(manifest, writer_id)).segments}
    for noted in leftovers:
        if noted.record.name in visible:
            files.remove(going_path(store.events, noted.record.name))
    return [noted for noted in leftovers if noted.record.name not in visible]


def _activated(manifest: Manifest | None, writer_id: str) -> Manifest:
    if manifest is None:
        raise PublicationChanged("the event log is gone", hint="run again")
    return transitions.activate(manifest, writer_id)


def _remove_marks(events: str) -> None:
    """Remove marks whose segment is gone: nobody can publish it any more."""
    names = files.list_dir(f"{events}/segments")
    for name in names:
        match = _MARK.match(name)
        if match and f"{match[1]}{_SUFFIX}" not in names:
            files.remove(f"{events}/segments/{name}")
