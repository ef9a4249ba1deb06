"""How many tokens the junior should draft in a round: the length that promises the most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tandem_plugin.engine.speculative.holding import Holding
from tandem_plugin.engine.speculative.step_costs import StepCosts, batch_class

__all__ = ["DraftLength", "lengths_up_to"]

_WORTH = 1.02
"""How much faster another length must promise to be: changing has a cost of its own."""
_LOOK, _LOOK_KNOWN = 8, 200
"""Steps at a batch size until another length is looked at: one unknown there, which waits twice as
long after every look that did not time it, or one known, which waits longer where it is expected to
lose more than :data:`_LOST` of the time."""
_LOST = 0.01
_STAY = 5
"""Steps of a look; the first checks drafts of the length before, and is not timed."""


def lengths_up_to(most: int) -> tuple[int, ...]:
    """The lengths that rounds can have, ascending: 0, the powers of two, and ``most``.

    Few, since a CUDA graph is captured for each of them.
    """
    powers = [2**i for i in range(most.bit_length()) if 2**i < most]
    return (0, *powers, most)


class DraftLength:
    """The draft length of the next rounds, from what became of the rounds so far and their time.

    The length with the most tokens for the time of a step is taken: tokens by how often a draft
    holds at each place of a chain (:class:`Holding`), times by batch size (:class:`StepCosts`). 0
    is a length as well: both models at every step, as in lockstep. Every length is looked at for
    a few steps now and then, for without that neither is known of those that are never taken.
    """

    def __init__(self, most: int, cost: float, room: Callable[[int], int] | None = None) -> None:
        """Begin with a guess.

        cost: the junior's forward pass, in the senior's. room: the most drafts of each of so many
        requests that one step has room for; None for any. Longer ones are neither taken nor looked
        at, since some requests of such a step would have fewer, or wait.
        """
        self.lengths = lengths_up_to(most)
        self._room = room
        self._holding, self._costs = Holding(most), StepCosts(self.lengths, cost)
        self._rounds: Counter[tuple[int, int]] = Counter()
        self._looks: dict[int, _Looks] = {}

    def observe(self, drafted: int, written: int) -> None:
        """Take in a round of ``drafted`` drafts that brought ``written`` tokens."""
        self._rounds[drafted, written] += 1

    def time(self, requests: int, drafts: int, seconds: float) -> None:
        """Take in how long a step took that only decoded, with ``drafts`` drafts of each."""
        self._costs.observe(requests, drafts, seconds)

    def choose(self, requests: int) -> int:
        """The length of the next round of so many requests; once for each step of the engine."""
        for (drafted, written), count in self._rounds.items():
            self._holding.observe(drafted, written, count)
        self._rounds.clear()
        looks = self._looks.setdefault(batch_class(requests), _Looks(self.lengths))
        speeds = self._speeds(requests)
        best = max(speeds, key=speeds.__getitem__)
        if looks.best not in speeds or speeds[best] > speeds[looks.best] * _WORTH:
            looks.best = best
        best = looks.best

        def knows(length: int) -> bool:
            return self._costs.knows(requests, length)

        def lost(length: int) -> float:
            slower = max(0.0, 1 - speeds[length] / speeds[best])
            seconds = self._costs.seconds
            return _STAY * slower * seconds(requests, length) / seconds(requests, best)

        return looks.choose(tuple(speeds), knows, lost)

    def knows(self, requests: int) -> bool:
        """Whether the time of every length is known in batches of about so many requests."""
        return all(self._costs.knows(requests, length) for length in self._fitting(requests))

    def best(self, requests: int) -> int:
        """The length that promises the most, whatever is taken or looked at now."""
        speeds = self._speeds(requests)
        return max(speeds, key=speeds.__getitem__)

    def _fitting(self, requests: int) -> tuple[int, ...]:
        """The lengths that a step of so many requests has room for; 0 always is one."""
        if self._room is None:
            return self.lengths
        most = max(0, self._room(requests))
        return tuple(length for length in self.lengths if length <= most)

    def _speeds(self, requests: int) -> dict[int, float]:
        """Tokens of a request for the time of a step, by length."""
        return {
            length: self._holding.tokens(length) / self._costs.seconds(requests, length)
            for length in self._fitting(requests)
        }


class _Looks:
    """Whose turn it is at one size of batches: the best length, now and then another one."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._turns = list(lengths)
        self._steps, self._left = 0, 0
        self._looked_at = 0
        self._untimed: Counter[int] = Counter()
        """Looks at a length whose time was not known yet."""
        self.best: int | None = None

    def choose(
        self,
        fitting: tuple[int, ...],
        knows: Callable[[int], bool],
        lost: Callable[[int], float],
    ) -> int:
        """The length of the next step.

        fitting: the lengths to choose from. knows: whether a length's time is known. lost: what a
        look at one is expected to lose, in steps of the best.
        """
        assert self.best is not None
        if self._left and self._looked_at in fitting:
            self._left -= 1
            return self._looked_at
        self._steps, self._left = self._steps + 1, 0
        others = [one for one in self._turns if one != self.best and one in fitting]
        if not others:
            return self.best
        unknown = [one for one in others if not knows(one)]
        if unknown:
            other = min(unknown, key=self._untimed.__getitem__)
            wait: float = _LOOK << self._untimed[other]
        else:
            other = others[0]
            wait = max(_LOOK_KNOWN, lost(other) / _LOST)
        if self._steps < wait:
            return self.best
        if unknown:
            self._untimed[other] += 1
        self._turns.remove(other)
        self._turns.append(other)
        self._steps, self._left, self._looked_at = 0, _STAY - 1, other
        return other
