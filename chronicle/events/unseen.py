"""A segment that no manifest names yet, as its writer must look at it before it shows it under another fence.

A vacuum without retention takes such a segment for a leftover: it sets a mark, takes the fence, removes the files and at last
the mark (`events.vacuum`). Its writer may be at work all the time, and write further files into what was removed.
"""

from __future__ import annotations

import msgspec

from chronicle.errors import NotFoundError
from chronicle.events.manifest import Segment
from chronicle.layout import going_path, segment_path
from chronicle.storage import files, lanceio


class UnseenSegment(msgspec.Struct):
    """A written segment of the log at `events`."""

    events: str
    segment: Segment
    _files: frozenset[str] | None = None

    def is_whole(self) -> bool:
        """Whether no vacuum is removing it, or has removed anything of it.

        Ask after the manifest was read that is going to be swapped: a vacuum that takes the fence later makes the swap fail.
        The mark goes last, so it is looked for first.
        """
        path = segment_path(self.events, self.segment.id)
        if files.is_file(going_path(self.events, self.segment.id)):
            return False
        if self._files is None:
            try:
                dataset = lanceio.open_version(path, self.segment.version)
            except NotFoundError:
                return False
            self._files = frozenset(file.path for fragment in dataset.get_fragments() for file in fragment.data_files())
        return self._files <= set(files.list_dir(f"{path}/data")) and bool(files.list_dir(f"{path}/_versions"))
