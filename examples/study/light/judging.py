"""The paper's claims, one by one, whether they hold here, and what the study can tell.

Taught models are a random effect: seeds of one start share its misconceptions, so a claim about
another model is tested on each start's mean over its seeds. A claim that one method is better holds
where a one-sided paired t-test says so at 5%, and does not where the test of the opposite says so.
A claim that nothing differs is one of equivalence: it holds where the 90% interval of the
difference lies within a margin, and does not where it lies beyond (two one-sided tests, Schuirmann
1987). Fewer than five starts are too few to tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy import optimize, stats

from light.grpo import GRPO, HALF, KL_REGS, TRL
from light.runs import LightSize
from light.study import table_lines
from tandem_plugin.lab.evaluation.significance import FEWEST_UNITS, unit_test

LEVEL = 0.05
POWER = 0.8
TOO_FEW = "too few starts"
START = "taught senior"
KL_REG = "KL-Reg"
Choice: TypeAlias = Literal["best", "last", "matched"]
"""Of a run's checkpoint."""

SPREADS = {
    "solo": 0.015,
    "step": 0.02,
    "step-bernoulli": 0.02,
    "cross_entropy": 0.01,
    "overlap": 0.005,
    "kl": 0.01,
    "step_number": 10,
}
"""The standard deviation of each measure's differences between starts that is assumed before the
study is run."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One method against another in one measure.

    paper: the paper's figure, in words. figure: the same as a difference, where it has one; the
    smallest effect of interest. margin: of a claim of equivalence; None for all others.
    """

    text: str
    measure: str
    against: str
    paper: str
    figure: float | None = None
    margin: float | None = None
    method: str = TRL.name

    @property
    def sign(self) -> int:
        """1 where more is claimed, -1 where less."""
        return -1 if self.measure in ("cross_entropy", "kl", "step_number") else 1

    @property
    def spread(self) -> float:
        """Of :data:`SPREADS`."""
        return SPREADS[self.measure]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The checkpoints at which it is judged; matched rows share their accuracy alone."""
        if self.measure == "step_number":
            return ("best",)
        return ("best", "last") if self.measure == "solo" else ("best", "last", "matched")

    def couples(self) -> list[tuple[str, str]]:
        """(method, the other): KL-Reg stands for each of its coefficients."""
        each = {KL_REG: [one.name for one in KL_REGS]}
        sides = (each.get(name, [name]) for name in (self.method, self.against))
        return list(itertools.product(*sides))


CLAIMS = (
    Claim("TRL gains alone", "solo", START, "above the base"),
    Claim(
        "TRL loses no capability alone",
        "solo",
        GRPO.name,
        "55.2 against 56.0 (pass@8)",
        figure=-0.008,
        margin=0.022,
    ),
    Claim("TRL is the better team (`step`)", "step", GRPO.name, "+1.4 points", 0.0142),
    Claim("TRL is the better team (`step`)", "step", KL_REG, "+1.0 points", 0.0101),
    Claim("TRL is the better team (`step`)", "step", HALF.name, "not compared", 0.0142),
    Claim(
        "TRL is the better team (`step-bernoulli`)",
        "step-bernoulli",
        GRPO.name,
        "+1.8 points (pass@8)",
        figure=0.018,
    ),
    Claim("TRL is more predictable", "cross_entropy", GRPO.name, "-0.0146 nats", -0.0146),
    Claim("TRL is more predictable", "cross_entropy", KL_REG, "-0.0114 nats", -0.0114),
    Claim("TRL is more predictable", "cross_entropy", HALF.name, "not compared", -0.0146),
    Claim("TRL overlaps more", "overlap", GRPO.name, "+0.0147", 0.0147),
    Claim("TRL overlaps more", "overlap", KL_REG, "+0.0110", 0.0110),
    Claim("TRL overlaps more", "overlap", HALF.name, "not compared", 0.0147),
    Claim("TRL drifts less", "kl", GRPO.name, "0.022 against 0.026 nats", -0.004),
    Claim("TRL drifts less", "kl", KL_REG, "in a figure"),
    Claim("TRL's best checkpoint comes sooner", "step_number", GRPO.name, "step 120 against 200"),
    Claim(
        "KL-Reg is no better a team than GRPO",
        "step",
        GRPO.name,
        "52.9 against 52.7 (pass@8)",
        figure=0.002,
        margin=0.023,
        method=KL_REG,
    ),
    Claim(
        "KL-Reg is more predictable than GRPO",
        "cross_entropy",
        GRPO.name,
        "0.127 against 0.132 nats",
        figure=-0.005,
        method=KL_REG,
    ),
)
"""Sections 4.1 to 4.5 and 5.1 to 5.3 of the paper, and GRPO on as many tokens as TRL trains. The
paper's figures are of other models and problems; margins of equivalence are its standard errors."""


