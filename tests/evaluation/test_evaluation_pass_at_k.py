from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest

from tandem_plugin.lab.evaluation.measures import pass_at_k, powers_of_two


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
