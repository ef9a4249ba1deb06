"""One figure of a report: a picture, and the numbers that it shows."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "ReportFigure",
    "Style",
    "as_cell",
    "file_name",
    "legend",
    "panels",
    "shown_token",
    "styles",
]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999")
"""Okabe and Ito's, which people who see colours otherwise can tell apart; a brown stands for their
black, which cannot be seen on a dark page."""

_DARK_GROUND, _DARK_TEXT, _DARK_RULE = "#161616", "#e4e4e4", "#666666"
"""Of a dark page, as its style has them."""

_DARK = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), _DARK_GROUND),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _DARK_TEXT),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), _DARK_RULE),
}

_LINES, _MARKERS = ("-", "--", ":", "-."), ("o", "s", "^", "D")
_LONGEST = 24


@dataclass(frozen=True, slots=True)
class Style:
    """How one senior is drawn in every figure."""

    colour: str
    line: str = "-"
    marker: str = "o"


def styles(names: Sequence[str], pools: Mapping[str, Sequence[str]]) -> dict[str, Style]:
    """A style for each name: one colour a pool, another line and marker for each of its members.

    Whatever else there is, a name or pool has the same colour where the same names are given.
    """
    method_of = {member: method for method, members in pools.items() for member in members}
    methods = sorted({method_of.get(name, name) for name in names})
    found = {}
    for name in names:
        method = method_of.get(name, name)
        i = list(pools[method]).index(name) if name in method_of else 0
        colour = COLOURS[methods.index(method) % len(COLOURS)]
        found[name] = Style(colour, _LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)])
    return found


@dataclass(frozen=True, slots=True)
class ReportFigure:
    """A figure: what it is called, what it shows, its numbers, and how it is drawn."""

    name: str
    """For files: letters, digits, dots and hyphens."""
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    draw: Callable[[Figure], None]
    size: tuple[float, float] = (8.0, 4.5)

    def csv(self) -> str:
        """The numbers, with a header line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([as_cell(value) for value in row] for row in self.rows)
        return text.getvalue()

    def png(self, dark: bool = False) -> bytes:
        """The picture, for a light or a dark page; the same numbers give the same bytes."""
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        # Dollars in a token or a name are no mathematics.
        plain: Any = {"text.parse_math": False, "text.usetex": False}
        with (
            matplotlib.rc_context(plain | _DARK if dark else plain),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure = Figure(figsize=self.size, layout="constrained")
            FigureCanvasAgg(figure)
            self.draw(figure)
            data = io.BytesIO()
            figure.savefig(data, format="png", dpi=120, metadata={"Software": None})
        return data.getvalue()


def file_name(*parts: str) -> str:
    """A name that can be a file's, whatever the parts hold."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", "-".join(parts)).strip(".-") or "figure"


def as_cell(value: object) -> object:
    """A value as a spreadsheet may have it: text that could be a formula is quoted."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return json.dumps(value)
    return value


def shown_token(text: str) -> str:
    """A token's text as people can see it: spaces marked, what cannot be drawn by its code."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont("DejaVu Sans"))
    shown = "".join(_shown(letter, font) for letter in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _shown(letter: str, font: Any) -> str:
    if letter == " ":
        return "␣" if font.get_char_index(ord("␣")) else "_"
    drawable = unicodedata.category(letter)[0] not in "CMZ" and font.get_char_index(ord(letter))
    return letter if drawable else letter.encode("unicode_escape", "surrogatepass").decode()


def panels(figure: Any, count: int, across: int) -> list[Any]:
    """The axes of ``count`` panels, at most ``across`` in a line."""
    columns = min(count, across)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.set_axis_off()
    return list(grid[:count])


def legend(figure: Any, drawn: Mapping[str, Style], across: int = 7) -> None:
    """A legend of names below all panels, where it hides nothing."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=s.colour, linestyle=s.line or "none", marker=s.marker or "none")
        for s in drawn.values()
    ]
    figure.legend(
        lines, list(drawn), loc="outside lower center",
        ncols=min(len(drawn), across, _columns(figure, list(drawn))),
        frameon=False, fontsize="small", handlelength=3,
    )  # fmt: skip


def _columns(figure: Any, names: Sequence[str]) -> int:
    """How many of these names go beside each other below a figure, each with its line."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(size="small")
    size = font.get_size_in_points()
    widest = max(TextPath((0, 0), name or " ", prop=font).get_extents().width for name in names)
    # a line, the gap behind it, and the gap between columns, in letters' heights
    return max(1, int((72 * figure.get_figwidth() + size) // (widest + (3 + 0.8 + 2) * size)))
