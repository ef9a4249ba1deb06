"""Tandem seeds for trainers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin._draws import MAX_SEED
from tandem_plugin.seeds import derive_seed, sample_seed

PARTS = st.lists(st.integers() | st.text(max_size=8), max_size=5)


@given(st.integers(0, MAX_SEED), PARTS)
def test_is_a_seed(base: int, parts: list[int | str]) -> None:
    assert 0 <= derive_seed(base, *parts) <= MAX_SEED


@given(st.integers(0, 99), PARTS, st.integers(0, 99), PARTS)
def test_differs_wherever_a_part_differs(
    base: int, parts: list[int | str], other: int, others: list[int | str]
) -> None:
    same = (base, parts) == (other, others)
    assert (derive_seed(base, *parts) == derive_seed(other, *others)) is same


def test_is_the_same_in_every_process_and_version() -> None:
    assert derive_seed(7, "training", 3, 1, 0) == 6104006758636714522


def test_tells_the_number_from_the_word() -> None:
    assert derive_seed(0, 1) != derive_seed(0, "1")
    assert derive_seed(0, "a", "b") != derive_seed(0, "ab")


def test_refuses_parts_of_other_types() -> None:
    with pytest.raises(TypeError):
        derive_seed(0, 0.5)  # type: ignore[arg-type]


def test_first_sample_has_the_seed_of_its_request_and_the_others_their_own() -> None:
    seeds = [sample_seed(seed, index) for seed in (0, 1, 7) for index in range(50)]
    assert [seeds[0], seeds[50], seeds[100]] == [0, 1, 7]
    assert len(set(seeds)) == len(seeds)
    for refuses in (sample_seed, derive_seed):
        with refused("seed-out-of-range"):
            refuses(-1, 0)
