"""The game trained with OpenRLHF, on a CPU by the stand-ins of ``examples/openrlhf/on_cpu``."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from game import opening
from plan import Lengths, Metrics, OnStep, Plan, Trained

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "openrlhf" / "on_cpu"))

from openrlhf_machine import ARGUMENTS, ON_CPU, WITHOUT_FLASH_ATTN, variables
from train import Paths, TrainingError, end_left, run_marked

AGENT = Path(__file__).resolve().with_name("openrlhf_executor.py")
_STEP = re.compile(r"Global step (\d+): (\{.*\})")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def train_with_openrlhf(
    start: Path, out: Path, plan: Plan, lengths: Lengths, on_step: OnStep
) -> Trained:
    """Trains ``start`` against its frozen self.

    Raises:
        TrainingError: OpenRLHF stopped before the last step.
    """
    paths, folder = Paths(out), out / "openrlhf"
    end_left(paths)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = [{"input": opening(stones), "label": str(stones)} for stones in plan.starts()]
    data = folder / "starts.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    trained = Trained(paths.checkpoint, folder / "rollouts")
    ray_folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # short: Ray puts sockets in it
    path = [ON_CPU, WITHOUT_FLASH_ATTN, os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        **variables(ray_folder),
        "PYTHONPATH": os.pathsep.join(str(part) for part in path if part),
        "PYTHONUNBUFFERED": "1",
    }
    try:
        code = run_marked(
            openrlhf_command(start, data, folder, trained, plan, lengths),
            environment,
            folder,
            paths,
            lambda process: _follow(process, paths.log, on_step),
        )
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)
    if code != 0 or not (trained.senior / "config.json").is_file():
        end = "\n".join(paths.log.read_text(errors="replace").splitlines()[-25:])
        raise TrainingError(f"OpenRLHF ended with code {code}. The end of {paths.log}:\n{end}")
    return trained


def openrlhf_command(
    start: Path, data: Path, folder: Path, trained: Trained, plan: Plan, lengths: Lengths
) -> list[str]:
    """The command line of ``tandem_openrlhf.train_ppo_ray``."""
    settings = {
        # who plays: the senior's turns follow the run, its opponent's calls ask for the junior
        "--tandem.schedule": "solo",
        "--tandem.junior": start,
        "--tandem.seed": plan.seed,
        "--tandem.rollouts": trained.rollouts,
        "--train.agent_func_path": AGENT,
        # what is learnt
        "--actor.model_name_or_path": start,
        "--actor.adam.lr": plan.learning_rate,
        "--actor.lr_scheduler": "constant_with_warmup",
        "--actor.lr_warmup_ratio": min(1.0, plan.warmup / plan.steps),
        "--actor.entropy_coef": 0,
        "--algo.advantage.estimator": "group_norm",
        "--algo.advantage.is_correction_level": "token",
        "--algo.kl.init_coef": 0,
        "--data.prompt_dataset": data,
        "--data.input_key": "input",
        "--data.label_key": "label",
        "--data.max_samples": len(plan.starts()),
        "--data.max_len": lengths.total,
        "--rollout.max_new_tokens": lengths.response,
        "--rollout.batch_size": plan.prompts,
        "--rollout.n_samples_per_prompt": plan.group,
        "--rollout.micro_batch_size": plan.update,
        "--train.batch_size": plan.update,
        "--train.micro_batch_size": plan.update,
        "--train.seed": plan.seed,
        "--ckpt.path": folder / "checkpoints",
        "--ckpt.output_dir": trained.senior,
        **ARGUMENTS,
    }
    flags = ["--data.apply_chat_template", "--vllm.enforce_eager"]
    command = [sys.executable, "-m", "tandem_openrlhf.train_ppo_ray", *flags]
    return command + [part for name, value in settings.items() for part in (name, str(value))]


def _follow(process: subprocess.Popen[bytes], log: Path, on_step: OnStep) -> None:
    """Waits for the process and reports each step once."""
    reported = 0
    running = True
    while running:
        running = process.poll() is None
        steps = steps_of(log.read_text(errors="replace"))
        for step, metrics in steps[reported:]:
            on_step(step, metrics)
        reported = len(steps)
        if running:
            time.sleep(0.5)


def steps_of(log: str) -> list[tuple[int, Metrics]]:
    """(step, metrics) of every complete ``Global step`` line of a log."""
    lines = _COLOURS.sub("", log).split("\n")[:-1]
    found = [match for line in lines if (match := _STEP.search(line))]
    return [(int(one[1]), ast.literal_eval(re.sub(r"\bnan\b", "None", one[2]))) for one in found]
