"""The heap of the process, as glibc keeps it (docs/adr/0009); elsewhere nothing happens.

Large blocks pass from Python to Lance's threads and back. A heap for each thread keeps its own leftovers, so memory would
grow with the corpus; a mapping for each large block takes a sixth of all CPU time for page faults.
"""

from __future__ import annotations

import ctypes
from typing import Any

_ONE = {-8: 1, -3: 32 << 20, -1: 32 << 20}
"""M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD (bytes)."""
_TRIM_BYTES = 32 << 20

_library: Any = None
_since_trim = 0


def use_one() -> None:
    """Let one heap serve all threads, and keep what is freed in it. To be called before there are threads."""
    global _library
    if _library is None:
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt") and hasattr(library, "malloc_trim"):
            _library = library
            for parameter, value in _ONE.items():
                library.mallopt(parameter, value)


def passed(size: int) -> None:
    """Count bytes that were written; now and then the heap returns its free pages, or it would fray as a corpus grows."""
    global _since_trim
    _since_trim += size
    if _since_trim >= _TRIM_BYTES and _library is not None:
        _since_trim = 0
        _library.malloc_trim(0)
