"""Which responses of a run a page shows, where it cannot show them all."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tandem_plugin.errors import ConfigError
from tandem_plugin.lab.viewer.listing import Listed

__all__ = ["Choice", "Numbers", "spread"]

_BASE = {"step": 6, "problem": 4, "sample": 4}
"""Of how many of each something is shown first; then of twice as many, and so on."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers as a user lists them: ``1,50,100-200``."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, option: str, text: str) -> Numbers:
        """option: how it is called, for the :class:`ConfigError` of something else."""
        found = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,15})(?:-([0-9]{1,15}))?\s*", part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise ConfigError("TP793", option=option, text=text)
            found.append((int(match[1]), int(match[2] or match[1])))
        return cls(tuple(found))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(low <= number <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user asked to see; None is everything."""

    steps: Numbers | None = None
    problems: Numbers | None = None
    """By the numbers that problems have."""
    samples: int | None = None
    """The most responses to one problem at one step."""

    def of(self, listed: Iterable[Listed], numbers: Sequence[int]) -> list[Listed]:
        """The responses that were asked for, in the order in which a page takes them in.

        Where the page has no room for all, those that it shows are then spread evenly: over a few
        steps (first, last, and between), problems and samples at first, over twice as many next.
        Problems that come at most steps come first. numbers: of each problem.
        """
        kept = [
            one
            for one in listed
            if (self.steps is None or one.step in self.steps)
            and (self.problems is None or numbers[one.problem] in self.problems)
        ]
        return _evenly(kept, self.samples)


def _evenly(listed: Sequence[Listed], most: int | None) -> list[Listed]:
    """Responses from those that stand for all to those that add the least; ``most`` of a group."""
    steps = sorted({_step(one) for one in listed})
    step_rank = {steps[place]: rank for rank, place in enumerate(spread(len(steps)))}
    problem_rank = _problem_ranks(listed)
    taken: dict[tuple[int, int], int] = {}
    keyed = []
    for place, one in enumerate(listed):
        group = _step(one), one.problem
        rank = taken[group] = taken.get(group, -1) + 1
        if most is None or rank < most:
            ranks = step_rank[group[0]], problem_rank[one.problem], rank
            level = max(_level(r, base) for r, base in zip(ranks, _BASE.values(), strict=True))
            keyed.append((level, ranks[1], ranks[0], rank, place))
    return [listed[place] for *_, place in sorted(keyed)]


def _problem_ranks(listed: Sequence[Listed]) -> dict[int, int]:
    """Each problem's place among those of its steps, those of most steps first."""
    steps: dict[int, set[int]] = {}
    for one in listed:
        steps.setdefault(one.problem, set()).add(_step(one))
    ranks: dict[int, int] = {}
    free: dict[int, int] = {}
    for problem in sorted(steps, key=lambda problem: -len(steps[problem])):
        ranks[problem] = max(free.get(step, 0) for step in steps[problem])
        free.update(dict.fromkeys(steps[problem], ranks[problem] + 1))
    return ranks


def _step(one: Listed) -> int:
    return -1 if one.step is None else one.step


def _level(rank: int, base: int) -> int:
    return (rank // base).bit_length()


def spread(count: int) -> list[int]:
    """0 to count - 1, the ends first, then what lies halfway between those that came before."""
    order = list(dict.fromkeys([0, count - 1])) if count else []
    gaps = deque([(0, count - 1)])
    while gaps:
        low, high = gaps.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return order
