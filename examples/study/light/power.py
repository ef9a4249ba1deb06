"""What the light part can tell, said before it is run."""

from __future__ import annotations

from light.claims import CLAIMS, LEVEL, POWER, detectable
from light.size import SELF, LightSize

__all__ = ["power_lines"]


def power_lines(size: LightSize) -> list[str]:
    """A Markdown section: the smallest difference each comparison finds, and what is declared."""
    runs = size.pairs * len(size.seeds)
    rows = [
        f"| {claim.text}: {claim.against} | {claim.spread:g} | "
        f"{detectable(claim.spread, runs):.3f} | "
        f"{claim.paper} |"
        for claim in CLAIMS
    ]
    declared = (
        f"Declared beforehand: the self-pair ({SELF}) is a null. There the gradient of TRL is that "
        "of GRPO at first order, so a difference of the methods beside it would be a surprise."
    )
    return [
        f"{runs} runs of each method beside each junior ({size.pairs} taught pairs, "
        f"{len(size.seeds)} seeds). A one-sided paired t-test at {LEVEL:.0%} finds, with a power "
        f"of {POWER:.0%}, differences of the size below or larger, if runs are spread as in the "
        "pilot.",
        "",
        "| Claim | Spread between runs | Found from | The paper's figure |",
        "| --- | ---: | ---: | --- |",
        *rows,
        "",
        *([declared] if SELF in size.exposures else []),
    ]
