"""Advantages of sessions of several outputs: verl's own, also where the junior wrote the last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import trainer_base

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl import trainer


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
    """The advantages that verl's own step writes."""
    monkeypatch.setattr(trainer_base, "tq", queue)
    monkeypatch.setattr(trainer, "queue", lambda: queue)
    base: Any = trainer_base.PPOTrainer
    own: Any = type("Trainer", (base if mixin is None else in_tandem(base, mixin),), {})
    own.__abstractmethods__ = frozenset()
    made = object.__new__(own)
    settings = {"gamma": 1.0, "lam": 1.0, "kl_penalty": "kl", "gdpo_reward_keys": ["acc"]}
    made.config = OmegaConf.create(
        {
            "algorithm": {**settings, "use_kl_in_reward": False, **algorithm},
            "actor_rollout_ref": {"rollout": {"n": 1}},
        }
    )
    made._compute_advantage(Keys(keys), {})
    return [row.tolist() for row in queue.columns["advantages"].unbind()]


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
