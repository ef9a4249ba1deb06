"""The measures of a run: per problem, per benchmark, and over benchmarks."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.significance import RESAMPLES, Direction, bootstrap_errors

Over: TypeAlias = Literal["problems", "positions", "responses"]
"""Whether a benchmark's legibility is the mean over problems, positions or responses."""

_SUMMARY_K = 8
"""The ablation's table shows pass@8 (section 5.2)."""


def pass_at_k(samples: int, correct: int, k: int) -> Fraction:
    """The unbiased estimate for one problem: 1 - C(n - c, k) / C(n, k), exactly.

    samples: n, the number drawn, at least k; correct: c, the number of correct ones. Source: Chen
    et al. (2021), "Evaluating Large Language Models Trained on Code", equation 1; sections 4.1 and
    4.2 of the paper.
    """
    return 1 - Fraction(math.comb(samples - correct, k), math.comb(samples, k))


def pass_rates(rows: Sequence[Mapping[str, Any]], k: int, grader: str = "") -> NDArray[np.float64]:
    """pass@k of each problem, from its row in a summary: ``[problems]``, correctly rounded.

    grader: one of the row's ``correct_by``; this package's own by default.
    """
    correct = [row["correct_by"][grader] if grader else row["correct"] for row in rows]
    counts = zip((row["samples"] for row in rows), correct, strict=True)
    return np.array([float(pass_at_k(samples, right, k)) for samples, right in counts])


def powers_of_two(samples: int) -> tuple[int, ...]:
    """The k that tables and figures show: 1, 2, 4, ... up to ``samples``, as in section 4.2."""
    return tuple(2**i for i in range(samples.bit_length()))


@dataclass(frozen=True, slots=True)
class Measure:
    """One statistic of a run: its name, its format, and which direction is better."""

    name: str
    decimals: int
    higher_is_better: bool | None
    """None if neither direction is better, so that no claim is tested."""
    scale: float = 1.0
    unit: str = ""
    field: str = ""
    """Its key in the rows of a summary; pass@k has ``k`` instead."""
    k: int | None = None
    grader: str = ""
    """Of pass@k: the additional grader; empty for this package's."""

    @property
    def heading(self) -> str:
        """Name, unit and direction, as in the headings of the paper's tables."""
        arrow = {True: "↑", False: "↓", None: ""}[self.higher_is_better]
        if not (arrow or self.unit):
            return self.name
        return f"{self.name} ({', '.join(part for part in (self.unit, arrow) if part)})"

    @property
    def direction(self) -> Direction:
        """The direction in which a senior is claimed to be better."""
        return "greater" if self.higher_is_better else "less"

    def values(self, rows: Sequence[Mapping[str, Any]], over: Over) -> NDArray[np.float64]:
        """The value of each problem, from its row in a summary: ``[problems]``."""
        if self.k is not None:
            return pass_rates(rows, self.k, self.grader)
        field = f"response_{self.field}" if over == "responses" else self.field
        return np.array([row[field] for row in rows], dtype=np.float64)


_LEGIBILITY = [
    Measure("Cross-entropy", 3, False, unit="nats", field="cross_entropy"),
    Measure("Distribution overlap", 3, True, field="overlap"),
]
_SHARPNESS = [
    Measure("Senior's entropy", 3, None, unit="nats", field="entropy"),
    Measure("KL(senior || junior)", 3, False, unit="nats", field="kl"),
]
"""Cross-entropy is their sum where the senior samples at temperature 1."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of one senior: per problem, per benchmark, and over benchmarks."""

    values: Mapping[str, NDArray[np.float64]]
    """Per problem ``[problems]``, by benchmark; not scaled."""
    means: Mapping[str, float]
    errors: Mapping[str, float]
    """Bootstrap standard errors over problems."""
    macro: float
    macro_error: float

    @property
    def pooled(self) -> NDArray[np.float64]:
        """All problems of all benchmarks, by name, for paired tests (section 5.3)."""
        return np.concatenate([self.values[name] for name in sorted(self.values)])


def measures(summary: Summary) -> list[Measure]:
    """The measures that a run allows; drift has no per-problem numbers."""
    if summary.kind in ("solo", "handoff"):
        rows = [row for run in summary.each for rows in run.problems.values() for row in rows]
        fewest = min(row["samples"] for row in rows)
        graders = set.intersection(*(set(row.get("correct_by", ())) for row in rows))
        return [
            Measure(f"pass@{k}{f', {by}' if by else ''}", 1, True, 100.0, "%", k=k, grader=by)
            for by in ("", *sorted(graders))
            for k in powers_of_two(fewest)
        ]
    return _of_legibility(summary) if summary.kind == "legibility" else []


