"""Who answers validation prompts: the senior alone, the team, or each of the two in its turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

__all__ = ["ANSWERER", "TEAM", "Answerer", "answerers", "named_metrics"]

Answerer = Literal["senior", "team"]

ANSWERER = "tandem_answerer"
"""The attribute of an evaluated experience that says who answered."""

TEAM = "team/"
"""How the names of the team's metrics begin; the senior's are OpenRLHF's own."""


def answerers(validation: str) -> tuple[Answerer, ...]:
    """Who walks through the validation prompts, in this order.

    validation: the setting ``validation``: senior, team, or both.
    """
    walks: Mapping[str, tuple[Answerer, ...]] = {
        "senior": ("senior",),
        "team": ("team",),
        "both": ("senior", "team"),
    }
    return walks[validation]


def named_metrics(
    compute: Callable[[Sequence[Any]], Mapping[str, float]], samples: Sequence[Any]
) -> dict[str, float]:
    """The metrics of an evaluation, each answerer's under names of its own.

    compute: OpenRLHF's metrics of some samples. samples: experiences with :data:`ANSWERER`.
    """
    metrics: dict[str, float] = {}
    for answerer, prefix in (("senior", ""), ("team", TEAM)):
        answered = [sample for sample in samples if getattr(sample, ANSWERER) == answerer]
        for name, value in (compute(answered) if answered else {}).items():
            metrics[prefix + name] = value
    return metrics
