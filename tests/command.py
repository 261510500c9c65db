"""Calling the command in this process, as the tests of the command line do."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from chronicle.commandline.command import main


@dataclass
class Outcome:
    """What a call of the command left: exit code, standard output and standard error."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


class _Stream(io.TextIOWrapper):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


@contextmanager
def _streams(stdin: bytes, terminal: bool) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    raw = io.BytesIO(), io.BytesIO()
    out, err = (_Stream(stream, encoding="utf-8", write_through=True) for stream in raw)
    out.terminal = terminal
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin)), out, err
    try:
        yield raw
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        out.detach()
        err.detach()


def chronicle(*arguments: object, app: click.Command | None = None, stdin: bytes = b"", terminal: bool = False) -> Outcome:
    """Run one command line; `terminal`: stdout says that it is one."""
    if app is None:
        from flows.cli import app as command_line
    else:
        command_line = app
    with _streams(stdin, terminal) as (out, err):
        code = main(command_line, [str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue().decode())
