"""verl's own advantages of sessions of several outputs, where the junior wrote the last one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tandem_plugin.patching import mixins
from tandem_verl.advantages import advantages_of_sessions
from tandem_verl.refusals import SOUND_ESTIMATORS
from tandem_verl.trainer import TrainerInTandem

pytest.importorskip("verl", reason="verl is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
TensorDict = pytest.importorskip("tensordict", reason="verl's batches").TensorDict

from verl.protocol import DataProto  # noqa: E402
from verl.trainer.config import AlgoConfig  # noqa: E402
from verl.trainer.ppo.core_algos import AdvantageEstimator  # noqa: E402
from verl.trainer.ppo.v1 import utils  # noqa: E402

LENGTH = 5
SESSIONS = [("a", 0, 3), ("a", 1, 2), ("a", 2, 1), ("b", 0, 2), ("b", 1, 2), ("b", 2, 3)]
"""(prompt, session, outputs)."""
REWARDS = dict(zip(SESSIONS, (1.0, 0.0, 0.3, 0.8, 0.1, 0.6), strict=True))
OUTPUTS = [(*session, output) for session in SESSIONS for output in range(session[2])]
KEYS = [f"{prompt}_{session}_{output}" for prompt, session, _, output in OUTPUTS]
LAST = torch.tensor([output == outputs - 1 for *_, outputs, output in OUTPUTS])
OTHERS = [name for name in SOUND_ESTIMATORS if name not in ("grpo", "gae")]
"""gae needs values."""


def batch(mask: Any) -> Any:
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
        batch(mask),
        batch_keys=KEYS,
        adv_estimator=estimator,
        num_repeat=3,
        norm_adv_by_std_in_grpo=True,
        config=AlgoConfig(),
    )
    assert torch.equal(data.batch["response_mask"], mask)
    return data.batch["advantages"]


def in_tandem(*arguments: Any, **settings: Any) -> Any:
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
    whole = advantages(in_tandem, mask_of(NOBODY), estimator)
    narrowed = advantages(in_tandem, mask_of(without), estimator)
    assert torch.equal(narrowed, whole * ~without[:, None])
    earlier = narrowed[~LAST]
    trained = mask_of(without)[~LAST].bool()
    assert (earlier[trained] != 0).all()
    # verl alone drops them.
    verls = advantages(utils.compute_advantage_for_multi_trajectories, mask_of(LAST), estimator)
    assert not verls.any()


def test_sessions_advantage_is_that_of_its_reward_among_its_prompts() -> None:
    found = advantages(in_tandem, mask_of(LAST), "grpo")
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
    assert torch.equal(advantages(in_tandem, mask, estimator), advantages(verls, mask, estimator))


@pytest.mark.parametrize("estimator", OTHERS)
def test_other_estimators_give_every_output_an_advantage_of_its_own(estimator: str) -> None:
    """None reads one output's off another's: what trains has one where it would have any."""
    verls = utils.compute_advantage_for_multi_trajectories
    whole = advantages(verls, mask_of(NOBODY), estimator)
    found = advantages(in_tandem, mask_of(LAST), estimator)
    assert torch.equal(found, advantages(verls, mask_of(LAST), estimator))
    assert torch.isfinite(found).all()
    assert torch.equal(found[~LAST] != 0, whole[~LAST] != 0)
    assert not found[LAST].any()


class Keys:
    """A batch as trainer V1 holds it."""

    keys, partition_id = KEYS, "train"

    def __len__(self) -> int:
        return len(KEYS)


class Queue:
    """What trainer V1 reads and writes while it computes advantages."""

    def __init__(self, mask: Any) -> None:
        lengths = mask.new_full((len(mask),), LENGTH)
        rewards = batch(mask).batch["token_level_rewards"]

        def nested(values: Any) -> Any:
            return torch.nested.nested_tensor_from_jagged(
                values.flatten(), torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            )

        from tensordict import NonTensorStack

        self.columns = {
            "uid": NonTensorStack(*(output[0] for output in OUTPUTS)),
            "response_mask": nested(mask),
            "rm_scores": nested(rewards),
        }
        self.put: Any = None

    def kv_batch_get(self, select_fields: list[str], **where: Any) -> Any:
        found = {name: self.columns[name] for name in select_fields if name in self.columns}
        return TensorDict(found, batch_size=len(OUTPUTS))

    def kv_batch_put(self, fields: Any, **where: Any) -> None:
        self.put = fields


@pytest.mark.parametrize("several", [True, False])
def test_trainer_v1_reads_whole_sessions_where_there_are_several_outputs(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer's own step, on sessions whose last output the junior wrote."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import trainer_base

    queue = Queue(mask_of(LAST))
    monkeypatch.setattr(trainer_base, "tq", queue)
    verls = utils.compute_advantage_for_multi_trajectories
    exchanged: list[bool] = []

    def put(fields: Any, **where: Any) -> None:
        queue.put = fields
        exchanged.append(trainer_base.compute_advantage_for_multi_trajectories is not verls)

    monkeypatch.setattr(queue, "kv_batch_put", put)
    ours: Any = mixins.in_tandem(trainer_base.PPOTrainer, TrainerInTandem)
    own: Any = type("Trainer", (ours,), {})
    own.__abstractmethods__ = frozenset()
    trainer = object.__new__(own)
    trainer.config = OmegaConf.create(
        {
            "algorithm": {
                "adv_estimator": "grpo",
                "gamma": 1.0,
                "lam": 1.0,
                "use_kl_in_reward": False,
            },
            "actor_rollout_ref": {"rollout": {"n": 3}},
        }
    )
    batch = Keys()
    if not several:
        batch.keys = [f"{prompt}_{row}_0" for row, (prompt, *_) in enumerate(OUTPUTS)]
    trainer._compute_advantage(batch, {})
    assert exchanged == [several]
    written = queue.put["advantages"].to_padded_tensor(0.0)
    assert written.any()
    assert not written[LAST].any()
    assert trainer_base.compute_advantage_for_multi_trajectories is verls
