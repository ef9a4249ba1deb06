"""The metrics of an evaluation, each answerer's under names of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem_plugin.training.validation import TEAM

__all__ = ["ANSWERER", "named_metrics"]

ANSWERER = "tandem_answerer"
"""The attribute of an evaluated experience that says who answered."""


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
