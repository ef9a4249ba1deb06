#!/usr/bin/env bash
# The paper's three runs with verl, with the hyperparameters of its appendix A, and two controls:
#
#   examples/verl/train.sh tandem|grpo|kl-reg|grpo-g16|grpo-half [--protocol paper|paper-code|release] [verl's own overrides ...]
#
# It logs to the console unless told otherwise: trainer.logger='[console,wandb]'. The methods, the protocols
# and the variables (GPUS, MODEL, STEPS, ...) are those of all recipes: the head of the file that
# `tandem path recipe` names describes them. Of this one alone is:
#
#   BUCKET            MB of a weight sync's bucket without tandem, at least the model's (10240)
#
# The folder gets protocol (what defines the run), command, packages, train.log, rollouts/ and validation/
# (a file a step), checkpoints/ (the newest, to resume from), seniors/ (the best so far and the newest, as
# Hugging Face folders) and senior, the best.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"  # started as `sh train.sh`
set -euo pipefail

recipe=$(tandem path recipe) || { echo "Activate the environment that tandem-plugin is installed in." >&2; exit 2; }
# shellcheck source=tandem_plugin/lab/recipe.sh
source "$recipe"
take_method "$@"
tandem=actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem
# verl cannot import it without tandem-plugin, and would ignore the settings of tandem.
manager=+actor_rollout_ref.rollout.agent.agent_loop_manager_class=tandem_verl.rollouts.TandemAgentLoopManager

case $method in
  tandem)
    # The best checkpoint is chosen by who answers there: the team, or under `release` the senior.
    settings=(+$tandem.schedule=word +$tandem.p=0.5 "+$tandem.cap=$protocol_cap"
      "+$tandem.validation=$protocol_validation" "$manager")
    ;;
  grpo) settings=() ;;
  grpo-g16) settings=(actor_rollout_ref.rollout.n=16) ;;
  grpo-half)
    settings=(+$tandem.schedule=solo-word +$tandem.p=0.5 "+$tandem.cap=$protocol_cap" "$manager")
    ;;
  kl-reg)
    settings=(
      actor_rollout_ref.actor.use_kl_loss=True
      actor_rollout_ref.actor.kl_loss_coef="${KL:-0.001}"
      actor_rollout_ref.actor.kl_loss_type=low_var_kl
    )
    ;;
  *) usage ;;
esac
# vLLM from 0.29 rejects verl's sync of a model whose head is its embedding unless one bucket holds all
# its weights (8.9 GB of Qwen3-4B's); with tandem it does not.
if [ "$method" != tandem ] && [ "$method" != grpo-half ]; then
  settings+=("actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=${BUCKET:-10240}")
fi
find_problems verl parquet data data.train_files
run_folder verl

offload=False
if [ "$gpus" = 1 ]; then offload=True; fi

if ! has_package flash-attn; then
  settings+=(++actor_rollout_ref.model.override_config.attn_implementation=sdpa
    actor_rollout_ref.model.use_remove_padding=False)
fi

logged python -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  algorithm.norm_adv_by_std_in_grpo=True \
  algorithm.use_kl_in_reward=False \
  data.train_files="$train" \
  data.val_files="$validation" \
  data.train_batch_size=16 \
  data.max_prompt_length=1024 \
  data.filter_overlong_prompts=True \
  data.max_response_length="$response" \
  actor_rollout_ref.model.path="$model" \
  actor_rollout_ref.actor.strategy=fsdp2 \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.actor.clip_ratio=0.2 \
  actor_rollout_ref.actor.ppo_mini_batch_size=8 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.actor.entropy_coeff=0 \
  actor_rollout_ref.actor.use_kl_loss=False \
  actor_rollout_ref.actor.fsdp_config.param_offload=$offload \
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=$offload \
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.temperature=0.6 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.rollout.val_kwargs.do_sample=True \
  actor_rollout_ref.rollout.val_kwargs.n="$protocol_validation_n" \
  actor_rollout_ref.rollout.val_kwargs.temperature=0.6 \
  actor_rollout_ref.rollout.val_kwargs.top_p=0.95 \
  reward.custom_reward_function.path="$(tandem path reward-verl)" \
  trainer.nnodes=1 \
  trainer.n_gpus_per_node="$gpus" \
  trainer.project_name=tandem \
  trainer.experiment_name="$method" \
  trainer.logger='[console]' \
  trainer.total_training_steps="$steps" \
  trainer.test_freq="${protocol_test_freq:-10}" \
  trainer.save_freq="${protocol_save_freq:-10}" \
  trainer.max_actor_ckpt_to_keep=1 \
  actor_rollout_ref.actor.checkpoint.save_contents='[model,optimizer,extra,hf_model]' \
  trainer.checkpoint_callback_class=tandem_verl.keep_seniors.KeepSeniors \
  trainer.default_local_dir="$out/checkpoints" \
  trainer.rollout_data_dir="$out/rollouts" \
  trainer.validation_data_dir="$out/validation" \
  ${settings[@]+"${settings[@]}"} \
  ${arguments[@]+"${arguments[@]}"}

senior=$(python -m tandem_verl.keep_seniors "$out") || exit 0  # it was told to keep none
finish "$senior"
