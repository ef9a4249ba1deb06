#!/usr/bin/env bash
# The paper's three runs with SkyRL, with the hyperparameters of its appendix A, and two controls:
#
#   examples/skyrl/train.sh tandem|grpo|kl-reg|grpo-g16|grpo-half [--protocol paper|paper-code|release] [SkyRL's own settings ...]
#
# It logs to the console unless told otherwise: trainer.logger=wandb. The methods, the protocols and the
# variables (GPUS, MODEL, STEPS, ...) are those of all recipes: the head of the file that
# `tandem path recipe` names describes them. Engines and policy share the GPUs, SkyRL's default, which was
# not run in tandem; trainer.placement.colocate_all=false gives the engines GPUS further ones.
#
# The folder gets protocol (what defines the run), command, packages, train.log, rollouts/ (a file a step, of
# tandem alone), logs/, checkpoints/ (the newest, to resume from), export/ (a Hugging Face folder and the
# answers of every evaluation) and senior, the best by the run's own evaluations.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"  # started as `sh train.sh`
set -euo pipefail

recipe=$(tandem path recipe) || { echo "Activate the environment that tandem-plugin is installed in." >&2; exit 2; }
# shellcheck source=tandem_plugin/lab/recipe.sh
source "$recipe"
take_method "$@"
module=tandem_skyrl.environment

case $method in
  tandem)
    module=tandem_skyrl
    # The best checkpoint is chosen by who answers there: the team, or under `release` the senior.
    settings=(--tandem.schedule=word --tandem.p=0.5 "--tandem.cap=$protocol_cap"
      "--tandem.validation=$protocol_validation")
    ;;
  grpo) settings=() ;;
  grpo-g16) settings=(generator.n_samples_per_prompt=16) ;;
  grpo-half)
    module=tandem_skyrl
    settings=(--tandem.schedule=solo-word --tandem.p=0.5 "--tandem.cap=$protocol_cap")
    ;;
  kl-reg)
    settings=(
      trainer.algorithm.use_kl_loss=true
      "trainer.algorithm.kl_loss_coef=${KL:-0.001}"
      trainer.algorithm.kl_estimator_type=k3
    )
    ;;
  *) usage ;;
esac
find_problems skyrl parquet data data.train_data
run_folder skyrl
if [ "$method" = tandem ]; then settings+=("--tandem.rollouts=$out/rollouts"); fi

if ! has_package flash-attn; then
  settings+=(trainer.flash_attn=false trainer.remove_microbatch_padding=false)
  PYTHONPATH="$(tandem path without-flash-attn)${PYTHONPATH:+:$PYTHONPATH}"
  export PYTHONPATH
fi
every=${protocol_save_freq:-20}

logged python -m $module \
  data.train_data="['$train']" \
  data.val_data="['$validation']" \
  environment.env_class=tandem_math \
  trainer.policy.model.path="$model" \
  trainer.ref.model.path="$model" \
  trainer.strategy=fsdp \
  trainer.placement.colocate_all=true \
  trainer.placement.policy_num_gpus_per_node="$gpus" \
  trainer.placement.ref_num_gpus_per_node="$gpus" \
  trainer.algorithm.advantage_estimator=grpo \
  trainer.algorithm.grpo_norm_by_std=true \
  trainer.algorithm.policy_loss_type=dual_clip \
  trainer.algorithm.loss_reduction=token_mean \
  trainer.algorithm.eps_clip_low=0.2 \
  trainer.algorithm.eps_clip_high=0.2 \
  trainer.algorithm.use_entropy_loss=false \
  trainer.algorithm.use_kl_loss=false \
  trainer.policy.optimizer_config.lr=1e-6 \
  trainer.policy.optimizer_config.num_warmup_steps=0 \
  trainer.train_batch_size=16 \
  trainer.policy_mini_batch_size=8 \
  trainer.micro_train_batch_size_per_gpu=2 \
  trainer.micro_forward_batch_size_per_gpu=2 \
  trainer.max_prompt_length=1024 \
  generator.n_samples_per_prompt=8 \
  generator.max_input_length=1024 \
  generator.sampling_params.max_generate_length="$response" \
  generator.sampling_params.temperature=0.6 \
  generator.eval_n_samples_per_prompt="$protocol_validation_n" \
  generator.eval_sampling_params.max_generate_length="$response" \
  generator.eval_sampling_params.temperature=0.6 \
  generator.eval_sampling_params.top_p=0.95 \
  generator.inference_engine.num_engines="$gpus" \
  generator.inference_engine.tensor_parallel_size=1 \
  generator.inference_engine.gpu_memory_utilization=0.5 \
  generator.inference_engine.engine_init_kwargs.max_model_len=$((1024 + response)) \
  trainer.epochs="$steps" \
  trainer.max_training_steps="$steps" \
  trainer.eval_before_train=false \
  trainer.eval_interval="$every" \
  trainer.hf_save_interval="$every" \
  trainer.ckpt_interval="$every" \
  trainer.max_ckpts_to_keep=1 \
  trainer.resume_mode=latest \
  trainer.logger=console \
  trainer.project_name=tandem \
  trainer.run_name="$method" \
  trainer.ckpt_path="$out/checkpoints" \
  trainer.export_path="$out/export" \
  trainer.log_path="$out/logs" \
  ${settings[@]+"${settings[@]}"} \
  ${arguments[@]+"${arguments[@]}"}

# SkyRL chooses none of what it exports: the last of the best, by the score of its evaluation if it has one.
senior=$(for one in "$out"/export/global_step_*/policy; do
  step=$(basename "$(dirname "$one")")
  score=$(sed -nE 's/.*"eval\/all\/avg_score": ([-+.0-9e]+).*/\1/p' \
    "$out/export/dumped_evals/${step}_evals/aggregated_results.jsonl" 2>/dev/null) || true
  echo "${score:-0} $one"
done | sort -k1,1g -k2V | tail -n 1)
finish "${senior#* }"
