from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.lab.evaluation.pass_at_k import pass_at_k, pass_at_k_table, powers_of_two


@pytest.mark.parametrize("samples", range(1, 8))
def test_it_is_the_share_of_subsets_that_hold_a_right_sample(samples: int):
    for correct in range(samples + 1):
        for k in range(1, samples + 1):
            subsets = list(combinations(range(samples), k))
            hits = sum(any(i < correct for i in subset) for subset in subsets)
            assert pass_at_k(samples, correct, k) == Fraction(hits, len(subsets))


def test_it_is_unbiased():
    """Over the binomial law of the right samples, its mean is 1 - (1 - p)^k."""
    from math import comb

    p, samples = Fraction(2, 7), 9
    for k in range(1, samples + 1):
        mean = sum(
            comb(samples, c) * p**c * (1 - p) ** (samples - c) * pass_at_k(samples, c, k)
            for c in range(samples + 1)
        )
        assert mean == 1 - (1 - p) ** k


@given(st.integers(1, 5000), st.data())
def test_large_numbers_stay_exact(samples: int, data: st.DataObject):
    correct = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    value = pass_at_k(samples, correct, k)
    expected = Fraction(1)
    for i in range(k):  # the probability that k draws without replacement all miss
        expected *= Fraction(max(0, samples - correct - i), samples - i)
    assert value == 1 - expected


def test_table_has_a_row_a_problem():
    table = pass_at_k_table(4, [0, 1, 4, 1], [1, 2, 4])
    expected = [[0, 0, 0], [0.25, 0.5, 1], [1, 1, 1], [0.25, 0.5, 1]]
    np.testing.assert_array_equal(table, expected)
    assert pass_at_k_table(4, [], [1, 2]).shape == (0, 2)


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)])
def test_impossible_numbers_are_refused(samples: int, correct: int, k: int):
    with refused("TP870", "TP871"):
        pass_at_k(samples, correct, k)


def test_shown_ks_are_powers_of_two():
    assert powers_of_two(32) == (1, 2, 4, 8, 16, 32)
    assert powers_of_two(31) == (1, 2, 4, 8, 16)
    assert powers_of_two(1) == (1,)
