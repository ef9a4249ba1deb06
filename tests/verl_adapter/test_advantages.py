"""Reward-to-go estimators in tandem against their definitions on the trained tokens alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import trainer_base

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl import trainer
from tandem_verl.refusals import REWARD_TO_GO_ESTIMATORS
from tandem_verl.trainer import on_trained_tokens

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

    def rewards(self) -> Any:
        """As a trainer in tandem has them: the score on a trained token, and the KL penalty."""
        scores = np.zeros_like(self.values)
        scores[:, -1] = self.score
        moved = on_trained_tokens(torch.tensor(scores), torch.tensor(self.mask))
        return moved - torch.tensor(self.kl)

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


@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_rewards_to_go_of_trained_tokens_stay_and_stand_on_trained_tokens(
    row: list[tuple[int, bool]],
) -> None:
    rewards = torch.tensor([reward for reward, _ in row])
    trained = torch.tensor([is_trained for _, is_trained in row])
    moved = on_trained_tokens(rewards, trained)
    first = trained.tolist().index(True) if trained.any() else len(row)
    for t in range(first, len(row)):
        if trained[t]:
            assert int(moved[t:].sum()) == int(rewards[t:].sum())
    assert not moved[first:][~trained[first:]].any()
    assert torch.equal(moved[:first], rewards[:first])
    assert torch.equal(on_trained_tokens(moved, trained), moved)


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
    monkeypatch: pytest.MonkeyPatch, batch: Batch, estimator: Any, mixin: Any
) -> list[list[float]]:
    """The advantages that verl's own step writes, with its KL penalty in the reward."""
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
    monkeypatch.setattr(trainer_base, "tq", queue)
    monkeypatch.setattr(trainer, "queue", lambda: queue)
    base: Any = trainer_base.PPOTrainer
    own: Any = type("Trainer", (base if mixin is None else in_tandem(base, mixin),), {})
    own.__abstractmethods__ = frozenset()
    made = object.__new__(own)
    made.kl_ctrl_in_reward = core_algos.FixedKLController(KL_COEF)
    settings = {"adv_estimator": estimator, "use_kl_in_reward": True, "kl_penalty": "kl"}
    discounts = {"gamma": float(batch.gamma), "lam": float(batch.lam)}
    made.config = OmegaConf.create(
        {
            "algorithm": {**settings, **discounts},
            "actor_rollout_ref": {"rollout": {"n": 1}},
        }
    )
    keys = [f"{group}_{row}_0" for row, group in enumerate(batch.groups)]
    made._compute_advantage(Keys(keys), {})
    return [row.tolist() for row in queue.columns["advantages"].unbind()]


@pytest.mark.parametrize("as_enum", [False, True], ids=["name", "enum"])
@pytest.mark.parametrize("estimator", REWARD_TO_GO_ESTIMATORS)
def test_trainers_own_step_gives_these_advantages(
    estimator: str, as_enum: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = core_algos.AdvantageEstimator(estimator) if as_enum else estimator
    far = 0.0
    for seed in range(40):
        batch = Batch(seed)
        expected = ORACLES[estimator](batch)
        ours = computed_by_the_trainer(monkeypatch, batch, chosen, trainer.TrainerInTandem)
        verls = computed_by_the_trainer(monkeypatch, batch, chosen, None)
        for mask, row, found, lost in zip(batch.mask, expected, ours, verls, strict=True):
            np.testing.assert_allclose(np.array(found)[mask], row, rtol=1e-7, atol=1e-7)
            far = max([far, *np.abs(np.array(lost)[mask] - row)])
    assert far > 0.1  # without the move, verl drops rewards
