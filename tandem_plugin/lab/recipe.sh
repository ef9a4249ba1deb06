# What the recipes of all trainers share: a run's problems, its folder, its log, and what to type next.
# `tandem path recipe` prints where this file is; a recipe is written by `tandem init TRAINER`.
#
# tandem: tandem RL; grpo: the same without a junior; kl-reg: grpo with a KL loss towards the model
# that it starts from. Not the paper's are grpo-g16: grpo with groups of 16, which decodes as much as
# tandem's two models; and grpo-half: grpo on a random half of its tokens, as many as tandem trains.
# The protocol is what the paper states (the default), what its code did (paper-code) or what its release
# does: the documentation has all three under Compatibility. The paper does not say how many steps it trained; its best
# checkpoints are those of steps 120 (tandem) and 200 (GRPO). A run ends after STEPS steps and prints what
# to type next; the same command resumes a run that was stopped, and another one is refused in its folder.
# Variables of every recipe, also read from settings.sh beside it (the environment takes precedence):
#
#   GPUS=1|2          GPUs of 80 GB; the paper had 2. On one, the optimizer's states wait in host memory.
#   MODEL             the senior, and the junior           (Qwen/Qwen3-4B-Instruct-2507)
#   STEPS             how many steps                       (250; release: 4912, two epochs)
#   RESPONSE          tokens of a response, at most        (3000)
#   KL                kl-reg's coefficient, of which the paper gives none; 0.001 is verl's default.
#                     To sweep it: for KL in 0.001 0.01 0.05 0.2; do KL=$KL OUT=runs/kl-$KL ...
#   OUT               the run's folder                     (runs/TRAINER/METHOD)
#   PROBLEMS          what `tandem data prepare` prepares where there are no problems yet: a set's name or
#                     a file; HELDOUT (200) of them validate
#   DATA              the folder of the prepared problems  (data, or data/NAME of PROBLEMS)
#   TRAIN, VALIDATION their files, if they have other names
#   BENCHMARKS        NAME=SOURCE of each problem set of the printed `tandem eval`: none that chose the
#                     checkpoint                           (the paper's AMC, AIME and Minerva)
#   EVAL              more arguments of the printed `tandem eval`, such as "--n 8"
#   ARGUMENTS         in settings.sh: an array of the trainer's own arguments, before those of the command
# shellcheck shell=bash

