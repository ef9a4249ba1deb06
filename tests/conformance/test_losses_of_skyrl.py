"""SkyRL's own advantages, reductions and losses under masks with holes, against plain loops."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("skyrl", reason="SkyRL is not installed")

from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch  # noqa: E402
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry  # noqa: E402
from skyrl.train.config import AlgorithmConfig  # noqa: E402
from skyrl.train.config.config import (  # noqa: E402
    ClipCovConfig,
    KLCovConfig,
    OffPolicyCorrectionConfig,
)
from skyrl.train.trainer import RayPPOTrainer  # noqa: E402

from tandem_skyrl.start import SOUND_ESTIMATORS, SOUND_LOSSES  # noqa: E402
from tandem_skyrl.trainer import TandemTrainer  # noqa: E402

ROWS, LENGTH, MICRO, LONGEST = 8, 10, 4, 16
GROUPS = ["0"] * 4 + ["1"] * 4
LENGTHS = [10, 4, 1, 7, 10, 5, 8, 3]
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 0.25]
REDUCTIONS = (
    *("token_mean", "token_mean_legacy", "sequence_mean", "seq_mean_token_sum_norm"),
    "prompt_mean",
)


@pytest.fixture(autouse=True)
def _exact() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made_batch() -> dict[str, Any]:
    """Right-aligned rows of several lengths, one without a token of the senior's."""
    noise = torch.Generator().manual_seed(4)

    def near(scale: float) -> Any:
        return scale * torch.randn(ROWS, LENGTH, generator=noise)

    response = (torch.arange(LENGTH) >= LENGTH - torch.tensor(LENGTHS)[:, None]).double()
    senior = (torch.rand(ROWS, LENGTH, generator=noise) < 0.5).double()
    senior[1], senior[2], senior[4] = 0, 1, 1
    now, rewards = near(0.8) - 2, torch.zeros(ROWS, LENGTH)
    rewards[:, -1] = torch.tensor(REWARDS)
    old = now + near(0.4)
    return {
        "response": response,
        "mask": response * senior,
        "rewards": rewards,
        "now": now,
        "old": old,
        "rollout": (old + near(0.2)) * response * senior,
    }


class _Advantages(TandemTrainer, RayPPOTrainer):
    """SkyRL's trainer in tandem, as far as it computes advantages."""

    def __init__(self, config: AlgorithmConfig) -> None:
        trainer = SimpleNamespace(algorithm=config, micro_train_batch_size_per_gpu=MICRO)
        generator = SimpleNamespace(step_wise_trajectories=False)
        self.cfg = SimpleNamespace(trainer=trainer, generator=generator)
        self.all_metrics = {}


def skyrls(config: AlgorithmConfig, batch: dict[str, Any]) -> Any:
    """The gradient by each log-probability, as trainer and worker compute it."""
    trainer = _Advantages(config)
    data = TrainingInputBatch(
        {
            "rewards": batch["rewards"].clone(),
            "response_mask": batch["response"],
            "loss_mask": batch["mask"],
            "values": None,
        }
    )
    data.metadata = {"uids": GROUPS, "avg_response_length": 1.0}
    data = trainer.compute_advantages_and_returns(data)
    data = trainer._normalize_advantages(data, [(0, ROWS)], [(0, 4), (4, 8)])
    now = batch["now"].clone().requires_grad_()
    loss_function = PolicyLossRegistry.get(config.policy_loss_type)
    for start in range(0, ROWS, MICRO):
        part = slice(start, start + MICRO)
        torch.manual_seed(start)  # clip_cov draws
        loss, _ = loss_function(
            now[part],
            batch["old"][part],
            data["advantages"][part],
            config=config,
            loss_mask=batch["mask"][part],
            rollout_logprobs=batch["rollout"][part],
        )
        if loss.requires_grad:
            loss.backward()
    return torch.zeros_like(now) if now.grad is None else now.grad


def tokens(batch: dict[str, Any], i: int) -> list[int]:
    return [j for j in range(LENGTH) if batch["mask"][i, j]]


