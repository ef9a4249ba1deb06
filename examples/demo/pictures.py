"""The two pictures of a run of the demo, as the README has them::

    python examples/demo/pictures.py runs/demo --out docs/images

``response.svg``: a right response of the team in the last evaluation, coloured by author.
``learning.svg``, of a run that has trained: how many problems the team and the senior alone solve,
by step. Both follow the reader's light or dark theme and hold no text but the demo's own.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tandem_plugin import Vocabulary
from tandem_plugin.files import write_file
from tandem_plugin.spans import SENIOR, TokenBytes, authored_text

WIDTH, COLUMNS, CELL, LINE, MARGIN = 520, 56, 8.4, 26, 24
"""A response's lines are short, so that a phone shows them large enough to be read."""

STYLE = """
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1c1d1f; }
  .soft { fill: #5c6066; } .small { font-size: 12px; }
  .paper { fill: #f7f7f5; } .grid { stroke: #dcdcd8; }
  .senior { fill: #d8e9fb; } .junior { fill: #fdeacb; }
  .s { stroke: #0b5cad; } .j { stroke: #a05a00; } .t { stroke: #8a8f96; }
  .dots { stroke-dasharray: 3 3; } path { fill: none; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e7e8ea; } .soft { fill: #a3a8b0; }
    .paper { fill: #16181b; } .grid { stroke: #363a40; }
    .senior { fill: #17365a; } .junior { fill: #4a3209; }
    .s { stroke: #7db7f5; } .j { stroke: #f0b04c; }
  }
"""

Cell = tuple[str, int]
"""A character and its author."""


