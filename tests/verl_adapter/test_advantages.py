"""Advantages in tandem: reward-to-go estimators against their definitions, whole sessions.

Reward-to-go estimators are held to their definitions on the trained tokens alone, sessions of
several outputs to verl's own advantages where the junior wrote the last one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import trainer_base

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl import trainer
from tandem_verl.refusals import REWARD_TO_GO_ESTIMATORS

Rows = list[list[float]]


class Batch:
    """Random responses: masks with holes, rows of the junior's alone, KL in the reward."""

    def __init__(self, seed: int) -> None:
        noise = np.random.default_rng(seed)
        rows, length = int(noise.integers(2, 9)), int(noise.integers(2, 16))
        self.mask = noise.random((rows, length)) < noise.uniform(0.1, 0.9)
        self.mask[0, :2] = True  # verl's whitening needs two tokens
        self.mask[noise.random(rows) < 0.2] = False
        self.mask[0, :2] = True
        self.score = noise.normal(size=rows)
        self.kl = noise.normal(size=(rows, length)) * self.mask * noise.integers(0, 2)
        self.values = noise.normal(size=(rows, length))
        self.groups = np.sort(noise.integers(0, 3, size=rows)).astype(str).astype(object)
        self.log_probs = -np.abs(noise.normal(size=(rows, length)))
        self.gamma, self.lam = (1.0, 1.0) if seed % 2 else tuple(noise.uniform(0.5, 1, size=2))

    def compacted(self, column: Any) -> Rows:
        """A column's values at the trained tokens alone."""
        return [list(row[mask]) for row, mask in zip(column, self.mask, strict=True)]

    def trained_rewards(self) -> Rows:
        """By the definition: a score at the end of the tokens that are left, less the penalties."""
        rows = [[-kl for kl in row] for row in self.compacted(self.kl)]
        for row, score in zip(rows, self.score, strict=True):
            if row:
                row[-1] += score
        return rows


def whitened(rows: Rows) -> Rows:
    values = [value for row in rows for value in row]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return [[(value - mean) / math.sqrt(variance + 1e-8) for value in row] for row in rows]


def discounted(row: list[float], decay: float) -> list[float]:
    """At each place, the sum of what comes from there on."""
    places = range(len(row))
    return [sum(decay ** (s - t) * row[s] for s in places[t:]) for t in places]


def reinforce_plus_plus(batch: Batch) -> Rows:
    """Discounted rewards to go, whitened over the batch (arXiv:2501.03262)."""
    return whitened([discounted(row, batch.gamma) for row in batch.trained_rewards()])


def gae(batch: Batch) -> Rows:
    """Discounted sums of temporal differences, whitened (arXiv:1506.02438, equation 16)."""
    found = []
    for rewards, values in zip(batch.trained_rewards(), batch.compacted(batch.values), strict=True):
        after = [*values[1:], 0.0][: len(values)]
        deltas = [r + batch.gamma * n - v for r, n, v in zip(rewards, after, values, strict=True)]
        found.append(discounted(deltas, batch.gamma * batch.lam))
    return whitened(found)


ORACLES = {"reinforce_plus_plus": reinforce_plus_plus, "gae": gae}


KL_COEF = 0.25


class Queue:
    """TransferQueue, with a batch's columns as trainer V1 finds them."""

    def __init__(self, uid: Any, **columns: Any) -> None:
        self.columns: dict[str, Any] = {"uid": NonTensorStack(*uid)}
        for name, rows in columns.items():
            tensors = [*torch.as_tensor(rows)]
            self.columns[name] = torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: list[str]) -> Any:
        found = {name: self.columns[name] for name in select_fields if name in self.columns}
        return TensorDict(found, batch_size=len(keys))

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any) -> None:
        self.columns.update(fields.items())


class Keys:
    """A batch as trainer V1 holds it."""

    partition_id = "train"

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)


def computed_by_the_trainer(
    monkeypatch: pytest.MonkeyPatch, queue: Any, keys: list[str], mixin: Any, **algorithm: Any
) -> list[list[float]]:
    """The advantages that verl's own step writes, with its KL penalty in the reward."""
    monkeypatch.setattr(trainer_base, "tq", queue)
    monkeypatch.setattr(trainer, "queue", lambda: queue)
    base: Any = trainer_base.PPOTrainer
    own: Any = type("Trainer", (base if mixin is None else in_tandem(base, mixin),), {})
    own.__abstractmethods__ = frozenset()
    made = object.__new__(own)
    made.kl_ctrl_in_reward = core_algos.FixedKLController(KL_COEF)
    settings = {"gamma": 1.0, "lam": 1.0, "kl_penalty": "kl", "gdpo_reward_keys": ["acc"]}
    made.config = OmegaConf.create(
        {
            "algorithm": {**settings, "use_kl_in_reward": False, **algorithm},
            "actor_rollout_ref": {"rollout": {"n": 1}},
        }
    )
    made._compute_advantage(Keys(keys), {})
    return [row.tolist() for row in queue.columns["advantages"].unbind()]


