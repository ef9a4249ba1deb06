"""``examples/verl/train.sh``: the paper's table, and runs that start with only sizes overridden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.verl_run import VerlBench

SCRIPT = str(Path(__file__).parents[1] / "examples" / "verl" / "train.sh")
BENCH = VerlBench
TANDEM = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"


def composed(method: str, gpus: int) -> Any:
    """verl's whole configuration, as the script would start it with."""
    from omegaconf import OmegaConf

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [SCRIPT, method, "--cfg", "job"],
        env=os.environ | {"GPUS": str(gpus), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return OmegaConf.create(done.stdout[done.stdout.index("actor_rollout_ref:") :])


@pytest.mark.parametrize(("method", "gpus"), [("trl", 2), ("grpo", 1), ("kl-reg", 2)])
def test_recipe_has_the_papers_hyperparameters(method: str, gpus: int) -> None:
    config = composed(method, gpus)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (actor.optim.lr, actor.clip_ratio, actor.entropy_coeff) == (1e-6, 0.2, 0)
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n) == (16, 8, 8)
    assert (config.data.max_response_length, rollout.temperature) == (3000, 0.6)
    validation = rollout.val_kwargs
    assert (validation.n, validation.temperature, validation.top_p) == (4, 0.6, 0.95)
    assert config.algorithm.adv_estimator == "grpo"
    assert config.algorithm.norm_adv_by_std_in_grpo is True
    assert config.algorithm.use_kl_in_reward is False
    assert actor.use_kl_loss is (method == "kl-reg")
    assert config.trainer.n_gpus_per_node == gpus
    assert actor.fsdp_config.optimizer_offload is (gpus == 1)
    tandem = selected(config, TANDEM)
    wanted = {"schedule": "word", "p": 0.5, "cap": 32, "validation": "team"}
    assert tandem == (wanted if method == "trl" else None)


def selected(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf

    found = OmegaConf.select(config, key)
    return None if found is None else OmegaConf.to_container(found)


@pytest.mark.parametrize("method", ["trl", "kl-reg"])
def test_recipe_trains(bench: VerlBench, method: str) -> None:
    run = bench.run(
        "trainer.total_training_steps=1",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        recipe=[SCRIPT, method],
        # What the script says where flash-attn is not installed.
        keeps=[
            "actor_rollout_ref.model.use_remove_padding",
            "+actor_rollout_ref.model.override_config",
        ],
        environment={"GPUS": "1"},
        name=method,
    )
    assert run.exit_code == 0, run.log[-3000:]
    (step,) = run.steps
    assert ("tandem/senior_share" in step) is (method == "trl")
    assert ("actor/kl_loss" in step) is (method == "kl-reg")
