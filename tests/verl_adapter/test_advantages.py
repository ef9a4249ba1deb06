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
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.protocol import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.v1 import trainer_base, utils

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl import trainer
from tandem_verl.advantages import advantages_of_sessions
from tandem_verl.refusals import REWARD_TO_GO_ESTIMATORS, SOUND_ESTIMATORS
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


def verls(estimator: str, batch: Batch) -> Any:
    """verl's own, on the mask with holes and the moved rewards, in float64."""
    common = {
        "token_level_rewards": batch.rewards(),
        "response_mask": torch.tensor(batch.mask) * 1.0,
    }
    if estimator == "gae":
        values = torch.tensor(batch.values)
        return core_algos.compute_gae_advantage_return(
            **common, values=values, gamma=batch.gamma, lam=batch.lam
        )[0]
    config = AlgoConfig(gamma=batch.gamma)
    return core_algos.get_adv_estimator_fn(estimator)(**common, config=config)[0]


@pytest.mark.parametrize("estimator", ORACLES)
def test_advantages_are_those_of_the_trained_tokens_alone(estimator: str) -> None:
    for seed in range(200):
        batch = Batch(seed)
        found = verls(estimator, batch).numpy()
        for row, mask, expected in zip(found, batch.mask, ORACLES[estimator](batch), strict=True):
            # verl's masked means divide by the number of tokens + 1e-8.
            np.testing.assert_allclose(row[mask], expected, rtol=1e-7, atol=1e-7)


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
OTHERS = [name for name in SOUND_ESTIMATORS if name not in ("grpo", "gae")]
"""gae needs values."""


def session_batch(mask: Any) -> Any:
    """A batch of trainer V1's: every output of a session has its reward, at the last token."""
    rewards = torch.zeros(len(OUTPUTS), LENGTH)
    rewards[:, -1] = torch.tensor([REWARDS[output[:3]] for output in OUTPUTS])
    data = DataProto(
        batch=TensorDict(
            {"token_level_rewards": rewards, "response_mask": mask.clone()},
            batch_size=len(OUTPUTS),
        )
    )
    data.non_tensor_batch["uid"] = np.array([output[0] for output in OUTPUTS], dtype=object)
    return data


def mask_of(without: Any) -> Any:
    """Holes in every output, no trained token in those that are ``without``."""
    mask = (
        torch.rand(len(OUTPUTS), LENGTH, generator=torch.Generator().manual_seed(1)) < 0.5
    ).long()
    mask[:, 2] = 1
    mask[without] = 0
    return mask


def advantages(compute: Any, mask: Any, estimator: Any) -> Any:
    torch.manual_seed(0)
    data = compute(
        session_batch(mask),
        batch_keys=KEYS,
        adv_estimator=estimator,
        num_repeat=3,
        norm_adv_by_std_in_grpo=True,
        config=AlgoConfig(),
    )
    assert torch.equal(data.batch["response_mask"], mask)
    return data.batch["advantages"]


def sessions_in_tandem(*arguments: Any, **settings: Any) -> Any:
    verls = utils.compute_advantage_for_multi_trajectories
    return advantages_of_sessions(verls, *arguments, **settings)


NOBODY = torch.zeros(len(OUTPUTS), dtype=torch.bool)
SOME_LAST = LAST & (torch.arange(len(OUTPUTS)) % 2 == 0)


@pytest.mark.parametrize("estimator", [AdvantageEstimator.GRPO, "grpo"])
@pytest.mark.parametrize("without", [LAST, SOME_LAST], ids=["every last", "some"])
def test_session_keeps_its_advantage_where_the_junior_wrote_the_last_output(
    without: Any, estimator: Any
) -> None:
    assert without.any()
    whole = advantages(sessions_in_tandem, mask_of(NOBODY), estimator)
    narrowed = advantages(sessions_in_tandem, mask_of(without), estimator)
    assert torch.equal(narrowed, whole * ~without[:, None])
    earlier = narrowed[~LAST]
    trained = mask_of(without)[~LAST].bool()
    assert (earlier[trained] != 0).all()
    # verl alone drops them.
    verls = advantages(utils.compute_advantage_for_multi_trajectories, mask_of(LAST), estimator)
    assert not verls.any()


def test_sessions_advantage_is_that_of_its_reward_among_its_prompts() -> None:
    found = advantages(sessions_in_tandem, mask_of(LAST), "grpo")
    for number, (prompt, *_) in enumerate(OUTPUTS):
        rewards = torch.tensor([REWARDS[one] for one in SESSIONS if one[0] == prompt])
        reward = REWARDS[OUTPUTS[number][:3]]
        expected = (reward - rewards.mean()) / (rewards.std() + 1e-6)
        wanted = expected * mask_of(LAST)[number]
        assert torch.allclose(found[number], wanted, atol=1e-5)


@pytest.mark.parametrize("estimator", ["grpo", *OTHERS])
def test_batch_in_which_every_output_trains_is_verls_own(estimator: str) -> None:
    verls = utils.compute_advantage_for_multi_trajectories
    mask = mask_of(NOBODY)
    assert torch.equal(
        advantages(sessions_in_tandem, mask, estimator), advantages(verls, mask, estimator)
    )


@pytest.mark.parametrize("estimator", OTHERS)
def test_other_estimators_give_every_output_an_advantage_of_its_own(estimator: str) -> None:
    """None reads one output's off another's: what trains has one where it would have any."""
    verls = utils.compute_advantage_for_multi_trajectories
    whole = advantages(verls, mask_of(NOBODY), estimator)
    found = advantages(sessions_in_tandem, mask_of(LAST), estimator)
    assert torch.equal(found, advantages(verls, mask_of(LAST), estimator))
    assert torch.isfinite(found).all()
    assert torch.equal(found[~LAST] != 0, whole[~LAST] != 0)
    assert not found[LAST].any()


@pytest.mark.parametrize("several", [True, False])
def test_trainer_v1_reads_whole_sessions_where_there_are_several_outputs(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer's own step, on sessions whose last output the junior wrote."""
    mask = mask_of(LAST)
    rewards = session_batch(mask).batch["token_level_rewards"]
    uids = [output[0] for output in OUTPUTS]
    queue = Queue(uids, response_mask=mask, rm_scores=rewards)
    verls = utils.compute_advantage_for_multi_trajectories
    exchanged: list[bool] = []

    def put(fields: Any, **where: Any) -> None:
        queue.columns.update(fields.items())
        exchanged.append(trainer_base.compute_advantage_for_multi_trajectories is not verls)

    monkeypatch.setattr(queue, "kv_batch_put", put)
    keys = KEYS if several else [f"{uid}_{row}_0" for row, uid in enumerate(uids)]
    ours = trainer.TrainerInTandem
    found = computed_by_the_trainer(monkeypatch, queue, keys, ours, adv_estimator="grpo")
    assert exchanged == [several]
    assert torch.tensor(found).any()
    assert not torch.tensor(found)[LAST].any()
    assert trainer_base.compute_advantage_for_multi_trajectories is verls
