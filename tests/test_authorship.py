from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import Authorship

BITS = st.lists(st.integers(0, 1), max_size=80)


@given(BITS)
def test_spans_handoffs_and_share_equal_a_loop(bits: list[int]):
    spans: list[list[int]] = []
    for bit in bits:
        if spans and spans[-1][0] == bit:
            spans[-1].append(bit)
        else:
            spans.append([bit])
    authorship = Authorship(bits)
    assert [len(span) for span in authorship.spans] == [len(span) for span in spans]
    assert [span.author == "senior" for span in authorship.spans] == [bool(s[0]) for s in spans]
    edges = [0, *(span.stop for span in authorship.spans)]
    assert [span.start for span in authorship.spans] == edges[:-1]
    assert edges[-1] == len(bits)
    assert authorship.handoffs == max(0, len(spans) - 1)
    assert authorship.senior_tokens == sum(bits)
    if bits:
        assert authorship.senior_share == sum(bits) / len(bits)


@given(BITS)
def test_bits_survive_a_round_trip(bits: list[int]):
    authorship = Authorship(bits)
    assert authorship.tolist() == bits
    assert all(type(bit) is int for bit in authorship.tolist())
    assert list(authorship) == [bool(bit) for bit in bits]
    assert len(authorship) == len(bits)
    assert authorship == Authorship(authorship.tolist())
    assert hash(authorship) == hash(Authorship(bits))
    assert authorship != Authorship([*bits, 1])
    assert authorship != bits


def test_share_of_an_empty_response_is_not_a_number():
    assert math.isnan(Authorship([]).senior_share)


def test_authorship_cannot_be_written_to():
    bits = np.array([True, False])
    authorship = Authorship(bits)
    bits[0] = False
    assert authorship.tolist() == [1, 0]
    with pytest.raises(ValueError, match="read-only"):
        authorship.senior[0] = False


@pytest.mark.parametrize("bits", [[0, 2], [-1], [0.5], ["1"], [float("nan")], [None]])
def test_anything_but_zeros_and_ones_is_refused(bits: list[object]):
    with refused("authorship-not-binary"):
        Authorship(bits)


@pytest.mark.parametrize("bits", [[[1], [0]], 1, [[1], [1, 0]]])
def test_anything_but_a_flat_sequence_is_refused(bits: object):
    with refused("authorship-not-bools", "authorship-not-flat"):
        Authorship(bits)
