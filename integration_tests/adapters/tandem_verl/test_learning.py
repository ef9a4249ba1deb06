"""verl's own trainer, in tandem, makes the demo's small model better at what it was taught.

Its reward is this package's, named by its path.
"""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="verl is not installed")
pytest.importorskip("sympy", reason="SymPy is not installed")

from support.learning import GROUP, LENGTHS, PROMPTS, STEPS, UPDATES, Learner
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin.grading.rewards import reward_file

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@pytest.fixture(scope="module")
def run(learner: Learner) -> VerlRun:
    prompt, response = LENGTHS
    done = VerlBench.make(learner.folder / "verl", learner.model).run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.seed=7",
        f"data.train_files={learner.data}.parquet",
        f"data.val_files={learner.data.with_name('validation')}.parquet",
        f"data.max_prompt_length={prompt}",
        f"data.max_response_length={response}",
        f"data.train_batch_size={PROMPTS}",
        f"reward.custom_reward_function.path={reward_file('verl')}",
        f"{ROLLOUT}.n={GROUP}",
        f"{ROLLOUT}.max_model_len={prompt + response}",
        f"{ROLLOUT}.max_num_seqs=256",
        f"{ROLLOUT}.max_num_batched_tokens=8192",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=64",
        f"{ACTOR}.ppo_mini_batch_size={PROMPTS // UPDATES}",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=64",
        f"{ACTOR}.optim.lr=5e-4",
        f"{ACTOR}.optim.lr_warmup_steps=2",
        f"{ACTOR}.checkpoint.save_contents=[hf_model]",
        "transfer_queue.backend.SimpleStorage.total_storage_size=10000",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.save_freq={STEPS}",
        f"trainer.test_freq={STEPS}",
        timeout=1500,
        name="learning",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_senior_solves_more_new_problems_after_training(run: VerlRun, learner: Learner) -> None:
    senior = run.folder / "checkpoints" / f"global_step_{STEPS}" / "actor" / "huggingface"
    learner.assert_learnt("verl", [step["critic/score/mean"] for step in run.steps], senior)
