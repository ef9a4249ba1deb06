"""One table of the paper: its cells, and how numbers are written into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cell", "PaperTable", "best", "number", "probability", "signed"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, its standard error where it has one, and how it is marked."""

    text: str
    error: str = ""
    bold: bool = False
    stars: str = ""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table as it is printed, in whatever form."""

    name: str
    """For files: letters, digits and hyphens."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rules: tuple[int, ...] = ()
    """Rows before which there is a rule."""
    text_columns: int = 1
    """How many columns from the left hold names."""
    note: str = ""
    """What a reader must know, in a sentence or two."""


def best(texts: Sequence[str], higher: bool) -> list[bool]:
    """Which are best as printed; none where all are equal."""
    values = [float(text) if text != "–" else math.nan for text in texts]
    known = [value for value in values if not math.isnan(value)]
    if not known or len(set(known)) == 1:
        return [False] * len(values)
    found = max(known) if higher else min(known)
    return [value == found for value in values]


def number(value: float, decimals: int) -> str:
    """A number with so many decimals, never a negative zero; a dash for none."""
    if math.isnan(value):
        return "–"
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(value: float, decimals: int) -> str:
    """A difference with its sign; zero has none."""
    if math.isnan(value):
        return "–"
    text = f"{value:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(text) == 0 else text


def probability(p: float) -> str:
    """Three decimals, and powers of ten below, as the paper has them."""
    if math.isnan(p):
        return "–"
    if p >= 0.001:
        return f"{p:.3f}"
    return f"<1e-{math.floor(-math.log10(p)) if p > 0 else 300}"
