"""What a person or a script sees: JSON on stdout, tables and bars on a terminal, few words on stderr (design 8).

rich is imported only when there is a terminal to draw on. Control characters that come from data never reach a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from chronicle.errors import ChronicleError

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from chronicle.reports import Report

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST_LIST = 20
_READABLE = 12
"""Characters of a column that must stand on one line, where its values are longer."""
_PIPE_WIDTH = 200
_INSTANT = "_unix_ms"
"""How the name of a field ends that is ms since 1970."""


def printable(text: str) -> str:
    """The text with control characters, direction marks and unpaired surrogates written as escapes."""
    return _UNPRINTABLE.sub(lambda match: _escape(ord(match.group())), text)


def _escape(code: int) -> str:
    short = {9: r"\t", 10: r"\n", 13: r"\r"}.get(code)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


class Console:
    """Where a verb's words go. `json`: asked for by flag; `quiet`: nothing but results and errors."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet

    @property
    def for_people(self) -> bool:
        """Whether stdout is a terminal and nobody asked for JSON."""
        return not self.json and sys.stdout.isatty()

    def report(self, report: Report) -> None:
        """Show a finished verb: one JSON document, or a table for people."""
        from chronicle import reports

        if not self.for_people:
            write(reports.encode(report) + b"\n")
        elif not self.quiet:
            _draw_report(report)

    def value(self, value: Any) -> None:
        """Write one JSON document on stdout, whoever reads it."""
        import msgspec

        write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
        """Draw a table on stdout; cells are data and are escaped."""
        _draw_table(columns, rows, title)

    def note(self, text: str) -> None:
        """Say one line on stderr, unless quiet."""
        if not self.quiet:
            say(text)

    def error(self, error: ChronicleError) -> None:
        """Say what happened and what to do next: on stderr, and as JSON on stdout where that was asked for."""
        say(f"error: {error}")
        if self.json:
            body = {"kind": error.kind, "message": error.message, "hint": error.hint}
            try:
                write(json.dumps({"error": body}, indent=2).encode() + b"\n")
            except OSError:  # stdout is full, or its reader has gone; the error is said, and its exit code counts
                abandon_stdout()

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """A bar on stderr, fed with (done, total); nothing is drawn where stderr is no terminal."""
        if self.quiet or self.json or not sys.stderr.isatty():
            yield lambda done, total: None
            return
        from rich.console import Console as Terminal
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(*columns, console=Terminal(stderr=True), transient=True) as bars:
            bar = bars.add_task(what, total=None)
            yield lambda done, total: bars.update(bar, completed=done, total=total or None)


def say(text: str) -> None:
    """Write one line on stderr, escaped; a closed stderr is nobody's loss."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()


def write(data: bytes) -> None:
    """Write bytes on stdout; on a terminal control characters are escaped, line ends kept."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        lines = data.decode("utf-8", "replace").split("\n")
        sys.stdout.write("\n".join(map(printable, lines)))
    else:
        _buffer(sys.stdout).write(data)
    sys.stdout.flush()


class Lines:
    """Lines of bytes for stdout, gathered so that a pipe sees few writes. Used as a context manager."""

    def __init__(self, gather_bytes: int = 1 << 18) -> None:
        self._gather_bytes = gather_bytes
        self._lines: list[bytes] = []
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self._flush()

    def add(self, line: bytes) -> None:
        """Take one line without its end. Raises BrokenPipeError when nobody reads any more."""
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._gather_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            write(b"\n".join([*self._lines, b""]))
        self._lines, self._size = [], 0


def _buffer(stream: Any) -> IO[bytes]:
    binary: IO[bytes] = stream.buffer
    return binary


