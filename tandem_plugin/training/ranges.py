"""Bools over tokens as the ranges in which they are true, which is how they travel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError

__all__ = ["bits_of", "bits_within", "ranges_of"]


def ranges_of(bits: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The runs of true in ``bits``, as (start, stop)."""
    padded = np.concatenate(([False], bits, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return list(pairwise(edges))[::2]


def bits_of(ranges: Iterable[Sequence[int]], length: int) -> NDArray[np.bool_]:
    """Bool ``[length]``, true in the ranges (start, stop), which may go on behind its end."""
    bits = np.zeros(length, dtype=np.bool_)
    for start, stop in ranges:
        bits[start:stop] = True
    return bits


def bits_within(ranges: Iterable[tuple[int, int]], length: int) -> NDArray[np.bool_]:
    """The same of the action ranges that an agent gave of a response with ``length`` tokens.

    Raises :class:`AuthorshipError` for one that is none.
    """
    given = list(ranges)
    for start, stop in given:
        if not 0 <= start <= stop <= length:
            raise AuthorshipError(
                f"The agent gave the action range ({start}, {stop}) of a response with {length} "
                "tokens. Give ranges that lie within it and do not run backwards."
            )
    return bits_of(given, length)
