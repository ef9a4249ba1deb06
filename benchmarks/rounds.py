"""Interleaved rounds: what is compared is measured in turn, so that a ratio is within one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """The same quantity measured once a round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def as_json(self) -> dict[str, object]:
        """Median, lowest and highest, and every round's value in order."""
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "rounds": list(self.values),
        }


def run_rounds(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Sample]:
    """Each case once to warm up, then all cases in turn, ``rounds`` times.

    A case returns its own measurement. Every other round goes backwards, so that no case always
    follows the same one.
    """
    for measure in cases.values():
        measure()
    values: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        order = list(cases) if number % 2 == 0 else list(cases)[::-1]
        for name in order:
            values[name].append(cases[name]())
    return {name: Sample(tuple(found)) for name, found in values.items()}


def ratio(numerator: Sample, denominator: Sample) -> Sample:
    """The ratio round by round: each of two measurements that were made next to each other."""
    pairs = zip(numerator.values, denominator.values, strict=True)
    return Sample(tuple(above / below for above, below in pairs))
