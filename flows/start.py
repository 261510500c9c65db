"""Where the `chronicle` command begins: Ctrl-C is heard while the rest is still being imported, which takes a moment."""

from __future__ import annotations

import gc
import os

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Imports and verbs make millions of small objects, nearly all without cycles; looking for some after every 700 takes long.

The imports of a verb leave some 70,000: where there is little to do it ends before the first look."""


def main() -> None:
    """Entry point of the `chronicle` command."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nobody multiplies matrices here, and the start of threads for it is slow
    try:
        from flows.cli import main as run

        run()
    except KeyboardInterrupt:  # before or after all that hears it itself
        os.write(2, b"interrupted: run the same command again\n")
        os._exit(130)


if __name__ == "__main__":
    main()
