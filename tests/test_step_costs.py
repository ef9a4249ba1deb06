"""The time of a step by batch size and length: the guess, what was timed, and which steps are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tandem_plugin.engine.speculative.pace import Pace, Step, step_of
from tandem_plugin.engine.speculative.step_costs import StepCosts, passes, relative_cost

LENGTHS = (0, 1, 2, 4)


def test_the_guess_is_free_of_tokens_until_some_hundreds_and_grows_with_them_beyond() -> None:
    assert passes(1, 4, 0.5) == passes(32, 4, 0.5) == 1 + 4 * 0.5
    assert passes(1, 0, 0.5) == passes(256, 0, 0.5) == 1.5
    assert passes(1024, 0, 0.5) == 4 * passes(256, 0, 0.5)
    # 5 tokens of each for the senior; 2, 1, 1 and 1 for the junior.
    assert passes(1024, 4, 0.5) == pytest.approx(4 * (5 + 0.5 * 5))


def test_what_was_timed_takes_the_guesss_place() -> None:
    costs = StepCosts(LENGTHS, 1.0)
    assert not costs.knows(16, 2)
    for seconds in (0.03, 9.0, 0.03):  # one slow step, as where something is compiled
        costs.observe(16, 2, seconds)
    assert costs.knows(16, 2)
    assert costs.seconds(16, 2) == pytest.approx(0.03)
    for _ in range(32):  # long ago is forgotten
        costs.observe(16, 2, 0.1)
    assert costs.seconds(16, 2) == pytest.approx(0.1)


def test_what_was_timed_corrects_the_guess_where_nothing_was() -> None:
    costs = StepCosts(LENGTHS, 1.0)
    for _ in range(3):
        costs.observe(16, 2, 0.03)  # three passes of 10 ms
    assert costs.seconds(16, 4) == pytest.approx(0.05)
    assert costs.seconds(1024, 0) == pytest.approx(0.08)
    for _ in range(3):
        costs.observe(1024, 0, 0.8)
    assert costs.seconds(512, 1) == pytest.approx(0.01 * 10 * passes(512, 1, 1.0))
    assert costs.seconds(16, 4) == pytest.approx(0.05)


def test_lengths_that_rounds_cannot_have_and_steps_without_time_say_nothing() -> None:
    costs = StepCosts(LENGTHS, 1.0)
    for _ in range(3):
        costs.observe(4, 3, 1.0)
        costs.observe(4, 2, 0.0)
    assert costs.seconds(4, 2) == passes(4, 2, 1.0)


def test_a_step_is_timed_behind_one_of_its_own_length() -> None:
    pace, now, found = Pace(), 0.0, []
    steps = [
        Step(4, 2, 2), Step(4, 2, 2), Step(4, 2, 0), Step(4, 0, 0), Step(4, 0, 0),
        Step(4, None, 0), Step(4, 0, 0), Step(4, 0, 0), Step(2, 0, 0), Step(2, 0, 0),
    ]  # fmt: skip
    for number, step in enumerate(steps):
        now += number
        found.append(pace.ended(step, now))
    nothing = None
    assert found == [
        nothing, 1.0, nothing, nothing, 4.0, nothing, nothing, 7.0, nothing, 9.0,
    ]  # fmt: skip


def test_a_batch_may_lose_a_few_requests_between_two_steps() -> None:
    pace = Pace()
    pace.ended(Step(64, 1, 1), 1.0)
    assert pace.ended(Step(62, 1, 1), 1.5) == 0.5


def test_steps_are_told_by_what_the_scheduler_handed_out() -> None:
    def step(tokens: list[int], drafts: list[int], asked: int) -> Step:
        return step_of(
            SimpleNamespace(
                num_scheduled_tokens=dict(enumerate(tokens)),
                total_num_scheduled_tokens=sum(tokens),
                scheduled_spec_decode_tokens={i: [-1] * n for i, n in enumerate(drafts) if n},
                num_spec_tokens_to_schedule=asked,
            )
        )

    assert step([3, 3], [2, 2], 4) == Step(2, 2, 4)
    assert step([1, 1, 1], [0, 0, 0], 0) == Step(3, 0, 0)
    assert step([3, 2], [2, 1], 2).checked is None  # at the end of the model's length
    assert step([3, 9], [2, 0], 2).checked is None  # a prompt
    assert step([9, 1], [0, 0], 0).checked is None
    assert not step([], [], 0).is_steady


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
