# What the recipes of both trainers share: a run's folder, its log, and what to type next.
# shellcheck shell=bash

# take_protocol [--protocol paper|release] ARGUMENT...: sets protocol, its settings as protocol_NAME,
# and arguments, which the trainer gets.
take_protocol() {
  protocol=paper
  if [ "${1:-}" = --protocol ]; then
    protocol=${2:-}
    shift $(($# > 1 ? 2 : 1))
  fi
  arguments=("$@")
  settings_of_protocol=$(python -m tandem_plugin.lab.protocols "$protocol" "$@") || exit 2
  eval "$settings_of_protocol"
}

# run_folder DEFAULT METHOD: sets out, steps, model, gpus, validation from the environment, and ends
# where the run is done already.
run_folder() {
  out=${OUT:-$1}
  steps=${STEPS:-${protocol_steps:-250}}
  model=${MODEL:-Qwen/Qwen3-4B-Instruct-2507}
  gpus=${GPUS:-2}
  mkdir -p "$out"
  printf '%s\n' "protocol=$protocol" "$settings_of_protocol" "steps=$steps" \
    "arguments=${arguments[*]-}" >"$out/protocol"
  if [ "$(cat "$out/done" 2>/dev/null)" = "$steps" ]; then
    echo "$out has all of its $steps steps; remove it to train anew, or give more STEPS."
    next_commands "$2"
    exit 0
  fi
}

# logged COMMAND...: runs it, with all that it says in the run's log as well.
logged() {
  "$@" 2>&1 | tee -a "$out/train.log"
}

# finish METHOD FOLDER: that folder is the senior, and the run is done.
finish() {
  ln -sfn "$(realpath --relative-to "$out" "$2")" "$out/senior"
  echo "$steps" >"$out/done"
  next_commands "$1"
}

# next_commands METHOD: prints what to type next. Dumps of a run without tandem say nothing of authors.
next_commands() {
  printf '\nThe senior: %q, the best by the run'"'"'s own validation (the last without any). Next:\n\n' \
    "$out/senior"
  if [ "$1" = trl ]; then
    command_line tandem view "$out/rollouts" --tokenizer "$model" --out "$out/rollouts.html"
  fi
  # shellcheck disable=SC2086
  command_line tandem eval all --protocol "$protocol" --senior "base=$model" --senior "$1=$out/senior" \
    --junior "base=$model" --benchmark "heldout=$validation" --out "$out/results" ${EVAL:-}
  command_line tandem report "$out/results" --out "$out/report"
}

command_line() {
  printf '  '
  printf '%q ' "$@"
  printf '\n'
}
