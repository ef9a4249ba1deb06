"""SkyRL's adapter and loss, held to the shared rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("skyrl", reason="SkyRL is not installed")

from held_to_the_rollouts import HeldToTheRollouts  # noqa: E402
from shared_rollouts import (  # noqa: E402
    CLIP,
    DUAL_CLIP,
    LONGEST,
    Rollout,
    advantages,
    old_log_probs,
    response_log_probs,
    rollouts,
    rule,
    tiny_model,
)
from skyrl.backends.skyrl_train.utils.ppo_utils import (  # noqa: E402
    PolicyLossRegistry,
    apply_loss_reduction_to_advantages_minibatch,
)
from skyrl.train.config import AlgorithmConfig  # noqa: E402

from tandem_plugin.training.calls import Trajectory  # noqa: E402
from tandem_plugin.training.rows import Row  # noqa: E402
from tandem_skyrl.batch import Generation  # noqa: E402
from tandem_skyrl.rollouts import TandemClient  # noqa: E402

REDUCTIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "seq_mean_token_sum_norm",
}


def row_of(rollout: Rollout) -> Row:
    """What the adapter makes of a rollout whose calls went to a client of SkyRL's."""
    calls = [call for turn in rollout.calls for call in turn]
    trajectory = Trajectory(rule(), lambda number: calls[number].seed)
    answers = iter(calls)

    async def generate(input_batch: Any, model: str) -> Any:
        assert input_batch["sampling_params"]["extra_args"]["tandem"]
        return {"response_ids": [list(next(answers).tokens)]}

    client = TandemClient(SimpleNamespace(generate=generate), trajectory)
    sent = list(rollout.prompt)
    for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
        for _ in sampled:
            asked = {"prompt_token_ids": [sent], "sampling_params": {"temperature": 1.0}}
            asyncio.run(client.generate(asked, model="senior"))
        sent = [*sent, *turn.tokens, *turn.feedback]
    one = SimpleNamespace(instance_id="0", repetition_id=0)
    generation = Generation("generation 0 of step 1", None, [one], {("0", 0): trajectory})
    output = {
        "prompt_token_ids": [list(rollout.prompt)],
        "response_ids": [rollout.response[:LONGEST]],
        "loss_masks": [rollout.generated[:LONGEST]],
    }
    (row,) = generation.rows(output, generation.narrowed(output))
    return row


def right_aligned(rows: Sequence[Any]) -> Any:
    """As SkyRL's batches are."""
    tensors = [torch.as_tensor(row, dtype=torch.float32) for row in rows]
    return torch.stack([torch.nn.functional.pad(one, (LONGEST - len(one), 0)) for one in tensors])


class TestSkyRL(HeldToTheRollouts):
    modes = tuple(REDUCTIONS)

    def masks(self, rollout: Rollout) -> tuple[list[int], list[int]]:
        row = row_of(rollout)
        assert row.facts is not None
        return row.response_mask.astype(int).tolist(), row.facts.junior_mask.astype(int).tolist()

    def gradient(self, mode: str) -> Any:
        """SkyRL's means over responses count those without a token of the senior's."""
        every = rollouts()
        config = AlgorithmConfig(
            policy_loss_type="dual_clip",
            loss_reduction=REDUCTIONS[mode],
            eps_clip_low=CLIP,
            eps_clip_high=CLIP,
            clip_ratio_c=DUAL_CLIP,
            max_seq_len=LONGEST,
        )
        rows = [row_of(one).response_mask for one in every]
        mask = right_aligned(rows)
        each = zip(every, advantages(every, self.epsilon), strict=True)
        normalised = apply_loss_reduction_to_advantages_minibatch(
            right_aligned([[a] * len(one.response[:LONGEST]) for one, a in each]),
            mask,
            config.loss_reduction,
            micro_batch_size=4,
            max_seq_len=LONGEST,
        )
        model = tiny_model()
        now = right_aligned_log_probs(model, every)
        old = right_aligned([old_log_probs(one, i) for i, one in enumerate(every)])
        loss_function = PolicyLossRegistry.get(config.policy_loss_type)
        for start in range(0, len(every), 4):
            part = slice(start, start + 4)
            loss, _ = loss_function(
                now[part], old[part], normalised[part], config=config, loss_mask=mask[part]
            )
            loss.backward(retain_graph=True)
        if mode.startswith("seq-mean"):
            share = sum(row.any() for row in rows) / len(rows)
            for parameter in model.parameters():
                parameter.grad /= share
        return model


def right_aligned_log_probs(model: Any, every: Sequence[Rollout]) -> Any:
    found = [response_log_probs(model, one) for one in every]
    return torch.stack([torch.nn.functional.pad(one, (LONGEST - len(one), 0)) for one in found])