def abandon_stdout() -> None:
    """Send what is left for stdout nowhere: its reader has gone."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _draw_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", *, whole: bool = False) -> None:
    """A table where the width gives each column what it needs to be read; else one record a row.

    `whole`: no word is broken and no record cut, so that ids and paths can be copied.
    """
    from rich.cells import cell_len
    from rich.console import Console as Terminal

    terminal = Terminal(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, soft_wrap=False)
    names = [printable(column) for column in columns]
    cells = [[_cell(value) for value in row] for row in rows]
    least, wanted = [], []
    for at, name in enumerate(names):
        widest = max((cell_len(row[at]) for row in cells), default=0)
        words = [cell_len(word) for row in cells for word in row[at].split()] if whole else [min(widest, _READABLE)]
        least.append(max(*words, *map(cell_len, name.split()), 1, 1))
        wanted.append(max(widest, cell_len(name), 1))
    spare = terminal.width - sum(least) - (len(names) - 1)
    if spare < 0 and any(names) and cells:
        _draw_records(terminal, names, cells, title, whole=whole)
        return
    padding = 1 if spare >= len(names) else 0
    _draw_grid(terminal, names, cells, title, widths=_shared(least, wanted, spare - padding * len(names)), padding=padding)


def _shared(least: list[int], wanted: list[int], spare: int) -> list[int]:
    """Widths of columns: what each needs, and what is spare in equal parts to those that want more."""
    widths = list(least)
    order = sorted(range(len(least)), key=lambda at: wanted[at] - least[at])
    for done, at in enumerate(order):
        more = min(wanted[at] - least[at], max(spare, 0) // (len(order) - done))
        widths[at] += more
        spare -= more
    return widths


def _draw_grid(
    terminal: Terminal, names: list[str], cells: list[list[str]], title: str, *, widths: list[int], padding: int
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if title:  # not the table's own, which is as narrow as the table
        terminal.print(Text(printable(title), style="italic"))
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        show_header=any(names),
        padding=(0, padding, 0, 0),
    )
    for name, width in zip(names, widths, strict=True):
        table.add_column(Text(name), overflow="fold", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    terminal.print(table)


def _draw_records(terminal: Terminal, names: list[str], cells: list[list[str]], title: str, *, whole: bool) -> None:
    """Each row as lines `column: value`; what is empty is left out, and what is too long is cut with `…` unless `whole`."""
    from rich.text import Text

    if title:
        terminal.print(Text(printable(title), style="italic"))
    overflow: Literal["ignore", "ellipsis"] = "ignore" if whole else "ellipsis"
    for number, row in enumerate(cells, 1):
        terminal.print(Text(f"── {number}", style="bold"))
        for name, cell in zip(names, row, strict=True):
            if cell:
                terminal.print(Text.assemble((f"{name}: ", "cyan"), cell), no_wrap=True, overflow=overflow, soft_wrap=whole)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{printable(str(name))} {_cell(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return printable(str(value))


def _labelled(name: str, value: Any) -> tuple[str, Any]:
    """The name of a field and its value as people read them: instants as UTC, no underscores."""
    if name.endswith(_INSTANT) and isinstance(value, int):
        moment = datetime.fromtimestamp(value / 1000, UTC)
        return name.removesuffix(_INSTANT).replace("_", " "), f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return name.replace("_", " "), value


def _draw_report(report: Report) -> None:
    import msgspec

    values: dict[str, Any] = msgspec.to_builtins(report)
    _draw_values(values)


def verified(values: dict[str, Any], *, part: bool) -> str:
    """The result of a verify report in one line; `part`: only what a run touched was to be checked."""
    if part and not values["sources"] and not values["differences"]:
        return "nothing new, nothing to check"
    count = len(values["differences"])
    return "1 difference" if count == 1 else f"{count} differences"


def _draw_values(values: dict[str, Any], title: str = "", *, part: bool = False) -> None:
    """Scalars in one table, then lists and nested reports, each under its name; what is empty is not drawn.

    But no differences is what a verify is for, so that is said.
    """
    result = verified(values, part=part) if values.get("verb") == "verify" else ""
    title = title or " ".join(str(values.pop(name, "")) for name in ("verb", "dataset") if values.get(name))
    scalars = [(name, value) for name, value in values.items() if not isinstance(value, dict | list | None)]
    _draw_table(("", ""), [_labelled(name, value) for name, value in scalars if value not in ("", False)], title)
    if result:
        _draw_table(("",), [(result,)])
    for name, value in values.items():
        if isinstance(value, dict) and "verb" in value:
            _draw_values(value, part=True)
        elif isinstance(value, dict) and value:
            _draw_table((name.replace("_", " "), ""), _shortened(list(value.items())))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            _draw_items(value, name.replace("_", " "))
        elif isinstance(value, list) and value:
            _draw_table((name.replace("_", " "),), _shortened([(item,) for item in value]))


def _draw_items(items: list[dict[str, Any]], title: str) -> None:
    """A table of equal reports, without the columns that say nothing about any of them."""
    columns = [name for name in items[0] if any(item.get(name) not in (None, "", False) for item in items)]
    rows = [[item.get(name) for name in columns] for item in items]
    _draw_table([name.replace("_", " ") for name in columns], _shortened(rows), title, whole=True)


def _shortened(rows: list[Any]) -> list[Any]:
    if len(rows) <= _LONGEST_LIST:
        return rows
    more = len(rows) - _LONGEST_LIST
    return [*rows[:_LONGEST_LIST], (f"… {more} more; --json shows all",) + ("",) * (len(rows[0]) - 1)]
