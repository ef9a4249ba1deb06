"""What `tandem compare` and `tandem report` are told of their tables."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

__all__ = [
    "KOption",
    "LegibilityOver",
    "OverOption",
    "PoolOption",
    "RunOption",
    "TopOption",
    "checkpoints",
    "pools",
]


class LegibilityOver(str, Enum):
    """What a benchmark's cross-entropy and overlap are means over."""

    PROBLEMS = "problems"
    POSITIONS = "positions"


KOption = Annotated[
    int | None,
    typer.Option("--k", min=1, help="The k of tables with one pass@k. Default: 8, or fewer."),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        metavar="NAME=SENIOR,SENIOR",
        help="Seniors that one method trained with several seeds, as one in tables: a problem's "
        "number is the mean over them. May be given several times.",
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top", min=3, help="How many of the baseline's most displaced tokens recovery is about."
    ),
]
RunOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="NAME=SENIOR@STEP,SENIOR@STEP",
        help="Seniors, or pools, that are checkpoints of one training run, and their steps. Given "
        "for two runs or more, tables show them at matched steps and at matched accuracy alone.",
    ),
]
OverOption = Annotated[
    LegibilityOver,
    typer.Option(
        "--legibility-over",
        help="What a benchmark's cross-entropy and overlap are means over: problems, each the "
        "mean over its positions, or positions, all of them at once.",
    ),
]


def pools(given: list[str] | None) -> dict[str, list[str]]:
    """The members of each pool; raises :class:`EvaluationError` for another form."""
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.lab.evaluation.benchmark import checked_name

    found: dict[str, list[str]] = {}
    for one in given or ():
        name, _, members = one.partition("=")
        listed = members.split(",")
        if not name or not all(listed):
            raise EvaluationError(
                f"--pool {one} is not of the form NAME=SENIOR,SENIOR. Give it so."
            )
        if checked_name(name, "pool") in found:
            raise EvaluationError(f"--pool {name} was given twice: give all its seniors at once.")
        found[name] = listed
    return found


def checkpoints(given: list[str] | None) -> dict[str, dict[int, str]]:
    """Each training run's seniors by step; raises :class:`EvaluationError` for another form."""
    from tandem_plugin.errors import EvaluationError

    found: dict[str, dict[int, str]] = {}
    for one in given or ():
        name, _, members = one.partition("=")
        by_step: dict[int, str] = {}
        for member in members.split(","):
            senior, _, step = member.rpartition("@")
            if not (name and senior and step.isascii() and step.isdigit() and len(step) < 16):
                raise EvaluationError(
                    f"--run {one} is not of the form NAME=SENIOR@STEP,SENIOR@STEP, with whole "
                    "numbers of training steps. Give it so."
                )
            if by_step.setdefault(int(step), senior) != senior:
                raise EvaluationError(
                    f"--run {one} has two checkpoints of step {int(step)}: give one."
                )
        if name in found:
            raise EvaluationError(
                f"--run {name} was given twice: give all its checkpoints at once."
            )
        found[name] = by_step
    if len(found) == 1:
        raise EvaluationError(
            f"--run was given for {next(iter(found))} alone: checkpoints are matched between two "
            "runs or more. Give --run for another, or leave it out."
        )
    return found
