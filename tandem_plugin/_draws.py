"""Draws: the table of uniforms that decides every redraw of one response.

A response's draws come from a counter-based generator keyed only by its tandem seed. They are
therefore the same for every batch, device and process, and independent of the randomness that
samples tokens. ``draws(seed, n)[t]`` decides the redraw, if there is one, for response position t.
One further draw belongs to no position, and decides something about the response as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import RequestError

MAX_SEED = 2**63 - 1
"""The largest tandem seed: seeds travel through JSON, msgpack and int64 tensors."""


def check_seed(seed: object) -> int:
    """Return ``seed`` as an int; raise :class:`RequestError` unless 0 <= seed <= MAX_SEED."""
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise RequestError("seed-not-integer", seed=seed, largest=MAX_SEED)
    if not 0 <= seed <= MAX_SEED:
        raise RequestError("seed-out-of-range", seed=seed, largest=MAX_SEED)
    return int(seed)


def draws(seed: int, length: int) -> NDArray[np.float64]:
    """The first ``length`` draws of a seed: float64 ``[length]`` in [0, 1).

    A longer table begins with the shorter one. Source: NumPy's ``Philox``, a counter-based
    generator (Salmon et al. 2011).
    """
    return np.random.Generator(np.random.Philox(key=check_seed(seed))).random(length)


def draw_into(rows: Iterable[NDArray[np.float64]], seeds: Iterable[int]) -> None:
    """Fill each row with the first draws of its seed: float64, contiguous, of any length.

    One generator serves all, since making one costs as much as thousands of draws.
    """
    philox = np.random.Philox(key=0)
    generator, state = np.random.Generator(philox), philox.state
    for row, seed in zip(rows, seeds, strict=True):
        state["state"]["key"][0] = check_seed(seed)
        philox.state = state
        generator.random(out=row)


def response_draws(seeds: Sequence[int]) -> NDArray[np.float64]:
    """The draw of each response as a whole: float64 ``[len(seeds)]`` in [0, 1).

    The second word of its generator's key is 1, where that of the positions' draws is 0, so the two
    are independent. Raises :class:`RequestError` for a seed out of range.
    """
    philox = np.random.Philox(key=0)
    generator, state = np.random.Generator(philox), philox.state
    drawn = np.empty(len(seeds), dtype=np.float64)
    for place, seed in enumerate(seeds):
        state["state"]["key"][:] = check_seed(seed), 1
        philox.state = state
        drawn[place] = generator.random()
    return drawn


def draws_table(seeds: Sequence[int], length: int) -> NDArray[np.float64]:
    """The draws of many seeds: float64 ``[len(seeds), length]`` in [0, 1)."""
    table = np.empty((len(seeds), length), dtype=np.float64)
    draw_into(table, seeds)
    return table
