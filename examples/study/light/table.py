"""What the trainings found, as rows: a method beside a junior, at a checkpoint chosen by a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from light.cross_fitting import moved_back_share
from light.runs import Training, read_note, taught, trainings
from light.size import GRPO, LightSize

__all__ = ["CHOICES", "MEASURES", "START", "Choice", "Found", "Point", "Row", "read_found"]

Choice: TypeAlias = Literal["best", "last", "matched"]
CHOICES: dict[Choice, str] = {
    "best": "each run's best checkpoint by its own validation (as in the paper)",
    "last": "matched steps, the last of every run",
    "matched": "matched accuracy alone: the highest that both runs of a couple reach, interpolated",
}
MEASURES = ("solo", "step", "step-bernoulli", "cross_entropy", "overlap", "kl", "jargon")
START = "taught senior"

Point: TypeAlias = Mapping[str, Any]
"""A checkpoint's measures, its step and its validation."""

_TOP = 20
"""The vocabulary has sixty tokens, of which the paper's 500 would be all."""


@dataclass(frozen=True, slots=True)
class Row:
    """One method beside one junior. values: ``[runs]`` of each measure, by pairs, then seeds."""

    method: str
    values: Mapping[str, np.ndarray]

    def mean(self, measure: str) -> float:
        """Over runs."""
        return float(self.values[measure].mean())

    def error(self, measure: str) -> float:
        """The standard error of the mean over runs; not a number for one run."""
        values = self.values[measure]
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


@dataclass(frozen=True, slots=True)
class Found:
    """Everything, in order; start: the notes of the taught models, by pair."""

    size: LightSize
    start: tuple[Mapping[str, Any], ...]
    curves: Mapping[Training, Sequence[Mapping[str, Any]]]

    def row(self, exposure: str, method: str, choice: Choice) -> Row:
        """The row of a method at the best or the last checkpoint; of :data:`START`, as taught."""
        return _row(method, self.points(exposure, method, choice))

    def couple(self, exposure: str, method: str, other: str, choice: Choice) -> tuple[Row, Row]:
        """The rows of two methods, compared run by run."""
        if choice != "matched":
            return self.row(exposure, method, choice), self.row(exposure, other, choice)
        both = [self._matched(*runs) for runs in self._couples(exposure, method, other)]
        ours, theirs = zip(*both, strict=True)
        return _row(method, ours), _row(other, theirs)

    def points(self, exposure: str, method: str, choice: Choice) -> list[Point]:
        """The checkpoint of each run."""
        if method == START:
            return [self.curve(one, exposure)[0] for one in self.runs(exposure, GRPO.name)]
        curves = [self.curve(one, exposure) for one in self.runs(exposure, method)]
        return [_chosen(curve, choice) for curve in curves]

    def runs(self, exposure: str, method: str) -> list[Training]:
        """The trainings of a method that were measured beside a junior."""
        found = [t for t in self.curves if t.method.name == method and exposure in t.beside]
        return sorted(found, key=lambda one: (one.pair, one.seed))

    def curve(self, one: Training, exposure: str) -> list[dict[str, Any]]:
        """A run's measures by step, the start first."""
        start = {"step": 0, "validation": 0.0, **self.start[one.pair - 1]["senior"]}
        return [
            {
                "step_number": point["step"],
                **{name: point[name] for name in ("validation", "solo", "jargon", "counts")},
                **point["beside"][exposure],
            }
            for point in (start, *self.curves[one])
        ]

    def moved_back(self, exposure: str, method: str, choice: Choice) -> np.ndarray:
        """What a method moves back of GRPO's drift, beyond what noise gives, by run: ``[runs]``.

        The cross-fitted share of the tokens that GRPO displaces most, less the half of it that is
        moved back where nothing differs.
        """
        points = zip(
            self.points(exposure, GRPO.name, choice),
            self.points(exposure, method, choice),
            [one.pair for one in self.runs(exposure, method)],
            strict=True,
        )
        shares = []
        for base, other, pair in points:
            junior = self.start[pair - 1]["juniors"][exposure]
            counts = np.array([one["counts"] for one in (junior, base, other)])
            shares.append(moved_back_share(counts, _TOP))
        return np.array(shares) - 0.5

    def _couples(
        self, exposure: str, method: str, other: str
    ) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
        runs = zip(self.runs(exposure, method), self.runs(exposure, other), strict=True)
        return [(self.curve(one, exposure), self.curve(two, exposure)) for one, two in runs]

    def _matched(self, one: Sequence[Point], two: Sequence[Point]) -> tuple[Point, Point]:
        target = min(max(point["solo"] for point in curve) for curve in (one, two))
        return _at_solo(one, target), _at_solo(two, target)


def read_found(out: Path, size: LightSize) -> Found:
    """Read every note of a finished study."""
    start = tuple(read_note(taught(out, pair)) for pair in range(1, size.pairs + 1))
    curves = {one: read_note(one.note(out))["curve"] for one in trainings(size)}
    return Found(size, start, curves)


def _row(method: str, points: Sequence[Point]) -> Row:
    names = (*MEASURES, "step_number")
    return Row(method, {name: np.array([float(point[name]) for point in points]) for name in names})


def _chosen(curve: Sequence[Point], choice: Choice) -> Point:
    if choice == "best":
        return max(curve[1:], key=lambda point: (point["validation"], -point["step_number"]))
    return curve[-1]


def _at_solo(curve: Sequence[Point], target: float) -> Point:
    """A run's measures where it first is ``target`` accurate alone, between two checkpoints."""
    before = curve[0]
    for point in curve:
        if point["solo"] >= target:
            step = point["solo"] - before["solo"]
            part = 1.0 if step <= 0 else (target - before["solo"]) / step
            return {
                n: before[n] + part * (point[n] - before[n]) for n in (*MEASURES, "step_number")
            }
        before = point
    raise ValueError("No checkpoint is as accurate.")
