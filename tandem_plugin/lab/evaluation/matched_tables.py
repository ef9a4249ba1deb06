"""Checkpoints of several training runs side by side: at matched steps, and matched accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.measures import measure_at
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, number
from tandem_plugin.lab.evaluation.summary_table import summary_columns

__all__ = ["Checkpoints", "matched_tables"]

Checkpoints = Mapping[str, Mapping[int, str]]
"""By training run: its seniors by their training step."""


_ALONE = "solo: pass@1 ("
"""How the column of the accuracy alone begins, which other k do not have."""


class _Chosen(NamedTuple):
    run: str
    step: int
    senior: str


def matched_tables(
    comparison: Comparison, checkpoints: Checkpoints, k: int | None
) -> Iterator[PaperTable]:
    """The macro averages of runs at the same steps, and at the same accuracy alone.

    By accuracy, every checkpoint of the last run stands beside that of each other run whose pass@1
    alone is nearest, the earliest of several; how near is for the reader to see. k: of pass@k in
    the columns. Raises :class:`EvaluationError` for seniors that are not compared.
    """
    for run, seniors in checkpoints.items():
        for senior in seniors.values():
            if senior not in comparison.seniors:
                raise EvaluationError(
                    f"The run {run} names the checkpoint {senior!r}, which is none of those "
                    f"compared. Give some of: {', '.join(comparison.seniors)}."
                )
    for name, title, groups in (
        ("matched-steps", "Checkpoints at matched steps", _of_steps(checkpoints)),
        (
            "matched-solo",
            "Checkpoints at matched accuracy alone",
            _of_accuracy(checkpoints, _accuracies(comparison)),
        ),
    ):
        if groups:
            yield _table(comparison, name, title, groups, k)


def _of_steps(checkpoints: Checkpoints) -> list[list[_Chosen]]:
    steps = sorted({step for seniors in checkpoints.values() for step in seniors})
    groups = [
        [
            _Chosen(run, step, seniors[step])
            for run, seniors in checkpoints.items()
            if step in seniors
        ]
        for step in steps
    ]
    return [group for group in groups if _differ(group)]


def _of_accuracy(checkpoints: Checkpoints, accuracies: Mapping[str, float]) -> list[list[_Chosen]]:
    if not accuracies or len(checkpoints) < 2:
        return []
    *others, claimed = checkpoints
    groups = []
    for step, senior in sorted(checkpoints[claimed].items()):
        group = []
        for other in others:
            nearest = min(
                sorted(checkpoints[other].items()),
                key=lambda item: abs(accuracies[item[1]] - accuracies[senior]),
            )
            group.append(_Chosen(other, *nearest))
        groups.append([*group, _Chosen(claimed, step, senior)])
    return [group for group in groups if _differ(group)]


def _differ(group: Sequence[_Chosen]) -> bool:
    """Whether there is anything to compare: runs may begin at one checkpoint."""
    return len({one.senior for one in group}) > 1


def _accuracies(comparison: Comparison) -> dict[str, float]:
    """pass@1 alone of every senior, from 0 to 1; empty where it was not measured."""
    for _, runs in comparison.of_kind("solo"):
        return {s: comparison.measured(run)[measure_at(run, 1)].macro for s, run in runs.items()}
    return {}


def _table(
    comparison: Comparison,
    name: str,
    title: str,
    groups: Sequence[Sequence[_Chosen]],
    k: int | None,
) -> PaperTable:
    accuracies = _accuracies(comparison)
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    headings: list[str] = []
    for group in groups:
        if rows:
            rules.append(len(rows))
        columns = summary_columns(comparison, k, [one.senior for one in group])
        if accuracies and not any(heading.startswith(_ALONE) for heading, _ in columns):
            alone = [Cell(number(100 * accuracies[one.senior], 1)) for one in group]
            columns = [(f"{_ALONE}%)", alone), *columns]
        headings = [heading for heading, _ in columns]
        for i, one in enumerate(group):
            names = Cell(one.run), Cell(str(one.step)), Cell(one.senior)
            rows.append((*names, *(cells[i] for _, cells in columns)))
    return PaperTable(
        name,
        title,
        ("Run", "Step", "Checkpoint", *headings),
        tuple(rows),
        tuple(rules),
        3,
    )
