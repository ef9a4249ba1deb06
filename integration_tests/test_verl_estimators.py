"""verl's real trainer with estimators that walk back from a reward."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.verl_run import TANDEM, VerlBench

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH = VerlBench

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def test_ppo_with_a_critic_trains(bench: VerlBench, checkpoints: dict[str, Path]) -> None:
    """Micro-batches of one row, of which some have no token of the senior's."""
    run = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.p=0.05",
        f"{TANDEM}.junior={checkpoints['junior']}",
        "algorithm.adv_estimator=gae",
        "algorithm.rollout_correction.bypass_mode=True",
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu=1",
        f"{_ROLLOUT}.calculate_log_probs=True",
        f"critic.model.path={checkpoints['senior']}",
        "critic.strategy=fsdp2",
        "critic.model.use_remove_padding=False",
        "critic.model.enable_gradient_checkpointing=False",
        "critic.ppo_micro_batch_size_per_gpu=4",
        "trainer.total_training_steps=2",
        hook="value_head_on_cpu",
        name="ppo",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == 2
    for step in run.steps:
        assert step["critic/vf_loss"] > 0
        assert step["actor/grad_norm"] > 0
        assert torch.isfinite(torch.tensor(step["actor/pg_loss"]))
    assert any(step["tandem/responses_without_senior"] for step in run.steps)
