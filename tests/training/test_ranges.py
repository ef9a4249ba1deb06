"""Bools as ranges, and back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.training.ranges import bits_of, ranges_of


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 40))
def test_ranges_are_the_runs_of_true(bits: list[bool], length: int) -> None:
    ranges = ranges_of(np.array(bits, dtype=bool))
    assert [any(a <= i < b for a, b in ranges) for i in range(len(bits))] == bits
    assert all(a < b for a, b in ranges)
    assert all(b < c for (_, b), (c, _) in pairwise(ranges))
    assert bits_of(ranges, length).tolist() == (bits + [False] * length)[:length]
