# What the recipes of both trainers share: a run's folder, its log, and what to type next.
#
# tandem: tandem RL; grpo: the same without a junior; kl-reg: grpo with a KL loss towards the model
# that it starts from. Not the paper's are grpo-g16: grpo with groups of 16, which decodes as much as
# tandem's two models; and grpo-half: grpo on a random half of its tokens, as many as tandem trains.
# The protocol is what the paper states (the default), what its code did (paper-code) or what its release
# does: docs/concepts.md has all three. The paper does not say how many steps it trained; its best checkpoints are those of steps 120
# (tandem) and 200 (GRPO). A run ends after STEPS steps and prints what to type next; the same command
# resumes a run that was stopped, and another one is refused in its folder. Variables of every recipe:
#
#   GPUS=1|2          GPUs of 80 GB; the paper had 2. On one, the optimizer's states wait in host memory.
#   MODEL             the senior, and the junior           (Qwen/Qwen3-4B-Instruct-2507)
#   STEPS             how many steps                       (250; release: 4912, two epochs)
#   KL                kl-reg's coefficient, of which the paper gives none; 0.001 is verl's default.
#                     To sweep it: for KL in 0.001 0.01 0.05 0.2; do KL=$KL OUT=runs/kl-$KL ...
#   OUT               the run's folder                     (runs/TRAINER/METHOD)
#   BENCHMARKS        NAME=SOURCE of each problem set of the printed `tandem eval`: none that chose the
#                     checkpoint                           (the paper's AMC, AIME and Minerva)
#   EVAL              more arguments of the printed `tandem eval`, such as "--n 8"
# shellcheck shell=bash

# take_method METHOD [--protocol paper|paper-code|release] ARGUMENT...: sets method, protocol, its settings as
# protocol_NAME, and arguments, which the trainer gets.
take_method() {
  method=${1:-}
  shift || true
  protocol=paper
  if [ "${1:-}" = --protocol ]; then
    protocol=${2:-}
    shift $(($# > 1 ? 2 : 1))
  fi
  arguments=("$@")
  settings_of_protocol=$(python -m tandem_plugin.lab.protocols "$protocol" "$@") || exit 2
  eval "$settings_of_protocol"
}

# usage: says which methods there are, and ends.
usage() {
  echo "usage: $0 tandem|grpo|kl-reg|grpo-g16|grpo-half [--protocol paper|paper-code|release] [the trainer's own arguments ...]" >&2
  exit 2
}

# has_flash_attn: without it, responses are padded and not packed, and attention is PyTorch's own.
has_flash_attn() {
  python -c 'from importlib.metadata import version; version("flash-attn")' 2>/dev/null
}

# run_folder TRAINER TRAIN VALIDATION: sets out, steps, model and gpus from the environment, notes in
# the folder what defines the run, and ends where it is another run's, or done already.
run_folder() {
  out=${OUT:-runs/$1/$method}
  steps=${STEPS:-${protocol_steps:-250}}
  model=${MODEL:-Qwen/Qwen3-4B-Instruct-2507}
  gpus=${GPUS:-2}
  mkdir -p "$out"
  local note
  note=$(printf '%s\n' "protocol=$protocol" "$settings_of_protocol" "method=$method${KL:+ KL=$KL}" \
    "model=$model" "train=$(contents "$2")" "validation=$(contents "$3")" "arguments=${arguments[*]-}")
  # Without steps: the same run may go on for more of them.
  if [ -e "$out/protocol" ] && ! difference=$(grep -v '^steps=' "$out/protocol" | diff - <(echo "$note")); then
    {
      echo "$out is the folder of another run. There (<) and here (>):"
      grep '^[<>]' <<<"$difference"
      echo "Give this run a folder of its own, OUT=..., or remove that one."
    } >&2
    exit 2
  fi
  if [ "$(cat "$out/done" 2>/dev/null)" = "$steps" ]; then
    echo "$out has all of its $steps steps; remove it to train anew, or give more STEPS."
    next_commands
    exit 0
  fi
  enough_gpus
  printf '%s\n' "$note" "steps=$steps" >"$out/protocol"
}

# enough_gpus: ends where this machine shows fewer GPUs than the run needs, for which Ray would wait
# without a word. Not where they are a running Ray cluster's, or the trainer's own arguments set them.
enough_gpus() {
  case " ${arguments[*]-} " in
    *gpus_per_node* | *nnodes* | *num_nodes* | *trainer.device=* | *" --cfg "* | *" --help "*) return 0 ;;
  esac
  cluster=${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray/ray_current_cluster
  if [ -n "${RAY_ADDRESS:-}${TRIAL:-}" ] || [ -e "$cluster" ]; then return 0; fi
  visible=$(python -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || return 0
  if [ "$visible" -ge "$gpus" ]; then return 0; fi
  echo "This machine shows $visible GPUs, and the run needs $gpus (GPUS=$gpus). Set GPUS, or check nvidia-smi" \
    "and CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-}; for those of a Ray cluster set RAY_ADDRESS." >&2
  exit 2
}

# contents FILE: its name, and the checksum of what it holds if it is there.
contents() {
  echo "$1$(if [ -f "$1" ]; then printf ' (checksum %s)' "$(cksum <"$1" | cut -d' ' -f1)"; fi)"
}

# logged COMMAND...: runs it, with all that it says in the run's log as well.
logged() {
  "$@" 2>&1 | tee -a "$out/train.log"
}

# finish FOLDER: that folder is the senior, and the run is done.
finish() {
  ln -sfn "$(realpath --relative-to "$out" "$1")" "$out/senior"
  echo "$steps" >"$out/done"
  next_commands
}

# next_commands: prints what to type next, with the training's arguments of the chat template. Dumps of
# a run without tandem say nothing of authors.
next_commands() {
  local template=() benchmarks=() one
  while IFS= read -r -d '' one; do
    template+=("$one")
  done < <(python -m tandem_plugin.lab.protocols --template-args ${arguments[@]+"${arguments[@]}"})
  for one in ${BENCHMARKS:-AMC=amc23-25 AIME=aime24-26 Minerva=minerva}; do
    benchmarks+=(--benchmark "$one")
  done
  printf '\nThe senior: %q, the best by the run'"'"'s own validation (the last without any). Next:\n\n' \
    "$out/senior"
  if [ "$method" = tandem ]; then
    command_line tandem view "$out/rollouts" --tokenizer "$model" --out "$out/rollouts.html"
  fi
  # shellcheck disable=SC2086
  command_line tandem eval all --protocol "$protocol" --senior "base=$model" --senior "$method=$out/senior" \
    --junior "base=$model" "${benchmarks[@]}" --out "$out/results" ${template[@]+"${template[@]}"} ${EVAL:-}
  command_line tandem report "$out/results" --out "$out/report"
}

command_line() {
  printf '  '
  printf '%q ' "$@"
  printf '\n'
}
