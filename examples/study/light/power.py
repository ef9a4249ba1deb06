"""What the study can tell, said before it is run."""

from __future__ import annotations

from light.claims import CLAIMS, Claim
from light.judging import LEVEL, POWER, detectable, power
from light.size import SELF, LightSize
from tandem_plugin.lab.evaluation.significance import FEWEST_UNITS

__all__ = ["power_lines"]

_DECLARED = (
    f"Declared beforehand: the self-pair ({SELF}), the paper's own setting, is expected to show "
    "no difference, though the paper makes all of its claims there."
)


def power_lines(size: LightSize) -> list[str]:
    """A Markdown section: what each comparison finds how often, and what is declared."""
    runs = size.pairs * len(size.seeds)
    few = ", and these are too few to tell" if size.pairs < FEWEST_UNITS else ""
    return [
        f"{runs} runs of each method beside each junior ({size.pairs} taught pairs, "
        f"{len(size.seeds)} seeds). Runs of one pair are no evidence about another: claims are "
        f"tested at {LEVEL:.0%}, one-sided, with pairs as units{few}. Below is what is found "
        f"within these {size.pairs} pairs, run against run. *Found from*: the smallest difference "
        f"that is found with a power of {POWER:.0%}, if the differences of runs are spread as is "
        "assumed here (by a pilot of three seeds of one pair, and by what so many answers leave "
        "open). Of a claim that nothing differs, the power is given for no difference at all. Of "
        "every twenty lines about nothing, one is called right by chance, and one wrong.",
        "",
        "| Claim | Against | Assumed spread | Found from | The paper's figure | Power for it |",
        "| --- | --- | ---: | ---: | --- | ---: |",
        *(_line(claim, runs) for claim in CLAIMS),
        "",
        *([_DECLARED] if SELF in size.exposures else []),
    ]


def _line(claim: Claim, runs: int) -> str:
    if claim.margin is not None:
        found, chance = f"within {claim.margin:g}", f"{power(claim, 0.0, runs):.0%}"
    else:
        found = f"{detectable(claim, runs):.3g}"
        chance = "–" if claim.figure is None else f"{power(claim, claim.figure, runs):.0%}"
    cells = (claim.text, claim.against, f"{claim.spread:g}", found, claim.paper, chance)
    return f"| {' | '.join(cells)} |"
