"""verl's own trainer on mini-batches that the junior wrote alone: the run goes through."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin._draws import draws
from tandem_plugin.seeds import derive_seed

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
P, LENGTH, STEPS, LAMBDA_JUN = 0.3, 3, 2, 0.2


def without_senior(seed: int, step: int, row: int) -> bool:
    """Whether the junior writes both responses to a prompt, by the schedule ``token``."""
    calls = [derive_seed(seed, "training", step, "row", row, session, 0) for session in range(2)]
    return all(u >= P for call in calls for u in draws(call, LENGTH))


SEED = next(
    seed
    for seed in count()
    if [without_senior(seed, 1, row) for row in range(4)] == [True, False, False, False]
)


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path], captured: Path
) -> VerlRun:
    """A mini-batch for each of four prompts; old log-probabilities are those of the rollout."""
    bench = VerlBench.make(tmp_path_factory.mktemp("verl"), checkpoints["senior"])
    done = bench.run(
        f"{TANDEM}.schedule=token",
        f"{TANDEM}.p={P}",
        f"{TANDEM}.seed={SEED}",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{TANDEM}.lambda_jun={LAMBDA_JUN}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "algorithm.rollout_correction.bypass_mode=True",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "trainer.balance_batch=False",
        "data.shuffle=False",
        f"data.max_response_length={LENGTH}",
        f"trainer.total_training_steps={STEPS}",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="admission",
    )
    assert done.exit_code == 0, done.log[-3000:]
    assert len(done.steps) == STEPS
    return done


def test_prompts_that_the_junior_answers_alone_are_counted(run: VerlRun) -> None:
    assert run.steps[0]["tandem/prompts_without_senior"] >= 1


def test_only_tokens_of_the_senior_have_a_gradient_of_the_loss(
    run: VerlRun, captured: Path
) -> None:
    trained = sum(sum(row["authorship"]) for row in run.rollouts(1))
    masks = []
    files = sorted(captured.glob("loss-*.pt"), key=lambda file: int(file.stem.split("-")[1]))
    for file in files[:4]:  # the mini-batches of the first step
        loss = torch.load(file)
        mask = loss["response_mask"].bool()
        masks.append(int(mask.sum()))
        if masks[-1]:
            assert not loss["gradient"][~mask].any()
    assert sum(masks) == trained
    assert 0 in masks


def test_mini_batch_without_a_token_of_the_seniors_has_the_imitations_gradient(
    captured: Path, run: VerlRun
) -> None:
    """verl's own loss is 0 / 0 there, whose gradient is 0."""
    files = sorted(captured.glob("step-*.pt"))
    assert len(files) == 4 * STEPS
    for file in files:
        gradients = torch.load(file)["gradients"].values()
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert any(gradient.any() for gradient in gradients)
