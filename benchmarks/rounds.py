"""Interleaved rounds: what is compared is measured in turn, so that a ratio is within one run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence


def keep_to_one_core() -> None:
    """Run this process on one core and torch on one thread, whatever else the machine has."""
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def run_rounds(
    cases: Mapping[str, Callable[[], float]],
    rounds: int,
    each: Callable[[str, Mapping[str, list[float]]], None] = lambda case, values: None,
) -> dict[str, list[float]]:
    """Each case once to warm up, then all cases in turn, ``rounds`` times: what they returned.

    A case returns its own measurement. Every other round goes backwards, so that no case always
    follows the same one. each: called after every measurement with its case and all values so far.
    """
    for measure in cases.values():
        measure()
    values: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        order = list(cases) if number % 2 == 0 else list(cases)[::-1]
        for name in order:
            values[name].append(cases[name]())
            each(name, values)
    return values


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> list[float]:
    """The ratio round by round: each of two measurements that were made next to each other."""
    return [above / below for above, below in zip(numerator, denominator, strict=True)]


def summary(values: Sequence[float]) -> dict[str, object]:
    """Median, lowest and highest of the rounds, and every round's value in order."""
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "rounds": list(values),
    }