# take_method METHOD [--protocol paper|paper-code|release] ARGUMENT...: sets method, protocol, its settings as
# protocol_NAME, arguments, which the trainer gets, and model, gpus, steps and response.
take_method() {
  local beside
  beside=$(dirname "$0")/settings.sh
  # shellcheck disable=SC1090
  if [ -e "$beside" ]; then source "$beside"; fi
  method=${1:-}
  shift || true
  protocol=paper
  if [ "${1:-}" = --protocol ]; then
    protocol=${2:-}
    shift $(($# > 1 ? 2 : 1))
  fi
  arguments=(${ARGUMENTS[@]+"${ARGUMENTS[@]}"} "$@")
  settings_of_protocol=$(python -m tandem_plugin.lab.protocols "$protocol" ${arguments[@]+"${arguments[@]}"}) || exit 2
  eval "$settings_of_protocol"
  steps=${STEPS:-${protocol_steps:-250}}
  model=${MODEL:-Qwen/Qwen3-4B-Instruct-2507}
  gpus=${GPUS:-2}
  response=${RESPONSE:-3000}
  whole_number STEPS "$steps" GPUS "$gpus" RESPONSE "$response" HELDOUT "${HELDOUT:-200}"
  case $model in
    /* | ./* | ../*) [ -d "$model" ] || refuse "There is no folder MODEL=$model. Set a model's folder, or its name on the Hub (owner/name)." ;;
  esac
}

# whole_number NAME VALUE ...: ends where a variable is no number of 1 or more.
whole_number() {
  while [ $# -gt 0 ]; do
    case $2 in '' | *[!0-9]* | 0*) refuse "$1=$2 is not a number of 1 or more." ;; esac
    shift 2
  done
}

# usage: says which methods there are, and ends.
usage() {
  echo "usage: $0 tandem|grpo|kl-reg|grpo-g16|grpo-half [--protocol paper|paper-code|release] [the trainer's own arguments ...]" >&2
  exit 2
}

# refuse SENTENCE...: says why there is no run, a line each, and ends.
refuse() {
  printf '%s\n' "$@" >&2
  exit 2
}

# has_package NAME: whether it is installed. Without flash-attn, responses are padded and not packed, and
# attention is PyTorch's own.
has_package() {
  python -c 'import sys; from importlib.metadata import version; version(sys.argv[1])' "$1" 2>/dev/null
}

# given NAME...: whether one of these stands in the trainer's own arguments, or they only ask for its help.
given() {
  local name
  for name in "$@" --cfg --help; do
    case " ${arguments[*]-} " in *"$name"[=\ ]*) return 0 ;; esac
  done
  return 1
}

# find_problems TRAINER ENDING FOLDER ARGUMENT: sets train and validation, files of `tandem data prepare` for
# that trainer, in FOLDER unless told otherwise; prepares them where they are missing and PROBLEMS says what.
# Not where the trainer's own ARGUMENT names others.
find_problems() {
  local data=${DATA:-$3}
  if [ -n "${PROBLEMS:-}" ]; then
    data=${DATA:-data/$(basename "${PROBLEMS%.*}")}
    if [ -f "$PROBLEMS" ] && [ "$PROBLEMS" -nt "$data/train.$2" ] && [ -e "$data/train.$2" ]; then
      refuse "$PROBLEMS has changed since $data was prepared from it. Remove $data to prepare it again."
    fi
  fi
  train=${TRAIN:-$data/train.$2}
  validation=${VALIDATION:-$data/heldout.$2}
  if [ -e "$train" ] || given "$4"; then return 0; fi
  if [ -n "${TRAIN:-}" ]; then refuse "There is no file TRAIN=$TRAIN. Set it to one that \`tandem data prepare\` wrote, or leave it out."; fi
  local command=(tandem data prepare "${PROBLEMS:-SOURCE}" --to "$1" --out "$data" --heldout "${HELDOUT:-200}")
  if [ -z "${PROBLEMS:-}" ]; then
    refuse "There are no problems at $train. This command writes them, SOURCE being a set's name or a file:" \
      "$(command_line "${command[@]}")"
  fi
  enough_gpus
  "${command[@]}"
}

# run_folder TRAINER: sets out, notes there what defines the run, and ends where it is another run's, or
# done already.
run_folder() {
  out=${OUT:-runs/$1/$method}
  mkdir -p "$out" || refuse "OUT=$out cannot be a folder. Set another one."
  local note difference
  note=$(printf '%s\n' "protocol=$protocol" "$settings_of_protocol" "method=$method${KL:+ KL=$KL}" \
    "model=$(contents "$model")" "response=$response" "train=$(contents "$train")" \
    "validation=$(contents "$validation")" "arguments=${arguments[*]-}" \
    ${TANDEM_CONFIG:+"TANDEM_CONFIG=$TANDEM_CONFIG"})
  # Without steps: the same run may continue for more of them. A command that failed before it left anything
  # may be corrected.
  if [ -e "$out/protocol" ] && [ -n "$(find "$out" -mindepth 2 -print -quit; cat "$out/done" 2>/dev/null)" ] && ! difference=$(grep -v '^steps=' "$out/protocol" | diff - <(echo "$note")); then
    refuse "$out is the folder of another run. There (<) and here (>):" "$(grep '^[<>]' <<<"$difference")" \
      "Give this run a folder of its own, OUT=..., or remove that one."
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
  if given gpus_per_node nnodes num_nodes trainer.device --use_cpu; then return 0; fi
  local cluster=${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray/ray_current_cluster visible
  if [ -n "${RAY_ADDRESS:-}${TRIAL:-}" ] || [ -e "$cluster" ]; then return 0; fi
  visible=$(python -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || return 0
  if [ "$visible" -ge "$gpus" ]; then return 0; fi
  refuse "This machine shows $visible GPUs, and the run needs $gpus (GPUS=$gpus). Set GPUS, or check nvidia-smi and CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-}; for those of a Ray cluster set RAY_ADDRESS."
}

# contents PATH: its name, and the checksum of what it holds if it is there; of a model's folder that of its
# configuration and of its files' sizes.
contents() {
  local sum=
  if [ -f "$1" ]; then
    sum=$(cksum <"$1")
  elif [ -d "$1" ]; then
    sum=$({ cat "$1/config.json" && find -L "$1" -maxdepth 1 -type f -printf '%f %s\n' | sort; } 2>/dev/null | cksum)
  fi
  echo "$1${sum:+ (checksum ${sum%% *})}"
}

# logged COMMAND...: runs it, with all that it says in the run's log as well. Beside the log are the command
# and the packages that it ran with, the newest last.
logged() {
  { echo "# $(date)" && command_line "$@"; } >>"$out/command"
  { echo "# $(date)" && python -m pip freeze; } >>"$out/packages" 2>/dev/null || true
  if [ "$method" = tandem ]; then
    printf 'Each response while it trains, from another terminal:\n\n'
    page_command --follow
  fi
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
    page_command
  fi
  # shellcheck disable=SC2086
  command_line tandem eval all --protocol "$protocol" --senior "base=$model" --senior "$method=$out/senior" \
    --junior "base=$model" "${benchmarks[@]}" --out "$out/results" ${template[@]+"${template[@]}"} ${EVAL:-}
  command_line tandem report "$out/results" --out "$out/report"
}

# page_command OPTION...: prints the command that writes the page of the run's responses.
page_command() {
  command_line tandem view "$out/rollouts" --tokenizer "$model" --out "$out/rollouts.html" "$@"
}

command_line() {
  printf '  '
  printf '%q ' "$@"
  printf '\n'
}
