"""Drift by hand, and its tables from counts on disk."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_results import edit, found_tables, texts, write_drift
from refused import refused
from scipy import stats

from tandem_plugin.lab.evaluation.drift import (
    Counts,
    drift_metrics,
    kl_divergence,
    log_ratio,
    marginal,
    most_displaced,
    over_emitted,
    over_emitted_by_noise,
    read_counts,
    recovered,
    recovery,
    survival,
    token_counts,
)
from tandem_plugin.lab.evaluation.results import read_summary

counts = arrays(np.int64, 12, elements=st.integers(0, 1000))


def test_counts_are_those_of_all_responses():
    np.testing.assert_array_equal(token_counts([[0, 2, 2], [], [3]], 5), [1, 0, 2, 1, 0])
    with refused("scoring-token-outside-vocabulary", token_id=5, vocabulary=5):
        token_counts([[0, 5]], 5)
    with refused("scoring-token-outside-vocabulary", token_id=-1):
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


ROOT = Path(__file__).parents[3]
JUNIOR = [0, 0, 1, 1, 2, 2, 3, 3]
GRPO = [2, 2, 2, 2, 3, 3, 3, 3]
tandem = [0, 1, 2, 3, 3, 3, 3, 3]
"""Moves all but token 3 back."""

TRL_2 = [2, 2, 2, 2, 2, 3, 3, 3]
"""Moves only token 3 back."""


def test_tables_show_the_divergence_and_what_is_moved_back(tmp_path: Path):
    """GRPO drops 0 and 1 for 2 and 3, and tandem moves all but 3 back: 3 of 6 tokens, as 4 and 5
    are never written by anyone."""
    write_drift(tmp_path, "GRPO", GRPO, JUNIOR)
    write_drift(tmp_path, "tandem", tandem, JUNIOR)
    found = found_tables(tmp_path / "GRPO", tmp_path / "tandem")
    drift = found["drift-base"]
    assert texts(drift) == [
        ["GRPO", "0.5000", "0.0625", "0.1250"],
        ["tandem", "0.2500", "0.0625", "0.1250"],
    ]
    assert [row[1]["bold"] for row in drift["rows"]] == [False, True]
    # Shifts over all six, and over the four that the junior wrote: by SciPy's spearmanr.
    junior, grpo, trl = (np.bincount(ids, minlength=6) for ids in (JUNIOR, GRPO, tandem))
    displaced, shift = np.log((grpo + 0.5) / (junior + 0.5)), np.log((trl + 0.5) / (grpo + 0.5))
    rhos = [stats.spearmanr(displaced[:n], shift[:n]).statistic for n in (6, 4)]
    table = found["recovery-drift-base"]
    assert [row[:3] for row in texts(table)] == [
        ["tandem", "top 6 moved back (%)", "50.0"],
        ["", "ρ, top 6", f"{rhos[0]:.2f}"],
        ["", "ρ, 4 frequent", f"{rhos[1]:.2f}"],
    ]
    assert "a second sample of the baseline also moves" in table["note"]


def test_over_emitted_tokens_are_the_seniors_frequent_ones_with_their_noise() -> None:
    """Of ids 0 to 5: 1 and 2 are written above the junior; 3 is above it, but too rarely."""
    senior = Counts(np.array([10, 40, 20, 3, 0, 7]), None)
    junior = Counts(np.array([40, 10, 10, 0, 5, 15]), np.array([20, 2, 5, 0, 2, 8]))
    found = over_emitted(senior, junior, frequent=5)
    assert [(one["token"], one["senior"], one["junior"]) for one in found] == [
        (1, 40, 10), (2, 20, 10)
    ]  # fmt: skip
    # (40.5 / 83) / (10.5 / 83): both models wrote 80 tokens of a vocabulary of six.
    assert found[0]["log_ratio"] == pytest.approx(np.log(40.5 / 10.5))
    assert [one["token"] for one in over_emitted(senior, junior, frequent=3)] == [3, 1, 2]
    # The halves have 37 and 43 tokens; of those written five times most apart are 2 and 8.
    largest = np.log((8.5 / 46) / (2.5 / 40))
    assert over_emitted_by_noise(junior, frequent=5) == pytest.approx(largest)
    assert over_emitted_by_noise(senior, frequent=5) is None


def test_over_emitted_tokens_have_a_table_with_the_noise_below(tmp_path: Path) -> None:
    write_drift(tmp_path, "GRPO", GRPO, JUNIOR)
    write_drift(tmp_path, "tandem", tandem, JUNIOR)
    table = found_tables(tmp_path / "GRPO", tmp_path / "tandem")["over-emitted-drift-base"]
    counts = [np.bincount(ids, minlength=6) for ids in (GRPO, JUNIOR)]
    top = int(np.argmax(np.log((counts[0] + 0.5) / (counts[1] + 0.5))))
    assert texts(table)[0][:2] == ["GRPO", f"id {top}"]
    assert texts(table)[0][3:] == [str(counts[0][top]), str(counts[1][top])]
    assert "read nothing into smaller ones" in table["note"]


def test_nulls_are_the_baselines_halves_in_the_places_of_the_two_models(tmp_path: Path):
    """By a plain loop over the halves, on the same six tokens."""
    write_drift(tmp_path, "GRPO", GRPO, JUNIOR)
    write_drift(tmp_path, "tandem", tandem, JUNIOR)
    table = found_tables(tmp_path / "GRPO", tmp_path / "tandem")["recovery-drift-base"]
    count = lambda ids: np.bincount(ids, minlength=6)  # noqa: E731
    junior, halves, others = count(JUNIOR), (GRPO[::2], GRPO[1::2]), (tandem[::2], tandem[1::2])
    null, crossed = [], []
    for first, second in (halves, halves[::-1]):
        displaced = log_ratio(count(first), junior)
        null.append(np.mean(displaced * log_ratio(count(second), count(first)) < 0))
        for other in others:
            product = displaced * log_ratio(count(other), count(second))
            crossed.append(np.mean(np.where(product == 0, 0.5, product < 0)))
    assert texts(table)[0][3:] == [f"{100 * np.mean(null):.1f}", f"{100 * np.mean(crossed):.1f}"]


@pytest.mark.parametrize("tokens", [20_000, 1_000_000])
def test_samples_of_one_model_show_no_recovery_but_by_the_papers_measure(tokens: int):
    """Vocabulary of 20,000, Zipf. 500 tokens of 4 pairings: the standard error of the cross-fitted
    share is 1.1 to 2.2 points, so 8 points are passed by chance once in 3,000 runs at most."""
    random = np.random.default_rng(0)
    shares = 1 / np.arange(1, 20_001) ** 1.1
    shares /= shares.sum()

    def model(shares: np.ndarray = shares) -> Counts:
        halves = random.multinomial(tokens // 2, shares, size=2)
        return Counts(halves.sum(0), halves[0])

    def cross_fitted_share(baseline: Counts, other: Counts) -> float:
        found = recovered(baseline, junior, other, 10)
        assert found.measured[0] > 0.6
        assert found.measured[1] < -0.5
        assert found.null is not None
        assert found.null[0] > 0.6
        assert found.crossed is not None
        return found.crossed[0]

    junior = model()
    assert cross_fitted_share(model(), model()) == pytest.approx(0.5, abs=0.08)
    if tokens > 100_000:  # a drift by a factor of two is seen, and that it is undone
        moved = shares * 2.0 ** random.choice([-1, 1], shares.size)
        drifted = model(moved / moved.sum())
        assert cross_fitted_share(drifted, model()) > 0.7


def test_a_second_run_of_the_baseline_seems_to_recover_though_it_recovers_nothing() -> None:
    """Both are as far from the junior, and share half of their drift. The document's numbers are of
    40 pairs, with standard errors of 0.004 and 0.011; those of 8 pairs are 0.009 and 0.026."""
    random = np.random.default_rng(2)
    shares = 1 / np.arange(1, 20_001) ** 1.1
    shares /= shares.sum()

    def model(drift: np.ndarray) -> Counts:
        moved = shares * np.exp(0.3 * drift)
        halves = random.multinomial(3_000_000, moved / moved.sum(), size=2)
        return Counts(halves.sum(0), halves[0])

    each = []
    for _ in range(8):
        ours, own = random.normal(size=(2, shares.size))
        theirs = 0.5 * ours + np.sqrt(0.75) * own
        each.append(recovered(model(ours), model(0 * ours), model(theirs), 10).crossed)
    share, rho, _ = np.mean(each, axis=0)
    assert share == pytest.approx(0.67, abs=0.03)
    assert rho == pytest.approx(-0.23, abs=0.08)
    text = " ".join((ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8").split())
    assert "simulated cross-fitted numbers are 67% and -0.23" in text


def test_another_seed_of_the_baseline_is_the_null_of_recovery(tmp_path: Path) -> None:
    """Of a pool: each seed in the other model's place of the other one, cross-fitted."""
    for senior, wrote in {"GRPO": GRPO, "tandem-2": tandem[::-1], "tandem": tandem}.items():
        write_drift(tmp_path, senior, wrote, JUNIOR)
    folders = [tmp_path / name for name in ("GRPO", "tandem-2", "tandem")]
    table = found_tables(*folders, "--pool", "pool=GRPO,tandem-2")["recovery-drift-base"]
    both = {name: found_tables(*(tmp_path / one for one in name))["recovery-drift-base"]
            for name in (("GRPO", "tandem-2"), ("tandem-2", "GRPO"))}  # fmt: skip
    expected = np.mean([float(texts(one)[0][4]) for one in both.values()])
    assert table["columns"][5] == "cross-fitted: another seed of the baseline"
    assert float(texts(table)[0][5]) == pytest.approx(expected, abs=0.1)
    assert len(both["GRPO", "tandem-2"]["columns"]) == 5