def loop_advantages(estimator: str, batch: dict[str, Any]) -> list[float]:
    """Of each row: its whole response's reward against the others'."""
    if estimator == "reinforce++":  # whitened over the senior's tokens
        own = [REWARDS[i] for i in range(ROWS) for _ in tokens(batch, i)]
        mean = sum(own) / len(own)
        variance = sum((one - mean) ** 2 for one in own) / (len(own) - 1)
        return [(one - mean) / math.sqrt(variance + 1e-8) for one in REWARDS]
    found = []
    for i in range(ROWS):
        group = [REWARDS[k] for k in range(ROWS) if GROUPS[k] == GROUPS[i]]
        mean = sum(group) / 4
        deviation = math.sqrt(sum((one - mean) ** 2 for one in group) / 3)
        gain = REWARDS[i] - mean
        found.append(
            {
                "grpo": gain / (deviation + 1e-6),
                "rloo": gain * 4 / 3,
                "maxrl": gain / (mean + 1e-6),
            }[estimator]
        )
    return found


def weight(config: AlgorithmConfig, batch: dict[str, Any], i: int) -> float:
    """What a token of row i weighs."""
    counts = [len(tokens(batch, k)) for k in range(ROWS)]
    first = i // MICRO * MICRO
    group = sum(n for k, n in enumerate(counts) if GROUPS[k] == GROUPS[i])
    return {
        "token_mean": 1 / sum(counts),
        "token_mean_legacy": 1 / max(sum(counts[first : first + MICRO]), 1) / (ROWS // MICRO),
        "sequence_mean": 1 / (ROWS * max(counts[i], 1)),
        "seq_mean_token_sum_norm": 1 / (ROWS * LONGEST),
        "prompt_mean": 1 / (2 * group),
    }[config.loss_reduction]


def loops(config: AlgorithmConfig, batch: dict[str, Any]) -> Any:
    """The same gradient, one token of the senior's after another."""
    now = batch["now"].clone().requires_grad_()
    total: Any = 0
    advantages = loop_advantages(config.advantage_estimator, batch)
    advantages = [a * weight(config, batch, i) for i, a in enumerate(advantages)]
    chosen = by_covariance(config, batch, advantages)
    for i, a in enumerate(advantages):
        own = tokens(batch, i)
        mean = sum(now[i, j] - batch["old"][i, j] for j in own) / max(len(own), 1)
        for j in own:
            old, rollout = batch["old"][i, j], batch["rollout"][i, j]
            if (i, j) not in chosen:
                total = total + one_token(config, now[i, j], old, rollout, a, mean)
            elif config.policy_loss_type == "kl_cov":
                kl = config.kl_cov.ppo_kl_coef * (now[i, j] - old).abs()
                total = total + kl - (now[i, j] - old).exp() * a
    total.backward()
    return now.grad


def by_covariance(
    config: AlgorithmConfig, batch: dict[str, Any], advantages: list[float]
) -> set[tuple[int, int]]:
    """The senior's tokens that ``clip_cov`` leaves out and ``kl_cov`` pulls back."""
    name, chosen = config.policy_loss_type, set()
    for start in range(0, ROWS, MICRO) if name in ("clip_cov", "kl_cov") else ():
        places = [(i, j) for i in range(start, start + MICRO) for j in tokens(batch, i)]
        if not places:
            continue
        mean = sum(advantages[i] for i, _ in places) / len(places)
        mean_now = sum(float(batch["now"][place]) for place in places) / len(places)
        covariance = {
            place: (advantages[place[0]] - mean) * (float(batch["now"][place]) - mean_now)
            for place in places
        }
        if name == "kl_cov":
            count = max(1, int(len(places) * config.kl_cov.kl_cov_frac))
            chosen |= set(sorted(places, key=lambda place: -covariance[place])[:count])
            continue
        settings, clipped = config.clip_cov, set()
        for i, j in places:
            ratio = math.exp(batch["now"][i, j] - batch["old"][i, j])
            if -advantages[i] * min(max(ratio, 0.8), 1.2) > -advantages[i] * ratio:
                clipped.add((i, j))
        candidates = [
            place
            for place in places
            if settings.clip_cov_lb < covariance[place] < settings.clip_cov_ub
            and place not in clipped
        ]
        torch.manual_seed(start)
        order = torch.randperm(len(candidates)).tolist() if candidates else []
        count = max(int(settings.clip_ratio * len(places)), 1)
        chosen |= {candidates[number] for number in order[:count]}
    return chosen


def one_token(
    config: AlgorithmConfig, log_prob: Any, old: Any, rollout: Any, a: float, mean: Any
) -> Any:
    name, ratio, of_rollout = config.policy_loss_type, (log_prob - old).exp(), log_prob - rollout
    if name == "gspo":
        ratio = (log_prob - log_prob.detach() + mean.detach()).exp()
    if name == "kl_cov":
        return -ratio * a
    if name in ("regular", "dual_clip", "gspo", "clip_cov"):
        value = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
        if name == "dual_clip" and a < 0:
            return torch.min(torch.tensor(-a * config.clip_ratio_c), value)
        return value
    if name == "cispo":
        low, high = 1 - config.cispo.cispo_eps_clip_low, 1 + config.cispo.cispo_eps_clip_high
        return -a * ratio.clamp(low, high).detach() * log_prob
    if name == "sapo":
        tau = config.sapo.tau_pos if a > 0 else config.sapo.tau_neg
        return -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * a
    if name == "rollout_is":
        inside = 0.8 < of_rollout.exp() < 1.2
        return -(of_rollout.exp() if inside else of_rollout * 0).detach() * a * log_prob
    if name == "dppo":
        moved = (log_prob.exp() - rollout.exp()).detach()
        up, down = (
            a > 0 and moved > config.dppo.delta_high,
            a < 0 and -moved > config.dppo.delta_low,
        )
        return -of_rollout.exp() * a * (0 if up or down else 1)
    assert name == "importance_sampling"
    return -ratio * a


COVARIANCES = {
    "clip_cov": ClipCovConfig(clip_ratio=0.3, clip_cov_lb=0.0005, clip_cov_ub=0.05),
    "kl_cov": KLCovConfig(kl_cov_frac=0.3),
}
"""With SkyRL's own, a batch as small as this one leaves no token out."""


@pytest.mark.parametrize("loss", COVARIANCES)
def test_covariance_chooses_some_of_the_seniors_tokens(loss: str) -> None:
    batch = made_batch()
    config = AlgorithmConfig(policy_loss_type=loss, max_seq_len=LONGEST, **COVARIANCES)
    chosen = by_covariance(config, batch, [0.02 * a for a in loop_advantages("grpo", batch)])
    assert 3 <= len(chosen) < batch["mask"].sum() / 2


@pytest.mark.parametrize("estimator", SOUND_ESTIMATORS)
@pytest.mark.parametrize("loss", SOUND_LOSSES)
def test_gradient_is_that_of_the_seniors_tokens(loss: str, estimator: str) -> None:
    batch = made_batch()
    for reduction in REDUCTIONS:
        config = AlgorithmConfig(
            advantage_estimator=estimator,
            loss_reduction=reduction,
            policy_loss_type=loss,
            max_seq_len=LONGEST,
            **COVARIANCES,
        )
        found, expected = skyrls(config, batch), loops(config, batch)
        assert expected.abs().max() > 1e-4, reduction
        # SkyRL's ratios are in float32.
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7, msg=reduction)
        assert not found[batch["mask"] == 0].any()


