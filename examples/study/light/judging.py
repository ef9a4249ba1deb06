"""The paper's claims, one by one, whether they hold here, and what the study can tell.

Taught models are a random effect: seeds of one start share its misconceptions, so a claim about
another model is tested on each start's mean over its seeds. A claim that one method is better holds
where a one-sided paired t-test says so at 5%, and does not where the test of the opposite says so.
A claim that nothing differs is one of equivalence: it holds where the 90% interval of the
difference lies within a margin, and does not where it lies beyond (two one-sided tests, Schuirmann
1987). Fewer than five starts are too few to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from light.size import GRPO, HALF, METHODS, TRL, LightSize
from light.table import START, Choice, Found
from tandem_plugin.lab.evaluation.significance import FEWEST_UNITS, unit_error, unit_means

LEVEL = 0.05
POWER = 0.8
Verdict = str
"""agrees, does not, cannot tell, or :data:`TOO_FEW`."""

TOO_FEW = "too few starts"
KL_REG = "KL-Reg"

_EVERYWHERE: tuple[Choice, ...] = ("best", "last", "matched")
_UNMATCHED: tuple[Choice, ...] = ("best", "last")
"""Of claims about accuracy alone, which matched rows share by construction."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One method against another in one measure. sign: 1 where more is claimed, -1 where less.

    paper: the paper's figure, in words. figure: the same as a difference, where it has one; the
    smallest effect of interest. spread: the standard deviation between starts that is assumed
    before the study is run. margin: of a claim of equivalence; None for all others. choices: the
    checkpoints at which it is judged.
    """

    text: str
    measure: str
    against: str
    sign: int
    paper: str
    spread: float
    figure: float | None = None
    margin: float | None = None
    method: str = TRL.name
    choices: tuple[Choice, ...] = _EVERYWHERE

    def couples(self) -> list[tuple[str, str]]:
        """(method, the other): KL-Reg stands for each of its coefficients."""
        return [(one, other) for one in _named(self.method) for other in _named(self.against)]


def _named(name: str) -> Sequence[str]:
    if name != KL_REG:
        return [name]
    return [method.name for method in METHODS if method.name.startswith(f"{KL_REG} ")]


_ALONE, _TEAMS, _NATS, _SHARED = 0.015, 0.02, 0.01, 0.005
"""Spreads of differences between starts: of accuracies alone and of teams, of cross-entropies and
drift, and of overlaps."""

CLAIMS = (
    Claim("TRL gains alone", "solo", START, 1, "above the base", _ALONE, choices=_UNMATCHED),
    Claim(
        "TRL loses no capability alone",
        "solo",
        GRPO.name,
        sign=0,
        paper="55.2 against 56.0 (pass@8)",
        spread=_ALONE,
        figure=-0.008,
        margin=0.022,
        choices=_UNMATCHED,
    ),
    Claim("TRL is the better team (`step`)", "step", GRPO.name, 1, "+1.4 points", _TEAMS, 0.0142),
    Claim("TRL is the better team (`step`)", "step", KL_REG, 1, "+1.0 points", _TEAMS, 0.0101),
    Claim("TRL is the better team (`step`)", "step", HALF.name, 1, "not compared", _TEAMS, 0.0142),
    Claim(
        "TRL is the better team (`step-bernoulli`)",
        "step-bernoulli",
        GRPO.name,
        sign=1,
        paper="+1.8 points (pass@8)",
        spread=_TEAMS,
        figure=0.018,
    ),
    Claim(
        "TRL is more predictable", "cross_entropy", GRPO.name, -1, "-0.0146 nats", _NATS, -0.0146
    ),
    Claim("TRL is more predictable", "cross_entropy", KL_REG, -1, "-0.0114 nats", _NATS, -0.0114),
    Claim(
        "TRL is more predictable", "cross_entropy", HALF.name, -1, "not compared", _NATS, -0.0146
    ),
    Claim("TRL overlaps more", "overlap", GRPO.name, 1, "+0.0147", _SHARED, 0.0147),
    Claim("TRL overlaps more", "overlap", KL_REG, 1, "+0.0110", _SHARED, 0.0110),
    Claim("TRL overlaps more", "overlap", HALF.name, 1, "not compared", _SHARED, 0.0147),
    Claim("TRL drifts less", "kl", GRPO.name, -1, "0.022 against 0.026 nats", _NATS, -0.004),
    Claim("TRL drifts less", "kl", KL_REG, -1, "in a figure", _NATS),
    Claim(
        "TRL's best checkpoint comes sooner",
        "step_number",
        GRPO.name,
        sign=-1,
        paper="step 120 against 200",
        spread=10,
        choices=("best",),
    ),
    Claim(
        "KL-Reg is no better a team than GRPO",
        "step",
        GRPO.name,
        sign=0,
        paper="52.9 against 52.7 (pass@8)",
        spread=_TEAMS,
        figure=0.002,
        margin=0.023,
        method=KL_REG,
    ),
    Claim(
        "KL-Reg is more predictable than GRPO",
        "cross_entropy",
        GRPO.name,
        sign=-1,
        paper="0.127 against 0.132 nats",
        spread=_NATS,
        figure=-0.005,
        method=KL_REG,
    ),
)
"""Sections 4.1 to 4.5 and 5.1 to 5.3 of the paper, and GRPO on as many tokens as TRL trains. The
paper's figures are of other models and problems; margins of equivalence are its standard errors."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim about two methods. by_start: the mean difference of each start, over its seeds."""

    claim: Claim
    method: str
    against: str
    by_start: tuple[float, ...]
    p: float
    verdict: Verdict

    @property
    def mean(self) -> float:
        """Over starts."""
        return float(np.mean(self.by_start))

    @property
    def error(self) -> float:
        """The standard error of the mean over starts."""
        return float(unit_error(self.by_start))


