"""The study's page: what the trainings found as rows, claims and curves, in Markdown and a figure.

A row is a method at a checkpoint of every run, chosen by a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from light.grpo import GRPO, TRL
from light.judging import CLAIMS, START, Choice, Claim, judge, power_lines
from light.runs import METHODS, LightSize, Training, trainings
from light.study import read_note, table_lines
from tandem_plugin.lab.evaluation.significance import unit_error, unit_means

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
Point: TypeAlias = Mapping[str, Any]
"""A checkpoint's measures, its step and its validation."""

Curves: TypeAlias = Mapping[Training, Sequence[Point]]
"""Of each training its measures by step, those of the model as it was taught first."""
_PANELS = ("solo", "step", "cross_entropy", "kl")


@dataclass(frozen=True, slots=True)
class Row:
    """One method. values: ``[runs]`` of each measure. starts: of each run, the start."""

    values: Mapping[str, np.ndarray]
    starts: tuple[int, ...]

    def mean(self, measure: str) -> float:
        """Over runs."""
        return float(self.values[measure].mean())

    def error(self, measure: str) -> float:
        """The standard error of the mean, with starts as units."""
        return float(unit_error(unit_means(self.values[measure], self.starts)))


def read_curves(out: Path, size: LightSize) -> Curves:
    """Read every note of a finished study."""
    curves = {}
    for one in trainings(size):
        taught = read_note(Training(one.start).note(out))["senior"]
        start = {"step_number": 0, "validation": 0.0, **taught}
        curves[one] = [start, *read_note(one.note(out))["curve"]]
    return curves


def row(curves: Curves, method: str, choice: Choice) -> Row:
    """A method at the best or the last checkpoint; :data:`START` as it was taught."""
    runs = _runs(curves, method)
    if method == START:
        return _row([curves[one][0] for one in runs], runs)
    if choice == "best":
        return _row([max(curves[one][1:], key=_validated) for one in runs], runs)
    return _row([curves[one][-1] for one in runs], runs)


def _validated(point: Point) -> tuple[float, int]:
    return point["validation"], -point["step_number"]


def couple(curves: Curves, method: str, other: str, choice: Choice) -> tuple[Row, Row]:
    """The rows of two methods, compared run by run."""
    if START in (method, other) or choice != "matched":
        return row(curves, method, choice), row(curves, other, choice)
    runs = _runs(curves, method), _runs(curves, other)
    both = [matched(curves[one], curves[two], MEASURES) for one, two in zip(*runs, strict=True)]
    ours, theirs = zip(*both, strict=True)
    return _row(ours, runs[0]), _row(theirs, runs[1])


def _runs(curves: Curves, method: str) -> list[Training]:
    name = GRPO.name if method == START else method
    found = [one for one in curves if one.method.name == name]
    return sorted(found, key=lambda one: (one.start, one.seed))


def _row(points: Sequence[Point], runs: Sequence[Training]) -> Row:
    values = {name: np.array([float(point[name]) for point in points]) for name in MEASURES}
    return Row(values, tuple(one.start for one in runs))


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


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim about two methods. by_start: the mean difference of each start, over its seeds."""

    claim: Claim
    method: str
    against: str
    by_start: tuple[float, ...]
    p: float
    verdict: str


def judge_all(curves: Curves, choice: Choice) -> list[Judged]:
    """Every claim that is judged at these checkpoints, in order."""
    judged = []
    for claim in (one for one in CLAIMS if choice in one.choices):
        for method, against in claim.couples():
            ours, theirs = couple(curves, method, against, choice)
            differences = ours.values[claim.measure] - theirs.values[claim.measure]
            by_start = tuple(unit_means(differences, ours.starts).tolist())
            judged.append(Judged(claim, method, against, by_start, *judge(claim, by_start)))
    return judged


def write_page(out: Path, size: LightSize) -> Path:
    """Write ``study.md`` and its figure from the notes of all trainings; returns its path."""
    curves = read_curves(out, size)
    _draw_curves(curves, out / "curves.svg")
    sections = ["# Before it was run", "", *power_lines(size), "", "![Curves](curves.svg)", ""]
    for choice, said in CHOICES.items():
        sections += [f"# At {said}", "", *_table(curves, choice), ""]
        sections += ["Mean ± standard error over taught models.", ""]
        sections += [*_claims(judge_all(curves, choice)), ""]
    path = out / "study.md"
    path.write_text("\n".join(sections), encoding="utf-8")
    return path


def _table(curves: Curves, choice: Choice) -> list[str]:
    """Of matched checkpoints, couples of each other method and TRL."""
    rows = {START: row(curves, START, "last")}
    if choice == "matched":
        for other in (one.name for one in METHODS if one != TRL):
            ours, theirs = couple(curves, TRL.name, other, choice)
            rows |= {f"{other}, as accurate as TRL": theirs, f"TRL, as accurate as {other}": ours}
    else:
        rows |= {one.name: row(curves, one.name, choice) for one in METHODS}
    cells = [[name, *(_cell(of, one) for one in MEASURES)] for name, of in rows.items()]
    return table_lines(["", *MEASURES.values()], cells)


def _cell(of: Row, measure: str) -> str:
    if measure == "step_number":
        return f"{of.mean(measure):.0f}"
    return f"{of.mean(measure):.3f} ± {of.error(measure):.3f}"


def _claims(judged: list[Judged]) -> list[str]:
    rows = [
        (
            one.claim.text,
            one.method,
            one.against,
            one.claim.paper,
            f"{np.mean(one.by_start):+.4f} ± {unit_error(one.by_start):.4f}",
            "–" if np.isnan(one.p) else f"{one.p:.2g}",
            one.verdict,
        )
        for one in judged
    ]
    columns = ("Claim", "of", "against", "the paper", "here", "p", "verdict")
    return table_lines(columns, rows, words=(0, 1, 2, 3, 6))


def _draw_curves(curves: Curves, path: Path) -> None:
    """Means by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(_PANELS), 3.2))
    axes = figure.subplots(1, len(_PANELS))
    for axis, measure in zip(axes, _PANELS, strict=True):
        for method in METHODS:
            drawn = [curve for one, curve in curves.items() if one.method == method]
            values = np.array([[point[measure] for point in curve] for curve in drawn])
            steps = [point["step_number"] for point in drawn[0]]
            axis.plot(steps, values.mean(axis=0), label=method.name)
        axis.set_title(MEASURES[measure])
        axis.set_xlabel("step")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