def test_runs_without_halves_say_that_they_cannot_tell(tmp_path: Path):
    for senior, wrote in {"GRPO": GRPO, "tandem": tandem}.items():
        write_drift(tmp_path, senior, wrote, JUNIOR, halves=senior == "GRPO")
    found = found_tables(tmp_path / "GRPO", tmp_path / "tandem")
    assert texts(found["drift-base"])[1][2] == "–"
    assert [row[3:] for row in texts(found["recovery-drift-base"])] == [["–", "–"]] * 3
    for name in ("drift-base", "recovery-drift-base"):
        assert "cannot tell" in found[name]["note"]


def test_base_among_the_seniors_is_no_baseline_of_recovery(tmp_path: Path):
    for senior, wrote in {"base": JUNIOR, "GRPO": GRPO, "tandem": tandem}.items():
        write_drift(tmp_path, senior, wrote, JUNIOR)
    found = found_tables(*(tmp_path / name for name in ("base", "GRPO", "tandem")))
    assert texts(found["drift-base"])[0] == ["base", "0.0000", "0.0625", "0.1250"]
    table = found["recovery-drift-base"]
    assert table["title"].startswith("Recovery of GRPO's drift from base")
    assert [row[0] for row in texts(table) if row[0]] == ["tandem"]
    assert texts(table)[0][1:3] == ["top 6 moved back (%)", "50.0"]


