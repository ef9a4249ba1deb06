"""The nulls of recovery, against closed forms and against simulations of what they stand for.

Every tolerance is four standard errors or more of what it is compared with, so that a right null
passes with other seeds too; how far a wrong one would be off is said where it is asserted.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tandem_plugin.lab.evaluation import EvaluationError, drift
from tandem_plugin.lab.evaluation.drift_counts import FOLDS
from tandem_plugin.lab.evaluation.null_recovery import recovery_nulls
from tandem_plugin.lab.evaluation.token_recovery import Recovered, RecoverySettings, recovered

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Burst = int | Counts
Random = np.random.Generator


def counts_of(random: Random, shares: Floats, tokens: int, burst: Burst = 1) -> Counts:
    """Counts in folds, ``[FOLDS, vocabulary]``; a token is written ``burst`` times in a row."""
    once = shares / burst  # type: ignore[operator]
    draws = round(tokens * once.sum() / shares.sum() / FOLDS)
    return random.multinomial(draws, once / once.sum(), size=FOLDS) * burst


def zipf(vocabulary: int, used: int) -> Floats:
    shares = np.zeros(vocabulary)
    shares[:used] = 1 / np.arange(1, used + 1)
    return shares / shares.sum()


def three(
    random: Random,
    shares: Floats,
    tokens: int,
    drifts: tuple[float, float],
    burst: Burst = 1,
) -> Counts:
    """Junior, baseline and other, which drifted apart from each other by so much."""
    moved = [shares * np.exp(by * random.normal(size=len(shares))) for by in (0.0, *drifts)]
    return np.stack([counts_of(random, each / each.sum(), tokens, burst) for each in moved])


def simulated(
    random: Random, shares: Floats, tokens: int, drifts: tuple[float, float],
    chosen: RecoverySettings, times: int, burst: Burst = 1,
) -> Recovered:  # fmt: skip
    """What is measured of so many triples of independent models, on average."""
    found = [recovered(three(random, shares, tokens, drifts, burst), chosen) for _ in range(times)]
    return Recovered(*np.mean(found, axis=0))


def test_no_drift_is_its_closed_form():
    """Three equal noises e: displacement e_b - e_j and shift e_o - e_b correlate by r = -1/2, so
    that 1/2 + arcsin(1/2)/π = 2/3 of all tokens are moved back, and Spearman's rho is
    (6/π) arcsin(r/2). Halves share nothing: 1/2 and 0, as all would be without the shared term."""
    vocabulary = 3000
    shares = np.full(vocabulary, 1 / vocabulary)
    counts = three(np.random.default_rng(0), shares, 6_000_000, (0, 0))
    null = recovery_nulls(counts, RecoverySettings(top=vocabulary)).no_drift
    rho = -6 / math.pi * math.asin(1 / 4)
    np.testing.assert_allclose(null.mean, [2 / 3, rho, rho, 1 / 2, 0], atol=0.012)
    # Of one deal, the share of n tokens spreads as a binomial one does.
    spread = math.sqrt(2 / 3 * 1 / 3 / vocabulary)
    assert null.standard_deviation.moved_back == pytest.approx(spread, rel=0.35)


@pytest.mark.parametrize("drifts", [(0.4, 0.3), (0.3, 0.3), (0.2, 0.5)])
def test_independent_drift_is_its_closed_form(drifts: tuple[float, float]):
    """Next to no noise: displacement g and shift t - g correlate by r = -g / √(g² + t²), so that
    0.795, 0.75 and 0.62 are moved back: 0.045 apart or more, where the tolerance is 0.015."""
    vocabulary = 3000
    shares = np.exp(np.linspace(0, 5, vocabulary))
    counts = three(np.random.default_rng(1), shares / shares.sum(), 60_000_000, drifts)
    null = recovery_nulls(counts, RecoverySettings(top=vocabulary), 24).independent_drift
    r = drifts[0] / math.hypot(*drifts)
    share, rho = 1 / 2 + math.asin(r) / math.pi, -6 / math.pi * math.asin(r / 2)
    np.testing.assert_allclose(null.mean[0], share, atol=0.015)
    np.testing.assert_allclose(null.mean, [share, rho, rho, share, rho], atol=0.03)


def test_independent_drift_of_a_model_that_went_along_is_not_its_own():
    """The other model is the baseline again: its shift is noise. Drift of that size in directions
    of its own would move 3/4 back."""
    random, vocabulary = np.random.default_rng(8), 2000
    shares = np.exp(np.linspace(0, 5, vocabulary))
    moved = shares * np.exp(0.3 * random.normal(size=vocabulary))
    models = [counts_of(random, m / m.sum(), 40_000_000) for m in (shares, moved, moved)]
    counts, chosen = np.stack(models), RecoverySettings(top=vocabulary)
    assert recovered(counts, chosen).moved_back < 0.6
    null = recovery_nulls(counts, chosen, 16).independent_drift.mean
    assert null.moved_back == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("drifts", [(0.0, 0.0), (0.3, 0.3), (0.5, 0.2)])
def test_nulls_of_one_triple_are_what_simulation_gives(drifts: tuple[float, float]):
    """Zipf's law, 36,000 tokens, the top 50 of 640: where the models drifted by themselves, the
    null of independent drift; where none has drifted, the null of no drift. They are 0.76, 0.89 and
    0.99 of the share: 0.1 apart or more, where the tolerance is 0.04."""
    random, shares, chosen = np.random.default_rng(2), zipf(640, 160), RecoverySettings(top=50)
    expected = simulated(random, shares, 36_000, drifts, chosen, 60)
    found = []
    for _ in range(6):
        nulls = recovery_nulls(three(random, shares, 36_000, drifts), chosen, 24)
        found.append((nulls.independent_drift if any(drifts) else nulls.no_drift).mean)
    mean = Recovered(*np.mean(found, axis=0))
    assert mean.moved_back == pytest.approx(expected.moved_back, abs=0.04)
    assert mean.of_frequent == pytest.approx(expected.of_frequent, abs=0.06)
    assert mean.cross_fitted == pytest.approx(expected.cross_fitted, abs=0.05)


def test_words_that_come_in_bursts_are_noise_and_no_drift():
    """Every other token is written forty times in a row. Dealt response by response, that noise is
    in both nulls; were the same tokens dealt one by one, they would be off by 0.05 and by 0.15."""
    random, shares, chosen = np.random.default_rng(3), zipf(640, 200), RecoverySettings(top=20)
    burst = np.where(np.arange(640) % 2 == 0, 40, 1)
    expected = simulated(random, shares, 40_000, (0, 0), chosen, 60, burst)
    dealt, one_by_one = [], []
    for _ in range(6):
        counts = three(random, shares, 40_000, (0, 0), burst)
        totals = [[random.multinomial(t, [1 / FOLDS] * FOLDS) for t in m.sum(0)] for m in counts]
        dealt.append(recovery_nulls(counts, chosen, 24))
        one_by_one.append(recovery_nulls(np.array(totals).transpose(0, 2, 1), chosen, 24))
    still, alone = (np.mean([n.no_drift.mean[0] for n in f]) for f in (dealt, one_by_one))
    assert still == pytest.approx(expected.moved_back, abs=0.04)
    assert alone > expected.moved_back + 0.04
    away, apart = (np.mean([n.independent_drift.mean[0] for n in f]) for f in (dealt, one_by_one))
    assert away == pytest.approx(expected.moved_back, abs=0.08)
    assert apart > expected.moved_back + 0.12


def test_cross_fitting_finds_recovery_that_is_there_and_none_that_is_not():
    """A model that drifted half as far as the baseline, the same way, moves it back; one that
    drifted on in the same way does not: 5 % and less of the tokens, not the noise's half."""
    random, shares, chosen = np.random.default_rng(4), zipf(640, 160), RecoverySettings(top=30)
    way = random.normal(size=640)
    for by, low, high in ((0.5, 0.9, 1.0), (1.0, 0.4, 0.6), (1.5, 0.0, 0.1)):
        moved = [shares * np.exp(size * way) for size in (0.0, 1.0, by)]
        counts = np.stack([counts_of(random, each / each.sum(), 200_000) for each in moved])
        assert low <= recovered(counts, chosen).cross_fitted <= high


