"""Whether a claim holds: seed-level errors, a test, and what the test can find.

Runs are paired by taught pair and seed, which gives methods the same problems in the same order. A
claim that one method is better holds where a one-sided paired t-test says so at 5%, and does not
where the test of the opposite says so. A claim that nothing differs is one of equivalence: it holds
where the 90% interval of the difference lies within a margin, and does not where it lies beyond
(two one-sided tests, Schuirmann 1987). Where all runs differ by the same, as shares of tokens may,
the sign test takes the place of the t-test, which has no spread to go by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from light.claims import CLAIMS, MOVED_BACK, Claim
from light.table import Choice, Found

__all__ = ["LEVEL", "POWER", "Judged", "Verdict", "detectable", "judge", "judge_all", "power"]

LEVEL = 0.05
POWER = 0.8
Verdict = str
"""agrees, does not, or cannot tell."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a claim beside one junior, at one choice of checkpoints.

    differences: the method's less the other's, ``[runs]``. by_pair: their means, by taught pair.
    """

    claim: Claim
    method: str
    against: str
    differences: np.ndarray
    by_pair: tuple[float, ...]
    p: float
    verdict: Verdict

    @property
    def mean(self) -> float:
        """Over runs."""
        return float(self.differences.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean over runs."""
        spread = self.differences.std(ddof=1) if len(self.differences) > 1 else np.nan
        return float(spread / np.sqrt(len(self.differences)))


def judge(claim: Claim, differences: np.ndarray) -> tuple[float, Verdict]:
    """(p, verdict) of the differences of runs, ``[runs]``; p is of the claim's own test."""
    if len(differences) < 2 or not np.isfinite(differences).all():
        return float("nan"), "cannot tell"
    if claim.margin is not None:
        return _equivalent(differences, claim.margin)
    greater = _above_zero(claim.sign * differences)
    if greater < LEVEL:
        return greater, "agrees"
    return greater, "does not" if 1 - greater < LEVEL else "cannot tell"


def _equivalent(differences: np.ndarray, margin: float) -> tuple[float, Verdict]:
    p = max(_above_zero(differences + margin), _above_zero(margin - differences))
    if p < LEVEL:
        return p, "agrees"
    return p, "does not" if p > 1 - LEVEL else "cannot tell"


def _above_zero(differences: np.ndarray) -> float:
    """The one-sided p of a mean above zero."""
    if np.ptp(differences) == 0:
        chance = 0.5 ** len(differences)
        return {1.0: chance, 0.0: 0.5, -1.0: 1 - chance}[float(np.sign(differences[0]))]
    return float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)


def judge_all(found: Found, exposure: str, choice: Choice) -> list[Judged]:
    """Every claim that is judged at these checkpoints beside one junior, in order."""
    return [
        _judged(found, exposure, choice, claim, *couple)
        for claim in CLAIMS
        if choice in claim.choices
        for couple in claim.couples(found.size, exposure)
    ]


def _judged(
    found: Found, exposure: str, choice: Choice, claim: Claim, method: str, against: str
) -> Judged:
    if claim.measure == MOVED_BACK:
        differences = found.moved_back(exposure, method, choice)
    else:
        ours, theirs = found.couple(exposure, method, against, choice)
        differences = ours.values[claim.measure] - theirs.values[claim.measure]
    pairs = np.array([one.pair for one in found.runs(exposure, method)])
    by_pair = tuple(float(differences[pairs == pair].mean()) for pair in np.unique(pairs))
    return Judged(claim, method, against, differences, by_pair, *judge(claim, differences))


def power(claim: Claim, difference: float, runs: int) -> float:
    """How often a study of so many runs calls the claim right where this is the true difference.

    By the noncentral t distribution; of an equivalence by simulation, with a fixed seed.
    """
    if claim.margin is None:
        critical = stats.t.ppf(1 - LEVEL, runs - 1)
        shift = claim.sign * difference / claim.spread * np.sqrt(runs)
        return float(stats.nct.sf(critical, runs - 1, shift))
    rng = np.random.default_rng(0)
    draws = rng.normal(difference, claim.spread, (20_000, runs))
    reach = stats.t.ppf(1 - LEVEL, runs - 1) * draws.std(axis=1, ddof=1) / np.sqrt(runs)
    return float(np.mean(np.abs(draws.mean(axis=1)) + reach < claim.margin))


def detectable(claim: Claim, runs: int) -> float:
    """The smallest difference for which a claim that one is better has a power of 80%."""

    def missing(difference: float) -> float:
        return power(claim, claim.sign * difference, runs) - POWER

    return float(optimize.brentq(missing, 0.0, 50 * claim.spread))
