"""What `tandem data` says of problem sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.lab.data import Overlap, ProblemSet

from tandem_plugin.terminal.output import cell, echo, table_console

__all__ = ["overlap_report", "print_bad", "print_check", "print_problem", "print_table"]

_WIDEST = 120
"""Columns of a problem's frame, also where there are more, as in a log."""


def overlap_report(
    train: ProblemSet, evaluation: ProblemSet, overlaps: list[Overlap], show: int
) -> dict[str, Any]:
    """What the overlaps of two sets come to, with the first ``show`` pairs."""
    return {
        "problems": len(evaluation),
        "pairs": len(overlaps),
        "exact": sum(found.is_exact for found in overlaps),
        "problems_repeated": len({found.evaluation_row for found in overlaps}),
        "shown": [
            {
                "train_row": found.train_row,
                "evaluation_row": found.evaluation_row,
                "similarity": round(found.similarity, 4),
                "containment": round(found.containment, 4),
                "train": _short(train, found.train_row),
                "evaluation": _short(evaluation, found.evaluation_row),
            }
            for found in overlaps[:show]
        ],
    }


def _short(problems: ProblemSet, row: int) -> str:
    text = next(problem.text for problem in problems.problems if problem.row == row)
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def print_table(rows: dict[str, Any]) -> None:
    """Print names and values side by side."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name.replace("_", " "), cell(value))
    table_console().print(table)


def print_problem(shown: dict[str, Any]) -> None:
    """Print a problem as a model would be asked, and its golds."""
    from rich.panel import Panel

    prompt = shown["prompt"]
    if not isinstance(prompt, str):
        prompt = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
    golds = "  or  ".join(shown["golds"])
    console = table_console()
    width = min(console.width, _WIDEST)
    console.print(Panel(cell(prompt), title=f"row {shown['row']}", width=width))
    console.print(cell(f"gold: {golds}"))


def print_bad(problems: ProblemSet) -> None:
    """Print the first rows that were left out, and why."""
    for bad in problems.bad_rows[:10]:
        echo(f"left out: row {bad.row}: {bad.reason}")
    if len(problems.bad_rows) > 10:
        echo(f"left out: {len(problems.bad_rows) - 10:,} more rows")


def print_check(result: dict[str, Any]) -> None:
    """Print which evaluation problems are in the training set."""
    echo(f"{result['problems']:,} training problems of {result['train']}")
    for name, found in result["sets"].items():
        echo(
            f"{name}: {found['problems_repeated']:,} of {found['problems']:,} problems are in it, "
            f"{found['exact']:,} pairs word for word"
        )
        for pair in found["shown"]:
            echo(
                f"  training row {pair['train_row']}, evaluation row {pair['evaluation_row']}: "
                f"similarity {pair['similarity']:.2f}, containment {pair['containment']:.2f}"
            )
            echo(f"    {pair['train']}\n    {pair['evaluation']}")
    echo("The sets are disjoint." if result["disjoint"] else "The sets are not disjoint.")