def _of_legibility(summary: Summary) -> list[Measure]:
    scored = [row for run in summary.each for rows in run.problems.values() for row in rows]
    has_all = all(row.get("entropy") is not None for row in scored)
    return [*_LEGIBILITY, *(_SHARPNESS if has_all else ())]


@functools.cache
def measured(
    summary: Summary, resamples: int = RESAMPLES, over: Over = "problems"
) -> dict[Measure, Measured]:
    """All measures of a run, with bootstrap standard errors from the same resamples.

    A benchmark's value is the mean over its problems, the macro average the mean over benchmarks.
    over: whether legibility is that, or the mean over all positions of all responses ("averaged
    over all positions" in the paper), or over all responses of each one's mean, as in its
    release; a problem's own number is the mean over its positions, or over its responses. Where
    repeats are pooled, a problem's or benchmark's number is the mean over them. Empty for a kind of
    run that has no measures of problems, such as drift. Source: sections
    4.1 and 4.5 of the paper; eval/legibility.py of CSSLab/Tandem-RLVR at 7ba85e0f.
    """
    chosen = measures(summary)
    if not chosen:
        return {}
    over = over if summary.kind == "legibility" else "problems"
    tables = {
        name: np.stack([_table(run.problems[name], chosen, over) for run in summary.each], axis=1)
        for name in summary.problems
    }
    values = {name: table.mean(axis=1) for name, table in tables.items()}
    if over == "problems":
        errors, macro_errors = bootstrap_errors(values, resamples)
        means = {name: table.mean(axis=0) for name, table in values.items()}
    else:
        weights = {name: _weights(summary, name, over) for name in tables}
        errors, macro_errors = bootstrap_errors(tables, resamples, weights=weights)
        means = {name: _weighted_mean(table, weights[name]) for name, table in tables.items()}
    macro = np.mean(list(means.values()), axis=0)
    return {
        measure: Measured(
            {name: table[:, i] for name, table in values.items()},
            {name: float(mean[i]) for name, mean in means.items()},
            {name: float(error[i]) for name, error in errors.items()},
            float(macro[i]),
            float(macro_errors[i]),
        )
        for i, measure in enumerate(chosen)
    }


def headline(summary: Summary, over: Over = "problems") -> dict[str, float]:
    """The macro averages of a run, in the units of tables, to print at its end.

    Named as in ``summary.json``; pass@k of an additional grader ends with the grader's name
    (``pass@8_release``). Responses that the grader failed on are counted as ``grading_errors``.
    """
    if summary.kind == "drift":
        return {"kl": float(summary.content["metrics"]["kl"])}
    if summary.kind == "handover-kl":
        kls = [kl for rows in summary.problems.values() for row in rows for kl in row["kl"]]
        return {"handovers": len(kls), **({"kl": float(np.mean(kls))} if kls else {})}
    numbers = {
        chosen.field or chosen.name.replace(", ", "_"): chosen.scale * values.macro
        for chosen, values in measured(summary, resamples=2, over=over).items()
    }
    graded = summary.content.get("metrics", {}).values()
    errors = sum(metrics.get("outcomes", {}).get("error", 0) for metrics in graded)
    return numbers | ({"grading_errors": errors} if errors else {})


def mean_metric(summary: Summary, name: str) -> float:
    """A number of a run's ``metrics``, such as drift's ``kl``: the mean over its repeats."""
    return float(np.mean([run.content["metrics"][name] for run in summary.each]))


def shown_measures(summary: Summary, k: int | None) -> list[Measure]:
    """The measures to show with a single k: pass@k, or all of legibility.

    k: the largest available one up to it is shown; None means 8.
    """
    if summary.kind == "legibility":
        return measures(summary)
    largest = _SUMMARY_K if k is None else k
    allowed = [measure for measure in measures(summary) if (measure.k or 0) <= largest]
    return [measure for measure in allowed if measure.k == allowed[-1].k]


def _table(
    rows: Sequence[Mapping[str, Any]], chosen: Sequence[Measure], over: Over
) -> NDArray[np.float64]:
    """All measures of one benchmark's problems: ``[problems, measures]``."""
    return np.stack([measure.values(rows, over) for measure in chosen], axis=1)


def _weights(summary: Summary, benchmark: str, over: Over) -> NDArray[np.float64]:
    """The number of tokens, or responses, of each problem: ``[problems, repeats]``."""
    field = "responses" if over == "responses" else "tokens"
    weights = [[row[field] for row in run.problems[benchmark]] for run in summary.each]
    return np.array(weights, dtype=np.float64).T


def _weighted_mean(table: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over repeats of the weighted means over problems, ``[measures]``."""
    sums = (table * weights[:, :, None]).sum(0)
    return np.asarray(np.mean(sums / weights.sum(0)[:, None], axis=0))
