"""The draft length that follows what becomes of drafts: against simulated rounds of known rates."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.engine.speculative.draft_length import DraftLength, relative_cost

MOST = 12


def best(s: float, b: float, cost: float) -> int:
    """The length with the most tokens for its cost, by simulating nothing: the expectation."""
    tokens = {k: sum(s**i for i in range(k)) + b * s**k for k in range(1, MOST + 1)}
    return max(tokens, key=lambda k: tokens[k] / (1 + cost * k))


def run(length: DraftLength, s: float, b: float, rounds: int, rng: random.Random) -> None:
    """Rounds of an engine whose drafts hold with probability s, as its scheduler sees them."""
    for _ in range(rounds):
        drafted = length.choose()
        held = next((i for i in range(drafted) if rng.random() >= s), drafted)
        behind = held == drafted and rng.random() < b
        length.observe(drafted, min(held + 1, drafted) + behind)


@pytest.mark.parametrize("cost", [1 / 6, 1.0])
@pytest.mark.parametrize(("s", "b"), [(0.6, 0.5), (0.9, 0.5), (0.98, 0.5), (0.985, 0.9)])
def test_length_is_the_best_for_the_rates_of_the_rounds(s: float, b: float, cost: float) -> None:
    length = DraftLength(MOST, cost)
    rng = random.Random(1)
    run(length, s, b, 4_000, rng)
    chosen = []
    for _ in range(200):
        run(length, s, b, 10, rng)
        chosen.append(length.best)
    expected = best(s, b, cost)
    assert abs(sum(chosen) / len(chosen) - expected) <= 0.15 * expected + 0.5, (chosen, expected)


def test_length_follows_a_policy_that_drifts_and_comes_back() -> None:
    length, rng = DraftLength(MOST, 1 / 6), random.Random(2)
    run(length, 0.99, 0.5, 5_000, rng)
    assert length.best == MOST
    run(length, 0.3, 0.5, 20_000, rng)
    assert length.best <= 2
    run(length, 0.99, 0.5, 20_000, rng)
    assert length.best >= MOST - 2


@given(
    st.integers(1, 32),
    st.floats(0.001, 4),
    st.lists(st.tuples(st.integers(0, 32), st.integers(0, 33)), max_size=200),
)
def test_length_stays_within_its_bounds_whatever_is_seen(
    most: int, cost: float, rounds: list[tuple[int, int]]
) -> None:
    length = DraftLength(most, cost)
    for drafted, written in rounds:
        length.observe(drafted, min(written, drafted + 1))
        assert 1 <= length.best <= most
        assert 1 <= length.choose() <= most


def test_costs_are_those_of_the_weights_that_a_token_reads() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    def config(**sizes: Any) -> Any:
        settings = {
            "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
            "vocab_size": 300, "tie_word_embeddings": True,
        }  # fmt: skip
        return AutoConfig.for_model("qwen3", **(settings | sizes))

    def weights(found: Any) -> int:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(found)
        return sum(p.numel() for p in model.parameters() if p.dim() == 2)

    senior, junior = config(), config(num_hidden_layers=1, hidden_size=32, intermediate_size=96)
    assert relative_cost(senior, junior) == weights(junior) / weights(senior)
    assert relative_cost(senior, senior) == 1.0
    sparse = config(num_experts_per_tok=2, moe_intermediate_size=80)
    assert relative_cost(senior, sparse) == 1.0  # two experts of half the width
    assert relative_cost(senior, SimpleNamespace(hidden_size=8)) == 1.0
