"""One HTML page for people: headings, figures and tables, nothing from outside (pure).

Every text is data: it is escaped, and control characters are shown as such. The page runs no script and loads nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chronicle.commandline.console import printable

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--bad:#c33}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .3rem}
p.note{opacity:.75;margin:.3rem 0}
dl{display:flex;flex-wrap:wrap;gap:.6rem 2rem;margin:1rem 0}dt{opacity:.75;font-size:.85rem}dd{margin:0;font-size:1.3rem}
div.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;overflow-wrap:anywhere}
th{font-weight:600;background:var(--soft);overflow-wrap:normal}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
li.hint{color:var(--bad)}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Page(msgspec.Struct):
    """A page that grows from top to bottom."""

    title: str
    _body: list[str] = []

    def heading(self, text: str, level: int = 2) -> None:
        """A heading of a section."""
        self._body.append(f"<h{level}>{escaped(text)}</h{level}>")

    def note(self, text: str) -> None:
        """A sentence."""
        self._body.append(f'<p class="note">{escaped(text)}</p>')

    def hints(self, texts: Iterable[str]) -> None:
        """What a reader should do something about."""
        items = "".join(f'<li class="hint">{escaped(text)}</li>' for text in texts)
        if items:
            self._body.append(f"<ul>{items}</ul>")

    def figures(self, values: Iterable[tuple[str, Any]]) -> None:
        """A few values, each under its name."""
        items = "".join(f"<div><dt>{escaped(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in values)
        self._body.append(f"<dl>{items}</dl>")

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table; a column is one of numbers where its first row holds one. `name` becomes its id."""
        numbers = [bool(rows) and isinstance(rows[0][at], int | float) for at in range(len(columns))]
        head = "".join(_cell("th", column, number) for column, number in zip(columns, numbers, strict=True))
        lines = ["".join(_cell("td", value, number) for value, number in zip(row, numbers, strict=True)) for row in rows]
        body = "".join(f"<tr>{line}</tr>\n" for line in lines)
        self._body.append(
            f'<div class="wide"><table id="{escaped(name)}"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'
        )

    def encode(self) -> bytes:
        """The whole page."""
        title = escaped(self.title)
        head = (
            f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style>'
        )
        body = "\n".join(self._body)
        text = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n<h1>{title}</h1>\n{body}\n</body></html>\n'
        return text.encode()


def escaped(text: str) -> str:
    """Text as HTML shows it, in elements and in quoted attributes; characters that are not to be seen are written as escapes."""
    return html.escape(printable(text))


def shown(value: Any) -> str:
    """A value as people read it, as HTML: numbers with separators, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    return escaped(str(value))


def _cell(tag: str, value: Any, number: bool) -> str:
    mark = ' class="number"' if number else ""
    return f"<{tag}{mark}>{shown(value)}</{tag}>"
