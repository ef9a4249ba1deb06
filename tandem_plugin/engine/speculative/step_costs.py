"""How long a step takes, by batch size and number of drafts: a guess, corrected as steps pass."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

__all__ = ["StepCosts", "batch_class", "passes", "relative_cost"]

_FREE = 256.0
"""Tokens that a forward pass reads in the time that it takes to read the weights, by the guess."""
_REMEMBERED, _ENOUGH = 32, 3
"""Steps that a batch size and a length are remembered by, and how many say enough."""
_QUARTILE = 0.25


def passes(requests: int, drafts: int, cost: float) -> float:
    """What a step takes by the guess, in forward passes of the senior over few tokens.

    requests: of the batch, each with ``drafts`` drafts, which the senior reads with one token more
    before the junior drafts as many. cost: the junior's pass, in the senior's. A pass takes the
    time to read its weights up to :data:`_FREE` tokens, and grows with them beyond. The junior's
    first pass of a round reads two tokens of a request; without drafts both models read one.
    """

    def over(tokens: int) -> float:
        return max(1.0, tokens / _FREE)

    if not drafts:
        return over(requests) * (1 + cost)
    junior = over(2 * requests) + (drafts - 1) * over(requests)
    return over(requests * (drafts + 1)) + cost * junior


def batch_class(requests: int) -> int:
    """The batch sizes that are looked at together: a number for each power of two, rounded."""
    return round(math.log2(max(requests, 1)))


class StepCosts:
    """The time of a step for each batch size and number of drafts.

    What steps took is held against :func:`passes`, by the lower quartile of the last ones of each
    class of batch sizes and length: whatever else a machine does only ever adds to a step. Where
    there are none yet, what is known nearest by corrects the guess.
    """

    def __init__(self, lengths: tuple[int, ...], cost: float) -> None:
        """Lengths: the numbers of drafts there are. cost: the junior's pass, in the senior's."""
        self._places = {length: place for place, length in enumerate(lengths)}
        self._cost = cost
        self._seen: dict[tuple[int, int], deque[float]] = {}
        self._known: dict[tuple[int, int], float] = {}

    def observe(self, requests: int, drafts: int, seconds: float) -> None:
        """Take in a step that only decoded, and drafted as many tokens as it checked."""
        if drafts not in self._places or not seconds > 0:
            return
        a_pass = seconds / passes(requests, drafts, self._cost)
        if not a_pass > 0:  # no clock measures so little
            return
        key = batch_class(requests), self._places[drafts]
        seen = self._seen.setdefault(key, deque(maxlen=_REMEMBERED))
        seen.append(math.log(a_pass))
        if len(seen) >= _ENOUGH:
            self._known[key] = sorted(seen)[int(_QUARTILE * len(seen))]

    def knows(self, requests: int, drafts: int) -> bool:
        """Whether enough such steps were seen."""
        return (batch_class(requests), self._places[drafts]) in self._known

    def seconds(self, requests: int, drafts: int) -> float:
        """What such a step takes; in passes of the senior as long as none was seen."""
        key = batch_class(requests), self._places[drafts]
        return passes(requests, drafts, self._cost) * math.exp(self._correction(key))

    def _correction(self, key: tuple[int, int]) -> float:
        if not self._known:
            return 0.0
        if key in self._known:
            return self._known[key]

        def away(other: tuple[int, int]) -> tuple[int, int]:
            return abs(other[0] - key[0]), abs(other[1] - key[1])

        return self._known[min(self._known, key=away)]


def relative_cost(senior: Any, junior: Any) -> float:
    """The junior's forward pass in the senior's, from two Hugging Face text configurations.

    Decoding reads every weight that a token needs once, so the ratio of those counts; 1.0 where a
    configuration does not say enough. Only speed hangs on it, until steps were timed.
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
