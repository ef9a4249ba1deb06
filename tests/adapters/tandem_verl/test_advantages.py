"""Advantages of trainer V1 on masks with holes, against plain loops over the trained tokens alone.

verl's real ``_compute_advantage`` runs, with its KL penalty in the reward and its rejection of
tokens; a dictionary stands in for TransferQueue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.core_algos import FixedKLController, compute_value_loss
from verl.trainer.ppo.v1 import trainer_base

from tandem_verl.start import TOKEN_ESTIMATORS
from tandem_verl.trainer import TrainerInTandem

ROWS, GAMMA, LAM = 12, 0.97, 0.9
REJECTING = {
    "rollout_is": "token",
    "rollout_is_threshold": 2.0,
    "rollout_rs": "token_k1",
    "rollout_rs_threshold": "0.7_1.4",
}


def nested(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


class Queue:
    """TransferQueue with one batch."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        found = {name: self.columns[name] for name in select_fields if name in self.columns}
        return TensorDict(found, batch_size=len(keys))

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> None:
        self.columns.update({name: fields[name] for name in fields.keys()})  # noqa: SIM118

    def rows(self, name: str) -> Any:
        return self.columns[name].unbind()


@dataclass
class Keys:
    """A V1 batch."""

    keys: list[str] = field(default_factory=lambda: [f"u{i // 4}_{i % 4}_0" for i in range(ROWS)])
    partition_id: str = "train"

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class Batch:
    """Random responses: the reward is on the last token, which a mask may leave out."""

    masks: list[Any]
    scores: list[Any]
    old: list[Any]
    reference: list[Any]
    rollout: list[Any]
    values: list[Any]

    @classmethod
    def random(cls, seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)

        def numbers(size: int) -> torch.Tensor:
            return torch.rand(size, generator=generator, dtype=torch.float64)

        lengths = torch.randint(2, 14, (ROWS,), generator=generator).tolist()
        masks = [(numbers(length) < 0.5).long() for length in lengths]
        masks[3][:] = 0  # a response of the junior's alone
        masks[5][-1] = 0
        masks[0][0] = masks[0][-1] = 1
        scores = [torch.zeros(length, dtype=torch.float64) for length in lengths]
        for score in scores:
            score[-1] = numbers(1).round()[0]
        old, reference, rollout = ([-numbers(length) for length in lengths] for _ in range(3))
        values = [numbers(len(mask)) * mask + (1 - mask) * 1e3 for mask in masks]
        return cls(masks, scores, old, reference, rollout, values)

    def queue(self) -> Queue:
        return Queue(
            uid=NonTensorStack(*[f"u{i // 4}" for i in range(ROWS)]),
            response_mask=nested(self.masks),
            rm_scores=nested(self.scores),
            old_log_probs=nested(self.old),
            ref_log_prob=nested(self.reference),
            rollout_log_probs=nested(self.rollout),
            values=nested(self.values),
        )


class VerlsTrainer:
    """verl's trainer, of which only the method under test runs."""

    _compute_advantage = trainer_base.PPOTrainer._compute_advantage

    def __init__(self, estimator: str, beta: float, rejects: bool, kind: str = "kl") -> None:
        algorithm = {
            "adv_estimator": estimator,
            "gamma": GAMMA,
            "lam": LAM,
            "use_kl_in_reward": beta > 0,
            "kl_penalty": kind,
            "rollout_correction": REJECTING if rejects else None,
        }
        rollout = {"n": 4}
        self.config = OmegaConf.create(
            {"algorithm": algorithm, "actor_rollout_ref": {"rollout": rollout}}
        )
        self.kl_ctrl_in_reward = FixedKLController(kl_coef=beta)


def computed(
    batch: Batch,
    estimator: str,
    beta: float,
    rejects: bool,
    monkeypatch: pytest.MonkeyPatch,
    kind: str = "kl",
) -> Queue:
    """The batch with advantages, returns and the mask of the update."""
    queue = batch.queue()
    monkeypatch.setattr(trainer_base, "tq", queue)
    monkeypatch.setattr("tandem_verl.trainer.queue", lambda: queue)
    trainer = object.__new__(type("Trainer", (TrainerInTandem, VerlsTrainer), {}))
    VerlsTrainer.__init__(trainer, estimator, beta, rejects, kind)
    trainer._compute_advantage(Keys(), {})
    return queue


def trained(rows: Sequence[Any], masks: Sequence[Any]) -> torch.Tensor:
    """The values of a batch's trained tokens, one after another."""
    return torch.cat([row[mask.bool()] for row, mask in zip(rows, masks, strict=True)])


PENALTIES: dict[str, Callable[[float], float]] = {
    "kl": lambda gap: gap,
    "k1": lambda gap: gap,
    "abs": abs,
    "mse": lambda gap: gap**2 / 2,
    "k2": lambda gap: gap**2 / 2,
    "low_var_kl": lambda gap: math.exp(-gap) + gap - 1,
    "k3": lambda gap: math.exp(-gap) + gap - 1,
}
"""verl's estimates of the KL divergence, of a token's log p minus the reference's."""


