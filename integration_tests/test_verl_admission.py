"""verl's own trainer on batches of which a part cannot be trained on: the run goes through.

Prompts that the junior answers alone, each in a mini-batch of its own, and an agent loop whose
candidates are the same text by different authors.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support import agent_loops
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin.draws import draws
from tandem_plugin.seeds import derive_seed

pytestmark = pytest.mark.timeout(1200)
P, LENGTH, STEPS, LAMBDA_JUN = 0.3, 3, 2, 0.2
AGENTS = ["single_turn_agent", "same_texts"]


def authors(seed: int, step: int, row: int, session: int, call: int) -> list[bool]:
    """Whether each token of a call of the step is the senior's, by the schedule ``token``."""
    of_call = derive_seed(seed, "training", step, "row", row, session, call)
    return [u < P for u in draws(of_call, LENGTH)]


def without_senior(seed: int, step: int, row: int) -> bool:
    """Whether the junior writes both responses to a prompt of one call."""
    return not any(any(authors(seed, step, row, session, 0)) for session in range(2))


def unknown(seed: int, step: int, row: int, session: int) -> list[bool]:
    """Where the two candidates of ``same_texts`` have different authors."""
    both = (authors(seed, step, row, session, call) for call in range(2))
    return [first != second for first, second in zip(*both, strict=True)]


SEED = next(
    seed
    for seed in count()
    if [without_senior(seed, 1, row) for row in (0, 2)] == [True, False]
    and any(any(unknown(seed, 1, row, session)) for row in (1, 3) for session in range(2))
)


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path], captured: Path
) -> VerlRun:
    """Every step: two prompts in one call, two by ``same_texts``; a mini-batch for each prompt."""
    folder = tmp_path_factory.mktemp("verl")
    bench = VerlBench.make(folder, checkpoints["senior"], agents=AGENTS)
    loops = folder / "loops.yaml"
    loops.write_text(agent_loops.CONFIG)
    done = bench.run(
        f"{TANDEM}.schedule=token",
        f"{TANDEM}.p={P}",
        f"{TANDEM}.seed={SEED}",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{TANDEM}.lambda_jun={LAMBDA_JUN}",
        f"{TANDEM}.max_unknown_share=0.9",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "trainer.balance_batch=False",
        "data.shuffle=False",
        f"data.max_response_length={LENGTH}",
        f"trainer.total_training_steps={STEPS}",
        hook=["capture_update", "agent_loops"],
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="admission",
    )
    assert done.exit_code == 0, done.log[-3000:]
    assert len(done.steps) == STEPS
    return done


def test_prompts_that_the_junior_answers_alone_are_counted(run: VerlRun) -> None:
    assert run.steps[0]["tandem/prompts_without_senior"] >= 1


def test_tokens_that_either_candidate_could_have_written_are_counted_and_dumped(
    run: VerlRun,
) -> None:
    for step in run.steps:
        number = step["training/global_step"]
        expected = {
            derive_seed(SEED, "training", number, "row", row, session, call): unknown(
                SEED, number, row, session
            )
            for row in (1, 3)
            for session in range(2)
            for call in range(2)
        }
        dumped = 0
        for row in run.rollouts(number):
            bits = [False] * len(row["response_ids"])
            for start, stop in row["tandem_unknown"] or ():
                bits[start:stop] = [True] * (stop - start)
            assert bits == expected.get(row["tandem_seed"], [False] * len(bits))
            dumped += sum(bits)
        assert step["tandem/tokens_of_unknown_author"] == dumped
    assert run.steps[0]["tandem/tokens_of_unknown_author"] > 0


def test_only_known_tokens_of_the_senior_have_a_gradient_of_the_loss(
    run: VerlRun, captured: Path
) -> None:
    trained = 0
    for row in run.rollouts(1):
        bits = list(row["authorship"])
        for start, stop in row["tandem_unknown"] or ():
            bits[start:stop] = [0] * (stop - start)
        trained += sum(bits)
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
