"""The curve of one or more runs: how many games a step's senior won of its frozen start.

::

    python examples/two_players/figure.py runs/game-verl runs/game-openrlhf --out curve.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from game import mean_win_rate, weak_player
from game_result import Result

STYLE = {
    "svg.hashsalt": "two players",  # the same file from the same numbers
    "svg.fonttype": "none",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "0.45"
    ),
}
"""Readable on a light and on a dark page."""


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws the win rates of every training step, and those of the matches before and after."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    seeds = list(dict.fromkeys(result.seed for result in results))
    frameworks = list(dict.fromkeys(result.framework for result in results))
    for result in results:
        steps = [step.step for step in result.steps]
        (line,) = axes.plot(
            steps,
            [step.win_rate for step in result.steps],
            label=f"{result.framework}, seed {result.seed}",
            color=f"C{seeds.index(result.seed)}",
            linestyle=("-", "--")[frameworks.index(result.framework) % 2],
            linewidth=1.2,
        )
        axes.plot(
            [0, steps[-1]],
            [result.before, result.after],
            linestyle="none",
            marker="o",
            color=line.get_color(),
        )
    levels = {
        "best play": mean_win_rate(None, weak_player),
        "as it was taught": mean_win_rate(weak_player, weak_player),
    }
    for name, level in levels.items():
        axes.axhline(level, color="0.6", linestyle=":", linewidth=1)
        axes.annotate(
            name, (0.5, level), (0, 3), ("axes fraction", "data"), "offset points", color="0.4"
        )
    axes.set(xlabel="training step", ylabel="games won by the senior", ylim=(0.3, 1.05))
    axes.legend(loc="lower right", frameon=False, ncols=len(frameworks))
    if path.suffix != ".svg":
        figure.savefig(path)
    else:
        figure.savefig(path, metadata={"Date": None}, transparent=True)
        svg, told = path.read_text(encoding="utf-8"), _in_words(results)
        path.write_text(
            svg.replace("<svg ", f'<svg role="img" aria-label="{told}" ', 1), encoding="utf-8"
        )
    pyplot.close(figure)


def _in_words(results: Sequence[Result]) -> str:
    """What the figure shows, for who cannot see it."""
    runs = (
        f"{result.framework}, seed {result.seed}: {result.before:.1%} to {result.after:.1%}"
        for result in results
    )
    return "Games won by the senior before and after the training. " + "; ".join(runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+", help="folders that run.py left")
    parser.add_argument("--out", type=Path, required=True, help="an .svg or .png file")
    options = parser.parse_args(arguments)
    draw([Result.load(run / "result.json") for run in options.runs], options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
