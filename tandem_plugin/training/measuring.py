"""What a trainer's log says about how each model reads what the other one writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tandem_plugin.engine.measures.sums import MeasureSums

__all__ = ["MeasuringLog"]


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