def test_pooled_recovery_is_the_mean_over_pairs_of_seeds(tmp_path: Path):
    for senior, wrote in {"GRPO": GRPO, "tandem": tandem, "tandem-2": TRL_2}.items():
        write_drift(tmp_path, senior, wrote, JUNIOR)
    folders = [tmp_path / name for name in ("GRPO", "tandem", "tandem-2")]
    found = found_tables(*folders, "--pool", "both=tandem,tandem-2")
    assert texts(found["drift-base"])[1] == ["both", "0.5000", "0.0625", "0.1250"]
    assert texts(found["recovery-drift-base"])[0][2] == "33.3"  # 3 of 6, and 1 of 6
    assert texts(found["repeats"])[0][2:] == [
        "both", "0.2500", "0.7500", "0.5000", "0.3536", "0.2500",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(vocabulary=3),
        lambda c: c["senior"][0].__setitem__(0, -1),
        lambda c: c["senior"][0].__setitem__(1, 2**53),
        lambda c: c.pop("junior"),
        lambda c: c["senior_half"][0].__setitem__(1, 99),
    ],
)
def test_spoiled_counts_are_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object]):
    write_drift(tmp_path, "tandem", tandem, JUNIOR)
    edit(tmp_path / "tandem/drift/base/counts.json", change)
    with refused("token-counts-damaged"):
        read_counts(read_summary(tmp_path / "tandem/drift/base/summary.json"))


def test_a_junior_without_frequent_tokens_has_no_drift():
    counts = Counts(np.array([1, 1, 0]), None)
    with refused("junior-tokens-too-few", frequent=2):
        drift_metrics(counts, counts, 2)
