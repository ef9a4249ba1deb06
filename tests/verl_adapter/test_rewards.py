"""Reward-to-go estimators in tandem, against their definitions on the trained tokens alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from tensordict import NonTensorStack, TensorDict  # noqa: E402
from verl.trainer.config import AlgoConfig  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.trainer.ppo.v1 import trainer_base  # noqa: E402

from tandem_plugin.patching.mixins import in_tandem  # noqa: E402
from tandem_verl import trainer as trainer_v1  # noqa: E402
from tandem_verl.advantages import credit_rewards, on_trained_tokens  # noqa: E402
from tandem_verl.refusals import MISSING_ESTIMATORS, REWARD_TO_GO_ESTIMATORS  # noqa: E402

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
        self.baselines = noise.normal(size=rows)
        self.groups = np.sort(noise.integers(0, 3, size=rows)).astype(str).astype(object)
        self.log_probs = -np.abs(noise.normal(size=(rows, length)))
        self.squares = noise.random((rows, length))
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
    rewards = batch.trained_rewards()
    return whitened(
        [
            [
                sum(batch.gamma ** (s - t) * row[s] for s in range(t, len(row)))
                for t in range(len(row))
            ]
            for row in rewards
        ]
    )


def gae(batch: Batch) -> Rows:
    """Discounted sums of temporal differences, whitened (arXiv:1506.02438, equation 16)."""
    found = []
    for rewards, values in zip(batch.trained_rewards(), batch.compacted(batch.values), strict=True):
        after = [*values[1:], 0.0][: len(values)]
        deltas = [r + batch.gamma * n - v for r, n, v in zip(rewards, after, values, strict=True)]
        found.append(discounted(deltas, batch.gamma * batch.lam))
    return whitened(found)


def remax(batch: Batch) -> Rows:
    """Rewards to go less the greedy response's reward (arXiv:2310.10505)."""
    return [
        [sum(row[t:]) - baseline for t in range(len(row))]
        for row, baseline in zip(batch.trained_rewards(), batch.baselines, strict=True)
    ]


def optimal_token_baseline(batch: Batch) -> Rows:
    """Rewards to go less each position's mean, weighed by the energy of the path so far."""
    rewards = batch.trained_rewards()
    to_go = [[sum(row[t:]) for t in range(len(row))] for row in rewards]
    energy = []
    for logs, squares in zip(
        batch.compacted(batch.log_probs), batch.compacted(batch.squares), strict=True
    ):
        steps = [1 - 2 * math.exp(log) + square for log, square in zip(logs, squares, strict=True)]
        energy.append([sum(steps[: t + 1]) for t in range(len(steps))])
    found = []
    for i, row in enumerate(to_go):
        group = [j for j, name in enumerate(batch.groups) if name == batch.groups[i] and to_go[j]]
        lengths = sorted(len(to_go[j]) for j in group)
        alone = lengths[-2] if len(lengths) > 1 and len(row) > lengths[-2] else len(row)
        advantages = []
        for t, value in enumerate(row):
            others = [j for j in group if len(to_go[j]) > t]
            top = sum(to_go[j][t] * energy[j][t] for j in others)
            below = sum(energy[j][t] for j in others) + 1e-8
            advantages.append(value if len(group) == 1 or t >= alone else value - top / below)
        found.append(advantages)
    return found


ORACLES = {
    "reinforce_plus_plus": reinforce_plus_plus,
    "gae": gae,
    "remax": remax,
    "tir_optimal_token_baseline": optimal_token_baseline,
}


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
    extra: dict[str, Any] = {"config": AlgoConfig(gamma=batch.gamma), "index": batch.groups}
    if estimator == "remax":
        extra["reward_baselines"] = torch.tensor(batch.baselines)
    if estimator.startswith("tir"):
        extra["old_log_probs"] = torch.tensor(batch.log_probs)
        extra["sum_pi_squared"] = torch.tensor(batch.squares)
    return core_algos.get_adv_estimator_fn(estimator)(**common, **extra)[0]


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