CORRECTIONS = {
    "none": {},
    "token": {"tis_ratio_type": "token"},
    "sequence": {"tis_ratio_type": "sequence"},
    "geometric": {"sequence_mask_metric": "geometric"},
    "product": {"sequence_mask_metric": "product"},
    "outliers": {"outlier_token_is_threshold_low": 0.5, "outlier_token_is_threshold_high": 2.0},
    "tokens": {"token_mask_is_threshold_low": 0.8, "token_mask_is_threshold_high": 1.25},
}


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_no_gradient_depends_on_the_juniors_tokens(correction: str) -> None:
    batch, noise = made_batch(), torch.Generator().manual_seed(5)
    holes = batch["mask"] == 0

    def other(name: str) -> Any:
        return torch.where(holes, torch.randn(ROWS, LENGTH, generator=noise) * 3, batch[name])

    changed = {**batch, **{name: other(name) for name in ("now", "old", "rollout")}}
    for loss in SOUND_LOSSES:
        config = AlgorithmConfig(
            policy_loss_type=loss,
            **COVARIANCES,
            off_policy_correction=OffPolicyCorrectionConfig(**CORRECTIONS[correction]),
        )
        found = skyrls(config, batch)
        assert torch.isfinite(found).all()
        assert not found[holes].any(), loss
        torch.testing.assert_close(skyrls(config, changed), found, rtol=0, atol=1e-12, msg=loss)


def test_a_mask_without_holes_gives_another_gradient() -> None:
    batch = made_batch()
    for estimator, reduction in itertools.product(SOUND_ESTIMATORS, ("token_mean", "prompt_mean")):
        config = AlgorithmConfig(advantage_estimator=estimator, loss_reduction=reduction)
        whole = {**batch, "mask": batch["response"]}
        assert (skyrls(config, batch) - skyrls(config, whole)).abs().max() > 1e-3
