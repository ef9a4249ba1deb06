#!/usr/bin/env bash
# The paper's study itself, on GPUs: GRPO, KL-Reg and TRL of Qwen3-4B-Instruct-2507 on DeepScaleR, and
# every axis of its evaluation.
#
#   examples/study/full_scale.sh all | prepare | train | evaluate | tables
#
# Each part goes on after a kill: verl from its last checkpoint, `tandem eval` from its last response.
#
#   SEEDS     "1", as in the paper; "1 2 3" trains each method so often, and tables pool them
#   STEPS     training steps of each run                  (250)
#   MODEL     the senior's start, and the junior          (Qwen/Qwen3-4B-Instruct-2507)
#   JUNIORS   others, for appendix B.2                    ("Qwen/Qwen3-0.6B Qwen/Qwen3-1.7B")
#   AMC       AMC 23-25 has no public home: your file of it, or amc23 for the part that has (amc23)
#   OUT       where everything goes                       (runs/full-study)
#   GPUS      for examples/verl/train.sh                  (2)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-Qwen/Qwen3-4B-Instruct-2507}
out=${OUT:-runs/full-study}
read -ra seeds <<<"${SEEDS:-1}"
read -ra juniors <<<"${JUNIORS-Qwen/Qwen3-0.6B Qwen/Qwen3-1.7B}"
benchmarks=(--benchmark "AMC=${AMC:-amc23}" --benchmark AIME=aime24-26 --benchmark Minerva=minerva)
schedules=(--schedule step --schedule step-bernoulli)
declare -A recipes=([GRPO]=grpo [KL-Reg]=kl-reg [TRL]=trl)
methods=(GRPO KL-Reg TRL)

runs=()
for method in "${methods[@]}"; do
  for seed in "${seeds[@]}"; do runs+=("$method-$seed"); done
done

prepare() {
  tandem data prepare deepscaler --to verl --out "$out/data" --heldout 256
}

train() {
  export MODEL="$model" TRAIN="$out/data/train.parquet" VALIDATION="$out/data/heldout.parquet"
  for run in "${runs[@]}"; do
    OUT="$out/trainings/$run" "$here/../verl/train.sh" "${recipes[${run%-*}]}" \
      data.seed="${run##*-}" \
      actor_rollout_ref.actor.data_loader_seed="${run##*-}" \
      trainer.experiment_name="$run"
  done
}

# NAME=CHECKPOINT of every trained senior, each at its best validation.
trained() {
  for run in "${runs[@]}"; do
    senior=$out/trainings/$run/senior
    if [ ! -e "$senior" ]; then
      echo "$senior is not there: train $run to its end first (full_scale.sh train)." >&2
      exit 1
    fi
    echo "$run=$senior"
  done
}

evaluate() {
  seniors=(--senior "base=$model")
  while read -r senior; do seniors+=(--senior "$senior"); done < <(trained)
  [ "${#seniors[@]}" = $((2 * ${#runs[@]} + 2)) ] || exit 1
  tandem eval all "${seniors[@]}" --junior "base=$model" \
    "${benchmarks[@]}" "${schedules[@]}" --out "$out/results"
  for junior in ${juniors[@]+"${juniors[@]}"}; do
    tandem eval handoff "${seniors[@]}" --junior "$junior" "${benchmarks[@]}" \
      "${schedules[@]}" --out "$out/results"
    tandem eval legibility "${seniors[@]}" --junior "$junior" --out "$out/results"
  done
}

tables() {
  pools=()
  order=(--order base)
  logs=()
  for run in "${runs[@]}"; do
    order+=(--order "$run")
    logs+=(--log "$run=$out/trainings/$run/train.log")
  done
  if [ "${#seeds[@]}" -gt 1 ]; then
    for method in "${methods[@]}"; do
      members=$(printf ",$method-%s" "${seeds[@]}")
      pools+=(--pool "$method=${members:1}")
    done
  fi
  tandem compare "$out/results/base" "${runs[@]/#/$out/results/}" ${pools[@]+"${pools[@]}"} \
    --out "$out/tables"
  tandem report "$out/results" "${order[@]}" "${logs[@]}" ${pools[@]+"${pools[@]}"} \
    --title "GRPO, KL-Reg and TRL" --out "$out/report"
}

case ${1:-} in
  prepare | train | evaluate | tables) "$1" ;;
  all) prepare; train; evaluate; tables ;;
  *)
    echo "usage: $0 all|prepare|train|evaluate|tables" >&2
    exit 2
    ;;
esac
