"""A recipe's run by TRL.

The folder gets ``rollouts/`` (a file a step, of tandem alone) and ``checkpoints/`` (with
``checkpoint-N``, N counting updates of the model). TRL chooses no checkpoint and validates nothing:
the senior is the last. On one GPU weights and optimizer are float32, 16 bytes a parameter.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tandem_plugin.errors import ConfigError, OutputError, TandemError
from tandem_plugin.files import system_reason
from tandem_plugin.lab.recipes.run import (
    Command,
    Run,
    flags,
    parsed_by,
    startup_on_cpu,
    tandem_flags,
)
from tandem_plugin.patching.versions import installed_version

FORMAT = "parquet"

SAYS = {
    "dataset_name": "train",
    "model_name_or_path": "model",
    "reward_funcs": "reward",
    "reward_weights": "reward_weights",
    "num_generations": "samples",
    "generation_batch_size": "prompts",
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "updates",
    "max_steps": "steps",
    "learning_rate": "learning_rate",
    "beta": "kl",
    "max_completion_length": "max_response",
    "temperature": "temperature",
    "save_steps": "save_every",
    "output_dir": "out",
    "use_cpu": "device",
    "tandem": "tandem",
}

_OWN = "tandem_plugin.grading.rewards.own_trl"
_DEEPSPEED = "deepspeed==0.19.6"


def command(run: Run) -> Command:
    settings = {
        "dataset_name": _folder_of_problems(run),
        "model_name_or_path": run.model,
        **_numbers(run),
        **_reward(run),
        **_batches(run),
        **_algorithm(run),
        **_engine(run),
        "logging_steps": 1,
        "save_steps": run.recipe.updates * run.every("save", 20),
        "output_dir": run.out / "checkpoints",
        "resume_from_checkpoint": newest_checkpoint(run.out / "checkpoints"),
        **tandem_flags(run),
        **_engine_on_cpu(run),
    }
    module = "trl.scripts.grpo" if run.tandem is None else "tandem_trl.grpo"
    program = (*_launched(run), "-m", module)
    variables = {**run.reward_variables, **(_variables_on_cpu(run) if run.is_on_cpu else {})}
    return Command((*program, *flags(settings), *run.arguments), variables)


def _variables_on_cpu(run: Run) -> dict[str, str]:
    """Without tandem, vLLM's CPU build could not load the weights of a sync."""
    if run.tandem is None:
        return startup_on_cpu("tandem_plugin.engine.patches.cpu_weights:keep_cpu_weights")
    return {"VLLM_CPU_KVCACHE_SPACE": "1"}


def _launched(run: Run) -> list[str]:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(run.gpus)]
    if run.is_on_cpu:
        return [*launch, "--cpu"]
    return launch if run.gpus == 1 else [*launch, "--use_deepspeed", "--zero_stage", "3"]


def _numbers(run: Run) -> dict[str, object]:
    """DeepSpeed keeps float32 weights besides those that it computes with."""
    if run.is_on_cpu:
        return {"use_cpu": "True", "dtype": "float32", "bf16": "False"}
    return {"dtype": "float32" if run.gpus == 1 else "bfloat16", "bf16": "True"}


def _batches(run: Run) -> dict[str, object]:
    """TRL counts updates; a step of the paper has two."""
    recipe = run.recipe
    return {
        "num_generations": recipe.group,
        "generation_batch_size": recipe.prompts * recipe.group,
        "per_device_train_batch_size": recipe.micro_batch,
        "gradient_accumulation_steps": run.responses // (recipe.micro_batch * run.gpus),
        "num_iterations": 1,
        "max_steps": recipe.updates * run.steps,
    }


def _algorithm(run: Run) -> dict[str, object]:
    """TRL's defaults differ in the learning rate's schedule and the correction for the engine.

    weight_decay is verl's, since the paper does not state it; dapo is the mean over all tokens of
    an update, as verl's.
    """
    return {
        "learning_rate": run.recipe.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.01,
        "epsilon": 0.2,
        "beta": run.recipe.kl if run.recipe.method == "kl-reg" else 0.0,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "vllm_importance_sampling_correction": "False",
        "gradient_checkpointing": "False" if run.is_on_cpu else "True",
    }


def _engine(run: Run) -> dict[str, object]:
    recipe = run.recipe
    return {
        "use_vllm": "True",
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.3,
        "vllm_max_model_length": recipe.max_prompt + recipe.max_response,
        "max_completion_length": recipe.max_response,
        "temperature": recipe.temperature,
        "top_p": 1.0,
    }


def _reward(run: Run) -> dict[str, object]:
    if not run.rewards:
        return {"reward_funcs": "tandem_plugin.grading.rewards.trl_reward.math_reward"}
    weights = run.recipe.reward_weights
    return {
        "reward_funcs": [f"{_OWN}.reward_{number}" for number in range(len(run.rewards))],
        "reward_weights": None if weights is None else list(weights),
    }


def _engine_on_cpu(run: Run) -> dict[str, object]:
    if run.tandem is None or not run.is_on_cpu:
        return {}
    return {"tandem.engine": json.dumps({"enforce_eager": True, "dtype": "float32"})}


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest that was written to its end; None if there is none."""
    complete = {
        int(match[1]): state.parent
        for state in folder.glob("checkpoint-*/trainer_state.json")
        if (match := re.fullmatch(r"checkpoint-(\d+)", state.parent.name))
    }
    return complete[max(complete)] if complete else None


def _folder_of_problems(run: Run) -> Path:
    """TRL reads the data set of a folder: a file of any name gets one."""
    return run.train.parent if run.train.name == f"train.{FORMAT}" else run.out / "problems"


def before(run: Run) -> None:
    """Check for DeepSpeed, and link a file of problems that TRL would not find into a folder."""
    if run.gpus > 1 and not run.is_on_cpu and not installed_version("deepspeed"):
        raise ConfigError("recipe-deepspeed-missing", gpus=run.gpus, requirement=_DEEPSPEED)
    folder = _folder_of_problems(run)
    if folder == run.train.parent:
        return
    link = folder / f"train{run.train.suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(run.train)
    except OSError as error:
        raise OutputError("file-unwritable", path=link, reason=system_reason(error)) from error


def senior(run: Run) -> Path:
    folder = run.out / "checkpoints"
    if not (folder / "config.json").exists():
        raise TandemError("run-without-seniors", folder=folder)
    return folder


_PARSE = """
import sys
from trl.scripts import grpo
from tandem_trl.grpo import parsed_whole, prepare
parser = grpo.make_parser(prog="trl grpo")
arguments = sys.argv[1:]
parsed_whole(parser, prepare(arguments) if {in_tandem} else arguments)
"""


def parse(run: Run) -> Command:
    """TRL's parser, without the launcher; on a machine without a GPU it rejects bf16."""
    return parsed_by(_PARSE.format(in_tandem=run.tandem is not None), command(run))
