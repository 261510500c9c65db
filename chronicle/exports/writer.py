"""Writing files of an export: each appears whole, by rename, or not at all; a dry run counts and writes nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, Self

from chronicle.errors import ConfigError
from chronicle.options import ExportOptions
from chronicle.reports import ExportReport
from chronicle.storage import files
from chronicle.storage.local import NewFile

_COPY_BYTES = 1 << 20
_GATHER_BYTES = 1 << 18
"""Pieces are written so many bytes at a time; many files may be at work."""


class Writer:
    """The one way in which an export writes. Used as a context manager: what is not finished at its end is removed."""

    def __init__(self, options: ExportOptions, report: ExportReport) -> None:
        self._folder = options.to
        self._dry_run = options.dry_run
        self._report = report
        self._open: dict[Output, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for output in list(self._open):
            output.discard()

    def file(self, *targets: str) -> Output:
        """A file to write, under one or several paths relative to the target directory.

        Raises ConfigError where a link that lies there already leads out of it.
        """
        paths = [f"{self._folder}/{target}" for target in targets]
        for path in paths:
            self._check_inside(path)
        return self._output(paths)

    def _check_inside(self, path: str) -> None:
        inside = os.path.realpath(self._folder)
        if os.path.commonpath([inside, os.path.realpath(os.path.dirname(path))]) != inside:
            raise ConfigError(
                f"{path} would lie outside of {self._folder}: a link leads out of it",
                hint="remove the link, or choose another --to",
            )

    def target(self) -> Output:
        """The target itself, where it is a file."""
        return self._output([self._folder])

    def _output(self, paths: Sequence[str]) -> Output:
        output = Output(paths, self._report, self._dry_run, self._open)
        self._open[output] = None
        return output


class Output:
    """One file on its way. Nothing is made before the first piece."""

    def __init__(self, paths: Sequence[str], report: ExportReport, dry_run: bool, open_: dict[Output, None]) -> None:
        self._paths = paths
        self._report = report
        self._dry_run = dry_run
        self._open = open_
        self._file: NewFile | None = None
        self._pieces: list[bytes] = []
        self._gathered = 0
        self.size = 0

    def add(self, data: bytes) -> None:
        """Write one more piece. Raises StorageError or ConfigError where the disk does not take it."""
        self.size += len(data)
        if self._dry_run:
            return
        self._pieces.append(data)
        self._gathered += len(data)
        if self._gathered >= _GATHER_BYTES:
            self._flush()

    def _flush(self) -> NewFile:
        if self._file is None:
            self._file = _new(self._paths[0])
        self._file.add(b"".join(self._pieces))
        self._pieces, self._gathered = [], 0
        return self._file

    def finish(self) -> None:
        """Let the file appear under all its paths, and count it."""
        self._report.files += len(self._paths)
        self._report.bytes += self.size * len(self._paths)
        self._open.pop(self, None)
        if self._dry_run:
            return
        self._flush().finish()
        for path in self._paths[1:]:
            _copy(self._paths[0], path)

    def discard(self) -> None:
        """Forget it."""
        self._open.pop(self, None)
        if self._file is not None:
            self._file.discard()


class Stream(io.RawIOBase):
    """An output as Arrow wants a file: it knows how far it is and cannot go back."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def writable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._output.size

    def write(self, data: Any) -> int:
        """Write one more piece."""
        piece = bytes(data)
        self._output.add(piece)
        return len(piece)


def _new(path: str) -> NewFile:
    files.make_dirs(os.path.dirname(path), durable=False)
    return NewFile(path)


def _copy(source: str, path: str) -> None:
    copy = _new(path)
    with files.translated(source), open(source, "rb") as file:
        while piece := file.read(_COPY_BYTES):
            copy.add(piece)
    copy.finish()
