"""The demo's picture: one problem as each senior begins it and the junior ends it, and the shares.

An SVG for light and dark pages, from what ``tandem eval`` wrote.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evaluation import GRPO, TANDEM, Score
from measures import TAUGHT, Answer, Answers

from tandem_plugin.files import write_file

LEFT, COLUMN = 24, 500
"""The longest sentence, of 60 characters, fits into a column."""
WIDTH = 2 * COLUMN + LEFT
CHARACTER = 7.8
"""Pixels of a character at 13 px in a monospaced font: texts are stretched to it."""
LINE = 22
METHODS = {GRPO: "after plain GRPO", TANDEM: "after training in tandem"}
BARS = {
    "alone": "the senior alone",
    "continued": "the junior continues it",
    "read": "the reader continues it",
}
STYLE = """
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1c1d1f; }
  .head { font-weight: bold; } .soft { fill: #5c6066; } .small { font-size: 12px; }
  .paper { fill: #f7f7f5; } .track { fill: #e6e6e2; } .before { stroke: #1c1d1f; stroke-width: 2; }
  .senior { fill: #d8e9fb; } .junior { fill: #fdeacb; }
  .alone { fill: #0b5cad; } .continued, .read { fill: #a05a00; }
  .right { fill: #14722f; } .wrong { fill: #b3261e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e7e8ea; } .soft { fill: #a3a8b0; } .before { stroke: #e7e8ea; }
    .paper { fill: #16181b; } .track { fill: #2a2d32; }
    .senior { fill: #17365a; } .junior { fill: #4a3209; }
    .alone { fill: #7db7f5; } .continued, .read { fill: #f0b04c; }
    .right { fill: #6fd08c; } .wrong { fill: #ff8a80; }
  }
"""


def solved_by_both(answers: Mapping[str, Answers]) -> list[int]:
    """Problems that each senior solves alone with its first response."""
    alone = [of_senior.alone() for of_senior in answers.values()]
    return [n for n in range(len(alone[0])) if all(part[n][0].is_right for part in alone)]


def chosen_problem(answers: Mapping[str, Answers], place: int = 1) -> int:
    """The first problem that both solve alone and that the junior ends rightly after two sentences
    of the senior trained in tandem alone; without any the first of all."""
    continued = {
        name: of_senior.handed_over("junior", "senior")[place]
        for name, of_senior in answers.items()
    }
    for n in solved_by_both(answers):
        if continued[TANDEM][n][0].is_right and not continued[GRPO][n][0].is_right:
            return n
    return 0


def write_picture(path: Path, scores: Sequence[Score], answers: Mapping[str, Answers]) -> None:
    """Draw one problem, and what share of all each pair solves."""
    write_file(path, picture(scores, answers))


def picture(scores: Sequence[Score], answers: Mapping[str, Answers]) -> str:
    """The SVG's text."""
    problem = chosen_problem(answers)
    question = answers[TANDEM].stories[problem].problem.messages[0]["content"]
    rates = {(score.trained, score.authors): 100 * score.rates.mean() for score in scores}
    steps = {score.trained: score.steps for score in scores}
    parts = [text(LEFT, 34, question, "soft")]
    bottom = 0
    for place, (method, title) in enumerate(METHODS.items()):
        x = LEFT + place * COLUMN
        answer = answers[method].handed_over("junior", "senior")[1][problem][0]
        parts.append(text(x, 66, f"{title} ({steps[method]} steps)", "head"))
        y = 92
        for line in answer_lines(answer, x, y):
            parts.append(line)
        y += LINE * len(lines_of(answer)) + 18
        bars, y = _bars(rates, method, x, y)
        parts += bars
        bottom = max(bottom, y)
    parts.append(legend(bottom + 12))
    height = bottom + 34
    label = html.escape(f"{question} {' | '.join(METHODS.values())}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'role="img" aria-label="{label}"><style>{STYLE}</style>\n'
        f'<rect class="paper" width="100%" height="100%" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def lines_of(answer: Answer) -> list[tuple[str, bool]]:
    """(a line, whether the senior wrote it): sentences, and the box."""
    return [
        (line, is_senior)
        for part, is_senior in ((answer.begun, True), (answer.ended, False))
        for line in part.split("\n\n")
        if line
    ]


def answer_lines(answer: Answer, x: float, y: float) -> Iterator[str]:
    """Each line on its author's colour, and at the end whether it was right."""
    lines = lines_of(answer)
    for number, (line, is_senior) in enumerate(lines):
        top = y + number * LINE
        width = len(line) * CHARACTER
        author = "senior" if is_senior else "junior"
        yield f'<rect class="{author}" x="{x}" y="{top - 14}" width="{width:.1f}" height="19"/>'
        yield text(x, top, line)
        if number == len(lines) - 1:
            verdict = ("✓ right", "right") if answer.is_right else ("✗ wrong", "wrong")
            yield text(x + width + 12, top, *verdict)


def _bars(
    rates: Mapping[tuple[str, str], float], method: str, x: int, y: int
) -> tuple[list[str], int]:
    """A bar for each measure, with a mark where it stood as taught; and where they end."""
    parts = []
    length = COLUMN - 40
    for name, title in BARS.items():
        rate, before = rates[method, name], rates[TAUGHT, name]
        parts.append(text(x, y, title, "small"))
        parts.append(text(x + length - 6 * CHARACTER, y, f"{rate:5.1f}%", "small"))
        parts.append(
            f'<rect class="track" x="{x}" y="{y + 6}" width="{length}" height="8" rx="2"/>'
        )
        parts.append(
            f'<rect class="{name}" x="{x}" y="{y + 6}" width="{length * rate / 100:.1f}" '
            f'height="8" rx="2"/>'
        )
        mark = x + length * before / 100
        parts.append(f'<path class="before" d="M{mark:.1f} {y + 3}v14"/>')
        y += 36
    return parts, y


def legend(y: int) -> str:
    """What colours and marks mean."""
    return (
        f'<rect class="senior" x="{LEFT}" y="{y - 10}" width="12" height="12"/>'
        + text(LEFT + 18, y, "the senior begins", "small soft")
        + f'<rect class="junior" x="{LEFT + 164}" y="{y - 10}" width="12" height="12"/>'
        + text(LEFT + 182, y, "the frozen junior ends", "small soft")
        + f'<path class="before" d="M{LEFT + 366} {y - 11}v14"/>'
        + text(LEFT + 374, y, "as taught; shares of all held-out problems", "small soft")
    )


def text(x: float, y: float, line: str, style: str = "") -> str:
    """One line."""
    return (
        f'<text class="{style}" xml:space="preserve" x="{x:.1f}" y="{y}">{html.escape(line)}</text>'
    )
