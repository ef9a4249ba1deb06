"""``examples/verl/train.sh``: runs that start with only sizes overridden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.recipes import EVALUATION, follow
from support.verl_run import VerlBench

SCRIPT = str(Path(__file__).parents[1] / "examples" / "verl" / "train.sh")
BENCH = VerlBench
OWN = (
    "actor_rollout_ref.model.use_remove_padding",
    "+actor_rollout_ref.model.override_config",
    "trainer.total_training_steps",
    "trainer.test_freq",
    "trainer.save_freq",
    "trainer.resume_mode",
    "trainer.logger",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
)
"""What the script says itself, where flash-attn is not installed, beside its hyperparameters."""


@pytest.mark.parametrize("method", ["trl", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(bench: VerlBench, method: str) -> None:
    environment = {
        "GPUS": "1",
        "STEPS": "2",
        "MODEL": str(bench.model),
        "VALIDATION": str(bench.folder / "validation.parquet"),
        "EVAL": EVALUATION,
    }
    trained = bench.run(
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        recipe=[SCRIPT, method],
        keeps=OWN,
        environment=environment,
        timeout=1200,
        name=method,
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    out = trained.folder / "runs" / "verl" / method
    assert (out / "done").read_text() == "2\n"
    assert (out / "train.log").read_text() in trained.log
    steps = [line for line in trained.log.splitlines() if "step:2 - " in line]
    assert len(steps) == 1
    assert ("tandem/senior_share:" in steps[0]) is (method == "trl")
    assert ("actor/kl_loss:" in steps[0]) is (method == "kl-reg")
    assert sorted(path.name for path in (out / "rollouts").iterdir()) == ["1.jsonl", "2.jsonl"]
    assert [path.name for path in (out / "seniors").iterdir()] == ["step_2"]
    assert json.loads((out / "senior" / "config.json").read_text())["model_type"] == "qwen3"
    (checkpoint,) = (out / "checkpoints").glob("global_step_*/actor")
    assert checkpoint.parent.name == "global_step_2"
    follow(trained, out, method)
