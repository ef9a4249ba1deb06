"""TRL's own trainer, in tandem, makes the demo's small model better at what it was taught."""

from __future__ import annotations

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("sympy", reason="SymPy is not installed")

from support.learning import GROUP, LENGTHS, PROMPTS, STEPS, UPDATES, Learner
from support.trl_run import TRLBench, TRLRun

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

MICRO_BATCH = 64


@pytest.fixture(scope="module")
def run(learner: Learner) -> TRLRun:
    prompt, response = LENGTHS
    micro_batches = PROMPTS * GROUP // MICRO_BATCH
    done = TRLBench.make(learner.folder / "trl", learner.model).run(
        {"schedule": "word", "seed": 7},
        data=learner.data.with_suffix(".parquet"),
        num_generations=GROUP,
        per_device_train_batch_size=MICRO_BATCH,
        per_device_eval_batch_size=MICRO_BATCH,
        steps_per_generation=micro_batches,
        gradient_accumulation_steps=micro_batches // UPDATES,
        max_completion_length=response,
        vllm_max_model_length=prompt + response,
        learning_rate=5e-4,
        warmup_steps=2,
        max_steps=STEPS * UPDATES,
        timeout=1500,
        name="learning",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_senior_solves_more_new_problems_after_training(run: TRLRun, learner: Learner) -> None:
    rewards = [step["reward"] for step in run.steps if "reward" in step]
    learner.assert_learnt("trl", rewards, run.folder / "senior")