def judge(claim: Claim, by_start: Sequence[float]) -> tuple[float, Verdict]:
    """(p, verdict) of the mean difference of each start, ``[starts]``, by the claim's own test.

    Where all differ by the same there is no spread to test by.
    """
    differences = np.asarray(by_start, dtype=float)
    finite = len(differences) > 1 and np.isfinite(differences).all()
    if not finite or np.ptp(differences) == 0:
        return float("nan"), "cannot tell"
    p, verdict = _tested(claim, differences)
    return p, verdict if len(differences) >= FEWEST_UNITS else TOO_FEW


def _tested(claim: Claim, differences: np.ndarray) -> tuple[float, Verdict]:
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


def judge_all(found: Found, choice: Choice) -> list[Judged]:
    """Every claim that is judged at these checkpoints, in order."""
    return [
        _judged(found, choice, claim, *couple)
        for claim in CLAIMS
        if choice in claim.choices
        for couple in claim.couples()
    ]


def _judged(found: Found, choice: Choice, claim: Claim, method: str, against: str) -> Judged:
    ours, theirs = found.couple(method, against, choice)
    differences = ours.values[claim.measure] - theirs.values[claim.measure]
    by_start = tuple(unit_means(differences, ours.starts).tolist())
    return Judged(claim, method, against, by_start, *judge(claim, by_start))


def power(claim: Claim, difference: float, starts: int) -> float:
    """How often a test over so many starts calls the claim right where this is the difference.

    By the noncentral t distribution; of an equivalence by simulation, with a fixed seed.
    """
    if claim.margin is None:
        critical = stats.t.ppf(1 - LEVEL, starts - 1)
        shift = claim.sign * difference / claim.spread * np.sqrt(starts)
        return float(stats.nct.sf(critical, starts - 1, shift))
    rng = np.random.default_rng(0)
    draws = rng.normal(difference, claim.spread, (20_000, starts))
    reach = stats.t.ppf(1 - LEVEL, starts - 1) * draws.std(axis=1, ddof=1) / np.sqrt(starts)
    return float(np.mean(np.abs(draws.mean(axis=1)) + reach < claim.margin))


def detectable(claim: Claim, starts: int) -> float:
    """The smallest difference for which a claim that one is better has a power of 80%."""

    def missing(difference: float) -> float:
        return power(claim, claim.sign * difference, starts) - POWER

    return float(optimize.brentq(missing, 0.0, 50 * claim.spread))


def power_lines(size: LightSize) -> list[str]:
    """A Markdown section: what each comparison finds how often, said before the study is run."""
    few = ", and these are too few to tell" if size.starts < FEWEST_UNITS else ""
    return [
        f"{size.starts} taught models, {len(size.seeds)} seeds of each method from each. Claims "
        f"are tested at {LEVEL:.0%}, one-sided, with taught models as units{few}. *Found from*: "
        f"the smallest difference that is found with a power of {POWER:.0%} if models differ by "
        "the assumed spread. The smallest effect of interest is the paper's figure. Of every "
        "twenty lines about nothing, one is called right by chance, and one wrong.",
        "",
        "| Claim | Against | Assumed spread | Found from | The paper's figure | Power for it |",
        "| --- | --- | ---: | ---: | --- | ---: |",
        *(_power_line(claim, max(2, size.starts)) for claim in CLAIMS),
    ]


def _power_line(claim: Claim, starts: int) -> str:
    if claim.margin is not None:
        found, chance = f"within {claim.margin:g}", f"{power(claim, 0.0, starts):.0%}"
    else:
        found = f"{detectable(claim, starts):.3g}"
        chance = "–" if claim.figure is None else f"{power(claim, claim.figure, starts):.0%}"
    cells = (claim.text, claim.against, f"{claim.spread:g}", found, claim.paper, chance)
    return f"| {' | '.join(cells)} |"
