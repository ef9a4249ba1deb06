#!/usr/bin/env bash
# The paper's three runs with OpenRLHF, with the hyperparameters of its appendix A, and two controls:
#
#   examples/openrlhf/train.sh tandem|grpo|kl-reg|grpo-g16|grpo-half [--protocol paper|paper-code|release] [OpenRLHF's own arguments ...]
#
# OpenRLHF evaluates with the training's top-p, of which the paper says nothing: it is 1. It logs to the
# console unless told otherwise: --logger.wandb.key KEY. The methods, the protocols and the variables (GPUS,
# MODEL, STEPS, ...) are those of all recipes: the head of the file that `tandem path recipe` names
# describes them.
#
# The folder gets protocol (what defines the run), command, packages, problems.jsonl (those that so many
# steps see), train.log, rollouts/ (a file a step, of tandem alone), checkpoints/ (the newest, to resume
# from, and the best), last/ (the senior after the last step) and senior, the best by the run's own
# evaluations, as a Hugging Face folder.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"  # started as `sh train.sh`
set -euo pipefail

recipe=$(tandem path recipe) || { echo "Activate the environment that tandem-plugin is installed in." >&2; exit 2; }
# shellcheck source=tandem_plugin/lab/recipe.sh
source "$recipe"
take_method "$@"
command=openrlhf.cli.train_ppo_ray

case $method in
  tandem)
    command=tandem_openrlhf.train_ppo_ray
    # The best checkpoint is chosen by who answers there: the team, or under `release` the senior.
    settings=(--tandem.schedule word --tandem.p 0.5 --tandem.cap "$protocol_cap"
      --tandem.validation "$protocol_validation" --algo.kl.init_coef 0)
    ;;
  grpo) settings=(--algo.kl.init_coef 0) ;;
  grpo-g16)
    # 16 problems x 16 responses in two updates, as the 16 x 8 of the others.
    settings=(--algo.kl.init_coef 0 --rollout.n_samples_per_prompt 16 --train.batch_size 128)
    ;;
  grpo-half)
    command=tandem_openrlhf.train_ppo_ray
    settings=(--tandem.schedule solo-word --tandem.p 0.5 --tandem.cap "$protocol_cap" --algo.kl.init_coef 0)
    ;;
  kl-reg) settings=(--algo.kl.use_loss --algo.kl.estimator k3 --algo.kl.init_coef "${KL:-0.001}") ;;
  *) usage ;;
esac
find_problems openrlhf jsonl openrlhf-data --data.prompt_dataset
run_folder openrlhf
if [ "$method" = tandem ]; then settings+=(--tandem.rollouts "$out/rollouts"); fi

# Where there is no GPU (a trial of this script), nothing sleeps.
if [ "${TRIAL:-}" != 1 ]; then
  settings+=(--train.colocate_all --vllm.enable_sleep --ds.enable_sleep)
fi
if has_package flash-attn; then
  settings+=(--ds.packing_samples)
else
  settings+=(--ds.attn_implementation sdpa)
  PYTHONPATH="$(tandem path without-flash-attn)${PYTHONPATH:+:$PYTHONPATH}"
  export PYTHONPATH
fi
if [ "$gpus" = 1 ]; then settings+=(--ds.adam_offload); fi

mkdir -p "$out/checkpoints"
# OpenRLHF ends with its prompts, of which a step takes 16.
python -m tandem_openrlhf.choose_problems "$train" $((16 * steps)) "$out/problems.jsonl"

logged python -m "$command" \
  --actor.model_name_or_path "$model" \
  --actor.num_nodes 1 \
  --actor.num_gpus_per_node "$gpus" \
  --ref.num_nodes 1 \
  --ref.num_gpus_per_node "$gpus" \
  --vllm.num_engines "$gpus" \
  --vllm.tensor_parallel_size 1 \
  --vllm.gpu_memory_utilization 0.5 \
  --ds.zero_stage 3 \
  --actor.gradient_checkpointing_enable \
  --data.prompt_dataset "$out/problems.jsonl" \
  --eval.dataset "$validation" \
  --eval.steps "${protocol_test_freq:-10}" \
  --eval.n_samples_per_prompt "$protocol_validation_n" \
  --eval.temperature 0.6 \
  --data.input_key input \
  --data.label_key label \
  --data.apply_chat_template \
  --data.max_len $((1024 + response)) \
  --rollout.max_new_tokens "$response" \
  --rollout.batch_size 16 \
  --rollout.n_samples_per_prompt 8 \
  --rollout.temperature 0.6 \
  --train.batch_size 64 \
  --train.micro_batch_size 2 \
  --rollout.micro_batch_size 4 \
  --actor.adam.lr 1e-6 \
  --actor.lr_warmup_ratio 0 \
  --actor.lr_scheduler constant \
  --actor.eps_clip 0.2 \
  --actor.entropy_coef 0 \
  --algo.advantage.estimator group_norm \
  --reward.remote_url "$(tandem path reward-openrlhf)" \
  --ckpt.save_steps "${protocol_save_freq:-25}" \
  --ckpt.max_num 1 \
  --ckpt.save_hf \
  --ckpt.load_enable \
  --ckpt.path "$out/checkpoints" \
  --ckpt.output_dir "$out/last" \
  "${settings[@]}" \
  ${arguments[@]+"${arguments[@]}"}

# OpenRLHF keeps a Hugging Face folder with every checkpoint, and counts none of them.
best=$(find "$out/checkpoints" -maxdepth 1 -name 'best_global_step*_hf' | sort -V | tail -n 1)
find "$out/checkpoints" -maxdepth 1 -name '*global_step*_hf' ! -path "$best" -exec rm -r {} +
finish "${best:-$out/last}"
