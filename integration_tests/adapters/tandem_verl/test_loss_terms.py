"""verl's further loss terms and ways of batching in tandem: all of them in one run.

Dynamic batch size, remove-padding, entropy bonus, KL loss towards the reference, imitation of the
junior, and token-level importance correction between rollout and actor. The junior writes a prefix
that gets shorter as training goes on.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.grpo import GRPOReference, relative_error
from support.verl_run import TANDEM, VerlBench, VerlRun

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH = VerlBench
EPOCHS, ENTROPY, KL, LAMBDA_JUN, PREFIX = 2, 0.02, 0.05, 0.2, 9


@pytest.fixture(scope="module")
def run(bench: VerlBench, checkpoints: dict[str, Path], captured: Path) -> VerlRun:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    done = bench.run(
        *(f"{TANDEM}.schedule=handover", f"{TANDEM}.after={PREFIX}", f"{TANDEM}.end=0"),
        *(f"{TANDEM}.steps=3", f"{TANDEM}.junior={checkpoints['junior']}"),
        f"{TANDEM}.lambda_jun={LAMBDA_JUN}",
        f"{actor}.use_dynamic_bsz=True",
        f"{actor}.ppo_max_token_len_per_gpu=192",
        f"{rollout}.log_prob_max_token_len_per_gpu=192",
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=192",
        "actor_rollout_ref.model.use_remove_padding=True",
        f"{actor}.calculate_entropy=True",
        f"{actor}.entropy_coeff={ENTROPY}",
        f"{actor}.use_kl_loss=True",
        f"{actor}.kl_loss_coef={KL}",
        f"{actor}.kl_loss_type=low_var_kl",
        # Else the reference computes in bfloat16, and the penalty has a slope from the start.
        "+actor_rollout_ref.ref.fsdp_config.mixed_precision="
        "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
        "algorithm.rollout_correction.rollout_is=token",
        f"{actor}.ppo_epochs={EPOCHS}",
        f"{actor}.optim.lr=2e-3",
        "trainer.total_training_steps=2",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="terms",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_every_term_is_there(run: VerlRun) -> None:
    assert len(run.steps) == 2
    for step in run.steps:
        assert step["training/rollout_probs_diff_max"] <= 1e-6
        assert step["actor/kl_coef"] == pytest.approx(KL)
        assert step["actor/entropy_loss"] > 0
        assert step["rollout_corr/rollout_is_mean"] == pytest.approx(1, abs=1e-5)
        assert step["actor/junior_imitation_loss"] > 0
    assert run.steps[1]["actor/kl_loss"] > 0


def authors(row: dict[str, Any], step: int) -> list[int]:
    """The junior's prefix at a step, and the senior's rest."""
    length = len(row["response_ids"])
    prefix = min(PREFIX - 3 * step, length)
    return [0] * prefix + [1] * (length - prefix)


def test_trained_tokens_are_those_behind_the_juniors_prefix(run: VerlRun, captured: Path) -> None:
    for step in (1, 2):
        for row in run.rollouts(step):
            assert row["authorship"] == authors(row, step)
    wanted = Counter(tuple((authors(row, 1) + [0] * 32)[:32]) for row in run.rollouts(1))
    files = sorted(captured.glob("loss-*.pt"), key=lambda file: int(file.stem.split("-")[1]))
    masks: Counter[tuple[int, ...]] = Counter()
    batches = 0
    for file in files:
        loss = torch.load(file)
        mask = loss["response_mask"].bool()
        assert not loss["gradient"][~mask].any()
        if sum(masks.values()) < 8:
            masks.update(tuple(bits + [0] * (32 - len(bits))) for bits in mask.int().tolist())
            batches += 1
    assert masks == wanted
    assert batches > 2  # the batch size followed from the lengths


def test_gradient_is_that_of_all_terms_over_the_seniors_tokens(
    run: VerlRun, bench: VerlBench, captured: Path
) -> None:
    """At the first epoch the penalty has no slope; at the second it has."""
    rollouts = run.rollouts(1)
    reference = GRPOReference(bench.model, rollouts, ENTROPY, KL)
    without = GRPOReference(bench.model, rollouts, ENTROPY, 0.0)
    for epoch in range(EPOCHS):
        step = torch.load(captured / f"step-{epoch}.pt")
        expected = reference.gradients("token-mean", step["parameters"], LAMBDA_JUN)
        assert relative_error(step["gradients"], expected) <= 1e-5
        simpler = without.gradients("token-mean", step["parameters"], LAMBDA_JUN)
        assert (relative_error(step["gradients"], simpler) > 1e-3) is (epoch > 0)
        without_junior = reference.gradients("token-mean", step["parameters"])
        assert relative_error(step["gradients"], without_junior) > 1e-2