def of_batch(
    monkeypatch: pytest.MonkeyPatch, batch: Batch, estimator: Any, mixin: Any
) -> list[list[float]]:
    """The same of a random batch."""
    scores = np.zeros_like(batch.values)
    scores[:, -1] = batch.score
    queue = Queue(
        batch.groups,
        response_mask=batch.mask.astype(np.int64),
        rm_scores=scores,
        values=batch.values,
        old_log_probs=batch.log_probs,
        ref_log_prob=batch.log_probs - batch.kl / KL_COEF,
    )
    keys = [f"{group}_{row}_0" for row, group in enumerate(batch.groups)]
    discounts = {"gamma": float(batch.gamma), "lam": float(batch.lam)}
    algorithm = {"adv_estimator": estimator, "use_kl_in_reward": True, **discounts}
    return computed_by_the_trainer(monkeypatch, queue, keys, mixin, **algorithm)


@pytest.mark.parametrize("estimator", REWARD_TO_GO_ESTIMATORS)
def test_advantages_are_those_of_the_trained_tokens_alone(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = 0.0
    for seed in range(60):
        batch = Batch(seed)
        chosen = core_algos.AdvantageEstimator(estimator) if seed % 3 else estimator
        expected = ORACLES[estimator](batch)
        ours = of_batch(monkeypatch, batch, chosen, trainer.TrainerInTandem)
        verls = of_batch(monkeypatch, batch, chosen, None)
        for mask, row, found, lost in zip(batch.mask, expected, ours, verls, strict=True):
            np.testing.assert_allclose(np.array(found)[mask], row, rtol=1e-7, atol=1e-7)
            far = max([far, *np.abs(np.array(lost)[mask] - row)])
    assert far > 0.1  # without the move, verl drops rewards


LENGTH = 5
SESSIONS = [("a", 0, 3), ("a", 1, 2), ("a", 2, 1), ("b", 0, 2), ("b", 1, 2), ("b", 2, 3)]
"""(prompt, session, outputs)."""
REWARDS = dict(zip(SESSIONS, (1.0, 0.0, 0.3, 0.8, 0.1, 0.6), strict=True))
OUTPUTS = [(*session, output) for session in SESSIONS for output in range(session[2])]
KEYS = [f"{prompt}_{session}_{output}" for prompt, session, _, output in OUTPUTS]
LAST = torch.tensor([output == outputs - 1 for *_, outputs, output in OUTPUTS])


def mask_of(without: Any) -> Any:
    """Holes in every output, no trained token in those that are ``without``."""
    mask = (
        torch.rand(len(OUTPUTS), LENGTH, generator=torch.Generator().manual_seed(1)) < 0.5
    ).long()
    mask[:, 2] = 1
    mask[without] = 0
    return mask


NOBODY = torch.zeros(len(OUTPUTS), dtype=torch.bool)
SOME_LAST = LAST & (torch.arange(len(OUTPUTS)) % 2 == 0)


def of_sessions(monkeypatch: pytest.MonkeyPatch, mask: Any, estimator: Any, mixin: Any) -> Any:
    """What the trainer's own step makes of sessions: every output has its session's reward."""
    rewards = torch.zeros(len(OUTPUTS), LENGTH)
    rewards[:, -1] = torch.tensor([REWARDS[output[:3]] for output in OUTPUTS])
    queue = Queue([output[0] for output in OUTPUTS], response_mask=mask, rm_scores=rewards)
    algorithm = {"adv_estimator": estimator, "norm_adv_by_std_in_grpo": True}
    return torch.tensor(computed_by_the_trainer(monkeypatch, queue, KEYS, mixin, **algorithm))


@pytest.mark.parametrize("estimator", [core_algos.AdvantageEstimator.GRPO, "grpo"])
@pytest.mark.parametrize("without", [NOBODY, LAST, SOME_LAST], ids=["nobody", "every", "some"])
def test_sessions_advantage_is_that_of_its_reward_among_its_prompts(
    without: Any, estimator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the junior wrote the last output, of which verl alone would read 0."""
    mask = mask_of(without)
    found = of_sessions(monkeypatch, mask, estimator, trainer.TrainerInTandem)
    for number, (prompt, *_) in enumerate(OUTPUTS):
        rewards = torch.tensor([REWARDS[one] for one in SESSIONS if one[0] == prompt])
        advantage = (REWARDS[OUTPUTS[number][:3]] - rewards.mean()) / (rewards.std() + 1e-6)
        assert torch.allclose(found[number], advantage * mask[number], atol=1e-5)
    verls = of_sessions(monkeypatch, mask, estimator, None)
    assert torch.equal(found, verls) is not bool(without.any())


@pytest.mark.parametrize("estimator", ["opo", "reinforce_plus_plus_baseline"])
def test_estimators_that_count_trained_tokens_are_verls_own(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None reads one output's advantage off another's."""
    found, verls = (
        of_sessions(monkeypatch, mask_of(LAST), estimator, mixin)
        for mixin in (trainer.TrainerInTandem, None)
    )
    assert torch.equal(found, verls)
    assert found.any()
