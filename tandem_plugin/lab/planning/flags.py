"""A plan as the settings of whoever runs it."""

from __future__ import annotations

import re
import shlex

from tandem_plugin.lab.planning.plan import Plan

__all__ = ["flags"]


def flags(plan: Plan) -> list[str]:
    """What to add to the command: of verl's trainer, OpenRLHF's, or ``tandem rollout``."""
    return {"verl": _verl, "openrlhf": _openrlhf, "rollout": _rollout}[plan.wanted.user](plan)


def _verl(plan: Plan) -> list[str]:
    """Overrides of ``python -m verl.trainer.main_ppo``."""
    wanted = plan.wanted
    worker, micro = "actor_rollout_ref", max(1, plan.micro_batch)
    tandem = f"+{worker}.rollout.engine_kwargs.vllm.additional_config.tandem"
    found = [
        f"trainer.nnodes={wanted.nodes}",
        f"trainer.n_gpus_per_node={wanted.gpus // wanted.nodes}",
        f"data.train_batch_size={wanted.batch}",
        f"data.max_prompt_length={wanted.prompt}",
        f"data.max_response_length={wanted.response}",
        f"{worker}.rollout.n={wanted.samples}",
        f"{worker}.rollout.tensor_model_parallel_size={plan.tensor_parallel}",
        f"{worker}.rollout.gpu_memory_utilization={plan.utilization:.2f}",
        f"{worker}.rollout.max_model_len={wanted.length}",
        f"{worker}.rollout.max_num_seqs={wanted.requests}",
        f"{worker}.rollout.max_num_batched_tokens={wanted.batched_tokens}",
        f"{worker}.rollout.log_prob_micro_batch_size_per_gpu={micro}",
        f"{worker}.actor.ppo_mini_batch_size={wanted.mini_batch}",
        f"{worker}.actor.ppo_micro_batch_size_per_gpu={micro}",
        f"{worker}.actor.fsdp_config.param_offload={plan.offload == 'all'}",
        f"{worker}.actor.fsdp_config.optimizer_offload={plan.offload != 'none'}",
    ]
    if wanted.reference:
        found += [
            f"{worker}.actor.use_kl_loss=True",
            f"{worker}.ref.log_prob_micro_batch_size_per_gpu={micro}",
        ]
    if wanted.drafts:
        found += [f"{tandem}.mode=speculative", f"{tandem}.drafts={wanted.drafts}"]
    if wanted.junior.name != wanted.senior.name:
        found.append(f"{tandem}.junior={_hydra(wanted.junior.name)}")
    return [f"{worker}.model.path={_hydra(wanted.senior.name)}", *found]


def _openrlhf(plan: Plan) -> list[str]:
    """Arguments of ``python -m tandem_openrlhf.train_ppo_ray``."""
    wanted, micro = plan.wanted, max(1, plan.micro_batch)
    found = [
        f"--actor.num_nodes {wanted.nodes}",
        f"--actor.num_gpus_per_node {wanted.gpus // wanted.nodes}",
        f"--ref.num_nodes {wanted.nodes}",
        f"--ref.num_gpus_per_node {wanted.gpus // wanted.nodes}",
        "--train.colocate_all",
        "--vllm.enable_sleep",
        "--ds.enable_sleep",
        "--ds.zero_stage 3",
        "--actor.gradient_checkpointing_enable",
        f"--vllm.num_engines {plan.engines}",
        f"--vllm.tensor_parallel_size {plan.tensor_parallel}",
        f"--vllm.gpu_memory_utilization {plan.utilization:.2f}",
        f"--data.max_len {wanted.length}",
        f"--rollout.max_new_tokens {wanted.response}",
        f"--rollout.batch_size {wanted.batch}",
        f"--rollout.n_samples_per_prompt {wanted.samples}",
        f"--rollout.micro_batch_size {micro}",
        f"--train.batch_size {wanted.mini_batch * wanted.samples}",
        f"--train.micro_batch_size {micro}",
    ]
    if plan.offload != "none":
        found.append("--ds.adam_offload")
    if plan.offload == "all" and wanted.reference:
        found.append("--ref.offload")
    if not wanted.reference:
        found.append("--algo.kl.init_coef 0")
    if wanted.drafts:
        found += ["--tandem.mode speculative", f"--tandem.drafts {wanted.drafts}"]
    if wanted.junior.name != wanted.senior.name:
        found.append(f"--tandem.junior {shlex.quote(wanted.junior.name)}")
    return [f"--actor.model_name_or_path {shlex.quote(wanted.senior.name)}", *found]


def _rollout(plan: Plan) -> list[str]:
    """Options of ``tandem rollout`` and ``tandem eval``."""
    wanted = plan.wanted
    return [
        f"--max-tokens {wanted.response}",
        f"--engine tensor_parallel_size={plan.tensor_parallel}",
        f"--engine gpu_memory_utilization={plan.utilization:.2f}",
        f"--engine max_model_len={wanted.length}",
        f"--engine max_num_seqs={wanted.requests}",
        f"--engine max_num_batched_tokens={wanted.batched_tokens}",
    ]


def _hydra(name: str) -> str:
    """A name as Hydra and the shell both take it for one value."""
    if re.fullmatch(r"[\w./-]+", name):
        return name
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return shlex.quote(f"'{escaped}'")
