# The settings of train.sh beside this file, which reads it. A variable of the environment takes precedence:
# STEPS=5 ./train.sh tandem. As it stands: Qwen2.5-0.5B-Instruct on GSM8K, on one GPU. For the paper's run
# remove every line but PROBLEMS=deepscaler: Qwen3-4B on two GPUs of 80 GB.
# shellcheck shell=bash disable=SC2034

# The senior, and the junior: a name on the Hub or a folder.
MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}

# What to train on: a set that `tandem data prepare` knows, one on the Hub (owner/name), or a file of yours with
# `problem` and `answer`. It is prepared once, in data/; HELDOUT of its problems choose the best checkpoint.
PROBLEMS=${PROBLEMS:-gsm8k}
HELDOUT=${HELDOUT:-200}

# GPUs, training steps of 16 problems with 8 responses each, and tokens of a response at most.
GPUS=${GPUS:-1}
STEPS=${STEPS:-100}
RESPONSE=${RESPONSE:-512}

# The problem sets of the printed evaluation: none that was trained on.
BENCHMARKS=${BENCHMARKS:-GSM8K=gsm8k-test}

# Of the trainer's own arguments those that define your run; later ones can follow the method on the command
# line. verl: trainer.logger='[console,wandb]'  OpenRLHF: --logger.wandb.key KEY  TRL: --report_to wandb
# SkyRL: trainer.logger=wandb
ARGUMENTS=()
