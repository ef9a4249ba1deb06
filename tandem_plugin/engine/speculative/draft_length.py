"""How many tokens the junior should draft in a round: the length that promises the most."""

from __future__ import annotations

from typing import Any

__all__ = ["DraftLength", "relative_cost"]

_MEMORY = 512.0
"""How many rounds are remembered, roughly: older ones fade."""
_LOOK = 8
"""Where one draft is best, one length in so many is two: rounds of one say nothing of s."""
_PRIOR = 16.0
"""How many positions the guess weighs that a run begins with."""
_HOLDS, _GOES_ON = 0.95, 0.5
"""That guess: a draft holds, and the token behind the last draft is the senior's."""


class DraftLength:
    """The draft length of the next round, from what became of the rounds so far.

    A draft holds with probability s, given that those before it did, because the junior is its
    author or the senior accepts it: so s follows acceptance and the schedule's runs at once. With
    b, the probability that the token behind a whole chain is the senior's, a round of k drafts
    brings 1 + s + ... + s^(k-1) + b s^k tokens, for one forward pass of the senior and k of the
    junior. The k from 1 to ``most`` with the most tokens for that cost is taken. Both rates are
    estimated from the lengths of rounds alone, fading, so that a new policy is followed.
    """

    def __init__(self, most: int, cost: float) -> None:
        """Begin with a guess. cost: the junior's forward pass, in the senior's."""
        self._most, self._cost = most, cost
        self._held, self._checked = _PRIOR * _HOLDS, _PRIOR
        self._behind, self._whole = _PRIOR * _GOES_ON, _PRIOR
        self._ones = 0

    def observe(self, drafted: int, written: int) -> None:
        """Take in a round of ``drafted`` drafts that brought ``written`` tokens.

        Rounds of ``drafted`` tokens say nothing of the last draft: its rejection, and a whole chain
        without a token behind it, look the same.
        """
        if not drafted or not written:
            return
        fading = 1 - 1 / _MEMORY
        rejected = written < drafted
        if drafted > 1:
            self._held = self._held * fading + min(written, drafted) - 1
            self._checked = self._checked * fading + min(written, drafted) - 1 + rejected
        if not rejected:  # the last draft was reached
            self._behind = self._behind * fading + (written > drafted) / max(self._holds, 0.05)
            self._whole = self._whole * fading + 1

    def choose(self) -> int:
        """The length of the next round, 1 to ``most``: the best, now and then two in place of one.

        Call once for each step of the engine.
        """
        best = self.best
        self._ones = self._ones + 1 if best == 1 else 0
        return min(2, self._most) if self._ones and self._ones % _LOOK == 0 else best

    @property
    def best(self) -> int:
        """The length that promises the most: 1 to ``most``."""
        return max(range(1, self._most + 1), key=self._tokens_for_cost)

    @property
    def _holds(self) -> float:
        # The guess stays in at the weight of one position: nothing is ever certain.
        return (self._held + _HOLDS) / (self._checked + 1)

    def _tokens_for_cost(self, drafts: int) -> float:
        s, b = self._holds, min(1.0, self._behind / self._whole)
        tokens: float = sum(s**i for i in range(drafts)) + b * s**drafts
        return tokens / (1 + self._cost * drafts)


def relative_cost(senior: Any, junior: Any) -> float:
    """The junior's forward pass in the senior's, from two Hugging Face text configurations.

    Decoding reads every weight that a token needs once, so the ratio of those counts; 1.0 where a
    configuration does not say enough. Only speed hangs on it.
    """
    try:
        return _weights(junior) / _weights(senior)
    except (AttributeError, TypeError, ZeroDivisionError):
        return 1.0


def _weights(config: Any) -> float:
    hidden, layers = config.hidden_size, config.num_hidden_layers
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head = getattr(config, "head_dim", None) or hidden // heads
    attention = 2 * hidden * head * (heads + kv_heads)
    experts = getattr(config, "num_experts_per_tok", None)
    width = config.intermediate_size
    if experts:
        width = experts * (getattr(config, "moe_intermediate_size", None) or width)
    return float(layers * (attention + 3 * hidden * width) + config.vocab_size * hidden)