def reference(
    batch: Batch, estimator: str, beta: float, kept: Sequence[Any], kind: str = "kl"
) -> Any:
    """Advantages and returns of the trained tokens, from each response's as if contiguous.

    kept: the masks after rejection, which may drop the token that has the reward.
    """
    advantages: list[float] = []
    returns: list[float] = []
    for row, mask in enumerate(batch.masks):
        positions = [position for position, own in enumerate(mask.tolist()) if own]
        gaps = (batch.old[row] - batch.reference[row]).tolist()
        rewards = [-beta * PENALTIES[kind](gaps[position]) for position in positions]
        if rewards:
            rewards[-1] += float(batch.scores[row].sum())
        values = batch.values[row][mask.bool()].tolist()
        stays = [bool(kept[row][position]) for position in positions]
        rewards = [reward for reward, one in zip(rewards, stays, strict=True) if one]
        values = [value for value, one in zip(values, stays, strict=True) if one]
        own = gae(rewards, values) if estimator == "gae" else discounted(rewards)
        advantages += own[0]
        returns += own[1]
    exact = torch.tensor(advantages, dtype=torch.float64)
    count = torch.tensor(float(len(exact)))  # verl's, a float32
    variance = exact.var(unbiased=False) * (count / (count - 1))
    whitened = (exact - exact.mean()) * (variance + 1e-8).rsqrt()
    return whitened, torch.tensor(returns, dtype=torch.float64)


def gae(rewards: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    advantages: list[float] = []
    advantage = following = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + GAMMA * following - value + GAMMA * LAM * advantage
        following = value
        advantages.insert(0, advantage)
    returns = [one + value for one, value in zip(advantages, values, strict=True)]
    return advantages, returns


def discounted(rewards: Sequence[float]) -> tuple[list[float], list[float]]:
    returns: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + GAMMA * total
        returns.insert(0, total)
    return returns, returns


@pytest.mark.parametrize("estimator", TOKEN_ESTIMATORS)
def test_advantages_are_those_of_the_trained_tokens_alone(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        batch, beta, rejects = Batch.random(seed), 0.1 * (seed % 3 == 0), seed % 4 == 0
        queue = computed(batch, estimator, beta, rejects, monkeypatch)
        kept = queue.rows("response_mask")
        advantages, returns = reference(batch, estimator, beta, kept)
        assert (trained(queue.rows("advantages"), kept) - advantages).abs().max() < 1e-14
        assert (trained(queue.rows("returns"), kept) - returns).abs().max() < 1e-14
        for score, moved in zip(batch.scores, queue.rows("rm_scores"), strict=True):
            assert float(score.sum()) == float(moved.sum())


@pytest.mark.parametrize("kind", PENALTIES)
@pytest.mark.parametrize("estimator", TOKEN_ESTIMATORS)
def test_penalties_of_every_kind_are_those_of_the_trained_tokens(
    kind: str, estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(5):
        batch = Batch.random(seed)
        queue = computed(batch, estimator, 0.1, False, monkeypatch, kind)
        expected, _ = reference(batch, estimator, 0.1, batch.masks, kind)
        found = trained(queue.rows("advantages"), batch.masks)
        assert (found - expected).abs().max() < 1e-14


def test_rewards_of_inner_tokens_move_to_the_trained_token_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = Batch.random(0)
    batch.masks[:3] = [torch.tensor([0, 1, 0, 1, 0]), torch.zeros(5).long(), torch.ones(5).long()]
    for row in range(3):
        batch.scores[row] = torch.tensor([1.0, 2, 4, 8, 16], dtype=torch.float64)
        for column in (batch.old, batch.reference, batch.rollout, batch.values):
            column[row] = torch.full((5,), -0.5, dtype=torch.float64)
    queue = computed(batch, "gae", 0.0, False, monkeypatch)
    assert [row.tolist() for row in queue.rows("rm_scores")[:3]] == [
        [0, 7, 0, 24, 0],
        [1, 2, 4, 8, 16],
        [1, 2, 4, 8, 16],
    ]
    untouched = computed(batch, "grpo", 0.0, False, monkeypatch)
    assert untouched.rows("rm_scores")[0].tolist() == [1, 2, 4, 8, 16]


def test_critics_loss_is_that_of_the_trained_tokens_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient on padded, masked rows against that on packed ones; none at other tokens."""
    batch = Batch.random(1)
    queue = computed(batch, "gae", 0.0, False, monkeypatch)

    def padded(rows: Sequence[Any]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)

    mask = padded(batch.masks).bool()
    predicted = padded(batch.old).requires_grad_()
    returns, values = padded(queue.rows("returns")), padded(batch.values)
    count = int(mask.sum())
    loss, _ = compute_value_loss(predicted, returns, values, mask, 0.2, batch_num_tokens=count)
    loss.backward()
    packed = predicted.detach()[mask].requires_grad_()
    expected, _ = compute_value_loss(
        packed[None],
        returns[mask][None],
        values[mask][None],
        torch.ones(1, count).bool(),
        0.2,
        batch_num_tokens=count,
    )
    expected.backward()
    assert predicted.grad is not None
    assert packed.grad is not None
    assert torch.equal(predicted.grad[mask], packed.grad)
    assert predicted.grad[~mask].abs().max() == 0
    assert packed.grad.abs().max() > 0
