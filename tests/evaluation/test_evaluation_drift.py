from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refused import refused
from scipy import stats

from tandem_plugin.lab.evaluation.drift import (
    kl_divergence,
    log_ratio,
    marginal,
    most_displaced,
    recovery,
    survival,
    token_counts,
)

counts = arrays(np.int64, 12, elements=st.integers(0, 1000))


def test_counts_are_those_of_all_responses():
    np.testing.assert_array_equal(token_counts([[0, 2, 2], [], [3]], 5), [1, 0, 2, 1, 0])
    with refused("TP844", token_id=5, vocabulary=5):
        token_counts([[0, 5]], 5)
    with refused("TP844", token_id=-1):
        token_counts([[0, -1]], 5)


def test_smoothing_by_hand():
    """Counts 3, 0, 1 with 1/2 added: 3.5, 0.5, 1.5 of 5.5."""
    np.testing.assert_allclose(marginal([3, 0, 1], 0.5), np.array([3.5, 0.5, 1.5]) / 5.5)
    ratio = log_ratio([3, 0, 1], [0, 3, 1], 0.5)
    np.testing.assert_allclose(ratio, [math.log(7), -math.log(7), 0], atol=1e-15)
    # (3.5 - 0.5) / 5.5 * log 7
    assert kl_divergence([3, 0, 1], [0, 3, 1], 0.5) == pytest.approx(3 / 5.5 * math.log(7))


@given(counts, counts)
def test_kl_agrees_with_scipy_and_is_not_negative(ours: np.ndarray, theirs: np.ndarray):
    found = kl_divergence(ours, theirs)
    assert found == pytest.approx(stats.entropy(ours + 0.5, theirs + 0.5), abs=1e-12)
    assert found >= -1e-12
    assert kl_divergence(ours, ours) == 0


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_survival_is_brute_force(ratios: list[float]):
    thresholds = [0.0, 0.5, 1.0, *map(abs, ratios)]
    expected = [np.mean([abs(r) > x for r in ratios]) for x in thresholds]
    np.testing.assert_allclose(survival(ratios, thresholds), expected, atol=1e-12)


def test_most_displaced_are_those_of_the_largest_absolute_ratio():
    ratios = [0.5, -3.0, 2.0, -2.0, 0.0]
    assert most_displaced(ratios, 3).tolist() == [1, 2, 3]
    assert most_displaced(ratios, 99).tolist() == [1, 2, 3, 0, 4]


def test_recovery_by_hand():
    """Ranks of the shift 4, 3, 1, 2 against those of the displacement 1, 2, 3, 4: rho = -0.8."""
    found = recovery([-2.0, -1.0, 1.0, 2.0], [0.9, 0.5, -0.7, -0.1])
    assert found == (1.0, pytest.approx(-0.8))
    # Three of four oppose their displacement; a shift of zero does not.
    assert recovery([1.0, 2, 3, 4], [-1.0, -2, -3, 0])[0] == 0.75
    moved_back, rho = recovery([1.0, 2, 3], [0.0, 0, 0])
    assert moved_back == 0
    assert math.isnan(rho)
