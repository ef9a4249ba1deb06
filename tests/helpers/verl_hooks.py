"""What of verl the adapter hooks: methods and functions by module, with their first arguments."""

from __future__ import annotations

AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"
V1 = "verl.trainer.ppo.v1.trainer_base"
TQ = "verl.trainer.ppo.v1.agent_loop_tq"
SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"
MAIN = "verl.trainer.main_ppo"

HOOKS = {
    "verl.utils.config": {"validate_config": "config"},
    MAIN: {"run_ppo": "config task_runner_class"},
    AGENT_LOOP: {
        "async AgentLoopWorker._run_agent_loop": "self sampling_params trajectory",
        "async AgentLoopWorker._agent_loop_postprocess": "self output validate",
        "async AgentLoopWorker._compute_score": "self outputs kwargs",
        "AgentLoopWorker.__init__": "self config llm_client",
        "AgentLoopManager.__init__": "self config llm_client",
    },
    TQ: {
        "async AgentLoopWorkerTQ._agent_loop_postprocess": "self output validate",
        "AgentLoopManagerTQ.generate_sequences": "self prompts",
    },
    "verl.workers.rollout.llm_server": {"async LLMServerClient.generate": "self request_id"},
    V1: {
        "PPOTrainer.__init__": "self config",
        "PPOTrainer._init_tokenizer": "self",
        "PPOTrainer._init_dataloader": "self",
        "PPOTrainer._build_replay_buffer": "self",
        "PPOTrainer._dump_generations": (
            "self inputs outputs gts scores reward_extra_infos_dict dump_path"
        ),
        "PPOTrainer._validate": "self",
        "PPOTrainer._compute_advantage": "self batch metrics",
        "PPOTrainer._update_actor": "self batch metrics",
        "PPOTrainer._update_critic": "self batch metrics",
        "PPOTrainer._setup": "self",
        "PPOTrainer._load_checkpoint": "self",
        "PPOTrainer._save_checkpoint": "self",
        "PPOTrainer._init_resource_pool_mgr": "self",
        "PPOTrainer.fit": "self agent_loop_manager",
        "register_trainer": "name",
        "get_trainer_cls": "name",
    },
    "verl.trainer.ppo.v1.replay_buffer": {
        "ReplayBuffer.sample": "self global_steps partition_id batch_size"
    },
    "verl.workers.utils.losses": {"ppo_loss": "config model_output data"},
    "verl.workers.engine.fsdp.transformer_impl": {"FSDPEngine.forward_backward_batch": "self data"},
    "verl.workers.engine_workers": {
        "ActorRolloutRefWorker.init_model": "self",
        "TrainingWorker.set_loss_fn": "self loss_fn",
    },
    "verl.trainer.distillation.losses": {
        "distillation_ppo_loss": "config distillation_config model_output data",
        "compute_distillation_loss_range": "distillation_losses response_mask",
        "compute_forward_kl_topk": "config distillation_config model_output data",
    },
    "verl.utils.import_utils": {"load_class_from_fqn": "fqn description"},
    "verl.workers.rollout.replica": {"RolloutReplicaRegistry.register": "cls name"},
    SERVER: {
        "vLLMReplica.__init__": "self replica_rank config",
        "vLLMHttpServer.__init__": "self config",
        "async vLLMHttpServer.run_server": "self args",
        "async vLLMHttpServer.generate": "self prompt_ids sampling_params",
    },
}
"""Methods and functions by module, with the names of their first arguments."""

EVERY = [(module, *hook) for module, hooks in HOOKS.items() for hook in hooks.items()]
