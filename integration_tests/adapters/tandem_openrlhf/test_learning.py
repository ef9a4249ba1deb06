"""OpenRLHF's own trainer, in tandem, makes the demo's small model better at what it was taught."""

from __future__ import annotations

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

from support.learning import GROUP, LENGTHS, PROMPTS, UPDATES, Learner
from support.openrlhf_run import OpenRLHFBench

from tandem_plugin.grading.rewards import reward_file

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


def test_senior_solves_more_new_problems_after_training(learner: Learner) -> None:
    prompt, response = LENGTHS
    run = OpenRLHFBench.make(learner.folder / "openrlhf", learner.model).run(
        *("--tandem.schedule", "word", "--tandem.seed", "7"),
        *("--data.prompt_dataset", f"{learner.data}.jsonl", "--data.max_samples", "1000000"),
        *("--data.max_len", str(prompt + response), "--rollout.max_new_tokens", str(response)),
        *("--reward.remote_url", str(reward_file("openrlhf"))),
        *("--rollout.batch_size", str(PROMPTS), "--rollout.n_samples_per_prompt", str(GROUP)),
        *("--rollout.micro_batch_size", "64", "--train.micro_batch_size", "64"),
        *("--train.batch_size", str(PROMPTS * GROUP // UPDATES)),
        *("--actor.adam.lr", "5e-4", "--actor.lr_warmup_ratio", "0.15"),
        *("--actor.lr_scheduler", "constant_with_warmup"),
        name="learning",
    )
    assert run.exit_code == 0, run.log[-3000:]
    learner.assert_learnt("openrlhf", [step["reward"] for step in run.steps], run.folder / "model")
