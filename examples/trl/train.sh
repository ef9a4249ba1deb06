#!/usr/bin/env bash
# The paper's three runs with TRL, with the hyperparameters of its appendix A, and two controls:
#
#   examples/trl/train.sh tandem|grpo|kl-reg|grpo-g16|grpo-half [--protocol paper|paper-code|release] [TRL's own arguments ...]
#
# It logs to the console unless told otherwise: --report_to wandb. The methods, the protocols and the
# variables (GPUS, MODEL, STEPS, ...) are those of all recipes: the head of the file that `tandem path recipe`
# names describes them. On one GPU weights and optimizer are float32, 16 bytes a parameter: for models of up
# to 1.7 billion. GPUS=2 needs DeepSpeed. TRL does not choose a checkpoint by the team's accuracy, and
# nothing is validated: the senior is the last; the others are for `tandem eval`.
#
# The folder gets protocol (what defines the run), command, packages, train.log, rollouts/ (a file a step, of
# tandem alone), checkpoints/ (with checkpoint-N, N being two updates a step) and senior, the last.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"  # started as `sh train.sh`
set -euo pipefail

recipe=$(tandem path recipe) || { echo "Activate the environment that tandem-plugin is installed in." >&2; exit 2; }
# shellcheck source=tandem_plugin/lab/recipe.sh
source "$recipe"
take_method "$@"
module=trl.scripts.grpo samples=8 beta=0.0

case $method in
  tandem)
    module=tandem_trl.grpo
    settings=(--tandem.schedule=word --tandem.p=0.5 "--tandem.cap=$protocol_cap")
    ;;
  grpo) settings=() ;;
  grpo-g16) settings=() samples=16 ;;
  grpo-half)
    module=tandem_trl.grpo
    settings=(--tandem.schedule=solo-word --tandem.p=0.5 "--tandem.cap=$protocol_cap")
    ;;
  kl-reg) settings=() beta=${KL:-0.001} ;;
  *) usage ;;
esac
find_problems trl parquet data --dataset_name
run_folder trl
if [ "$method" = tandem ]; then settings+=("--tandem.rollouts=$out/rollouts"); fi

launch=(accelerate launch --num_processes "$gpus")
dtype=float32
if [ "$gpus" -gt 1 ]; then
  has_package deepspeed || refuse "GPUS=$gpus needs DeepSpeed: pip install deepspeed==0.19.6"
  launch+=(--use_deepspeed --zero_stage 3)
  dtype=bfloat16  # DeepSpeed keeps float32 weights besides
fi
# The newest checkpoint that was written to its end.
for state in $(find "$out/checkpoints" -path '*/checkpoint-*/trainer_state.json' 2>/dev/null | sort -V | tail -n 1); do
  settings+=(--resume_from_checkpoint "$(dirname "$state")")
done

# A step is 16 problems in two updates of 8, as in the paper; TRL counts the updates. TRL's defaults differ in
# the schedule of the learning rate and in the correction for the engine's probabilities. weight_decay is
# verl's, of which the paper says nothing; dapo is the mean over all tokens of an update, as verl's.
logged "${launch[@]}" -m $module \
  --dataset_name "$(dirname "$train")" \
  --model_name_or_path "$model" \
  --dtype $dtype \
  --bf16 True \
  --reward_funcs tandem_plugin.grading.rewards.trl_reward.math_reward \
  --num_generations $samples \
  --generation_batch_size $((16 * samples)) \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps $((4 * samples / gpus)) \
  --num_iterations 1 \
  --max_steps $((2 * steps)) \
  --learning_rate 1e-6 \
  --lr_scheduler_type constant \
  --weight_decay 0.01 \
  --epsilon 0.2 \
  --beta "$beta" \
  --loss_type dapo \
  --scale_rewards group \
  --vllm_importance_sampling_correction False \
  --use_vllm True \
  --vllm_mode colocate \
  --vllm_gpu_memory_utilization 0.3 \
  --vllm_max_model_length $((1024 + response)) \
  --max_completion_length "$response" \
  --temperature 0.6 \
  --top_p 1.0 \
  --gradient_checkpointing True \
  --logging_steps 1 \
  --save_steps $((2 * ${protocol_save_freq:-20})) \
  --output_dir "$out/checkpoints" \
  ${settings[@]+"${settings[@]}"} \
  ${arguments[@]+"${arguments[@]}"}

finish "$out/checkpoints"
