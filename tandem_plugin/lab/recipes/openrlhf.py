"""A recipe's run by OpenRLHF.

The folder gets ``problems.jsonl`` (those that so many steps see), ``rollouts/`` (a file a step, of
tandem alone), ``checkpoints/`` (the newest, to resume from, and the best) and ``last/`` (the senior
after the last step). OpenRLHF evaluates with the training's top-p, 1; the paper does not state it.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tandem_plugin.errors import TandemError
from tandem_plugin.grading.rewards import reward_file
from tandem_plugin.lab.recipes.choose_problems import write_chosen
from tandem_plugin.lab.recipes.run import (
    Command,
    Run,
    flags,
    parsed_by,
    startup_on_cpu,
    tandem_flags,
    without_flash_attn,
)
from tandem_plugin.patching.versions import installed_version

FORMAT = "jsonl"

SAYS = {
    "actor.model_name_or_path": "model",
    "actor.num_gpus_per_node": "gpus",
    "ref.num_gpus_per_node": "gpus",
    "actor.adam.lr": "learning_rate",
    "data.prompt_dataset": "train",
    "eval.dataset": "validation",
    "eval.steps": "validate_every",
    "data.max_len": "max_response",
    "rollout.max_new_tokens": "max_response",
    "rollout.batch_size": "prompts",
    "rollout.n_samples_per_prompt": "samples",
    "rollout.temperature": "temperature",
    "train.batch_size": "updates",
    "train.micro_batch_size": "micro_batch",
    "algo.kl.init_coef": "kl",
    "algo.kl.use_loss": "method",
    "reward.remote_url": "reward",
    "ckpt.save_steps": "save_every",
    "ckpt.path": "out",
    "ckpt.output_dir": "out",
    "tandem": "tandem",
}


def command(run: Run) -> Command:
    settings = {
        "actor.model_name_or_path": run.model,
        **_processes(run),
        **_problems(run),
        **_sizes(run),
        **_algorithm(run),
        **_checkpoints(run),
        **(_on_cpu() if run.is_on_cpu else _on_gpus(run)),
        **tandem_flags(run),
    }
    module = "openrlhf.cli.train_ppo_ray" if run.tandem is None else "tandem_openrlhf.train_ppo_ray"
    return Command(
        (sys.executable, "-m", module, *flags(settings), *run.arguments), _variables(run)
    )


def _processes(run: Run) -> dict[str, object]:
    return {
        "actor.num_nodes": 1,
        "actor.num_gpus_per_node": run.gpus,
        "ref.num_nodes": 1,
        "ref.num_gpus_per_node": run.gpus,
        "vllm.num_engines": run.gpus,
        "vllm.tensor_parallel_size": 1,
    }


def _problems(run: Run) -> dict[str, object]:
    settings: dict[str, object] = {
        "data.prompt_dataset": run.out / "problems.jsonl",
        "data.input_key": "input",
        "data.label_key": "label",
        "data.apply_chat_template": True,
    }
    if run.validation is None:
        return {**settings, "eval.steps": -1}
    return {
        **settings,
        "eval.dataset": run.validation,
        "eval.steps": run.every("test", 10),
        "eval.n_samples_per_prompt": run.protocol["validation_n"],
        "eval.temperature": run.recipe.temperature,
    }


def _sizes(run: Run) -> dict[str, object]:
    recipe = run.recipe
    return {
        "data.max_len": recipe.max_prompt + recipe.max_response,
        "rollout.max_new_tokens": recipe.max_response,
        "rollout.batch_size": recipe.prompts,
        "rollout.n_samples_per_prompt": recipe.group,
        "rollout.micro_batch_size": 2 * recipe.micro_batch,
        "rollout.temperature": recipe.temperature,
        "train.batch_size": run.responses,
        "train.micro_batch_size": recipe.micro_batch,
    }


def _algorithm(run: Run) -> dict[str, object]:
    reward = "own_openrlhf.py" if run.rewards else "openrlhf_reward.py"
    is_regularised = run.recipe.method == "kl-reg"
    return {
        "actor.adam.lr": run.recipe.learning_rate,
        "actor.lr_warmup_ratio": 0,
        "actor.lr_scheduler": "constant",
        "actor.eps_clip": 0.2,
        "actor.entropy_coef": 0,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True if is_regularised else None,
        "algo.kl.estimator": "k3" if is_regularised else None,
        "algo.kl.init_coef": run.recipe.kl if is_regularised else 0,
        "reward.remote_url": reward_file("openrlhf").with_name(reward),
    }


def _checkpoints(run: Run) -> dict[str, object]:
    return {
        "ckpt.save_steps": run.every("save", 25),
        "ckpt.max_num": 1,
        "ckpt.save_hf": True,
        "ckpt.load_enable": True,
        "ckpt.path": run.out / "checkpoints",
        "ckpt.output_dir": run.out / "last",
    }


def _on_gpus(run: Run) -> dict[str, object]:
    has_flash_attn = installed_version("flash-attn") is not None
    return {
        "vllm.gpu_memory_utilization": 0.5,
        "vllm.enable_sleep": True,
        "ds.zero_stage": 3,
        "ds.enable_sleep": True,
        "ds.packing_samples": True if has_flash_attn else None,
        "ds.attn_implementation": None if has_flash_attn else "sdpa",
        "ds.adam_offload": True if run.gpus == 1 else None,
        "actor.gradient_checkpointing_enable": True,
        "train.colocate_all": True,
    }


def _on_cpu() -> dict[str, object]:
    """One process of each kind; nothing sleeps: :mod:`tandem_openrlhf.on_cpu`."""
    return {
        "vllm.gpu_memory_utilization": 0.05,
        "vllm.sync_backend": "gloo",
        "vllm.enforce_eager": True,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "eager",
    }


def _variables(run: Run) -> dict[str, str]:
    variables = run.reward_variables
    if run.is_on_cpu:
        variables |= {**startup_on_cpu("tandem_openrlhf.on_cpu"), "DS_ACCELERATOR": "cpu"}
    return without_flash_attn(variables)


def before(run: Run) -> None:
    """Write the problems of all steps: OpenRLHF ends when it has seen its prompts once."""
    (run.out / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_chosen(
        str(run.train), str(run.recipe.prompts * run.steps), str(run.out / "problems.jsonl")
    )


_BEST, _EXPORTED = (re.compile(f"{name}global_step([0-9]+)_hf") for name in ("best_", "(?:best_)?"))


def senior(run: Run) -> Path:
    """The best by the run's own evaluations; the other exports are removed.

    OpenRLHF keeps a Hugging Face folder with every checkpoint, and counts none of them.
    """
    folder = run.out / "checkpoints"
    exported = [place for place in folder.iterdir() if _EXPORTED.fullmatch(place.name)]
    best = [place for place in exported if _BEST.fullmatch(place.name)]
    senior = max(best, key=_number, default=run.out / "last")
    if not senior.is_dir():
        raise TandemError("run-without-seniors", folder=senior)
    for place in exported:
        if place.name != senior.name:
            shutil.rmtree(place)
    return senior


def _number(place: Path) -> int:
    match = _EXPORTED.fullmatch(place.name)
    return int(match[1]) if match else -1


_PARSE = """
import argparse, runpy, sys
from tandem_plugin.training.command import split_arguments
whole = argparse.ArgumentParser.parse_args
def parse_args(self, *arguments, **more):
    whole(self, *arguments, **more)
    sys.exit()
argparse.ArgumentParser.parse_args = parse_args
sys.argv[1:] = split_arguments(sys.argv[1:])[1]
runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)
"""


def parse(run: Run) -> Command:
    """OpenRLHF's program up to its parser, which is part of it."""
    return parsed_by(_PARSE, command(run))
