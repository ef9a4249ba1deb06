"""The table of drafts that follows from measured speeds or times, whatever these are."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.config import MAX_AUTO_DRAFTS, TandemConfig
from tandem_plugin.engine.speculative.draft_choice import (
    CANDIDATES,
    chosen,
    table_of,
    timed,
    tokens_per_round,
)

SPEEDS = st.dictionaries(st.integers(1, 12), st.integers(1, 5), max_size=4)
MEASURED = st.dictionaries(
    st.integers(1, 300),
    st.builds(lambda lockstep, others: {**others, 0: lockstep}, st.integers(1, 5), SPEEDS),
    min_size=1,
    max_size=6,
)


def at(table: dict[int, int], size: int) -> int:
    """What the engine drafts at a batch size."""
    return table[max(first for first in table if first <= size)]


@given(MEASURED, st.integers(0, 50))
def test_no_measured_batch_size_is_slower_than_lockstep_and_none_beyond_drafts(
    speeds: dict[int, dict[int, float]], more: int
) -> None:
    sizes = sorted(speeds)
    table = table_of(speeds, sizes[-1] + more)
    for size, found in speeds.items():
        number = at(table, size)
        assert number == min(n for n in found if found[n] == max(found.values()))
        assert number == 0 or found[number] > found[0]
    for size in range(1, sizes[-1] + more + 1):
        below = [at(table, one) for one in sizes if one <= size][-1:]
        above = [at(table, one) for one in sizes if one >= size][:1]
        assert at(table, size) == (min(below + above) if above else 0)
    assert list(table) == sorted(table)
    assert all(one != other for one, other in itertools.pairwise(table.values()))


@given(MEASURED)
def test_the_table_is_a_setting(speeds: dict[int, dict[int, float]]) -> None:
    table = table_of(speeds, 256)
    if any(table.values()):
        assert TandemConfig.from_mapping({"mode": "speculative", "drafts": table}).drafts == table


@pytest.mark.parametrize(("drafts", "accepted"), [(1, 1.0), (4, 0.95), (8, 0.5)])
def test_tokens_of_a_round_are_those_of_a_chain_of_coins(drafts: int, accepted: float) -> None:
    """Enumerated: each draft is the junior's own, or the senior's, which accepts it or not."""
    kept = 0.5 + 0.5 * accepted
    rounds = sum(kept**kept_drafts for kept_drafts in range(drafts))
    assert tokens_per_round(drafts, accepted) == pytest.approx(rounds + 0.5 * kept**drafts)
    if drafts == 4:
        assert tokens_per_round(4, 0.95) == pytest.approx(4.30, abs=0.005)


def test_the_candidates_are_those_of_the_setting() -> None:
    assert max(CANDIDATES) == MAX_AUTO_DRAFTS
    assert 0 in CANDIDATES
    assert tokens_per_round(0) == 1


TIMES = st.dictionaries(
    st.integers(1, 300),
    st.builds(
        lambda first, others: {0: first, **others},
        st.floats(0.001, 1),
        st.dictionaries(st.sampled_from(CANDIDATES[1:]), st.floats(0.001, 1)),
    ),
    max_size=7,
)


@given(TIMES, st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_no_timed_batch_size_is_slower_than_without_drafts(
    seconds: dict[int, dict[int, float]], p: float
) -> None:
    table = chosen(seconds, 300, p)
    for size, times in seconds.items():
        number = at(table, size)
        assert tokens_per_round(number, p=p) / times[number] >= 1 / times[0]
    assert at(table, 301) == (0 if not seconds or max(seconds) < 300 else at(table, 300))


@pytest.mark.parametrize(
    ("pass_cost", "expected"),
    [
        # A round costs a step and, per draft, a tenth of one: as many drafts as there are.
        (lambda size, drafts: 1 + 0.1 * drafts, {1: 8}),
        # Bound by arithmetic, a round costs what its tokens cost.
        (lambda size, drafts: (1 + drafts) * 1.2, {1: 0}),
        # Bound by it from 32 tokens on.
        (lambda size, drafts: 1 + 0.1 * drafts + max(0, size * (1 + drafts) - 32) / 16, None),
    ],
)
def test_what_is_chosen_follows_the_cost_of_steps(
    pass_cost: object, expected: dict[int, int] | None
) -> None:
    table = chosen(timed(pass_cost, 64), 64, 0.5)  # type: ignore[arg-type]
    if expected is None:
        assert table[1] == 8
        assert at(table, 64) == 0
        assert list(table.values()) == sorted(table.values(), reverse=True)
    else:
        assert table == expected


def test_sizes_are_timed_until_none_fits() -> None:
    asked = []

    def timer(size: int, drafts: int) -> float | None:
        asked.append((size, drafts))
        return 0.1 if size * (drafts + 1) <= 40 and size < 16 else None

    seconds = timed(timer, 100)
    assert {size: set(times) for size, times in seconds.items()} == {
        1: {0, 2, 4, 8},
        2: {0, 2, 4, 8},
        4: {0, 2, 4, 8},
        8: {0, 2, 4},
    }
    assert asked[-1] == (16, 8)
    assert list(timed(lambda size, drafts: 0.1, 10)) == [1, 2, 4, 8, 10]
    asked.clear()
    assert list(timed(timer, 8)) == [1, 2, 4, 8]
    assert len(asked) == 4 * 4  # none of them twice


def test_the_choice_is_made_without_torch() -> None:
    """The planner uses the same model of a round."""
    code = (
        "import sys, tandem_plugin.engine.speculative.draft_choice; "
        "sys.exit('torch' in sys.modules or 'vllm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
