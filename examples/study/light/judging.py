"""What the study compares, and how: differences of two methods in each taught model, tested.

Taught models are the units: trainings of one model share its misconceptions. Every test is a
two-sided paired t-test over models. Before the study runs, its power is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import optimize, stats

from light.grpo import GRPO, HALF, TANDEM, Method
from light.runs import METHODS, TAUGHT
from tandem_plugin.lab.evaluation.significance import unit_error, unit_test

LEVEL = 0.05
POWER = 0.8
PAPER = 0.0142
"""The paper's gain of the team under strict alternation, over GRPO."""

Point: TypeAlias = Mapping[str, float]
"""A checkpoint: its step, its trained tokens and its measures."""
Curve: TypeAlias = Sequence[Point]
"""The checkpoints of a training, the model as it was taught first."""
Curves: TypeAlias = Mapping[int, Mapping[str, Curve]]
"""Of each model, by number, the curve of each method by its name."""

COUPLES = ((TANDEM.name, GRPO.name), (TANDEM.name, HALF.name), (HALF.name, GRPO.name))
"""Each method less another; the last, in which no junior writes, is the control."""
CONTROL = COUPLES[-1]
HANDOFFS = ("step-bernoulli", "step")
Choice: TypeAlias = Literal["accuracy", "tokens", "steps", "best"]
"""Where two trainings of a model are compared."""
CHOICES: dict[Choice, str] = {
    "accuracy": "equal accuracy alone",
    "tokens": "equal trained tokens",
    "steps": "equal steps",
    "best": "best checkpoints",
}
EXPECTED = {"step-bernoulli": (0.0059, 0.0069), "step": (0.0033, 0.0090)}
"""Of tandem less GRPO at equal accuracy alone, in 28 models of two earlier probes: the mean and the
standard deviation between models."""


def complete_models(
    rows: Sequence[Mapping[str, Any]], methods: Sequence[Method] = METHODS
) -> Curves:
    """The models with every method, in order, up to the first that lacks one."""
    found: dict[int, dict[str, list[Point]]] = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["method"]] = row["points"]
    curves: dict[int, dict[str, Curve]] = {}
    for model in sorted(found):
        of_model = found[model]
        if not {TAUGHT, *(one.name for one in methods)} <= of_model.keys():
            break
        curves[model] = {one.name: [*of_model[TAUGHT], *of_model[one.name]] for one in methods}
    return curves


def pair(one: Curve, two: Curve, choice: Choice) -> tuple[Point, Point]:
    """A checkpoint of each, between two evaluated ones by linear interpolation.

    At equal accuracy alone and at equal trained tokens both are where they first reach the lower of
    their last values. Accuracy for that is of the validation problems; the measures are of others.
    """
    if choice == "steps":
        return one[-1], two[-1]
    if choice == "best":
        first, second = (
            max(curve[1:], key=lambda at: at["own_validation"]) for curve in (one, two)
        )
        return first, second
    key = "validation" if choice == "accuracy" else "trained_tokens"
    target = min(curve[-1][key] for curve in (one, two))
    return reach(one, key, target), reach(two, key, target)


def reach(curve: Curve, key: str, target: float) -> Point:
    """Where ``key`` first is at least ``target``; raises ValueError if it never is."""
    before = curve[0]
    for point in curve:
        if point[key] >= target:
            rise = point[key] - before[key]
            part = 1.0 if rise <= 0 else (target - before[key]) / rise
            shared = before.keys() & point.keys()
            return {name: before[name] + part * (point[name] - before[name]) for name in shared}
        before = point
    raise ValueError(f"No checkpoint has {key} of {target:g}.")


def differences(
    curves: Curves, couple: tuple[str, str], choice: Choice, measure: str
) -> np.ndarray:
    """Of each model, the first method less the second: float64 ``[models]``."""
    pairs = [pair(*(of_model[name] for name in couple), choice) for of_model in curves.values()]
    return np.array([one[measure] - two[measure] for one, two in pairs])


@dataclass(frozen=True, slots=True)
class Found:
    """A mean over models, its standard error, its 95% interval and the p of a two-sided test."""

    mean: float
    error: float
    low: float
    high: float
    p: float


def judge(values: Sequence[float] | np.ndarray) -> Found:
    """Of differences in each model, ``[models]``, at least two."""
    each = np.asarray(values, dtype=float)
    mean, error = float(each.mean()), unit_error(each)
    reach_of = float(stats.t.ppf(1 - LEVEL / 2, len(each) - 1)) * error
    above = unit_test(each, "greater").p
    return Found(mean, error, mean - reach_of, mean + reach_of, 2 * min(above, 1 - above))


def holm(ps: Sequence[float]) -> list[float]:
    """p corrected for as many tests, in the given order. Source: Holm (1979)."""
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(np.argsort(ps)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = highest
    return corrected


def power(difference: float, spread: float, models: int, level: float = LEVEL / 2) -> float:
    """How often a one-sided test at ``level`` finds a difference between models with this spread,
    its standard deviation; at half of :data:`LEVEL`, a two-sided test on the right side."""
    critical = stats.t.ppf(1 - level, models - 1)
    return float(stats.nct.sf(critical, models - 1, difference / spread * np.sqrt(models)))


def detectable(spread: float, models: int, level: float = LEVEL / 2) -> float:
    """The smallest difference that :func:`power` finds in 80% of studies."""

    def missing(difference: float) -> float:
        return power(difference, spread, models, level) - POWER

    return float(optimize.brentq(missing, 1e-9, 8 * spread))
