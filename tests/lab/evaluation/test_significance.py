"""pass@k, errors of means and tests of differences."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tandem_plugin.lab.evaluation import significance
from tandem_plugin.lab.evaluation.measures import pass_at_k, powers_of_two
from tandem_plugin.lab.evaluation.significance import (
    bootstrap_errors,
    holm,
    paired_test,
    seed_test,
    stars,
    unit_error,
    unit_test,
)

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


@pytest.mark.parametrize("test", [paired_test, seed_test])
def test_where_nothing_varies_the_direction_decides(test: Any):
    assert math.isnan(test([0.1, 0.1], [0.1, 0.1], "greater").p)
    assert stars(test([0.1, 0.1], [0.1, 0.1], "greater").p) == ""
    assert test([0.2, 0.2], [0.1, 0.1], "greater").p == 0
    assert test([0.2, 0.2], [0.1, 0.1], "less").p == 1
    assert stars(test([0.1, 0.1], [0.2, 0.2], "less").p) == "***"


@pytest.mark.parametrize(
    ("p", "marks"),
    [(0.0009, "***"), (0.001, "**"), (0.0099, "**"), (0.01, "*"), (0.05, ""), (math.nan, "")],
)
def test_stars_follow_the_paper(p: float, marks: str):
    assert stars(p) == marks


def test_holms_correction_is_that_of_the_book_and_counts_no_test_without_a_p() -> None:
    # Holm (1979): the least of three times 3, the next times 2, never less than the one before.
    assert holm([0.01, 0.04, 0.03, math.nan]) == pytest.approx(
        [0.03, 0.06, 0.06, math.nan], nan_ok=True
    )
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


# Bootstrap errors.


def exact(values: np.ndarray) -> float:
    """The bootstrap standard error of a mean by enumerating every resample."""
    means = [np.mean(chosen) for chosen in product(values, repeat=len(values))]
    return float(np.std(means))


def test_error_is_that_of_all_resamples():
    values = np.array([0.0, 1.0, 0.5, 4.0, 4.0])
    errors, _ = bootstrap_errors({"a": values[:, None]}, resamples=200_000)
    assert errors["a"][0] == pytest.approx(exact(values), rel=0.01)


def test_macro_error_is_stratified():
    """Benchmarks are resampled by themselves: their variances add, and their spread does not."""
    random = np.random.default_rng(0)
    values = {"small": random.random((30, 2)), "large": 100 + random.random((300, 2))}
    _, error = bootstrap_errors(values, resamples=40_000)
    parts = [v.std(axis=0) ** 2 / len(v) for v in values.values()]
    np.testing.assert_allclose(error, np.sqrt(sum(parts)) / 2, rtol=0.02)


def test_errors_are_the_same_whatever_the_company_and_the_memory(
    monkeypatch: pytest.MonkeyPatch,
):
    random = np.random.default_rng(0)
    a, b = random.random((9, 1)), random.random((5, 1))
    each, together = bootstrap_errors({"a": a, "b": b})
    assert bootstrap_errors({"a": a})[0]["a"] == each["a"]
    monkeypatch.setattr(significance, "_MOST_COUNTS", 50)
    _, chunked = bootstrap_errors({"a": a, "b": b})
    np.testing.assert_allclose(chunked, together, rtol=1e-12)


def test_units_that_all_differ_by_the_same_or_are_alone_tell_nothing():
    found = unit_test([0.5, 0.5], "greater")
    assert (found.difference, found.degrees) == (0.5, 1)
    assert math.isnan(found.p)
    assert math.isnan(unit_error([0.5]))
    assert math.isnan(unit_test([0.5], "greater").difference)


@pytest.mark.parametrize("samples", range(1, 8))
def test_it_is_the_share_of_subsets_that_hold_a_right_sample(samples: int):
    for correct in range(samples + 1):
        for k in range(1, samples + 1):
            subsets = list(combinations(range(samples), k))
            hits = sum(any(i < correct for i in subset) for subset in subsets)
            assert pass_at_k(samples, correct, k) == Fraction(hits, len(subsets))


def test_shown_ks_are_powers_of_two():
    assert powers_of_two(32) == (1, 2, 4, 8, 16, 32)
    assert powers_of_two(31) == (1, 2, 4, 8, 16)
    assert powers_of_two(1) == (1,)