def test_batch_of_the_queue_has_its_rewards_moved() -> None:
    def ragged(*rows: list[float]) -> Any:
        return torch.nested.as_nested_tensor([torch.tensor(r) for r in rows], layout=torch.jagged)

    columns = {
        "rm_scores": ragged([0.0, 0.0, 1.0], [0.0, 0.5]),
        "response_mask": ragged([1, 1, 0], [0, 0]),
    }

    def put(keys: Any, partition_id: str, fields: Any) -> None:
        columns.update(fields.items())

    queue = SimpleNamespace(
        kv_batch_get=lambda keys, partition_id, select_fields: TensorDict(
            {name: columns[name] for name in select_fields}, batch_size=len(keys)
        ),
        kv_batch_put=put,
    )
    credit_rewards(SimpleNamespace(keys=["a_0_0", "b_0_0"], partition_id="train"), queue)
    assert [row.tolist() for row in columns["rm_scores"].unbind()] == [[0.0, 1.0, 0.0], [0.0, 0.5]]


KL_COEF = 0.25


class Queue:
    """TransferQueue, with a batch's columns as trainer V1 finds them."""

    def __init__(self, batch: Batch) -> None:
        scores = np.zeros_like(batch.values)
        scores[:, -1] = batch.score
        penalties = batch.log_probs - batch.kl / KL_COEF
        self.columns: dict[str, Any] = {
            "uid": NonTensorStack(*batch.groups),
            **{
                name: torch.nested.as_nested_tensor([*torch.tensor(rows)], layout=torch.jagged)
                for name, rows in {
                    "response_mask": batch.mask.astype(np.int64),
                    "rm_scores": scores,
                    "values": batch.values,
                    "old_log_probs": batch.log_probs,
                    "ref_log_prob": penalties,
                }.items()
            },
        }

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: list[str]) -> Any:
        found = {name: self.columns[name] for name in select_fields if name in self.columns}
        return TensorDict(found, batch_size=len(keys))

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any) -> None:
        self.columns.update(fields.items())


class Keys:
    """A batch as trainer V1 holds it."""

    partition_id = "train"

    def __init__(self, batch: Batch) -> None:
        self.keys = [f"{group}_{row}_0" for row, group in enumerate(batch.groups)]

    def __len__(self) -> int:
        return len(self.keys)


def computed_by_the_trainer(
    monkeypatch: pytest.MonkeyPatch, batch: Batch, estimator: Any, mixin: type | None
) -> list[list[float]]:
    """The advantages that verl's own step writes, with its KL penalty in the reward."""
    queue = Queue(batch)
    monkeypatch.setattr(trainer_base, "tq", queue)
    monkeypatch.setattr(trainer_v1, "queue", lambda: queue)
    base: Any = trainer_base.PPOTrainer
    own: Any = type("Trainer", (base if mixin is None else in_tandem(base, mixin),), {})
    own.__abstractmethods__ = frozenset()
    trainer = object.__new__(own)
    trainer.kl_ctrl_in_reward = core_algos.FixedKLController(KL_COEF)
    trainer.config = OmegaConf.create(
        {
            "algorithm": {
                "adv_estimator": estimator,
                "gamma": float(batch.gamma),
                "lam": float(batch.lam),
                "use_kl_in_reward": True,
                "kl_penalty": "kl",
                "gdpo_reward_keys": ["acc"],
            },
            "actor_rollout_ref": {"rollout": {"n": 1}},
        }
    )
    trainer._compute_advantage(Keys(batch), {})
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
        ours = computed_by_the_trainer(monkeypatch, batch, chosen, trainer_v1.TrainerInTandem)
        verls = computed_by_the_trainer(monkeypatch, batch, chosen, None)
        for mask, row, found, lost in zip(batch.mask, expected, ours, verls, strict=True):
            np.testing.assert_allclose(np.array(found)[mask], row, rtol=1e-7, atol=1e-7)
            far = max([far, *np.abs(np.array(lost)[mask] - row)])
    assert far > 0.1  # without the move, verl drops rewards


@pytest.mark.parametrize(
    ("estimator", "lacking"),
    [
        ("remax", "reward_baselines"),
        ("tir_optimal_token_baseline", "sum_pi_squared"),
        ("gdpo", "prompts"),
    ],
)
def test_estimators_that_trainer_v1_cannot_run_are_rejected_for_that_reason(
    estimator: str, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once verl's V1 gives them what they need, this fails, and they can be allowed."""
    assert estimator in MISSING_ESTIMATORS
    with pytest.raises((TypeError, AssertionError, KeyError), match=lacking):
        computed_by_the_trainer(monkeypatch, Batch(1), estimator, None)
