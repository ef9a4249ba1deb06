"""The paper's two-by-two table of places, with counts and errors, for each senior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError
from tandem_plugin.evaluation.bootstrap import RESAMPLES, pooled_errors
from tandem_plugin.evaluation.continuation.result import Continuation, Outcome
from tandem_plugin.evaluation.paper_table import Cell, PaperTable, number

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
    Errors are those of resampled problems, within each benchmark; not a number where a benchmark
    has one problem alone, which cannot be resampled.
    """
    keys = [(True, True), (True, False), (False, True), (False, False)]
    rows = [one for places in found.outcomes.values() for one in places]
    if not rows:
        raise EvaluationError(f"{found.senior!r} has no places.")

    def indicators(one: Outcome) -> list[float]:
        right = one.correct / found.continuations
        here = (one.divergence >= threshold, right >= enough)
        return [*(float(here == key) for key in keys), right]

    errors = _errors(
        {
            name: _by_problem(places, np.array([indicators(one) for one in places]))
            for name, places in found.outcomes.items()
            if places
        },
        resamples,
    )
    values = np.array([indicators(one) for one in rows])
    shares = values.mean(axis=0)
    cells = {
        key: Quarter(int(values[:, i].sum()), float(shares[i]), float(errors[i]))
        for i, key in enumerate(keys)
    }
    return cells, float(shares[-1]), float(errors[-1])


def _by_problem(
    places: Sequence[Outcome], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sums of each problem's values ``[problems, statistics]``, and how many it has."""
    _, index = np.unique([one.problem for one in places], return_inverse=True)
    sums = np.stack([np.bincount(index, column) for column in values.T], axis=1).astype(np.float64)
    return sums, np.bincount(index).astype(np.float64)


def _errors(
    benchmarks: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], resamples: int
) -> NDArray[np.float64]:
    """Of sums and counts by benchmark; not a number where a benchmark has one problem alone."""
    sums = {name: of_problems for name, (of_problems, _) in benchmarks.items()}
    counts = {name: of_problems for name, (_, of_problems) in benchmarks.items()}
    if min(map(len, counts.values())) < 2:
        return np.full(next(iter(sums.values())).shape[1], np.nan)
    return pooled_errors(sums, counts, resamples)


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
