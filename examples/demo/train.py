"""One verl GRPO run on a CPU, as a subprocess that leaves nothing behind."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tandem_plugin.files import write_file
from tandem_plugin.grading.rewards import reward_file

# The one flag that turns an ordinary verl run into a tandem run.
TANDEM = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem.schedule=word"

TANDEM_SETTINGS = TANDEM.rpartition(".")[0]

# Of the engine's steps one in four is measured: the demo's responses are short.
MEASURES = f"{TANDEM_SETTINGS}.measure_every=4"

IN_TANDEM = (TANDEM, MEASURES)
"""The overrides of a tandem run; the junior is the model that the senior starts from."""

METRICS = "metrics.jsonl"
VERLS_METRICS = Path("verl", METRICS)
"""verl's logger begins its file anew when a run resumes: the lines join those of before."""

RUN_MARK = "TANDEM_DEMO_RUN"
"""In the environment of every process of a run: the folder that it writes to."""

Metrics = dict[str, Any]


class TrainingError(RuntimeError):
    """A program of the demo ended without finishing; the message quotes the end of its log."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is learnt and for how long; the defaults suit two cores and a model of 0.7 million.

    ``prompts`` problems are drawn per step, with ``group`` responses each, of which at most
    ``micro_batch`` are computed at a time. Lengths are in tokens. The learning rate rises linearly
    from 0 over the ``warmup`` first steps: Adam's first steps move every weight by all of it, which
    costs a model this small some of what it knows. A weight sync is sent in buckets of
    ``sync_bucket`` MiB. Every ``save_every`` steps there is a checkpoint to resume from.
    """

    steps: int = 15
    prompts: int = 32
    group: int = 8
    learning_rate: float = 2e-4
    warmup: int = 3
    max_prompt_length: int = 96
    max_response_length: int = 72
    micro_batch: int = 64
    sync_bucket: int = 16
    save_every: int = 5
    seed: int = 7

    @property
    def mini_batch(self) -> int:
        """Problems of an update: two updates a step, where there are two problems."""
        return max(1, self.prompts // 2)

    @property
    def length(self) -> int:
        """Tokens of a prompt and its response, at most."""
        return self.max_prompt_length + self.max_response_length

    def responses_at_a_time(self, prompts: int) -> int:
        """Of those to so many prompts: verl needs equal parts."""
        return math.gcd(self.micro_batch, prompts * self.group)


REAL = Training(
    steps=16,
    prompts=8,
    learning_rate=1e-5,
    warmup=2,
    max_prompt_length=28,
    max_response_length=24,
    micro_batch=16,
    sync_bucket=1024,  # all weights: vLLM needs it of a tied head, without tandem
    save_every=8,  # 2 GB each
)
"""The same for SmolLM2-135M-Instruct on sums of two one-digit numbers."""


def verl_settings(
    model: Path, data: Path, out: Path, ray_folder: Path, training: Training
) -> dict[str, Any]:
    """The settings of ``verl.trainer.main_ppo``."""
    rollout, actor = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
    return {
        # the algorithm
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        f"{actor}.use_kl_loss": False,
        f"{actor}.optim.lr": training.learning_rate,
        f"{actor}.optim.lr_warmup_steps": training.warmup,
        f"{actor}.ppo_mini_batch_size": training.mini_batch,
        f"{actor}.ppo_micro_batch_size_per_gpu": training.responses_at_a_time(training.mini_batch),
        f"{actor}.data_loader_seed": training.seed,
        # the problems and their reward
        "data.train_files": data,
        "data.val_files": data,  # nothing is validated here: `tandem eval` does, the team as well
        "data.train_batch_size": training.prompts,
        "data.max_prompt_length": training.max_prompt_length,
        "data.max_response_length": training.max_response_length,
        "data.dataloader_num_workers": 0,
        "data.seed": training.seed,
        "reward.num_workers": 1,
        "reward.custom_reward_function.path": reward_file("verl"),
        "reward.custom_reward_function.name": "compute_score",
        # the actor, in float32 like the engine
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.strategy": "fsdp2",
        f"{actor}.fsdp_config.use_torch_compile": False,
        f"{actor}.fsdp_config.seed": training.seed,
        f"+{actor}.fsdp_config.mixed_precision": (
            "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"
        ),
        # the engine
        f"{rollout}.name": "vllm",
        f"{rollout}.dtype": "float32",
        f"{rollout}.n": training.group,
        f"{rollout}.seed": training.seed,
        f"{rollout}.temperature": 1.0,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.enforce_eager": True,
        f"{rollout}.free_cache_engine": False,
        f"+{rollout}.enable_sleep_mode": False,
        f"{rollout}.gpu_memory_utilization": 0.1,
        f"{rollout}.max_model_len": training.length,
        f"{rollout}.max_num_seqs": 256,
        f"{rollout}.max_num_batched_tokens": 8192,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": training.responses_at_a_time(
            training.prompts
        ),
        f"{rollout}.agent.num_workers": 1,
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": training.sync_bucket,
        # how long, and what is written down
        "trainer.total_training_steps": training.steps,
        "trainer.total_epochs": training.steps,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": training.save_every,
        "trainer.max_actor_ckpt_to_keep": 1,
        "trainer.resume_mode": "auto",
        f"{actor}.checkpoint.save_contents": "[model,optimizer,extra,hf_model]",
        "trainer.default_local_dir": out / "verl" / "checkpoints",
        "trainer.rollout_data_dir": out / "rollouts",
        "trainer.logger": "[console,file]",
        "trainer.project_name": "tandem",
        "trainer.experiment_name": "demo",
        "hydra.run.dir": out / "verl" / "hydra",
        # one process of each kind, on this machine alone
        "trainer.device": "cpu",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        "ray_kwargs.ray_init.num_cpus": 16,
        "+ray_kwargs.ray_init.num_gpus": 1,
        "+ray_kwargs.ray_init.address": "local",
        "+ray_kwargs.ray_init._temp_dir": ray_folder,
        "+ray_kwargs.ray_init.include_dashboard": False,
        "+ray_kwargs.ray_init.object_store_memory": 500_000_000,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "transfer_queue.backend.SimpleStorage.total_storage_size": 10_000,
    }


