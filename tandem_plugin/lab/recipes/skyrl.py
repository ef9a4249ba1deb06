"""A recipe's run by SkyRL.

The folder gets ``rollouts/`` (a file a step, of tandem alone), ``logs/``, ``checkpoints/`` (the
newest, to resume from) and ``export/`` (a Hugging Face folder and the answers of every evaluation).
Engines and policy share the GPUs, SkyRL's default, which was not run in tandem;
``trainer.placement.colocate_all=false`` gives the engines further ones.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

from tandem_plugin.errors import TandemError
from tandem_plugin.files import is_number, parse_json, read_file
from tandem_plugin.lab.recipes.run import (
    Command,
    Run,
    flags,
    hydra,
    parsed_by,
    startup_on_cpu,
    tandem_flags,
    without_flash_attn,
)
from tandem_plugin.patching.versions import installed_version

FORMAT = "parquet"

_ENGINE = "generator.inference_engine"
SAYS = {
    "data.train_data": "train",
    "data.val_data": "validation",
    "environment.env_class": "reward",
    "trainer.policy.model.path": "model",
    "trainer.ref.model.path": "model",
    "trainer.placement.policy_num_gpus_per_node": "gpus",
    "trainer.placement.ref_num_gpus_per_node": "gpus",
    "trainer.policy.optimizer_config.lr": "learning_rate",
    "trainer.train_batch_size": "prompts",
    "trainer.policy_mini_batch_size": "updates",
    "trainer.micro_train_batch_size_per_gpu": "micro_batch",
    "trainer.algorithm.use_kl_loss": "method",
    "trainer.algorithm.kl_loss_coef": "kl",
    "trainer.max_prompt_length": "max_prompt",
    "generator.max_input_length": "max_prompt",
    "generator.n_samples_per_prompt": "samples",
    "generator.sampling_params.max_generate_length": "max_response",
    "generator.sampling_params.temperature": "temperature",
    "trainer.max_training_steps": "steps",
    "trainer.eval_interval": "validate_every",
    "trainer.ckpt_interval": "save_every",
    "trainer.hf_save_interval": "save_every",
    "trainer.ckpt_path": "out",
    "trainer.export_path": "out",
    "trainer.log_path": "out",
    "tandem": "tandem",
}


def command(run: Run) -> Command:
    settings = {
        **_problems(run),
        **_sizes(run),
        **_algorithm(run),
        **_sampling(run),
        **_engines(run),
        **_intervals(run),
        **_folders(run),
        **(_on_cpu(run) if run.is_on_cpu else {}),
    }
    module = "tandem_skyrl.environment" if run.tandem is None else "tandem_skyrl"
    program = (sys.executable, "-m", module)
    arguments = (*flags(tandem_flags(run)), *hydra(settings), *run.arguments)
    return Command((*program, *arguments), _variables(run))


def _problems(run: Run) -> dict[str, object]:
    return {
        "data.train_data": f"['{run.train}']",
        "data.val_data": f"['{run.validation or run.train}']",
        "environment.env_class": "tandem_math",
        "trainer.policy.model.path": Path(run.model),
        "trainer.ref.model.path": Path(run.model),
    }


def _sizes(run: Run) -> dict[str, object]:
    recipe = run.recipe
    return {
        "trainer.strategy": "fsdp",
        "trainer.placement.colocate_all": not run.is_on_cpu,
        "trainer.placement.policy_num_gpus_per_node": run.gpus,
        "trainer.placement.ref_num_gpus_per_node": run.gpus,
        "trainer.train_batch_size": recipe.prompts,
        "trainer.policy_mini_batch_size": recipe.prompts // recipe.updates,
        "trainer.micro_train_batch_size_per_gpu": recipe.micro_batch,
        "trainer.micro_forward_batch_size_per_gpu": recipe.micro_batch,
        "trainer.max_prompt_length": recipe.max_prompt,
        "trainer.epochs": run.steps,
        "trainer.max_training_steps": run.steps,
    }


def _algorithm(run: Run) -> dict[str, object]:
    is_regularised = run.recipe.method == "kl-reg"
    return {
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.grpo_norm_by_std": True,
        "trainer.algorithm.policy_loss_type": "dual_clip",
        "trainer.algorithm.loss_reduction": "token_mean",
        "trainer.algorithm.eps_clip_low": 0.2,
        "trainer.algorithm.eps_clip_high": 0.2,
        "trainer.algorithm.use_entropy_loss": False,
        "trainer.algorithm.use_kl_loss": is_regularised,
        "trainer.algorithm.kl_loss_coef": run.recipe.kl if is_regularised else None,
        "trainer.algorithm.kl_estimator_type": "k3" if is_regularised else None,
        "trainer.policy.optimizer_config.lr": run.recipe.learning_rate,
        "trainer.policy.optimizer_config.num_warmup_steps": 0,
    }


def _sampling(run: Run) -> dict[str, object]:
    recipe = run.recipe
    return {
        "generator.n_samples_per_prompt": recipe.group,
        "generator.max_input_length": recipe.max_prompt,
        "generator.sampling_params.max_generate_length": recipe.max_response,
        "generator.sampling_params.temperature": recipe.temperature,
        "generator.eval_n_samples_per_prompt": run.protocol["validation_n"],
        "generator.eval_sampling_params.max_generate_length": recipe.max_response,
        "generator.eval_sampling_params.temperature": recipe.temperature,
        "generator.eval_sampling_params.top_p": 0.95,
    }


def _engines(run: Run) -> dict[str, object]:
    recipe = run.recipe
    has_flash_attn = installed_version("flash-attn") is not None and not run.is_on_cpu
    return {
        f"{_ENGINE}.num_engines": run.gpus,
        f"{_ENGINE}.tensor_parallel_size": 1,
        f"{_ENGINE}.gpu_memory_utilization": 0.1 if run.is_on_cpu else 0.5,
        f"{_ENGINE}.engine_init_kwargs.max_model_len": recipe.max_prompt + recipe.max_response,
        "trainer.flash_attn": None if has_flash_attn else False,
        "trainer.remove_microbatch_padding": None if has_flash_attn else False,
    }


def _intervals(run: Run) -> dict[str, object]:
    every = run.every("save", 20)
    evaluates = run.recipe.validate_every or every
    return {
        "trainer.eval_before_train": False,
        "trainer.eval_interval": evaluates if run.validation else -1,
        "trainer.hf_save_interval": every,
        "trainer.ckpt_interval": every,
        "trainer.max_ckpts_to_keep": 1,
        "trainer.resume_mode": "latest",
    }


def _folders(run: Run) -> dict[str, object]:
    return {
        "trainer.logger": "console",
        "trainer.project_name": "tandem",
        "trainer.run_name": run.recipe.method,
        "trainer.ckpt_path": run.out / "checkpoints",
        "trainer.export_path": run.out / "export",
        "trainer.log_path": run.out / "logs",
    }


def _on_cpu(run: Run) -> dict[str, object]:
    """Engines of their own and weights synced by files: :mod:`tandem_skyrl.on_cpu`."""
    return {
        "data.dataloader.num_workers": 0,
        "trainer.bf16": False,
        "trainer.placement.colocate_policy_ref": False,
        "trainer.gradient_checkpointing": False,
        "trainer.policy.fsdp_config.mixed_precision.param_dtype": "fp32",
        "trainer.ref.fsdp_config.mixed_precision.param_dtype": "fp32",
        "trainer.enable_ray_gpu_monitor": False,
        f"{_ENGINE}.model_dtype": "float32",
        f"{_ENGINE}.enforce_eager": True,
        f"{_ENGINE}.enable_ray_prometheus_stats": False,
        f"{_ENGINE}.distributed_executor_backend": "mp",
        f"{_ENGINE}.engine_init_kwargs.worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker",
        f"{_ENGINE}.weight_sync_backend": "delta",
        f"{_ENGINE}.delta_weight_sync.sync_dir": run.out / "delta",
        f"{_ENGINE}.delta_weight_sync.local_checkpoint_dir": run.out / "cache",
    }


def _variables(run: Run) -> dict[str, str]:
    on_cpu = startup_on_cpu("tandem_skyrl.on_cpu") if run.is_on_cpu else {}
    return without_flash_attn({**run.reward_variables, **on_cpu})


def before(run: Run) -> None:
    """SkyRL reads its files of problems alone."""


def senior(run: Run) -> Path:
    """SkyRL chooses none of what it exports: the last of those with the best score."""
    steps = {
        int(match[1]): place / "policy"
        for place in (run.out / "export").glob("global_step_*")
        if (match := re.fullmatch(r"global_step_(\d+)", place.name)) and (place / "policy").is_dir()
    }
    if not steps:
        raise TandemError("run-without-seniors", folder=run.out / "export")
    return steps[max(steps, key=lambda step: (_score(run.out, step), step))]


def _score(out: Path, step: int) -> float:
    """The mean score of a step's evaluation; 0 without one."""
    results = out / "export" / "dumped_evals" / f"global_step_{step}_evals/aggregated_results.jsonl"
    with suppress(OSError, ValueError):
        for line in read_file(results).splitlines():
            row = parse_json(line)
            score = row.get("eval/all/avg_score") if isinstance(row, dict) else None
            if is_number(score):
                return float(score)
    return 0.0


_PARSE = """
import sys
from skyrl.train.config import SkyRLTrainConfig
from tandem_plugin.training.command import split_arguments
SkyRLTrainConfig.from_cli_overrides(split_arguments(sys.argv[1:])[1])
"""


def parse(run: Run) -> Command:
    """SkyRL's own reading of its settings."""
    return parsed_by(_PARSE, command(run))
