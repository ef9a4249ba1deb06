"""verl's distillation losses on micro-batches in which the senior wrote nothing."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.trainer.distillation import losses
from verl.utils.metric import Metric
from verl.workers.config import FSDPActorConfig

from tandem_verl.loss import distilling

TOPK, COEFFICIENT = 4, 0.5
MASKS = [[1, 0, 1], [0, 1], [0, 0, 0, 0], [0, 0]]


def nested(rows: list[Any]) -> Any:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def numbers(seed: int, *shape: int) -> Any:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def micro_batch(rows: list[int]) -> Any:
    """Rows of :data:`MASKS` as they arrive at the loss, with prompts of two tokens."""
    lengths = [len(MASKS[row]) for row in rows]
    whole = [length + 2 for length in lengths]
    batch = TensorDict(
        {
            "response_mask": nested([torch.tensor(MASKS[row]) for row in rows]),
            "responses": nested([torch.zeros(length).long() for length in lengths]),
            "prompts": nested([torch.zeros(2).long() for _ in rows]),
            "input_ids": nested([torch.zeros(length).long() for length in whole]),
            "old_log_probs": nested([-numbers(row, len(MASKS[row])) for row in rows]),
            "advantages": nested([numbers(row, len(MASKS[row])) for row in rows]),
            "teacher_logprobs": nested(
                [-numbers(20 + row, size, 1) for row, size in zip(rows, whole, strict=True)]
            ),
        },
        batch_size=len(rows),
    )
    for name, value in (("dp_size", 1), ("batch_num_tokens", 3), ("global_batch_size", 4)):
        batch.set_non_tensor(name, value)
    return batch


def loss_function(mode: str, task_rewards: bool, policy_gradient: bool) -> Any:
    """verl's loss as its worker makes it."""
    actor = FSDPActorConfig(
        strategy="fsdp",
        ppo_micro_batch_size_per_gpu=1,
        ppo_mini_batch_size=4,
        rollout_n=1,
        use_kl_loss=False,
        entropy_coeff=0.0,
    )
    loss = SimpleNamespace(
        loss_mode=mode,
        topk=TOPK,
        use_task_rewards=task_rewards,
        use_policy_gradient=policy_gradient,
        policy_loss_mode="vanilla",
        loss_max_clamp=None,
        distillation_loss_coef=COEFFICIENT,
        global_batch_info={},
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.2,
        get=lambda name, default=None: default,
    )
    distillation = SimpleNamespace(distillation_loss=loss)
    return partial(losses.distillation_ppo_loss, config=actor, distillation_config=distillation)


NAMES = ("log_probs", "distillation_losses", "student_mass", "teacher_mass")


def gradients(loss: Any, micro_batches: list[list[int]]) -> tuple[dict[int, Any], list[Any]]:
    """By row, the gradient of its outputs over all micro-batches, and each one's metrics."""
    found, metrics = {}, []
    for rows in micro_batches:
        leaves = {
            row: [
                (numbers(40 + row, len(MASKS[row]) + 2) - below).requires_grad_()
                for below in (1.0, 0.0, 0.0, 0.0)  # log_probs are negative
            ]
            for row in rows
        }
        columns = zip(*leaves.values(), strict=True)
        output = {name: nested(list(its)) for name, its in zip(NAMES, columns, strict=True)}
        value, said = loss(model_output=output, data=micro_batch(rows))
        value.backward()
        metrics.append(said)
        for row, its in leaves.items():
            found[row] = torch.cat(
                [torch.zeros_like(one) if one.grad is None else one.grad for one in its]
            )
    return found, metrics


@pytest.mark.parametrize(
    ("mode", "task_rewards", "policy_gradient"),
    [
        ("forward_kl_topk", True, False),
        ("forward_kl_topk", False, False),
        ("k1", False, True),
        ("low_var_kl", True, False),
    ],
)
def test_micro_batch_without_the_senior_adds_nothing(
    mode: str, task_rewards: bool, policy_gradient: bool
) -> None:
    """Together its rows pass through verl's own loss; alone they would raise, or leave NaN."""
    plain = loss_function(mode, task_rewards, policy_gradient)
    expected, _ = gradients(plain, [[0, 1, 2, 3]])
    guarded = partial(distilling, plain)
    found, metrics = gradients(guarded, [[0, 1], [2, 3]])
    for row, gradient in expected.items():
        assert torch.equal(found[row], gradient)
    assert any(gradient.any() for gradient in expected.values())
    assert not found[2].any()
    for name, metric in metrics[1].items():
        values = metric.values if isinstance(metric, Metric) else [metric]
        assert all(torch.isfinite(torch.tensor(float(value))) for value in values), name
    assert metrics[1]["distillation/loss"].values == [0.0]


def test_losses_from_logits_and_masks_with_a_token_are_verls_own() -> None:
    calls: list[Any] = []

    def verls(**given: Any) -> str:
        calls.append(given)
        return "verl's"

    full, empty = micro_batch([0, 2]), micro_batch([2])
    logits = {"student_logits": 1, "data": empty}
    assert distilling(verls, **logits) == "verl's"
    assert distilling(verls, model_output={}, data=full) == "verl's"
    assert [one["data"] for one in calls] == [empty, full]


def test_verl_still_raises_without_the_guard() -> None:
    with pytest.raises(RuntimeError, match="min"):
        gradients(loss_function("forward_kl_topk", True, False), [[2, 3]])
