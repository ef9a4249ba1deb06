"""pass@k: how likely it is that one of k samples is right, from n samples of each problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError

__all__ = ["pass_at_k", "pass_at_k_table", "powers_of_two"]


def pass_at_k(samples: int, correct: int, k: int) -> Fraction:
    """The unbiased estimate for one problem: 1 - C(n - c, k) / C(n, k), exactly.

    samples: n, how many were drawn; correct: c, how many of them are right. Raises
    :class:`EvaluationError` unless 0 <= c <= n and 1 <= k <= n. Source: Chen et al. (2021),
    "Evaluating Large Language Models Trained on Code", equation 1; sections 4.1 and 4.2 of the
    paper.
    """
    if not 0 <= correct <= samples:
        raise EvaluationError("TP870", correct=correct, samples=samples)
    if not 1 <= k <= samples:
        raise EvaluationError("TP871", k=k, samples=samples)
    return 1 - Fraction(math.comb(samples - correct, k), math.comb(samples, k))


def pass_at_k_table(samples: int, correct: Sequence[int], ks: Sequence[int]) -> NDArray[np.float64]:
    """pass@k of every problem: float64 ``[problems, len(ks)]``, each entry correctly rounded.

    correct: how many of each problem's ``samples`` samples are right. Raises as :func:`pass_at_k`.
    """
    rows = {c: [float(pass_at_k(samples, c, k)) for k in ks] for c in set(correct)}
    return np.array([rows[c] for c in correct], dtype=np.float64).reshape(len(correct), len(ks))


def powers_of_two(samples: int) -> tuple[int, ...]:
    """The k that tables and figures show: 1, 2, 4, ... up to ``samples``, as in section 4.2."""
    return tuple(2**i for i in range(samples.bit_length()))
