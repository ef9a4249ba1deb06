"""Renders tables as Markdown, HTML and JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from tandem_plugin.errors import printable

DASH = "–"
"""A cell without a number."""


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
    text_columns: int = 1
    """Number of columns from the left that contain names."""
    note: str = ""
    """A note for the reader, one or two sentences."""


def best(texts: Sequence[str], higher: bool) -> list[bool]:
    """Which values are best as printed; none if all are equal."""
    values = [float(text) if text != DASH else math.nan for text in texts]
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers or len(set(numbers)) == 1:
        return [False] * len(values)
    extreme = max(numbers) if higher else min(numbers)
    return [value == extreme for value in values]


def number(value: float, decimals: int, sign: str = "") -> str:
    """A number with the given decimals, never a negative zero; a dash for NaN.

    sign: ``+`` for a difference, which shows its sign unless it is zero.
    """
    if math.isnan(value):
        return DASH
    text = f"{value:{sign}.{decimals}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def probability(p: float) -> str:
    """Three decimals, and powers of ten for smaller values, as in the paper."""
    if math.isnan(p):
        return DASH
    if p >= 0.001:
        return f"{p:.3f}"
    return f"<1e-{math.floor(-math.log10(p)) if p > 0 else 300}"


def markdown(table: PaperTable) -> str:
    """A heading and a pipe table."""
    marks = ["---" if i < table.text_columns else "---:" for i in range(len(table.columns))]
    lines = [
        f"### {escaped(table.title)}",
        "",
        _piped([escaped(name) for name in table.columns]),
        _piped(marks),
        *(_piped([_markdown_cell(cell) for cell in row]) for row in table.rows),
    ]
    if table.note:
        lines += ["", escaped(table.note)]
    return "\n".join(lines) + "\n"


def html_page(text: str) -> str:
    """Markdown as elements of an HTML page, whose style defines the class ``right``."""
    from markdown_it import MarkdownIt

    page: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(printable(text))
    return page.replace(' style="text-align:right"', " class=right")


def table_json(table: PaperTable) -> dict[str, Any]:
    """A table and its cells, for ``--json``."""
    return {
        "name": table.name,
        "title": table.title,
        "note": table.note,
        "columns": list(table.columns),
        "rows": [[asdict(cell) for cell in row] for row in table.rows],
    }


def _markdown_cell(cell: Cell) -> str:
    text = escaped(cell.text)
    if cell.bold:
        text = f"**{text}**"
    if cell.error:
        text += f" ± {cell.error}"
    return text + cell.stars.replace("*", r"\*")


def escaped(text: str) -> str:
    """Text with Markdown's and HTML's special characters escaped."""
    escaped = re.sub(r"([\\`*_\[\]|])", r"\\\1", text.replace("\n", " "))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
