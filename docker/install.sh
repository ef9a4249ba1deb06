#!/bin/sh
# Installs a trainer's tested versions from the clone in this folder: docker/install.sh TRAINER [VLLM]
set -eu
trainer=$1
case "$trainer" in
  verl | openrlhf | trl) vllm=${2:-0.29.0} ;;
  skyrl) vllm=${2:-0.30.0} ;;
  *) echo "TRAINER=$trainer is none of verl, openrlhf, trl, skyrl." >&2; exit 2 ;;
esac
stack=constraints/$trainer-vllm-$vllm.txt
overrides=constraints/overrides-vllm-$vllm.txt
[ -f "$stack" ] || { echo "VLLM=$vllm is not tested with $trainer: there is no $stack." >&2; exit 2; }

# Where vLLM and the trainer pin different versions, a file of overrides resolves it; only uv supports these.
set -- --no-cache --compile-bytecode --constraint "$stack"
if [ -f "$overrides" ]; then set -- "$@" --override "$overrides"; fi
uv pip install "$@" ".[$trainer,math,eval]"

# These require packages built for CUDA, and import flash-attn, which is compiled from source: a stand-in takes its place.
case "$trainer" in
  openrlhf | skyrl)
    uv pip install "$@" --no-deps "$trainer"
    site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    tandem path without-flash-attn > "$site/without_flash_attn.pth"
    ;;
esac
