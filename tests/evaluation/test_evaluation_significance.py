from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tandem_plugin.lab.evaluation import EvaluationError, paired_test
from tandem_plugin.lab.evaluation.significance import seed_test, stars

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
    assert (found.difference, found.degrees) == (2, 2)
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


seeds = st.lists(st.integers(0, 50), min_size=2, max_size=8)


@given(seeds, seeds, st.sampled_from(["greater", "less"]))
def test_test_over_seeds_agrees_with_scipy(ours: list[int], theirs: list[int], direction: str):
    assume(len({*ours}) > 1 and len({*theirs}) > 1)
    found = seed_test(ours, theirs, direction)  # type: ignore[arg-type]
    expected = stats.ttest_ind(ours, theirs, equal_var=False, alternative=direction)
    assert found.t == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.degrees == pytest.approx(expected.df)


def test_test_over_seeds_by_hand():
    """1, 3 and 6, 8: both have the variance 2, so t = 5 / √(2/2 + 2/2) with 2 degrees of freedom,
    for which P(T > t) = 1/2 - t / (2 √(2 + t²))."""
    found = seed_test([6, 8], [1, 3], "greater")
    t = 5 / math.sqrt(2)
    assert (found.difference, found.degrees) == (5, pytest.approx(2))
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)))
    assert found.stars == "*"


def test_test_over_seeds_holds_its_level_where_problems_alone_do_not():
    """Two methods that are the same: each of five seeds is off by 0.1, each problem's number by
    0.2. Over seeds one test in twenty is significant; over problems, four in ten."""
    random = np.random.default_rng(0)
    times, over_seeds, over_problems = 400, 0, 0
    for _ in range(times):
        runs = 0.1 * random.normal(size=(2, 5, 1)) + 0.2 * random.normal(size=(2, 5, 200))
        over_seeds += seed_test(*runs.mean(2), "greater").p < 0.05
        over_problems += paired_test(*runs.mean(1), "greater").p < 0.05
    assert over_seeds / times == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / times))
    assert over_problems / times > 0.3


def test_seeds_without_spread_are_told_by_the_direction():
    assert math.isnan(seed_test([0.1, 0.1], [0.1, 0.1, 0.1], "greater").p)
    assert seed_test([0.2, 0.2], [0.1, 0.1], "greater").p == 0
    assert seed_test([0.2, 0.2], [0.1, 0.1], "less").p == 1


@pytest.mark.parametrize(("ours", "theirs"), [([1], [1, 2]), ([1, math.inf], [1, 2])])
def test_what_has_no_spread_over_seeds_is_refused(ours: list, theirs: list):
    with pytest.raises(EvaluationError):
        seed_test(ours, theirs, "greater")
