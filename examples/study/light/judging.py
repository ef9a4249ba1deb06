"""Whether a claim holds: errors over taught pairs, a test, and what the test can find.

Taught pairs are a random effect: seeds of one pair share its misconceptions, so a claim about
another pair is tested on each pair's mean over its seeds. A claim that one method is better holds
where a one-sided paired t-test says so at 5%, and does not where the test of the opposite says so.
A claim that nothing differs is one of equivalence: it holds where the 90% interval of the
difference lies within a margin, and does not where it lies beyond (two one-sided tests, Schuirmann
1987). Fewer than five pairs are too few to tell of another one. What can be said within these very
pairs is judged likewise, run by run; the spread between the pairs is then part of the noise, on the
safe side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from light.claims import CLAIMS, MOVED_BACK, Claim
from light.table import Choice, Found
from tandem_plugin.lab.evaluation.significance import FEWEST_UNITS, unit_error, unit_means

__all__ = [
    "LEVEL",
    "POWER",
    "TOO_FEW",
    "Judged",
    "Verdict",
    "detectable",
    "judge",
    "judge_all",
    "judge_pairs",
    "power",
]

LEVEL = 0.05
POWER = 0.8
Verdict = str
"""agrees, does not, cannot tell, or :data:`TOO_FEW`."""

TOO_FEW = "too few pairs"


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a claim beside one junior, at one choice of checkpoints.

    differences: the method's less the other's, ``[runs]``. by_pair: their means, by taught pair. p,
    verdict: with pairs as units. within: the verdict on these very pairs, with runs as units.
    """

    claim: Claim
    method: str
    against: str
    differences: np.ndarray
    by_pair: tuple[float, ...]
    p: float
    verdict: Verdict
    within: Verdict

    @property
    def mean(self) -> float:
        """Over runs."""
        return float(self.differences.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean over pairs."""
        return unit_error(self.by_pair)


def judge_pairs(claim: Claim, by_pair: Sequence[float]) -> tuple[float, Verdict]:
    """(p, verdict) of another taught pair, from the mean difference in each: ``[pairs]``."""
    p, verdict = judge(claim, np.array(by_pair))
    return p, verdict if len(by_pair) >= FEWEST_UNITS else TOO_FEW


def judge(claim: Claim, differences: np.ndarray) -> tuple[float, Verdict]:
    """(p, verdict) of the differences of units, ``[units]``; p is of the claim's own test.

    Where all differ by the same there is no spread to test by.
    """
    finite = len(differences) > 1 and np.isfinite(differences).all()
    if not finite or np.ptp(differences) == 0:
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
    pairs = [one.pair for one in found.runs(exposure, method)]
    by_pair = tuple(unit_means(differences, pairs).tolist())
    p, verdict = judge_pairs(claim, by_pair)
    within = judge(claim, differences)[1]
    return Judged(claim, method, against, differences, by_pair, p, verdict, within)


def power(claim: Claim, difference: float, runs: int) -> float:
    """How often a test over so many runs calls the claim right where this is the true difference.

    That is within the pairs: what another pair adds to the spread is not known beforehand. By the
    noncentral t distribution; of an equivalence by simulation, with a fixed seed.
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
