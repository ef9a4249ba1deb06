from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tandem_plugin.lab.evaluation import EvaluationError, bootstrap_errors, significance
from tandem_plugin.lab.evaluation.significance import resampled_means


def exact(values: np.ndarray) -> float:
    """The bootstrap standard error of a mean by enumerating every resample."""
    means = [np.mean(chosen) for chosen in product(values, repeat=len(values))]
    return float(np.std(means))


def test_error_is_that_of_all_resamples():
    values = np.array([0.0, 1.0, 0.5, 4.0, 4.0])
    errors = bootstrap_errors({"a": values[:, None]}, resamples=200_000)
    assert errors.benchmarks["a"][0] == pytest.approx(exact(values), rel=0.01)


def test_error_agrees_with_scipy():
    values = np.random.default_rng(0).random(60)
    ours = bootstrap_errors({"a": values[:, None]}, resamples=10_000).benchmarks["a"][0]
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=10_000, vectorized=True, rng=np.random.default_rng(1)
    )
    assert ours == pytest.approx(theirs.standard_error, rel=0.04)


def test_macro_error_is_stratified():
    """Benchmarks are resampled by themselves: their variances add, and their spread does not."""
    random = np.random.default_rng(0)
    values = {"small": random.random((30, 2)), "large": 100 + random.random((300, 2))}
    errors = bootstrap_errors(values, resamples=40_000)
    parts = [v.std(axis=0) ** 2 / len(v) for v in values.values()]
    np.testing.assert_allclose(errors.macro, np.sqrt(sum(parts)) / 2, rtol=0.02)


def test_statistics_of_a_problem_are_drawn_together():
    values = np.random.default_rng(0).random((20, 1))
    means = resampled_means(np.hstack([values, 1 - values]), 100, seed=3)
    np.testing.assert_allclose(means.sum(axis=1), 1)


def test_same_seed_gives_same_errors_whatever_the_company_and_the_memory(
    monkeypatch: pytest.MonkeyPatch,
):
    random = np.random.default_rng(0)
    a, b = random.random((9, 1)), random.random((5, 1))
    together = bootstrap_errors({"a": a, "b": b}, seed=1)
    assert bootstrap_errors({"a": a}, seed=1).benchmarks["a"] == together.benchmarks["a"]
    assert bootstrap_errors({"a": a}, seed=2).benchmarks["a"] != together.benchmarks["a"]
    monkeypatch.setattr(significance, "_MOST_COUNTS", 50)
    chunked = bootstrap_errors({"a": a, "b": b}, seed=1)
    np.testing.assert_allclose(chunked.macro, together.macro, rtol=1e-12)


def test_equal_problems_have_no_error():
    errors = bootstrap_errors({"a": np.full((7, 1), 0.25)})
    assert errors.benchmarks["a"][0] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("values", [{}, {"a": np.empty((0, 1))}, {"a": np.ones(3)}])
def test_nothing_to_resample_is_refused(values: dict[str, np.ndarray]):
    with pytest.raises(EvaluationError):
        bootstrap_errors(values)
