"""Which calls could have written which tokens of a text that an agent loop put together.

A loop keeps a call's tokens from their first one on, as many as it likes, where the text was what
the call had been sent; then it may write tokens of its own, which it does not train. One way in
which all trained tokens of a text came about like that is an explanation of it. A call that no
explanation needs was dropped; one that only some need leaves open who wrote what.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stretch", "trained_stops"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where a text goes on as a call did: from ``start``, where it was sent, up to ``stop``."""

    start: int
    stop: int


def trained_stops(stretches: Sequence[Stretch], trained: NDArray[np.bool_]) -> list[int]:
    """How far each call's trained tokens may reach, over all explanations of a text.

    stretches: one a call, none of them empty; trained: bool ``[length]``, every true one of it in
    some stretch. A call may have written every trained token from its start up to the returned
    position (exclusive, one after a trained token): for each of them there is an explanation in
    which it did. It may have written none where that is not after its start.

    Going back from the end, a call is part of an explanation when its tokens reach the end of the
    trained ones, or reach all trained tokens before the start of a later call that is part of one.
    Nothing has to be looked up going forward: what lies before a stretch is always explained, since
    the first trained token that was not would be in no stretch.
    """
    # One after the last trained token of those before each position.
    done = np.concatenate(
        ([0], np.maximum.accumulate(np.where(trained, np.arange(1, len(trained) + 1), 0)))
    )
    stops = [0] * len(stretches)
    ends = [-int(done[-1])]  # negative, so that they ascend: where a call's tokens may end
    order = sorted(range(len(stretches)), key=lambda i: -stretches[i].start)
    for start, numbers in groupby(order, key=lambda i: stretches[i].start):
        is_part = False
        for number in numbers:
            furthest = bisect_left(ends, -stretches[number].stop)
            if furthest < len(ends):
                stops[number] = -ends[furthest]
                is_part = True
        if is_part:
            ends.append(-int(done[start]))
    return stops
