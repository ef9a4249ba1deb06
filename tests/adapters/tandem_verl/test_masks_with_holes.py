"""verl's own losses and estimators on a mask with holes: what is listed as sound is, and no more.

A sound loss neither sees nor moves a token outside the mask. A sound estimator gives the trained
tokens the advantage of the whole response's reward, wherever that reward stands.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from tandem_verl.start import (
    BROKEN_ESTIMATORS,
    SOUND_ESTIMATORS,
    SOUND_LOSSES,
    SUMMING_ESTIMATORS,
)

ROWS, LENGTH = 6, 9
GROUPS = np.array(["a", "a", "a", "b", "b", "b"], dtype=object)


@pytest.fixture
def mask() -> Any:
    """Holes everywhere, the last token of most responses among them; one row has none left."""
    rows = np.random.default_rng(0).random((ROWS, LENGTH)) < 0.5
    rows[:, -1] = [0, 0, 1, 0, 0, 0]
    rows[4] = False
    return torch.tensor(rows)


def policy(loss: str) -> Any:
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=3,
        ppo_mini_batch_size=2,
        ppo_micro_batch_size_per_gpu=2,
        policy_loss=PolicyLossConfig(
            loss_mode=loss, clip_cov_ratio=0.3, clip_cov_lb=-1.0, kl_cov_ratio=0.3, dro_beta=0.1
        ),
    )
    config.global_batch_info.update(dp_size=1)
    return config


def random(seed: int, scale: float = 1.0) -> Any:
    return torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(seed)) * scale


def loss_and_gradient(loss: str, mask: Any, log_prob: Any, old: Any, advantages: Any) -> Any:
    log_prob = log_prob.clone().requires_grad_()
    torch.manual_seed(0)  # clip_cov draws
    value, _ = core_algos.get_policy_loss_fn(loss)(
        old_log_prob=old.clone(),
        log_prob=log_prob,
        advantages=advantages.clone(),
        response_mask=mask,
        loss_agg_mode="seq-mean-token-mean" if loss == "gspo" else "token-mean",
        config=policy(loss),
    )
    value.backward()
    return value.detach(), log_prob.grad


@pytest.mark.parametrize("loss", SOUND_LOSSES)
def test_sound_loss_neither_sees_nor_moves_a_masked_token(loss: str, mask: Any) -> None:
    log_prob = -random(1).abs() - 0.1
    old = (log_prob + random(2, 0.3)).clamp(max=-0.01)
    # As estimators give it: one value a response, nothing outside the mask.
    advantages = random(3)[:, :1] * mask
    value, gradient = loss_and_gradient(loss, mask, log_prob, old, advantages)
    assert gradient[~mask].abs().max() == 0
    assert gradient[mask].abs().max() > 0
    assert torch.isfinite(gradient).all()

    other = torch.where(mask, log_prob, -random(4).abs() - 2)
    other_old = torch.where(mask, old, -random(5).abs() - 1)
    other_value, other_gradient = loss_and_gradient(loss, mask, other, other_old, advantages)
    assert torch.equal(value, other_value)
    assert torch.equal(gradient, other_gradient)


def test_every_loss_of_verl_but_the_bypass_loss_is_sound() -> None:
    assert set(core_algos.POLICY_LOSS_REGISTRY) - set(SOUND_LOSSES) == {"bypass_mode"}


def advantages(estimator: str, mask: Any, rewards: Any) -> Any:
    torch.manual_seed(0)
    return core_algos.get_adv_estimator_fn(estimator)(
        token_level_rewards=rewards.clone(),
        response_mask=mask.float(),
        config=AlgoConfig(),
        index=GROUPS,
    )[0]


def rewards_at(positions: Any) -> Any:
    rewards = torch.zeros(ROWS, LENGTH)
    rewards[torch.arange(ROWS), positions] = torch.tensor([1.0, 0.0, 0.3, 0.8, 0.1, 0.6])
    return rewards


@pytest.mark.parametrize("estimator", SUMMING_ESTIMATORS)
def test_sound_estimator_sees_the_whole_reward_and_no_masked_token(
    estimator: str, mask: Any
) -> None:
    at_the_end = advantages(estimator, mask, rewards_at(torch.full((ROWS,), LENGTH - 1)))
    inside = advantages(estimator, mask, rewards_at(mask.float().argmax(dim=1)))
    assert torch.allclose(at_the_end[mask], inside[mask], atol=1e-5)
    assert torch.isfinite(at_the_end).all()
    assert at_the_end[~mask].abs().max() == 0
    assert at_the_end[mask].abs().max() > 0


def test_every_estimator_of_verl_is_listed() -> None:
    assert set(core_algos.ADV_ESTIMATOR_REGISTRY) == {
        *SOUND_ESTIMATORS,
        *BROKEN_ESTIMATORS,
        "remax",  # trainer V1 does not compute the inputs of these two
        "gdpo",
    }
