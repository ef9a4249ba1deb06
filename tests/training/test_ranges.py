"""Bools as ranges, and back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.training.authorship_wire import bits_of, bits_within, ranges_of


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 40))
def test_ranges_are_the_runs_of_true(bits: list[bool], length: int) -> None:
    ranges = ranges_of(np.array(bits, dtype=bool))
    assert [any(a <= i < b for a, b in ranges) for i in range(len(bits))] == bits
    assert all(a < b for a, b in ranges)
    assert all(b < c for (_, b), (c, _) in pairwise(ranges))
    assert bits_of(ranges, length).tolist() == (bits + [False] * length)[:length]


def test_action_ranges_lie_within_a_response_and_do_not_run_backwards() -> None:
    assert bits_within([(0, 1), (2, 4), (3, 3)], 4).tolist() == [True, False, True, True]
    for start, stop in ((-1, 2), (2, 5), (3, 2)):
        with refused("TP401", length=4, start=start, stop=stop):
            bits_within([(0, 1), (start, stop)], 4)
