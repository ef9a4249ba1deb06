"""What a trainer's log says about its engines: what became of drafts, and both models' readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tandem_plugin.engine.measures.sums import MeasureSums
from tandem_plugin.engine.speculative.draft_stats import DraftStats

__all__ = ["DraftingLog", "MeasuringLog"]


class DraftingLog:
    """Turns engines' counters, which only grow, into the metrics of each step."""

    def __init__(self) -> None:
        self._before: list[DraftStats] = []

    def step(self, engines: Sequence[Mapping[str, int]]) -> dict[str, float]:
        """The metrics of everything that was drafted since the last step, over all engines.

        engines: the counters of each, always in the same order. ``tandem/draft_acceptance``: the
        share of the drafts that the senior checked as its own and wrote;
        ``tandem/tokens_per_round``: tokens a forward pass of the senior;
        ``tandem/forwards_per_token``: forward passes of both models a token. A rate that had
        nothing to count is left out.
        """
        now = [DraftStats(**counters) for counters in engines]
        before = self._before if len(self._before) == len(now) else [DraftStats()] * len(now)
        self._before = now
        more = sum((a.since(b) for a, b in zip(now, before, strict=True)), DraftStats())
        rates = {
            "tandem/draft_acceptance": more.acceptance,
            "tandem/tokens_per_round": more.tokens_per_round,
            "tandem/forwards_per_token": more.forwards_per_token,
        }
        return {name: rate for name, rate in rates.items() if rate == rate}


class MeasuringLog:
    """Turns engines' sums, which only grow, into the metrics of each step."""

    def __init__(self) -> None:
        self._before: list[MeasureSums] = []

    def step(self, engines: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The metrics of everything that was measured since the last step, over all engines.

        engines: the sums of each, always in the same order. ``tandem/junior_cross_entropy`` and
        ``tandem/overlap``: means over the measured tokens that the senior wrote, of the junior's
        -log p and of alpha; ``tandem/senior_cross_entropy``: the mean of the senior's -log p over
        those that the junior wrote. One over no token is left out. Source: section 4.5 of the
        paper.
        """
        now = [MeasureSums(**sums) for sums in engines]
        before = self._before if len(self._before) == len(now) else [MeasureSums()] * len(now)
        self._before = now
        more = sum((a.since(b) for a, b in zip(now, before, strict=True)), MeasureSums())
        return {f"tandem/{name}": mean for name, mean in more.means().items()}
