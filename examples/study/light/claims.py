"""The paper's claims, one by one: its figure, the study's with seed-level errors, and a verdict.

Runs are paired by taught pair and seed, which gives methods the same problems in the same order. A
claim that one method is better holds where a one-sided paired t-test says so at 5%, and does not
where the test of the opposite says so. The claim that nothing is lost is one of equivalence: it
holds where the 90% interval of the difference lies within a margin, and does not where it lies
beyond (two one-sided tests, Schuirmann 1987).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy import stats

from light.size import GRPO, TRL, LightSize
from light.table import Choice, Found

__all__ = ["CLAIMS", "LEVEL", "Claim", "Judged", "Verdict", "detectable", "judge", "judge_all"]

LEVEL = 0.05
POWER = 0.8
Verdict: TypeAlias = Literal["agrees", "does not", "cannot tell"]
KL_REG = "KL-Reg"


@dataclass(frozen=True, slots=True)
class Claim:
    """TRL against another method in one measure. sign: 1 where more is claimed, -1 where less.

    paper: the paper's own figure. margin: of a claim of equivalence; None for all others. spread:
    the standard deviation between runs that was assumed before the study was run, of a pilot.
    """

    text: str
    measure: str
    against: str
    sign: int
    paper: str
    spread: float
    margin: float | None = None


_HANDOFFS, _SURPRISE, _SHARED = 0.02, 0.01, 0.005
"""The spreads between runs of a pilot: of accuracies, nats, and overlap."""

CLAIMS = (
    Claim(
        "no capability is lost alone",
        "solo",
        GRPO.name,
        sign=0,
        paper="55.2 against 56.0 (pass@8)",
        spread=_HANDOFFS,
        margin=0.022,
    ),
    Claim("more robust handoffs (step)", "step", GRPO.name, 1, "+1.4 points", _HANDOFFS),
    Claim("more robust handoffs (step)", "step", KL_REG, 1, "+1.0 points", _HANDOFFS),
    Claim("the same, at random", "step-bernoulli", GRPO.name, 1, "not given", _HANDOFFS),
    Claim("more predictable", "cross_entropy", GRPO.name, -1, "-0.0146 nats", _SURPRISE),
    Claim("more predictable", "cross_entropy", KL_REG, -1, "-0.0114 nats", _SURPRISE),
    Claim("more overlap", "overlap", GRPO.name, 1, "+0.0147", _SHARED),
    Claim("more overlap", "overlap", KL_REG, 1, "+0.0110", _SHARED),
    Claim("less drift", "kl", GRPO.name, -1, "0.022 against 0.026 nats", 0.05),
)
"""Sections 4.1 to 4.5, 5.2 and 5.3 of the paper; its figures are of other models and problems."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a claim beside one junior, against one method, at one choice."""

    claim: Claim
    against: str
    exposure: str
    choice: Choice
    difference: float
    error: float
    p: float
    verdict: Verdict


def judge(claim: Claim, differences: np.ndarray) -> tuple[float, Verdict]:
    """(p, verdict) of TRL minus the other method, ``[runs]``; p is of the claim's own test."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return float("nan"), "cannot tell"
    if claim.margin is not None:
        return _equivalent(differences, claim.margin)
    greater = float(stats.ttest_1samp(claim.sign * differences, 0.0, alternative="greater").pvalue)
    if greater < LEVEL:
        return greater, "agrees"
    return greater, "does not" if 1 - greater < LEVEL else "cannot tell"


def _equivalent(differences: np.ndarray, margin: float) -> tuple[float, Verdict]:
    above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    p = float(max(above, below))
    if p < LEVEL:
        return p, "agrees"
    return p, "does not" if p > 1 - LEVEL else "cannot tell"


def judge_all(found: Found, exposure: str, choice: Choice) -> list[Judged]:
    """Every claim beside one junior; those against KL-Reg once for each of its coefficients."""
    trl = found.row(exposure, TRL.name, choice)
    judged = []
    for claim in CLAIMS:
        for method in _methods(claim, found.size, exposure):
            other = found.row(exposure, method, choice)
            differences = trl.values[claim.measure] - other.values[claim.measure]
            p, verdict = judge(claim, differences)
            error = float(differences.std(ddof=1) / np.sqrt(len(differences)))
            mean = float(differences.mean())
            judged.append(Judged(claim, method, exposure, choice, mean, error, p, verdict))
    return judged


def _methods(claim: Claim, size: LightSize, exposure: str) -> Sequence[str]:
    names = [method.name for method in size.methods(exposure)]
    return [name for name in names if name == claim.against or name.startswith(f"{claim.against} ")]


def detectable(spread: float, runs: int, level: float = LEVEL, power: float = POWER) -> float:
    """The smallest difference that a one-sided paired t-test finds with the given power.

    spread: the standard deviation of the runs' differences. By the noncentral t distribution.
    """
    critical = stats.t.ppf(1 - level, runs - 1)

    def found_with(shift: float) -> float:
        return float(stats.nct.sf(critical, runs - 1, shift))

    return spread / np.sqrt(runs) * _solved(found_with, power)


def _solved(rising: Callable[[float], float], wanted: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(lambda x: rising(x) - wanted, 0.0, 50.0))
