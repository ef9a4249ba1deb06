"""A recipe's run by verl.

The folder gets ``rollouts/`` and ``validation/`` (a file a step), ``checkpoints/`` (the newest, to
resume from), ``seniors/`` (the best so far and the newest, as Hugging Face folders) and ``hydra/``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.grading.rewards import reward_file
from tandem_plugin.lab.recipes.run import Command, Run, hydra, hydra_text, joins_cluster
from tandem_plugin.patching.versions import installed_version
from tandem_verl.keep_seniors import best_senior

FORMAT = "parquet"

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_TANDEM = f"{_ROLLOUT}.engine_kwargs.vllm.additional_config.tandem"
_MANAGER = f"{_ROLLOUT}.agent.agent_loop_manager_class"
_BUCKET = f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"

SAYS = {
    "data.train_files": "train",
    "data.val_files": "validation",
    "data.train_batch_size": "prompts",
    "data.max_prompt_length": "max_prompt",
    "data.max_response_length": "max_response",
    "actor_rollout_ref.model.path": "model",
    f"{_ACTOR}.optim.lr": "learning_rate",
    f"{_ACTOR}.ppo_mini_batch_size": "updates",
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": "micro_batch",
    f"{_ACTOR}.use_kl_loss": "method",
    f"{_ACTOR}.kl_loss_coef": "kl",
    f"{_ROLLOUT}.n": "samples",
    f"{_ROLLOUT}.temperature": "temperature",
    _TANDEM: "tandem",
    "reward.custom_reward_function": "reward",
    "trainer.device": "device",
    "trainer.n_gpus_per_node": "gpus",
    "trainer.total_training_steps": "steps",
    "trainer.test_freq": "validate_every",
    "trainer.save_freq": "save_every",
    "trainer.default_local_dir": "out",
    "trainer.rollout_data_dir": "out",
    "trainer.validation_data_dir": "out",
}


def command(run: Run) -> Command:
    settings: dict[str, object] = {
        **_algorithm(run),
        **_sizes(run),
        **_rollouts(run),
        **_folders(run),
        **_method(run),
        **_reward(run),
        **_attention(),
        **(_on_cpu() if run.is_on_cpu else _on_gpus(run)),
    }
    program = (sys.executable, "-m", "verl.trainer.main_ppo")
    variables = _VARIABLES_ON_CPU if run.is_on_cpu else {}
    return Command((*program, *hydra(settings), *run.arguments), variables)


def _algorithm(run: Run) -> dict[str, object]:
    return {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": True,
        "algorithm.use_kl_in_reward": False,
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.optim.lr": run.recipe.learning_rate,
        f"{_ACTOR}.clip_ratio": 0.2,
        f"{_ACTOR}.entropy_coeff": 0,
    }


def _sizes(run: Run) -> dict[str, object]:
    recipe = run.recipe
    return {
        "data.train_files": run.train,
        "data.val_files": run.validation or run.train,
        "data.train_batch_size": recipe.prompts,
        "data.max_prompt_length": recipe.max_prompt,
        "data.filter_overlong_prompts": True,
        "data.max_response_length": recipe.max_response,
        "actor_rollout_ref.model.path": Path(run.model),
        f"{_ACTOR}.ppo_mini_batch_size": recipe.prompts // recipe.updates,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": recipe.micro_batch,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": recipe.micro_batch,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": recipe.micro_batch,
        "trainer.total_training_steps": run.steps,
        "trainer.total_epochs": run.steps,
        "trainer.test_freq": run.every("test", 10) if run.validation else -1,
        "trainer.val_before_train": run.validation is not None,
        "trainer.save_freq": run.every("save", 10),
    }


def _rollouts(run: Run) -> dict[str, object]:
    temperature = run.recipe.temperature
    return {
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": run.recipe.group,
        f"{_ROLLOUT}.temperature": temperature,
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.val_kwargs.do_sample": True,
        f"{_ROLLOUT}.val_kwargs.n": run.protocol["validation_n"],
        f"{_ROLLOUT}.val_kwargs.temperature": temperature,
        f"{_ROLLOUT}.val_kwargs.top_p": 0.95,
    }


def _folders(run: Run) -> dict[str, object]:
    return {
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": run.gpus,
        "trainer.project_name": "tandem",
        "trainer.experiment_name": run.recipe.method,
        "trainer.logger": "[console]",
        "trainer.max_actor_ckpt_to_keep": 1,
        f"{_ACTOR}.checkpoint.save_contents": "[model,optimizer,extra,hf_model]",
        "trainer.checkpoint_callback_class": "tandem_verl.keep_seniors.KeepSeniors",
        "trainer.default_local_dir": run.out / "checkpoints",
        "trainer.rollout_data_dir": run.out / "rollouts",
        "trainer.validation_data_dir": run.out / "validation",
        "hydra.run.dir": run.out / "hydra",
    }


def _method(run: Run) -> dict[str, object]:
    """What turns tandem on, or a KL loss; verl cannot import the manager without tandem-plugin.

    vLLM from 0.29 rejects verl's sync of a model whose head is its embedding unless one bucket
    holds all its weights (8.9 GB of Qwen3-4B's); with tandem it does not.
    """
    is_regularised = run.recipe.method == "kl-reg"
    settings: dict[str, object] = {f"{_ACTOR}.use_kl_loss": is_regularised}
    if is_regularised:
        settings[f"{_ACTOR}.kl_loss_coef"] = run.recipe.kl
        settings[f"{_ACTOR}.kl_loss_type"] = "low_var_kl"
    if run.tandem is None:
        return {**settings, _BUCKET: 10240}
    settings |= {f"+{_TANDEM}.{name}": _hydra(value) for name, value in run.tandem.items()}
    return {**settings, f"+{_MANAGER}": "tandem_verl.rollouts.TandemAgentLoopManager"}


def _hydra(value: Any) -> object:
    """A value in Hydra's grammar."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{_hydra(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(str(_hydra(inner)) for inner in value)}]"
    if isinstance(value, str):
        return hydra_text(value)
    return "null" if value is None else value


def _reward(run: Run) -> dict[str, object]:
    path = "reward.custom_reward_function.path"
    if run.own_rewards is None:
        return {path: reward_file("verl")}
    file = reward_file("verl").with_name("own_verl.py")
    kwargs = "+reward.custom_reward_function.reward_kwargs.reward"
    return {path: file, kwargs: hydra_text(run.own_rewards)}


def _attention() -> dict[str, object]:
    """Without flash-attn, responses are padded and not packed, and attention is PyTorch's own."""
    if installed_version("flash-attn"):
        return {}
    return {
        "++actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.model.use_remove_padding": False,
    }


def _on_gpus(run: Run) -> dict[str, object]:
    """On one GPU the optimizer's states wait in host memory."""
    is_offloaded = run.gpus == 1
    return {
        f"{_ACTOR}.fsdp_config.param_offload": is_offloaded,
        f"{_ACTOR}.fsdp_config.optimizer_offload": is_offloaded,
        f"{_ROLLOUT}.gpu_memory_utilization": 0.5,
    }


_VARIABLES_ON_CPU = {
    "VERL_USE_EXTERNAL_MODULES": "tandem_verl.on_cpu",
    "VERL_PLATFORM": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def _on_cpu() -> dict[str, object]:
    """One process of each kind, in float32: :mod:`tandem_verl.on_cpu` has what verl lacks."""
    return {
        "trainer.device": "cpu",
        "data.dataloader_num_workers": 0,
        "reward.num_workers": 1,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        f"{_ACTOR}.fsdp_config.use_torch_compile": False,
        f"+{_ACTOR}.fsdp_config.mixed_precision": (
            "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"
        ),
        f"{_ROLLOUT}.dtype": "float32",
        f"{_ROLLOUT}.enforce_eager": True,
        f"{_ROLLOUT}.free_cache_engine": False,
        f"+{_ROLLOUT}.enable_sleep_mode": False,
        f"{_ROLLOUT}.gpu_memory_utilization": 0.1,
        f"{_ROLLOUT}.agent.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "transfer_queue.backend.SimpleStorage.total_storage_size": 10_000,
        **({} if joins_cluster() else _LOCAL_RAY),
    }


_LOCAL_RAY = {
    "ray_kwargs.ray_init.num_cpus": 16,
    "+ray_kwargs.ray_init.num_gpus": 1,
    "+ray_kwargs.ray_init.address": "local",
    "+ray_kwargs.ray_init.include_dashboard": False,
    "+ray_kwargs.ray_init.object_store_memory": 500_000_000,
}


def before(run: Run) -> None:
    """verl reads its files of problems alone."""


def senior(run: Run) -> Path:
    return best_senior(run.out)


def parse(run: Run) -> Command:
    """Hydra composes the whole configuration, and prints it."""
    plain_command = command(run)
    return Command((*plain_command.arguments, "--cfg", "job"), plain_command.variables)
