from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tandem_plugin.evaluation import EvaluationError, paired_test
from tandem_plugin.evaluation.significance import stars

numbers = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=3, max_size=40).filter(
    lambda pairs: len({a - b for a, b in pairs}) > 1
)


@given(numbers, st.sampled_from(["greater", "less"]))
def test_it_agrees_with_scipy(pairs: list[tuple[int, int]], direction: str):
    ours, theirs = np.array(pairs, dtype=float).T / 8
    found = paired_test(ours, theirs, direction)  # type: ignore[arg-type]
    expected = stats.ttest_rel(ours, theirs, alternative=direction)
    assert found.t == pytest.approx(expected.statistic, rel=1e-9, abs=1e-12)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.difference == pytest.approx(np.mean(ours - theirs), abs=1e-12)


def test_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t = 2 sqrt(3) with 2 degrees."""
    found = paired_test([2, 4, 6], [1, 2, 3], "greater")
    assert (found.difference, found.problems) == (2, 3)
    assert found.t == pytest.approx(2 * math.sqrt(3))
    # Student's t with 2 degrees of freedom: P(T > t) = 1/2 - t / (2 sqrt(2 + t^2)).
    t = 2 * math.sqrt(3)
    assert found.p == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)))
    assert found.stars == "*"


def test_where_nothing_differs_nothing_is_claimed():
    found = paired_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], "greater")
    assert math.isnan(found.t)
    assert math.isnan(found.p)
    assert found.stars == ""


def test_where_all_differ_by_the_same_the_direction_decides():
    assert paired_test([2, 3], [1, 2], "greater").p == 0
    assert paired_test([2, 3], [1, 2], "less").p == 1
    assert paired_test([1, 2], [2, 3], "less").stars == "***"


@pytest.mark.parametrize(
    ("p", "marks"),
    [(0.0009, "***"), (0.001, "**"), (0.0099, "**"), (0.01, "*"), (0.05, ""), (math.nan, "")],
)
def test_stars_follow_the_paper(p: float, marks: str):
    assert stars(p) == marks


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [([1], [2]), ([1, 2], [1, 2, 3]), ([1, math.nan], [1, 2]), ([[1, 2]], [[1, 2]])],
)
def test_what_cannot_be_paired_is_refused(ours: list, theirs: list):
    with pytest.raises(EvaluationError):
        paired_test(ours, theirs, "greater")
