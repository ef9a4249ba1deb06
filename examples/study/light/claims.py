"""The paper's claims, one by one: its figure, and how much was known before the study was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from light.size import GRPO, KL_COEFFICIENTS, SELF, TRL, LightSize, kl_reg
from light.table import START, Choice

__all__ = ["CLAIMS", "MOVED_BACK", "Claim"]

KL_REG = "KL-Reg"
MOVED_BACK = "moved_back"
"""The measure of :meth:`light.table.Found.moved_back`, which is of two methods at once."""

_EVERYWHERE: tuple[Choice, ...] = ("best", "last", "matched")
_UNMATCHED: tuple[Choice, ...] = ("best", "last")
"""Of claims about accuracy alone, which matched rows share by construction."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One method against another in one measure. sign: 1 where more is claimed, -1 where less.

    paper: the paper's figure, in words. figure: the same as a difference, where it has one. spread:
    the standard deviation between runs that was assumed before the study was run. margin: of a
    claim of equivalence; None for all others. choices: the checkpoints at which it is judged. only:
    the junior beside which it is judged; None for all.
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
    only: str | None = None

    def couples(self, size: LightSize, exposure: str) -> list[tuple[str, str]]:
        """(method, the other) beside a junior: KL-Reg stands for each of its coefficients."""
        if self.only not in (None, exposure):
            return []
        return [
            (method, other)
            for method in _named(self.method, size, exposure)
            for other in _named(self.against, size, exposure)
        ]


_ALONE, _TEAMS, _NATS, _SHARED = 0.025, 0.035, 0.015, 0.0075
"""Spreads of differences between runs: of accuracies alone and of teams, mostly of 400 answers that
are right or wrong; of cross-entropies and overlaps, those of the pilot."""

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
    Claim("TRL overlaps more", "overlap", GRPO.name, 1, "+0.0147", _SHARED, 0.0147),
    Claim("TRL overlaps more", "overlap", KL_REG, 1, "+0.0110", _SHARED, 0.0110),
    Claim("TRL drifts less", "kl", GRPO.name, -1, "0.022 against 0.026 nats", 0.05, -0.004),
    Claim("TRL drifts less", "kl", KL_REG, -1, "in a figure", 0.05),
    Claim(
        "TRL moves back most of what GRPO displaces (share above a half, cross-fitted)",
        MOVED_BACK,
        GRPO.name,
        sign=1,
        paper="87% of 500 tokens; noise gives 90%",
        spread=0.1,
        choices=_UNMATCHED,
        only=SELF,  # beside the others all of GRPO's drift is jargon: the line could not fail
    ),
    Claim(
        "TRL's best checkpoint comes sooner",
        "step_number",
        GRPO.name,
        sign=-1,
        paper="step 120 against 200",
        spread=25,
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
    Claim(
        "a large coefficient of KL-Reg costs capability",
        "solo",
        GRPO.name,
        sign=-1,
        paper="said, not measured",
        spread=_ALONE,
        method=kl_reg(KL_COEFFICIENTS[-1]).name,
        choices=_UNMATCHED,
    ),
)
"""Sections 4.1 to 4.5 and 5.1 to 5.3 and appendices B.3 and C of the paper. Its figures are of
other models and problems; margins of equivalence are its own standard errors."""


def _named(name: str, size: LightSize, exposure: str) -> Sequence[str]:
    if name == START:
        return [START]
    methods = [method.name for method in size.methods(exposure)]
    return [method for method in methods if method == name or method.startswith(f"{name} ")]
