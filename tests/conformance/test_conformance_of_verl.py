"""verl's adapter and loss, held to the shared rollouts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
core_algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed")

from shared_rollouts import (  # noqa: E402
    CLIP,
    DUAL_CLIP,
    LONGEST,
    Rollout,
    old_log_probs,
    reference_gradients,
    relative_error,
    response_log_probs,
    rollouts,
    rule,
    tiny_model,
)

from tandem_verl.agent_loop import TandemClient, Trajectory  # noqa: E402

MODES = [
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "seq-mean-token-mean",
]


def narrowed(rollout: Rollout) -> list[int]:
    """The response mask that the adapter makes of a trajectory, cut off as verl does."""
    trajectory = Trajectory(rule(), lambda call: rollout.turns[call].seed)
    answers = iter(rollout.turns)

    async def generate(request_id: str, **asked: Any) -> Any:
        return SimpleNamespace(token_ids=list(next(answers).tokens))

    client = TandemClient(SimpleNamespace(generate=generate), trajectory)
    sent = list(rollout.prompt)
    for turn in rollout.turns:
        answered = asyncio.run(client.generate("one", prompt_ids=sent, sampling_params={}))
        sent = [*sent, *answered.token_ids, *turn.feedback]
    output = SimpleNamespace(
        prompt_ids=list(rollout.prompt),
        response_ids=rollout.response[:LONGEST],
        response_mask=rollout.generated[:LONGEST],
        extra_fields={},
    )
    trajectory.narrow(output, client.calls)
    return list(output.response_mask)


def padded(rows: list[Any], dtype: Any) -> Any:
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.stack([torch.nn.functional.pad(one, (0, LONGEST - len(one))) for one in tensors])


@pytest.mark.parametrize("rollout", rollouts(), ids=lambda one: one.name)
def test_mask_bits_are_algorithm_1s(rollout: Rollout) -> None:
    assert narrowed(rollout) == rollout.mask(LONGEST)


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_masked_grpo(mode: str) -> None:
    from verl.workers.config import ActorConfig

    every = rollouts()
    mask = padded([narrowed(one) for one in every], torch.float32)
    # The reward of the whole response lies at its last token, whoever wrote it.
    rewards = torch.zeros_like(mask)
    for i, one in enumerate(every):
        rewards[i, max(len(one.response[:LONGEST]) - 1, 0)] = one.reward
    group = np.array([one.group for one in every], dtype=object)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, group)
    model = tiny_model()
    now = padded([response_log_probs(model, one) for one in every], torch.float32)
    old = padded([old_log_probs(one, i) for i, one in enumerate(every)], torch.float32)
    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=6,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=CLIP,
        clip_ratio_low=CLIP,
        clip_ratio_high=CLIP,
        clip_ratio_c=DUAL_CLIP,
    )
    loss, _ = core_algos.compute_policy_loss_vanilla(
        old, now, advantages, mask, loss_agg_mode=mode, config=config
    )
    loss.backward()
    assert relative_error(model, reference_gradients(every, mode, 1e-6)) <= 1e-5
