"""OpenRLHF's gae on masks with holes, against a plain loop over the trained tokens alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

from tandem_openrlhf.patches.training import Maker, MaskedCritic, MaskedTrainer  # noqa: E402

GAMMA, LAM, ROWS, LENGTH = 0.97, 0.9, 6, 11


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> Any:
    without = Path(__file__).parents[3] / "adapters/tandem_openrlhf/without_flash_attn"
    monkeypatch.syspath_prepend(str(without))
    from openrlhf.trainer.ppo_utils import experience_maker

    return experience_maker


def reference(rewards: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    advantages: list[float] = []
    advantage = following = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + GAMMA * following - value + GAMMA * LAM * advantage
        following = value
        advantages.insert(0, advantage)
    return advantages, [one + value for one, value in zip(advantages, values, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_gae_is_that_of_the_trained_tokens_alone(makers: Any, seed: int) -> None:
    """Through OpenRLHF's own shaping of rewards, with its KL penalty at each trained token."""
    generator = torch.Generator().manual_seed(seed)

    def numbers() -> Any:
        return torch.rand(ROWS, LENGTH, generator=generator, dtype=torch.float64)

    mask = numbers() < 0.5
    mask[2] = False  # a response of the junior's alone
    values, kl, scores = numbers() * 9, numbers(), numbers()[:, 0]
    experience = SimpleNamespace(
        rewards=scores.clone(),
        index=list(range(ROWS)),
        kl=kl,
        action_mask=mask,
        values=values.clone(),
        info={},
    )
    maker = object.__new__(Maker.tandem_over(makers.RemoteExperienceMaker))
    maker.strategy = SimpleNamespace(args=settings())
    maker.kl_ctl, maker.advantage_estimator = SimpleNamespace(value=0.1), "gae"
    (made,) = maker.compute_advantages_and_returns([experience])
    every = []
    for row in range(ROWS):
        own = mask[row]
        rewards = (-0.1 * kl[row][own]).tolist()
        if rewards:
            rewards[-1] += float(scores[row])
        advantages, returns = reference(rewards, values[row][own].tolist())
        assert made.returns[row][own].tolist() == pytest.approx(returns, abs=1e-6)
        assert made.returns[row][~own].tolist() == [0.0] * int((~own).sum())
        every += advantages
    exact = torch.tensor(every, dtype=torch.float64)
    whitened = (exact - exact.mean()) / exact.std(unbiased=False)
    assert made.advantages[mask].tolist() == pytest.approx(whitened.tolist(), abs=1e-5)


def settings() -> Any:
    return SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(
                estimator="gae", gamma=GAMMA, lambd=LAM, no_std_norm=False, baseline=None
            )
        ),
        rollout=SimpleNamespace(n_samples_per_prompt=1),
        reward=SimpleNamespace(
            clip_range=None, overlong_buffer_len=None, stop_properly_penalty_coef=None
        ),
    )


@pytest.mark.parametrize("ours", [MaskedCritic, MaskedTrainer])
def test_step_without_a_trained_token_divides_by_one(ours: type) -> None:
    class Foreign:
        def __init__(self) -> None: ...

        def training_step(self, *given: Any) -> dict[str, Any]:
            return {"counts": given[-1], "num_action_tokens": 0}

    counts = {"dp_size": 2, "batch_num_tokens": torch.tensor(0.0), "global_batch_size": 3}
    given = [None] * (2 if ours is MaskedCritic else 3)
    trainer = object.__new__(ours.tandem_over(Foreign))
    status = trainer.training_step(*given, counts)
    assert status["counts"] == {"dp_size": 2, "batch_num_tokens": 1, "global_batch_size": 3}
