"""verl's on-policy distillation in tandem: a teacher scores whole responses, the senior learns.

The junior writes some responses alone, and micro-batches are single responses, so that some have
no token to train on.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.grpo import GRPOReference, relative_error
from support.verl_run import TANDEM, VerlBench, VerlRun
from transformers import AutoModelForCausalLM

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]
BENCH, STEPS, TOPK, COEFFICIENT, CHUNK = VerlBench, 2, 8, 0.5, 16
LOSS = "distillation.distillation_loss"


def teacher_flags(teacher: Path) -> list[str]:
    """A teacher with an engine of its own, on the second of two declared GPUs."""
    model = "distillation.teacher_models.teacher_model"
    inference = f"{model}.inference"
    return [
        "ray_kwargs.ray_init.num_gpus=2",
        "distillation.enabled=True",
        "distillation.n_gpus_per_node=1",
        "distillation.nnodes=1",
        f"{model}.model_path={teacher}",
        f"{inference}.tensor_model_parallel_size=1",
        f"{inference}.gpu_memory_utilization=0.1",
        f"{inference}.free_cache_engine=False",
        f"+{inference}.enable_sleep_mode=False",
        f"{inference}.max_model_len=128",
        f"{inference}.max_num_seqs=8",
        f"{inference}.max_num_batched_tokens=512",
    ]


@pytest.fixture(scope="module")
def run(bench: VerlBench, checkpoints: dict[str, Path], captured: Path) -> VerlRun:
    """The teacher's likeliest tokens are imitated beside the task's reward."""
    done = bench.run(
        *(f"{TANDEM}.schedule=chunk", f"{TANDEM}.n={CHUNK}"),
        f"{TANDEM}.junior={checkpoints['junior']}",
        *teacher_flags(checkpoints["other"]),
        f"{LOSS}.loss_mode=forward_kl_topk",
        f"{LOSS}.topk={TOPK}",
        f"{LOSS}.use_policy_gradient=False",
        f"{LOSS}.distillation_loss_coef={COEFFICIENT}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        f"trainer.total_training_steps={STEPS}",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="distillation",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_dump_replays_and_some_responses_are_the_juniors(run: VerlRun, bench: VerlBench) -> None:
    config = TandemConfig.from_mapping({"schedule": "chunk", "n": CHUNK})
    rule: Rule = TandemRules(config, Vocabulary.from_path(bench.model)).default
    rows = [row for step in range(1, STEPS + 1) for row in run.rollouts(step)]
    assert len({row["tandem_seed"] for row in rows}) == len(rows) == STEPS * 8
    for row in rows:
        assert row["authorship"] == rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
    alone = [row for row in rows if not any(row["authorship"])]
    assert 0 < len(alone) < len(rows)
    assert len(run.steps) == STEPS
    for step in run.steps:
        assert math.isfinite(step["actor/distillation/loss"])
        assert step["actor/grad_norm"] > 0


class DistillationReference(GRPOReference):
    """Both losses over the senior's tokens, row by row, with the teacher by Hugging Face."""

    def __init__(self, checkpoint: Path, rollouts: list[dict[str, Any]], teacher: Path) -> None:
        super().__init__(checkpoint, rollouts)
        student = self.model
        self.model = AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.float64).eval()
        with torch.no_grad():
            self.of_teacher = [self._distributions(row) for row in rollouts]
        self.model = student

    def gradients_of_both(self) -> dict[str, torch.Tensor]:
        """The gradient at the checkpoint, by parameter, of GRPO's loss and the teacher's."""
        trained = sum(sum(row["authorship"]) for row in self.rollouts)
        gradients = self.gradients("token-mean")
        self.model.zero_grad()
        terms = []
        for row, teacher in zip(self.rollouts, self.of_teacher, strict=True):
            student = self._distributions(row)
            for place in range(len(row["response_ids"])):
                if row["authorship"][place]:
                    top = teacher[place].topk(TOPK)
                    gaps = top.values - student[place][top.indices]
                    terms.append((top.values.exp() * gaps).sum().clamp(min=0))
        (COEFFICIENT * sum(terms) / trained).backward()
        return {
            name: gradients[name] + parameter.grad
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }


def test_gradient_is_that_of_both_losses_over_the_seniors_tokens(
    run: VerlRun, bench: VerlBench, checkpoints: dict[str, Path], captured: Path
) -> None:
    reference = DistillationReference(bench.model, run.rollouts(1), checkpoints["other"])
    step = torch.load(captured / "step-0.pt")
    assert relative_error(step["gradients"], reference.gradients_of_both()) <= 1e-5
    assert relative_error(step["gradients"], reference.gradients("token-mean")) > 1e-2
