"""Draws docs/images/speed.svg from the measured table of docs/performance.md.

Run ``python docs/generate_speed_figure.py`` after the table was measured anew; a test
fails until then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PERFORMANCE = Path(__file__).with_name("performance.md")
FIGURE = Path(__file__).parent / "images" / "speed.svg"

GROUPS = {
    ("1", "equal"): "one request, a junior of the senior's size",
    ("1", "small junior"): "one request, a junior that reads a sixth",
    ("16", "equal"): "16 requests, a junior of the senior's size",
    ("64", "equal"): "64 requests, a junior of the senior's size",
    ("256", "equal"): "256 requests, a junior of the senior's size",
}
"""Batch size and kind of junior."""
LEFT, TOP, WIDE, ROW, MOST = 280, 46, 420, 24, 2.5

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
    fill: #1c1d1f; }
  .head { font-weight: 600; } .soft { fill: #5c6066; font-size: 12px; }
  .value { paint-order: stroke; stroke: #f7f7f5; stroke-width: 4px; }
  .paper { fill: #f7f7f5; } .grid { stroke: #dcdcd8; } .one { stroke: #5c6066; }
  .range { stroke: #1c1d1f; stroke-width: 1.5; }
  .lockstep { fill: #d59a4a; } .speculative { fill: #4b8fd6; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e7e8ea; } .soft { fill: #a3a8b0; } .paper { fill: #16181b; }
    .value { stroke: #16181b; }
    .grid { stroke: #363a40; } .one { stroke: #a3a8b0; } .range { stroke: #e7e8ea; }
    .lockstep { fill: #a8722a; } .speculative { fill: #2f6cae; }
  }
"""


@dataclass(frozen=True)
class Bar:
    """An engine's speed over the single model's on the same runner: median, lowest, highest."""

    mode: str
    drafts: str
    median: float
    low: float
    high: float

    @property
    def name(self) -> str:
        return f"{self.mode}, {self.drafts} drafts" if self.drafts else self.mode

    @property
    def style(self) -> str:
        return self.mode.partition(",")[0]


def bars(text: str, batch: str, kind: str) -> list[Bar]:
    """Those of a batch size and a kind of junior, from the table under "Speculative"."""
    rows = re.findall(
        rf"^\| {batch} \| {kind}, (lockstep|speculative|speculative, solo) \| (\w*) ?\|(.*)\|$",
        text,
        re.MULTILINE,
    )
    found = []
    for mode, drafts, rest in rows:
        cell = rest.split("|")[1]
        numbers = re.fullmatch(r"\s*([\d.]+) \(([\d.]+) to ([\d.]+)\)\s*", cell)
        assert numbers is not None, cell
        median, low, high = map(float, numbers.groups())
        found.append(Bar(mode, drafts, median, low, high))
    return found


def figure(text: str) -> str:
    """The whole SVG, from the page's text."""
    section = text.split("### Speculative\n", 1)[1].split("\n### ", 1)[0]
    groups = {name: bars(section, *place) for place, name in GROUPS.items()}
    assert all(groups.values())
    parts, y = list(_grid(sum(len(found) + 1.6 for found in groups.values()))), float(TOP)
    for name, found in groups.items():
        parts.append(f'<text class="head value" x="24" y="{y:g}">{name}</text>')
        for bar in found:
            y += ROW
            parts += _bar(bar, y)
        y += 1.6 * ROW
    told = "; ".join(
        f"{name}: " + ", ".join(f"{bar.name} {bar.median}" for bar in found)
        for name, found in groups.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {y + 12:g}" role="img" '
        f'aria-label="Decoding speed over that of the senior alone, {told}">'
        f'<style>{STYLE}</style>\n<rect class="paper" width="100%" height="100%" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _grid(rows: float) -> Iterator[str]:
    for tenth in range(int(MOST * 2) + 1):
        x, kind = LEFT + WIDE * tenth / (MOST * 2), "one" if tenth == 2 else "grid"
        yield f'<path class="{kind}" d="M{x:g} 26v{rows * ROW:g}"/>'
        yield f'<text class="soft" text-anchor="middle" x="{x:g}" y="20">{tenth / 2:g}x</text>'


def _bar(bar: Bar, y: float) -> list[str]:
    def at(value: float) -> float:
        return round(LEFT + WIDE * value / MOST, 1)

    middle = y - 4
    return [
        f'<text x="24" y="{y:g}">{bar.name}</text>',
        f'<rect class="{bar.style}" x="{LEFT}" y="{middle - 8:g}" '
        f'width="{at(bar.median) - LEFT:g}" height="16"/>',
        f'<path class="range" d="M{at(bar.low):g} {middle:g}H{at(bar.high):g}"/>',
        f'<text class="soft value" x="{at(bar.high) + 8:g}" y="{y:g}">{bar.median:.2f}</text>',
    ]


if __name__ == "__main__":
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(PERFORMANCE.read_text(encoding="utf-8")), encoding="utf-8")
