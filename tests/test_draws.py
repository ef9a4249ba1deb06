from __future__ import annotations

import math

import numpy as np
import philox
import pytest
from algorithm_1 import boundary_set
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from scipy import stats

from tandem_plugin import draws, make_schedule, replay
from tandem_plugin._draws import MAX_SEED, draws_table, response_draws
from tandem_plugin.seeds import sample_seed

SEEDS = st.integers(0, MAX_SEED)
N = 20_000
ALPHA = 0.001
EVERY = boundary_set(range(32))

GOLDEN = [0.011546754286331562, 0.24154919656271812, 0.11142585551493822, 0.5644146216071337]
"""Computed apart from the package: ``Philox(key=0).random_raw(4) >> 11``, times 2**-53."""


def test_first_draws_of_seed_0_are_these():
    assert draws(0, 4).tolist() == GOLDEN


EDGES = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, MAX_SEED - 1, MAX_SEED])


@given(SEEDS | EDGES, st.integers(0, 300))
def test_draws_are_what_the_documents_say_to_the_bit(seed: int, length: int):
    assert draws(seed, length).tolist() == philox.draws(seed, length)


@given(st.lists(SEEDS | EDGES, max_size=5))
def test_draws_of_responses_are_what_the_documents_say_to_the_bit(seeds: list[int]):
    assert response_draws(seeds).tolist() == [philox.response_draw(seed) for seed in seeds]


@given(SEEDS, st.integers(0, 10**6))
def test_sample_seeds_are_what_the_documents_say(seed: int, index: int):
    assert sample_seed(seed, index) == philox.sample_seed(seed, index)


@given(SEEDS, st.integers(0, 200), st.integers(0, 200))
def test_longer_table_starts_with_the_shorter_one(seed: int, short: int, more: int):
    assert np.array_equal(draws(seed, short + more)[:short], draws(seed, short))


@given(st.lists(SEEDS, min_size=1, max_size=8), st.integers(1, 50))
def test_draws_of_a_seed_do_not_depend_on_its_batch(seeds: list[int], length: int):
    table = draws_table(seeds, length)
    assert table.shape == (len(seeds), length)
    for row, seed in enumerate(seeds):
        assert np.array_equal(table[row], draws(seed, length))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_redraws_have_probability_p(p: float):
    authors = replay([0] * N, 99, make_schedule("token", {"p": p}), EVERY)
    assert stats.binomtest(authors.senior_tokens, N, p).pvalue > ALPHA
    # Power: a redraw that is off by 0.02 is found with probability above 0.99.
    shift, deviation = 0.02 * math.sqrt(N), math.sqrt(p * (1 - p))
    assert stats.norm.cdf(shift / deviation - stats.norm.isf(ALPHA / 2)) > 0.99


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, 2**64, -(2**63)])
def test_seed_out_of_range_is_refused_with_the_range(seed: int):
    with refused("seed-out-of-range", seed=seed, largest=MAX_SEED):
        draws(seed, 1)


@pytest.mark.parametrize("seed", [1.0, "7", None, True, np.bool_(True), [1]])
def test_seed_that_is_no_integer_is_refused(seed: object):
    with refused("seed-not-integer"):
        draws(seed, 1)  # type: ignore[arg-type]