def test_plain_numbers_are_those_of_the_paper():
    """Over the whole vocabulary, most of which nobody wrote, as by the functions of drift."""
    random = np.random.default_rng(5)
    counts = three(random, zipf(2000, 300), 20_000, (0.5, 0.3))
    junior, base, other = counts.sum(1)
    for top in (50, 400, 2000):
        displacement, shift = drift.log_ratio(base, junior), drift.log_ratio(other, base)
        most, often = drift.most_displaced(displacement, top), np.flatnonzero(junior >= 10)
        plain = drift.recovery(displacement[most], shift[most])
        found = recovered(counts, RecoverySettings(top=top))
        assert found.moved_back * top == pytest.approx(plain.share_moved_back * top)
        assert found.of_top == pytest.approx(plain.spearman)
        expected = drift.recovery(displacement[often], shift[often]).spearman
        assert found.of_frequent == pytest.approx(expected)


def test_same_responses_of_three_models_have_no_noise_at_all():
    counts = np.stack([counts_of(np.random.default_rng(6), zipf(100, 50), 5000)] * 3)
    found = recovery_nulls(counts, RecoverySettings(top=20), 4).no_drift.mean
    assert found.moved_back == 0
    assert found.cross_fitted == 0.5 or math.isnan(found.of_top)


def test_nulls_follow_from_the_counts_alone():
    counts = three(np.random.default_rng(7), zipf(200, 90), 5000, (0.3, 0.3))
    chosen = RecoverySettings(top=20)
    assert recovery_nulls(counts, chosen, 5) == recovery_nulls(counts, chosen, 5)


@pytest.mark.parametrize("shape", [(2, 24, 5), (3, 24), (3, 1, 5), (3, 24, 0)])
def test_counts_that_have_no_null_are_refused(shape: tuple[int, ...]):
    with pytest.raises(EvaluationError):
        recovery_nulls(np.ones(shape, dtype=np.int64), RecoverySettings())