def environment(out: Path) -> dict[str, str]:
    """The environment of a run: this process's, a CPU platform for verl, nothing online."""
    return {
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "tandem_verl.on_cpu",
        "VERL_PLATFORM": "cpu",
        "VERL_FILE_LOGGER_PATH": str(out / VERLS_METRICS),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HYDRA_FULL_ERROR": "1",
        "PYTHONUNBUFFERED": "1",
        RUN_MARK: str(out),
    }


def train(
    model: Path,
    data: Path,
    out: Path,
    training: Training,
    overrides: Sequence[str],
    on_step: Callable[[int, Metrics], None],
) -> Path:
    """Runs verl to its end and returns the folder of the trained senior's checkpoint.

    overrides: further settings, such as :data:`IN_TANDEM`. ``on_step`` is called with (step,
    metrics) as they appear. A run that was stopped in the same
    folder resumes from its last checkpoint; if it was killed, :func:`end_processes` comes first.

    Raises:
        TrainingError: verl stopped before the last step.
    """
    if (out / "checkpoint").exists():
        return out / "checkpoint"
    (out / "verl").mkdir(parents=True, exist_ok=True)
    _keep_metrics(out, _checkpointed(out))
    ray_folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # short: Ray puts sockets in it
    settings = verl_settings(model, data, out, ray_folder, training)
    # Hydra reads paths in quotes.
    arguments = [
        f"{name}='{value}'" if isinstance(value, Path) else f"{name}={value}"
        for name, value in settings.items()
    ]
    with (out / "train.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "verl.trainer.main_ppo", *arguments, *overrides],
            env=environment(out),
            cwd=out / "verl",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _follow(process, out / VERLS_METRICS, on_step)
        finally:
            _end(process, out)
            shutil.rmtree(ray_folder, ignore_errors=True)
            _keep_metrics(out)
    return _keep_checkpoint(out, training.steps, process.returncode)


def _checkpointed(out: Path) -> int:
    """The step of the checkpoint that verl resumes; 0 without one."""
    note = out / "verl" / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(note.read_text()) if note.exists() else 0


def _keep_metrics(out: Path, last: int | None = None) -> None:
    """Add verl's lines to those of earlier parts of the run, up to step ``last``.

    The steps after a checkpoint come again when a run resumes from it.
    """
    records = dict(read_metrics(out / METRICS)) | dict(read_metrics(out / VERLS_METRICS))
    lines = (
        json.dumps({"step": step, "data": values}) + "\n"
        for step, values in records.items()
        if last is None or step <= last
    )
    write_file(out / METRICS, "".join(lines))
    (out / VERLS_METRICS).unlink(missing_ok=True)


def read_metrics(path: Path) -> list[tuple[int, Metrics]]:
    """(step, metrics) of every complete line verl's file logger has written."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    records = [json.loads(line) for line in lines if line]
    return [(int(record["step"]), record["data"]) for record in records]


def _follow(
    process: subprocess.Popen[bytes], metrics: Path, on_step: Callable[[int, Metrics], None]
) -> None:
    """Waits for the process and reports each step once."""
    reported, running = 0, True
    while running:
        running = process.poll() is None
        records = read_metrics(metrics)
        for step, values in records[reported:]:
            on_step(step, values)
        reported = len(records)
        if running:
            time.sleep(0.5)


def _end(process: subprocess.Popen[bytes], out: Path) -> None:
    """Stops the run if it still runs, and every process it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    end_processes(out)


def end_processes(out: Path) -> None:
    """Ends every living process of a run in this folder, by the mark that it inherited."""
    left = list(_marked(out))
    for one in left:
        one.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=5)
    for one in stubborn:
        one.kill()
    psutil.wait_procs(stubborn, timeout=5)


def _marked(out: Path) -> Iterator[psutil.Process]:
    for one in psutil.process_iter():
        try:
            if one.environ().get(RUN_MARK) == str(out) and one.status() != psutil.STATUS_ZOMBIE:
                yield one
        except (psutil.Error, OSError):
            continue


def _keep_checkpoint(out: Path, steps: int, returncode: int) -> Path:
    checkpoints, kept = out / "verl" / "checkpoints", out / "checkpoint"
    saved = checkpoints / f"global_step_{steps}" / "actor" / "huggingface"
    if returncode != 0 or not (saved / "config.json").is_file():
        raise TrainingError(
            f"verl ended with code {returncode} and no checkpoint of its last step. "
            f"{end_of_log(out / 'train.log')}"
        )
    # The weights are float32; verl 0.9.1 writes bfloat16 beside them.
    config = json.loads((saved / "config.json").read_text(encoding="utf-8")) | {"dtype": "float32"}
    (saved / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    saved.rename(kept)
    shutil.rmtree(checkpoints)
    return kept


def end_of_log(log: Path) -> str:
    """For an error message."""
    lines = log.read_text(errors="replace").splitlines()[-25:]
    return "\n".join([f"The end of {log}:", *lines])
