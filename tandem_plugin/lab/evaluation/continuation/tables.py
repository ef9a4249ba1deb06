"""The paper's two-by-two table of places, with counts and errors, for each senior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.bootstrap import RESAMPLES, resampled_means
from tandem_plugin.lab.evaluation.continuation.result import Continuation, Outcome
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, number
from tandem_plugin.seeds import derive_seed

__all__ = ["Quarter", "common_divergence", "continuation_table", "quarters"]

_NOTE = (
    "Places of the seniors' own responses behind a boundary. H: the share of the junior's "
    "continuations from there that come out right; it can continue where H is at least {enough:g}. "
    "KL: of senior and junior for the next token, in nats; high from {threshold:.4g} on. Shares of "
    "places in percent, ± one bootstrap standard error over problems, resampled within each "
    "benchmark."
)


@dataclass(frozen=True, slots=True)
class Quarter:
    """A cell of the two-by-two table: its places, their share, and the share's standard error."""

    places: int
    share: float
    error: float


def common_divergence(found: Sequence[Continuation]) -> float:
    """The median divergence of all places of all seniors: from there on it is high."""
    every = [one.divergence for each in found for rows in each.outcomes.values() for one in rows]
    if not every:
        raise EvaluationError("There are no places to tell apart.")
    return median(every)


def quarters(
    found: Continuation, threshold: float, enough: float, resamples: int = RESAMPLES
) -> tuple[dict[tuple[bool, bool], Quarter], float, float]:
    """Cells by (high divergence, junior can continue); then the mean of H and its standard error.

    Every place counts the same, so a benchmark's and a problem's weight is its number of places.
    Errors are those of resampled problems, within each benchmark.
    """
    keys = [(True, True), (True, False), (False, True), (False, False)]
    rows = [(name, one) for name, places in found.outcomes.items() for one in places]
    if not rows:
        raise EvaluationError(f"{found.senior!r} has no places.")

    def indicators(one: Outcome) -> list[float]:
        right = one.correct / found.continuations
        here = (one.divergence >= threshold, right >= enough)
        return [*(float(here == key) for key in keys), right]

    values = np.array([indicators(one) for _, one in rows])
    errors = _stratified_errors([(name, one.problem) for name, one in rows], values, resamples)
    shares = values.mean(axis=0)
    cells = {
        key: Quarter(int(values[:, i].sum()), float(shares[i]), float(errors[i]))
        for i, key in enumerate(keys)
    }
    return cells, float(shares[-1]), float(errors[-1])


def _stratified_errors(
    problems: Sequence[tuple[str, int]], values: NDArray[np.float64], resamples: int
) -> NDArray[np.float64]:
    """Standard errors of means over all places, problems resampled within each benchmark.

    problems: benchmark and problem of each place. values: ``[places, statistics]``. Not a number
    where a benchmark has one problem alone, of which nothing says how another would differ.
    """
    places: dict[str, dict[int, list[int]]] = {}
    for i, (name, problem) in enumerate(problems):
        places.setdefault(name, {}).setdefault(problem, []).append(i)
    if any(len(by_problem) < 2 for by_problem in places.values()):
        return np.full(values.shape[1], np.nan)
    counted = np.hstack([values, np.ones((len(values), 1))])
    totals = np.zeros((resamples, counted.shape[1]))
    for name, by_problem in places.items():
        sums = np.stack([counted[here].sum(axis=0) for here in by_problem.values()])
        seed = derive_seed(0, "bootstrap", name)
        totals += len(sums) * resampled_means(sums, resamples, seed)
    errors: NDArray[np.float64] = (totals[:, :-1] / totals[:, -1:]).std(axis=0, ddof=1)
    return errors


def continuation_table(
    found: Sequence[Continuation], enough: float = 0.5, threshold: float | None = None
) -> PaperTable:
    """One row a senior: mean H, and the four cells with their places.

    enough: the H from which the junior can continue. threshold: from which divergence is high; None
    takes the median over all seniors, so that it is the same for all. Raises
    :class:`EvaluationError` for results that were made with different settings.
    """
    _check_same([one.settings for one in found], [one.senior for one in found])
    high = common_divergence(found) if threshold is None else threshold
    rows = []
    for one in found:
        cells, mean, error = quarters(one, high, enough)
        ordered = [
            cells[key] for key in ((True, True), (True, False), (False, True), (False, False))
        ]
        rows.append(
            (
                Cell(one.senior),
                Cell(str(sum(cell.places for cell in ordered))),
                Cell(number(100 * mean, 1), number(100 * error, 1)),
                *(
                    Cell(
                        f"{number(100 * cell.share, 1)} ({cell.places})",
                        number(100 * cell.error, 1),
                    )
                    for cell in ordered
                ),
            )
        )
    return PaperTable(
        "continuation",
        f"Where {found[0].junior} can go on from the senior's own responses",
        (
            "Senior",
            "Places",
            "H (%)",
            "High KL, can continue",
            "High KL, cannot",
            "Low KL, can continue",
            "Low KL, cannot",
        ),
        tuple(rows),
        note=_NOTE.format(enough=enough, threshold=high),
    )


def _check_same(settings: Sequence[Mapping[str, object]], seniors: Sequence[str]) -> None:
    for one, name in zip(settings[1:], seniors[1:], strict=True):
        other = sorted(key for key in {*one, *settings[0]} if one.get(key) != settings[0].get(key))
        if other:
            raise EvaluationError(
                f"The continuations of {seniors[0]!r} and {name!r} were made with other settings "
                f"({', '.join(other)}): make both with the same."
            )
