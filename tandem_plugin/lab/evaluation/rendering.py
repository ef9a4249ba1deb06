"""Renders tables on a terminal, and as Markdown, HTML and JSON."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "DASH",
    "Cell",
    "PaperTable",
    "Row",
    "best",
    "html_table",
    "markdown",
    "number",
    "probability",
    "rich_table",
    "safe",
    "signed",
    "table_json",
]

DASH = "–"
"""A cell without a number."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029"
                     "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, its standard error if any, and its markers."""

    text: str
    error: str = ""
    bold: bool = False
    stars: str = ""


Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table, independent of its output format."""

    name: str
    """For files: letters, digits and hyphens."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    rules: tuple[int, ...] = ()
    """Rows that have a rule above them."""
    text_columns: int = 1
    """Number of columns from the left that contain names."""
    note: str = ""
    """A note for the reader, one or two sentences."""


def best(texts: Sequence[str], higher: bool) -> list[bool]:
    """Which values are best as printed; none if all are equal."""
    values = [float(text) if text != DASH else math.nan for text in texts]
    known = [value for value in values if not math.isnan(value)]
    if not known or len(set(known)) == 1:
        return [False] * len(values)
    found = max(known) if higher else min(known)
    return [value == found for value in values]


def number(value: float, decimals: int) -> str:
    """A number with the given decimals, never a negative zero; a dash for NaN."""
    if math.isnan(value):
        return DASH
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(value: float, decimals: int) -> str:
    """A difference with its sign; zero has none."""
    if math.isnan(value):
        return DASH
    text = f"{value:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(text) == 0 else text


def probability(p: float) -> str:
    """Three decimals, and powers of ten for smaller values, as in the paper."""
    if math.isnan(p):
        return DASH
    if p >= 0.001:
        return f"{p:.3f}"
    return f"<1e-{math.floor(-math.log10(p)) if p > 0 else 300}"


def rich_table(table: PaperTable) -> Table:
    """For a terminal; names are never interpreted as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn: Any = Table(title=Text(table.title), box=box.SIMPLE_HEAD, pad_edge=False)
    if table.note:
        drawn.caption = Text(table.note)
    for i, name in enumerate(table.columns):
        drawn.add_column(Text(name), justify="left" if i < table.text_columns else "right")
    for i, row in enumerate(table.rows):
        if i in table.rules:
            drawn.add_section()
        drawn.add_row(*(_terminal(cell) for cell in row))
    return drawn  # type: ignore[no-any-return]


def markdown(table: PaperTable) -> str:
    """A heading and a pipe table."""
    marks = ["---" if i < table.text_columns else "---:" for i in range(len(table.columns))]
    lines = [
        f"### {_escaped(table.title)}",
        "",
        _piped([_escaped(name) for name in table.columns]),
        _piped(marks),
        *(_piped([_markdown_cell(cell) for cell in row]) for row in table.rows),
    ]
    if table.note:
        lines += ["", _escaped(table.note)]
    return "\n".join(lines) + "\n"


def html_table(table: PaperTable) -> str:
    """A section of an HTML page that styles the classes ``name``, ``rule``, ``wide``, ``note``."""
    marks = [" class=name" if i < table.text_columns else "" for i in range(len(table.columns))]
    names = zip(marks, table.columns, strict=True)
    head = "".join(f"<th{mark}>{safe(name)}</th>" for mark, name in names)
    rows = []
    for i, row in enumerate(table.rows):
        cells = zip(marks, row, strict=True)
        rows.append(f"<tr{' class=rule' if i in table.rules else ''}>")
        rows += [f"<td{mark}>{_html_cell(cell)}</td>" for mark, cell in cells]
        rows.append("</tr>")
    note = f"<p class=note>{safe(table.note)}</p>" if table.note else ""
    return (
        f"<section><h2>{safe(table.title)}</h2><div class=wide><table><thead><tr>{head}</tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>{note}</section>"
    )


def safe(text: str) -> str:
    """Escaped text for HTML, with control characters and those that change the direction of text
    replaced by U+FFFD."""
    return html.escape(_UNSAFE.sub("\ufffd", text))


def table_json(table: PaperTable) -> dict[str, Any]:
    """A table and its cells, for ``--json``."""
    return {
        "name": table.name,
        "title": table.title,
        "note": table.note,
        "columns": list(table.columns),
        "rows": [[asdict(cell) for cell in row] for row in table.rows],
    }


def _terminal(cell: Cell) -> Any:
    from rich.text import Text

    text = Text(cell.text, style="bold" if cell.bold else "")
    if cell.error:
        text.append(f" ± {cell.error}", style="not bold dim")
    return text.append(cell.stars)


def _html_cell(cell: Cell) -> str:
    text = safe(cell.text)
    if cell.bold:
        text = f"<strong>{text}</strong>"
    if cell.error:
        text += f"<small> ± {safe(cell.error)}</small>"
    return text + safe(cell.stars)


def _markdown_cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    if cell.bold:
        text = f"**{text}**"
    if cell.error:
        text += f" ± {cell.error}"
    return text + cell.stars.replace("*", r"\*")


def _escaped(text: str) -> str:
    escaped = re.sub(r"([\\`*_\[\]|])", r"\\\1", text.replace("\n", " "))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
