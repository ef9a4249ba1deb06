"""What the trainings found, as rows: a method at a checkpoint chosen by a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from light.runs import Training, read_note, taught, trainings
from light.size import GRPO, LightSize
from tandem_plugin.lab.evaluation.significance import unit_error, unit_means

__all__ = ["CHOICES", "MEASURES", "START", "Choice", "Found", "Row", "matched", "read_found"]

Choice: TypeAlias = Literal["best", "last", "matched"]
CHOICES: dict[Choice, str] = {
    "best": "each run's best checkpoint by its own validation (as in the paper)",
    "last": "matched steps, the last of every run",
    "matched": "matched accuracy alone: the highest that both runs of a couple reach, interpolated",
}
MEASURES = {
    "solo": "alone",
    "solo any": "alone, pass@8",
    "step": "`step`",
    "step any": "`step`, pass@8",
    "step-bernoulli": "`step-bernoulli`",
    "cross_entropy": "junior's cross-entropy, nats",
    "overlap": "overlap",
    "kl": "drift, KL in nats",
    "jargon": "jargon",
    "step_number": "step",
}
START = "taught senior"

Point: TypeAlias = Mapping[str, Any]
"""A checkpoint's measures, its step and its validation."""


@dataclass(frozen=True, slots=True)
class Row:
    """One method. values: ``[runs]`` of each measure. starts: of each run, the start."""

    method: str
    values: Mapping[str, np.ndarray]
    starts: tuple[int, ...]

    def mean(self, measure: str) -> float:
        """Over runs."""
        return float(self.values[measure].mean())

    def error(self, measure: str) -> float:
        """The standard error of the mean, with starts as units."""
        return float(unit_error(unit_means(self.values[measure], self.starts)))


@dataclass(frozen=True, slots=True)
class Found:
    """Everything; start: the notes of the taught models, by start."""

    size: LightSize
    start: Mapping[int, Mapping[str, Any]]
    curves: Mapping[Training, Sequence[Mapping[str, Any]]]

    def row(self, method: str, choice: Choice) -> Row:
        """A method at the best or the last checkpoint; :data:`START` as it was taught."""
        name = GRPO.name if method == START else method
        runs, points = self._runs(name), []
        for one in runs:
            curve = self.curve(one)
            points.append(curve[0] if method == START else _chosen(curve, choice))
        return _row(method, points, runs)

    def couple(self, method: str, other: str, choice: Choice) -> tuple[Row, Row]:
        """The rows of two methods, compared run by run."""
        if START in (method, other) or choice != "matched":
            return self.row(method, choice), self.row(other, choice)
        runs = self._runs(method), self._runs(other)
        both = [
            matched(self.curve(one), self.curve(two), MEASURES)
            for one, two in zip(*runs, strict=True)
        ]
        ours, theirs = zip(*both, strict=True)
        return _row(method, ours, runs[0]), _row(other, theirs, runs[1])

    def _runs(self, method: str) -> list[Training]:
        found = [one for one in self.curves if one.method.name == method]
        return sorted(found, key=lambda one: (one.start, one.seed))

    def curve(self, one: Training) -> list[Point]:
        """A run's measures by step, the start first."""
        start = {"step_number": 0, "validation": 0.0, **self.start[one.start]["senior"]}
        return [start, *self.curves[one]]


def read_found(out: Path, size: LightSize) -> Found:
    """Read every note of a finished study."""
    starts = {start: read_note(taught(out, start)) for start in range(1, size.starts + 1)}
    curves = {one: read_note(one.note(out))["curve"] for one in trainings(size)}
    return Found(size, starts, curves)


def _row(method: str, points: Sequence[Point], runs: Sequence[Training]) -> Row:
    values = {name: np.array([float(point[name]) for point in points]) for name in MEASURES}
    return Row(method, values, tuple(one.start for one in runs))


def _chosen(curve: Sequence[Point], choice: Choice) -> Point:
    if choice == "best":
        return max(curve[1:], key=lambda point: (point["validation"], -point["step_number"]))
    return curve[-1]


def matched(
    one: Sequence[Point], two: Sequence[Point], measures: Iterable[str]
) -> tuple[Point, Point]:
    """Both runs where they first are as accurate alone as the less accurate one ever is."""
    target = min(max(point["solo"] for point in curve) for curve in (one, two))
    names = list(measures)
    return _at_solo(one, target, names), _at_solo(two, target, names)


def _at_solo(curve: Sequence[Point], target: float, names: Sequence[str]) -> Point:
    """A run's measures where it first is ``target`` accurate alone, between two checkpoints."""
    before = curve[0]
    for point in curve:
        if point["solo"] >= target:
            rise = point["solo"] - before["solo"]
            part = 1.0 if rise <= 0 else (target - before["solo"]) / rise
            return {name: before[name] + part * (point[name] - before[name]) for name in names}
        before = point
    raise ValueError("No checkpoint is as accurate.")
