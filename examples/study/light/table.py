"""What the trainings found, as rows: a method beside a junior, at a checkpoint chosen by a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from light.runs import Training, read_note, taught, trainings
from light.size import LightSize

__all__ = ["CHOICES", "MEASURES", "Choice", "Found", "Row", "read_found"]

Choice: TypeAlias = Literal["best", "last", "matched"]
CHOICES: dict[Choice, str] = {
    "best": "each run's best checkpoint by its own validation (as in the paper)",
    "last": "the last step of every run",
    "matched": "where each run is as accurate alone (interpolated)",
}
MEASURES = ("solo", "step", "step-bernoulli", "cross_entropy", "overlap", "kl", "jargon")


@dataclass(frozen=True, slots=True)
class Row:
    """One method beside one junior. values: ``[runs]`` of each measure, in the order of runs."""

    exposure: str
    method: str
    choice: Choice
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
    """Everything, in order; start: the measures of the taught models, by pair."""

    size: LightSize
    start: tuple[Mapping[str, Any], ...]
    curves: Mapping[Training, Sequence[Mapping[str, Any]]]

    def row(self, exposure: str, method: str, choice: Choice) -> Row:
        """The row of a method; its runs are in the order of pairs, then seeds."""
        chosen = [self._at(one, exposure, choice) for one in self.runs(exposure, method)]
        return Row(
            exposure, method, choice,
            {name: np.array([found[name] for found in chosen]) for name in MEASURES},
        )  # fmt: skip

    def runs(self, exposure: str, method: str) -> list[Training]:
        """The trainings of a method that were measured beside a junior."""
        found = [t for t in self.curves if t.method.name == method and exposure in t.beside]
        return sorted(found, key=lambda one: (one.pair, one.seed))

    def matched_solo(self, exposure: str) -> float:
        """The accuracy alone that every run beside a junior reaches."""
        runs = [t for t in self.curves if exposure in t.beside]
        return min(max(point["solo"] for point in self.curve(one, exposure)) for one in runs)

    def _at(self, one: Training, exposure: str, choice: Choice) -> Mapping[str, float]:
        curve = self.curve(one, exposure)
        if choice == "last":
            return curve[-1]
        if choice == "best":
            return max(curve[1:], key=lambda point: (point["validation"], -point["step_number"]))
        return _at_solo(curve, self.matched_solo(exposure))

    def curve(self, one: Training, exposure: str) -> list[dict[str, float]]:
        """A run's measures by step, the start first."""
        start = {"step": 0, "validation": 0.0, **self.start[one.pair - 1]["senior"]}
        return [
            {
                "step_number": point["step"],
                "validation": point["validation"],
                "solo": point["solo"],
                "jargon": point["jargon"],
                **point["beside"][exposure],
            }
            for point in (start, *self.curves[one])
        ]


def read_found(out: Path, size: LightSize) -> Found:
    """Read every note of a finished light part."""
    start = tuple(read_note(taught(out, pair)) for pair in range(1, size.pairs + 1))
    curves = {one: read_note(one.note(out))["curve"] for one in trainings(size)}
    return Found(size, start, curves)


def _at_solo(curve: Sequence[Mapping[str, float]], target: float) -> dict[str, float]:
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
