"""Algorithm 1 of the paper, as the paper writes it: one token at a time, positions from 1.

Written from the paper's text, not from the package, to test the package against.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tandem_plugin import BoundarySet


def algorithm_1(
    y: Sequence[int], boundaries: Collection[int], k: int, p: float, u: Sequence[float]
) -> list[int]:
    """The authorship mask m_1..m_T of a response y_1..y_T: 1 where the senior is active.

    u: the uniform behind each Bernoulli(p) draw; the draw of a_t uses ``u[t - 1]``.
    """

    def bernoulli(t: int) -> str:
        return "sen" if u[t - 1] < p else "jun"

    a = {1: bernoulli(1)}
    c = 0
    m = []
    for t in range(1, len(y) + 1):
        y_t = y[t - 1]
        m.append(1 if a[t] == "sen" else 0)
        if t == len(y):
            break
        if y_t in boundaries or c >= k:
            a[t + 1] = bernoulli(t + 1)
            c = 0
        else:
            a[t + 1] = a[t]
            c = c + 1
    return m


def boundary_set(ids: Collection[int], size: int = 32) -> BoundarySet:
    """A boundary set of exactly these ids."""
    table = np.zeros(size, dtype=np.bool_)
    table[list(ids)] = True
    return BoundarySet("test", table)