def judge(claim: Claim, by_start: Sequence[float]) -> tuple[float, str]:
    """(p, verdict) of the mean difference of each start, ``[starts]``, by the claim's own test.

    The verdict is agrees, does not, cannot tell, or :data:`TOO_FEW`.
    """
    differences = np.asarray(by_start, dtype=float)
    if claim.margin is None:
        p = unit_test(claim.sign * differences, "greater").p
    else:
        inside = (differences + claim.margin, claim.margin - differences)
        p = max(unit_test(each, "greater").p for each in inside)
    if np.isnan(p):  # there is no spread to test by where all differ by the same
        return p, "cannot tell"
    if len(differences) < FEWEST_UNITS:
        return p, TOO_FEW
    if p < LEVEL:
        return p, "agrees"
    return p, "does not" if p > 1 - LEVEL else "cannot tell"


def power(claim: Claim, difference: float, starts: int) -> float:
    """How often a test over so many starts calls the claim right where this is the difference.

    By the noncentral t distribution; of an equivalence by simulation, with a fixed seed.
    """
    if claim.margin is None:
        return _found(claim.sign * difference, claim.spread, starts)
    rng = np.random.default_rng(0)
    draws = rng.normal(difference, claim.spread, (20_000, starts))
    reach = stats.t.ppf(1 - LEVEL, starts - 1) * draws.std(axis=1, ddof=1) / np.sqrt(starts)
    return float(np.mean(np.abs(draws.mean(axis=1)) + reach < claim.margin))


def _found(difference: float, spread: float, starts: int) -> float:
    critical = stats.t.ppf(1 - LEVEL, starts - 1)
    return float(stats.nct.sf(critical, starts - 1, difference / spread * np.sqrt(starts)))


def detectable(spread: float, starts: int) -> float:
    """The smallest difference for which a claim that one is better has a power of 80%."""

    def missing(difference: float) -> float:
        return _found(difference, spread, starts) - POWER

    return float(optimize.brentq(missing, 0.0, 50 * spread))


def power_lines(size: LightSize) -> list[str]:
    """A Markdown section: what each comparison finds how often, said before the study is run."""
    columns = (
        "Claim",
        "Against",
        "Assumed spread",
        "Found from",
        "The paper's figure",
        "Power for it",
    )
    rows = [_power_row(claim, max(2, size.starts)) for claim in CLAIMS]
    few = ", and these are too few to tell" if size.starts < FEWEST_UNITS else ""
    return [
        f"{size.starts} taught models, {len(size.seeds)} seeds of each method from each. Claims "
        f"are tested at {LEVEL:.0%}, one-sided, with taught models as units{few}. *Found from*: "
        f"the smallest difference that is found with a power of {POWER:.0%} if models differ by "
        "the assumed spread. The smallest effect of interest is the paper's figure. Of every "
        "twenty lines about nothing, one is called right by chance, and one wrong.",
        "",
        *table_lines(columns, rows, words=(0, 1, 4)),
    ]


def _power_row(claim: Claim, starts: int) -> tuple[str, ...]:
    if claim.margin is not None:
        found, chance = f"within {claim.margin:g}", f"{power(claim, 0.0, starts):.0%}"
    else:
        found = f"{detectable(claim.spread, starts):.3g}"
        chance = "–" if claim.figure is None else f"{power(claim, claim.figure, starts):.0%}"
    return (claim.text, claim.against, f"{claim.spread:g}", found, claim.paper, chance)
