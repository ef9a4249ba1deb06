"""One problem set and one settings file, trained in tandem by whichever trainer is installed.

    python examples/swap_backends/train.py --backend verl|openrlhf|trl|skyrl --data data [--dry-run]

data: what `tandem data prepare SOURCE --to verl --out data` wrote; for OpenRLHF `--to openrlhf`, in
a folder of its own.
The settings are those of settings.json beside this file; `--settings FILE` gives others. One GPU.
All four sample `prompts` problems a step, `samples` responses to each, and update once. What
follows `--` goes to the trainer as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.grading.rewards import reward_file

HERE = Path(__file__).resolve().parent
Settings = Mapping[str, Any]


def verl(settings: Settings, data: Path, out: Path) -> list[str]:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    own = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": data / "train.parquet",
        "data.val_files": data / "train.parquet",
        "data.train_batch_size": settings["prompts"],
        "data.max_prompt_length": settings["max_prompt"],
        "data.max_response_length": settings["max_response"],
        "actor_rollout_ref.model.path": settings["model"],
        f"{actor}.strategy": "fsdp2",
        f"{actor}.optim.lr": settings["learning_rate"],
        f"{actor}.ppo_mini_batch_size": settings["prompts"],
        f"{actor}.ppo_micro_batch_size_per_gpu": settings["micro_batch"],
        f"{actor}.use_kl_loss": False,
        f"{rollout}.name": "vllm",
        f"{rollout}.n": settings["samples"],
        f"{rollout}.temperature": settings["temperature"],
        f"{rollout}.gpu_memory_utilization": settings["engine_memory"],
        f"{rollout}.log_prob_micro_batch_size_per_gpu": settings["micro_batch"],
        "reward.custom_reward_function.path": reward_file("verl"),
        "trainer.logger": "[console]",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        "trainer.total_training_steps": settings["steps"],
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "trainer.rollout_data_dir": out / "rollouts",
        "trainer.default_local_dir": out / "checkpoints",
    }
    tandem = f"+{rollout}.engine_kwargs.vllm.additional_config.tandem"
    own |= {f"{tandem}.{name}": value for name, value in settings["tandem"].items()}
    # Without tandem-plugin, verl ignores these settings, but cannot import this class.
    manager = "tandem_verl.rollouts.TandemAgentLoopManager"
    own[f"+{rollout}.agent.agent_loop_manager_class"] = manager
    return ["verl.trainer.main_ppo", *(f"{name}={value}" for name, value in own.items())]


def openrlhf(settings: Settings, data: Path, out: Path) -> list[str]:
    batch = settings["prompts"] * settings["samples"]
    own = {
        "data.prompt_dataset": data / "train.jsonl",
        "data.input_key": "input",
        "data.label_key": "label",
        "data.max_len": settings["max_prompt"] + settings["max_response"],
        "data.max_samples": settings["prompts"] * settings["steps"],
        "actor.model_name_or_path": settings["model"],
        "actor.adam.lr": settings["learning_rate"],
        "algo.advantage.estimator": "group_norm",
        "rollout.batch_size": settings["prompts"],
        "rollout.n_samples_per_prompt": settings["samples"],
        "rollout.max_new_tokens": settings["max_response"],
        "rollout.temperature": settings["temperature"],
        "rollout.micro_batch_size": settings["micro_batch"],
        "train.batch_size": batch,
        "train.micro_batch_size": settings["micro_batch"],
        "vllm.num_engines": 1,
        "vllm.sync_backend": "nccl",
        "vllm.gpu_memory_utilization": settings["engine_memory"],
        "reward.remote_url": reward_file("openrlhf"),
        "ckpt.output_dir": out / "senior",
    }
    switches = ["--train.colocate_all", "--vllm.enable_sleep", "--data.apply_chat_template"]
    return ["tandem_openrlhf.train_ppo_ray", *_options(settings, out, own), *switches]


def trl(settings: Settings, data: Path, out: Path) -> list[str]:
    micro_batches = settings["prompts"] * settings["samples"] // settings["micro_batch"]
    own = {
        "dataset_name": data,
        "model_name_or_path": settings["model"],
        "reward_funcs": "tandem_plugin.grading.rewards.trl_reward.math_reward",
        "num_generations": settings["samples"],
        "per_device_train_batch_size": settings["micro_batch"],
        "gradient_accumulation_steps": micro_batches,
        "steps_per_generation": micro_batches,
        "max_completion_length": settings["max_response"],
        "vllm_max_model_length": settings["max_prompt"] + settings["max_response"],
        "vllm_gpu_memory_utilization": settings["engine_memory"],
        "vllm_mode": "colocate",
        "temperature": settings["temperature"],
        "learning_rate": settings["learning_rate"],
        "max_steps": settings["steps"],
        "logging_steps": 1,
        "output_dir": out / "senior",
    }
    return ["tandem_trl.grpo", *_options(settings, out, own), "--use_vllm", "True"]


def skyrl(settings: Settings, data: Path, out: Path) -> list[str]:
    engine = "generator.inference_engine"
    own = {
        "data.train_data": f"['{data / 'train.parquet'}']",
        "environment.env_class": "tandem_math",
        "trainer.policy.model.path": settings["model"],
        "trainer.policy.optimizer_config.lr": settings["learning_rate"],
        "trainer.algorithm.use_kl_loss": "false",
        "trainer.train_batch_size": settings["prompts"],
        "trainer.policy_mini_batch_size": settings["prompts"],
        "trainer.micro_train_batch_size_per_gpu": settings["micro_batch"],
        "trainer.micro_forward_batch_size_per_gpu": settings["micro_batch"],
        "trainer.max_prompt_length": settings["max_prompt"],
        "trainer.max_training_steps": settings["steps"],
        "trainer.eval_interval": -1,
        "trainer.logger": "console",
        "trainer.ckpt_path": out / "checkpoints",
        "trainer.export_path": out / "senior",
        "generator.n_samples_per_prompt": settings["samples"],
        "generator.max_input_length": settings["max_prompt"],
        "generator.sampling_params.max_generate_length": settings["max_response"],
        "generator.sampling_params.temperature": settings["temperature"],
        f"{engine}.gpu_memory_utilization": settings["engine_memory"],
    }
    flags = _options(settings, out, {})
    return ["tandem_skyrl", *flags, *(f"{name}={value}" for name, value in own.items())]


def _options(settings: Settings, out: Path, own: Mapping[str, Any]) -> list[str]:
    """Of tandem and the trainer's own, as OpenRLHF and TRL read them."""
    tandem = {**settings["tandem"], "rollouts": out / "rollouts"}
    flags = [part for name, value in own.items() for part in (f"--{name}", str(value))]
    return [*(f"--tandem.{name}={value}" for name, value in tandem.items()), *flags]


BACKENDS = {"verl": verl, "openrlhf": openrlhf, "trl": trl, "skyrl": skyrl}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=BACKENDS, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--settings", type=Path, default=HERE / "settings.json")
    parser.add_argument("--out", type=Path, default=Path("runs/swapped"))
    parser.add_argument("--dry-run", action="store_true", help="only print the command")
    parser.add_argument("more", nargs="*", help="after --: the trainer's own arguments")
    given = parser.parse_args(arguments)
    settings = json.loads(given.settings.read_text(encoding="utf-8"))
    out = given.out / given.backend
    program = BACKENDS[given.backend](settings, given.data, out)
    command = [sys.executable, "-m", *program, *given.more]
    print(shlex.join(command), flush=True)
    if given.dry_run:
        return 0
    out.mkdir(parents=True, exist_ok=True)
    return subprocess.run(command, env=os.environ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
