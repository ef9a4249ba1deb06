#!/usr/bin/env bash
# Scores the seniors that the paper's authors published, and prints its numbers beside them:
#
#   examples/published/score.sh [more arguments of `tandem eval all` ...]
#
#   PROTOCOL          paper (the default), paper-code or release: the compatibility page has all
#   OUT               the folder of results                   (runs/published)
#   BASE GRPO TANDEM  the models; with @COMMIT, one of the Hugging Face Hub at that commit
#   BENCHMARKS        NAME=SOURCE of each                     (AMC, AIME and Minerva)
#
# The evaluation page says what it takes. A stopped run continues with the same command.
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run ${BASH_SOURCE[0]} instead of sourcing it." >&2; return 2; }
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-runs/published}
protocol=${PROTOCOL:-paper}
base=${BASE:-Qwen/Qwen3-4B-Instruct-2507@cdbee75f17c01a7cc42f958dc650907174af0554}
grpo=${GRPO:-difanjiao/Vanilla-GRPO-Qwen3-4B-Instruct-2507-DeepScaleR@f21740252556c74688741a5d8a2db32c0589be43}
tandem=${TANDEM:-difanjiao/TT-Word-Qwen3-4B-Instruct-2507-DeepScaleR@2bf6188d7286dae32f52803b42c6602be85d05c1}
schedules=(--schedule step --schedule step-bernoulli)
over=positions
if [ "$protocol" = release ]; then
  schedules=(--schedule step-text)
  over=responses
fi
benchmarks=()
for benchmark in ${BENCHMARKS:-AMC=amc23-25 AIME=aime24-26 Minerva=minerva}; do
  benchmarks+=(--benchmark "$benchmark")
done

tandem eval all --protocol "$protocol" --senior "GRPO=$grpo" --senior "tandem=$tandem" --junior "base=$base" \
  "${benchmarks[@]}" "${schedules[@]}" --out "$out" "$@"
tandem compare "$out/GRPO" "$out/tandem" --legibility-over "$over" --out "$out/tables"
python "$here/beside.py" "$out" "$over"
