"""Recovery: what a model moves back of a baseline's drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.lab.evaluation import drift

__all__ = ["Recovered", "RecoverySettings", "recovered"]


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Which tokens count, and how counts are smoothed."""

    top: int = drift.TOP
    frequent: int = drift.FREQUENT
    smoothing: float = drift.SMOOTHING


class Recovered(NamedTuple):
    """What a model recovers of a baseline's drift; not a number where it cannot be told."""

    moved_back: float
    """Share of the baseline's most displaced tokens whose shift opposes their displacement."""
    of_top: float
    """Spearman's rho of shift and displacement over them."""
    of_frequent: float
    """The same over the tokens that are frequent in the junior's outputs."""


def recovered(
    junior: NDArray[np.int64],
    baseline: NDArray[np.int64],
    other: NDArray[np.int64],
    settings: RecoverySettings,
) -> Recovered:
    """What the other model recovers of the baseline's drift from the junior.

    junior, baseline, other: counts ``[vocabulary]``. Raises :class:`EvaluationError` for counts of
    different vocabularies. Source: section 4.4 of the paper.
    """
    displacement = drift.log_ratio(baseline, junior, settings.smoothing)
    shift = drift.log_ratio(other, baseline, settings.smoothing)
    most = drift.most_displaced(displacement, settings.top)
    often = np.flatnonzero(junior >= settings.frequent)
    share, of_top = _share_and_rho(displacement[most], shift[most])
    return Recovered(share, of_top, _share_and_rho(displacement[often], shift[often])[1])


def _share_and_rho(
    displacement: NDArray[np.float64], shift: NDArray[np.float64]
) -> tuple[float, float]:
    if len(displacement) < 3:
        return np.nan, np.nan
    found = drift.recovery(displacement, shift)
    return found.share_moved_back, found.spearman