def picture(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """An SVG of these parts; label: what it shows, for those who do not see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" role="img" '
        f'aria-label="{escape(label, {chr(34): "&quot;"})}"><style>{STYLE}</style>\n'
        f'<rect class="paper" width="100%" height="100%" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def asked(prompt: str) -> str:
    """The user's turn of a rendered prompt."""
    (turn,) = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", prompt, re.DOTALL)
    return turn.strip()


def lines_of(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Cut at line breaks, and at spaces where a line would be too long."""
    line: list[Cell] = []
    for word in re.finditer(r"\n|[^\S\n]*[^\s]+|[^\S\n]+", "".join(c for c, _ in cells)):
        piece = list(cells[word.start() : word.end()])
        if word[0] == "\n" or len(line) + len(piece) > COLUMNS:
            yield line
            line = []
        line += [cell for cell in piece if cell[0] != "\n" and (line or cell[0] != " ")]
    yield line


def response_picture(rollout: Mapping[str, Any], vocabulary: Vocabulary) -> str:
    """A response with its problem above and the two authors named below."""
    token_bytes = TokenBytes(vocabulary)
    authored = authored_text(rollout["response_ids"], rollout["authorship"], token_bytes)
    cells = [
        (character, authored.spans[piece.first][0])
        for piece in authored.pieces
        for character in _written(piece.text)
    ]
    question = asked(token_bytes(rollout["prompt_ids"]).decode())
    parts, y = [], MARGIN + 14.0
    for line in lines_of([(character, SENIOR) for character in question]):
        parts.append(_text(MARGIN, y, "".join(c for c, _ in line), "soft"))
        y += 20
    y += 12
    for line in lines_of(cells):
        parts += _marked(line, y)
        y += LINE
    for x, kind, says in ((MARGIN, "senior", "senior, trained"), (200, "junior", "junior, frozen")):
        parts += [*_mark(x, y + 10, len(says), kind), _text(x, y + 10, says)]
    handoffs = len(authored.spans) - 1
    y += LINE
    parts.append(_text(MARGIN, y + 10, f"{handoffs} handoffs, at words, by coin flips", "soft"))
    return picture(WIDTH, y + 34, f"A response by two authors: {_written(authored.text)}", parts)


def _written(text: str) -> str:
    """Text without the tokens that end it."""
    return re.sub(r"<\|\w+\|>", "", text)


def _marked(line: Sequence[Cell], y: float) -> list[str]:
    parts, column = [], 0
    for author, run in groupby(line, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in run)
        x = MARGIN + column * CELL
        kind = "senior" if author == SENIOR else "junior"
        parts += [*_mark(x, y, len(text), kind), _text(x, y, text)]
        column += len(text)
    return parts


def _mark(x: float, y: float, length: int, kind: str) -> list[str]:
    width = length * CELL
    line = "s" if kind == "senior" else "j dots"
    return [
        f'<rect class="{kind}" x="{x:.1f}" y="{y - 15:g}" width="{width:.1f}" height="20"/>',
        f'<path class="{line}" d="M{x:.1f} {y + 6:g}h{width:.1f}"/>',
    ]


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return (
        f'<text class="{kind}" xml:space="preserve" x="{x:.1f}" y="{y:g}" '
        f'textLength="{len(text) * CELL:.1f}">{escape(text)}</text>'
    )


def learning_picture(
    rewards: Sequence[tuple[int, float]], solved: Mapping[str, Sequence[tuple[int, float]]]
) -> str:
    """Rewards of training by step, and the share of new problems that each solves."""
    height, left, top, wide, high = 300, 64, 24, 470, 220
    last = max(step for step, _ in [*rewards, *(p for points in solved.values() for p in points)])

    def at(step: float, share: float) -> str:
        return f"{left + wide * step / last:.1f} {top + high * (1 - share):.1f}"

    def path(points: Sequence[tuple[int, float]], kind: str) -> str:
        return f'<path class="{kind}" d="M{"L".join(at(*point) for point in points)}"/>'

    parts = []
    for percent in (0, 25, 50, 75, 100):
        y = top + high * (1 - percent / 100)
        parts.append(f'<path class="grid" style="stroke-width:1" d="M{left} {y:g}h{wide}"/>')
        parts.append(f'<text class="soft small" x="{left - 44}" y="{y + 4:g}">{percent}%</text>')
    for step in sorted({0, last}):
        x = left + wide * step / last
        parts.append(f'<text class="soft small" x="{x - 4:g}" y="{top + high + 20}">{step}</text>')
    parts.append(f'<text class="soft small" x="{left + 190}" y="{top + high + 20}">step</text>')
    named = [("t", "training, team", rewards)]
    named += [("s", "new problems, senior", solved["senior alone"])]
    named += [("j dots", "new problems, team", solved["team"])]
    for number, (kind, name, points) in enumerate(named):
        y = top + 20 + 60 * number
        parts.append(path(points, kind))
        parts.append(f'<path class="{kind}" d="M{left + wide + 16} {y - 5}h22"/>')
        parts.append(f'<text class="small" x="{left + wide + 46}" y="{y}">{name}</text>')
        says = f"{points[0][1]:.1%} to {points[-1][1]:.1%}"
        parts.append(f'<text class="soft small" x="{left + wide + 46}" y="{y + 18}">{says}</text>')
    told = "; ".join(
        f"{name} {points[0][1]:.1%} to {points[-1][1]:.1%}" for _, name, points in named
    )
    return picture(760, height, f"Share of problems solved by step: {told}", parts)


def best_to_show(responses: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of the team's right ones, that in which the one who wrote less wrote most."""

    def worth(row: Mapping[str, Any]) -> tuple[float, int]:
        senior = sum(row["authorship"])
        return float(row["score"]), min(senior, len(row["authorship"]) - senior)

    return max((row for row in responses if row["authors"] == "team"), key=worth)


def evaluations(run: Path) -> dict[int, list[dict[str, Any]]]:
    """The responses of each evaluation, by step, in order."""
    files = {int(file.stem.split("-")[1]): file for file in run.glob("evaluation-*.jsonl")}
    return {step: _read(files[step]) for step in sorted(files)}


def solved_by_step(
    evaluated: Mapping[int, Sequence[Mapping[str, Any]]],
) -> dict[str, list[tuple[int, float]]]:
    """The share of problems solved, by who answered."""
    found: dict[str, list[tuple[int, float]]] = {}
    for step, rows in evaluated.items():
        for author in sorted({row["authors"] for row in rows}):
            scores = [row["score"] for row in rows if row["authors"] == author]
            found.setdefault(author, []).append((step, sum(scores) / len(scores)))
    return found


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of the demo's run")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    vocabulary, evaluated = Vocabulary.from_path(options.run / "model"), evaluations(options.run)
    shown = best_to_show(evaluated[max(evaluated)])
    write_file(options.out / "response.svg", response_picture(shown, vocabulary))
    if len(evaluated) > 1:
        metrics = [(int(row["step"]), row["data"]) for row in _read(options.run / "metrics.jsonl")]
        key = "critic/score/mean"
        rewards = [(step, float(data[key])) for step, data in metrics if key in data]
        learnt = learning_picture(rewards, solved_by_step(evaluated))
        write_file(options.out / "learning.svg", learnt)


if __name__ == "__main__":
    main()
