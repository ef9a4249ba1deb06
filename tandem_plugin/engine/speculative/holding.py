"""How often drafts hold, and how many tokens a round of some length is to bring."""

from __future__ import annotations

__all__ = ["Holding", "expected_tokens"]

_MEMORY = 1024.0
"""How many rounds are remembered, roughly: older ones fade."""
_OTHERS = 8.0
"""How many rounds weigh at one place what is seen at all, and the guess behind the last."""
_PRIOR = 16.0
"""How many rounds the guess of how often a draft holds weighs."""
_HOLDS, _GOES_ON = 0.95, 0.5
"""These guesses: a draft holds, and the token behind the last draft is the senior's."""


def expected_tokens(holds: list[float], behind: float) -> float:
    """The expected tokens of a round with as many drafts as there are rates.

    holds: how often each draft holds where those before it did. behind: how often the token behind
    a chain that held is the senior's. Every draft up to the first that does not hold brings a
    token, that one included, since the senior writes another in its place; one more comes behind
    the last. Without drafts a round brings one.
    """
    if not holds:
        return 1.0
    reached, tokens = 1.0, 0.0
    for rate in holds:
        tokens += reached
        reached *= rate
    return tokens + behind * reached


class Holding:
    """How often drafts hold at each place of a chain, from the lengths of rounds alone.

    A draft holds because the junior is its author or the senior accepts it. Authors stay for runs,
    so that this is another rate at each place: a chain that came far is likely to be in a run of
    the junior's. Rates fade, so that a new policy is followed. Places that were seldom reached
    follow all the others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held, self._checked = [0.0] * most, [0.0] * most
        self._behind, self._whole = 0.0, 0.0

    def observe(self, drafted: int, written: int, rounds: int = 1) -> None:
        """Take in ``rounds`` rounds of ``drafted`` drafts that brought ``written`` tokens each.

        Rounds of ``drafted`` tokens say nothing of the last draft: its rejection, and a whole chain
        without a token behind it, look the same.
        """
        if not drafted or not written:
            return
        drafted = min(drafted, self._most)
        fading = (1 - 1 / _MEMORY) ** rounds
        reached, rejected = min(written, drafted) - 1, written < drafted
        for place in range(drafted):
            self._held[place] = self._held[place] * fading + (place < reached) * rounds
            known = place < reached + rejected
            self._checked[place] = self._checked[place] * fading + known * rounds
        goes_on = (written > drafted) / max(self._rate(drafted - 1, self._everywhere()), 0.05)
        self._behind = self._behind * fading + goes_on * rounds
        self._whole = self._whole * fading + (not rejected) * rounds

    def tokens(self, drafts: int) -> float:
        """The expected tokens of a round of so many drafts; 1 for none."""
        everywhere = self._everywhere()
        rates = [self._rate(place, everywhere) for place in range(drafts)]
        behind = (self._behind + _OTHERS * _GOES_ON) / (self._whole + _OTHERS)
        return expected_tokens(rates, min(1.0, behind))

    def _everywhere(self) -> float:
        # The guess stays in: nothing is ever certain.
        return (sum(self._held) + _PRIOR * _HOLDS) / (sum(self._checked) + _PRIOR)

    def _rate(self, place: int, everywhere: float) -> float:
        return (self._held[place] + _OTHERS * everywhere) / (self._checked[place] + _OTHERS)
