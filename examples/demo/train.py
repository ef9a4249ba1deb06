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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tandem_plugin.grading.rewards import reward_file

# The one flag that turns an ordinary verl run into a tandem run.
TANDEM = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem.schedule=word"

# Of the engine's steps one in four is measured: the demo's responses are short.
MEASURES = TANDEM.rpartition(".")[0] + ".measure_every=4"

REWARDS = reward_file("verl")
SAMPLER = Path(__file__).resolve().with_name("sampler.py")
_RUN_MARK = "TANDEM_DEMO_RUN"  # set in the environment of every process of a run

Metrics = dict[str, Any]


class TrainingError(RuntimeError):
    """verl ended without finishing; the message names the log and quotes its end."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is learnt and for how long; the defaults suit two cores and a model of 0.7 million.

    ``prompts`` problems are drawn per step, with ``group`` responses each, of which at most
    ``micro_batch`` are computed at a time. Lengths are in tokens. The learning rate rises linearly
    from 0 over the ``warmup`` first steps: Adam's first steps move every weight by all of it, which
    costs a model this small some of what it knows. A weight sync is sent in buckets of
    ``sync_bucket`` MiB.
    """

    steps: int = 20
    prompts: int = 32
    group: int = 8
    learning_rate: float = 5e-4
    warmup: int = 3
    max_prompt_length: int = 96
    max_response_length: int = 72
    micro_batch: int = 64
    sync_bucket: int = 16
    seed: int = 7

    @property
    def mini_batch(self) -> int:
        """Problems of an update: two updates a step, where there are two problems."""
        return max(1, self.prompts // 2)


REAL = Training(
    steps=16,
    prompts=8,
    learning_rate=1e-5,
    warmup=2,
    max_prompt_length=28,
    max_response_length=24,
    micro_batch=16,
    sync_bucket=1024,  # all weights: vLLM needs it of a tied head, without tandem
)
"""The same for SmolLM2-135M-Instruct on sums of two one-digit numbers."""


def micro_batch(prompts: int, training: Training) -> int:
    """Responses that are computed at a time: verl needs equal parts."""
    return math.gcd(training.micro_batch, prompts * training.group)


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of one run, all in one folder."""

    out: Path

    @property
    def log(self) -> Path:
        return self.out / "train.log"

    @property
    def metrics(self) -> Path:
        return self.out / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        return self.out / "rollouts.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint"

    @property
    def verl(self) -> Path:
        return self.out / "verl"

    @property
    def mark(self) -> Path:
        """The mark of the run's processes, while there may be any."""
        return self.out / "mark"

    @property
    def training_rollouts(self) -> Path:
        return self.verl / "training"

    def evaluation(self, step: int) -> Path:
        return self.out / f"evaluation-{step}.jsonl"


def verl_command(
    model: Path,
    train_file: Path,
    evaluation_file: Path,
    paths: Paths,
    training: Training,
    ray_folder: Path,
    overrides: Sequence[str] = (),
) -> list[str]:
    """The command line of ``verl.trainer.main_ppo``; ``overrides`` come last and win."""
    length = training.max_prompt_length + training.max_response_length
    rollout, actor = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
    settings = {
        # the algorithm
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        f"{actor}.use_kl_loss": False,
        f"{actor}.optim.lr": training.learning_rate,
        f"{actor}.optim.lr_warmup_steps": training.warmup,
        f"{actor}.ppo_mini_batch_size": training.mini_batch,
        f"{actor}.ppo_micro_batch_size_per_gpu": micro_batch(training.mini_batch, training),
        f"{actor}.data_loader_seed": training.seed,
        # the problems and their reward
        "data.train_files": train_file,
        "data.val_files": evaluation_file,
        "data.train_batch_size": training.prompts,
        "data.max_prompt_length": training.max_prompt_length,
        "data.max_response_length": training.max_response_length,
        "data.dataloader_num_workers": 0,
        "data.seed": training.seed,
        "reward.num_workers": 1,
        "reward.custom_reward_function.path": REWARDS,
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
        f"{rollout}.max_model_len": length,
        f"{rollout}.max_num_seqs": 256,
        f"{rollout}.max_num_batched_tokens": 8192,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": micro_batch(training.prompts, training),
        f"{rollout}.agent.num_workers": 1,
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": training.sync_bucket,
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
        "trainer.v1.sampler.custom_sampler.path": SAMPLER,
        "trainer.v1.sampler.custom_sampler.name": "PromptReplayBuffer",
        # how long, and what is written down
        "trainer.total_training_steps": training.steps,
        "trainer.total_epochs": training.steps,
        "trainer.val_before_train": False,  # evaluate.py does, for the team as well
        "trainer.test_freq": -1,
        "trainer.save_freq": training.steps,
        "trainer.resume_mode": "disable",
        f"{actor}.checkpoint.save_contents": "[hf_model]",
        "trainer.default_local_dir": paths.verl / "checkpoints",
        "trainer.rollout_data_dir": paths.training_rollouts,
        "trainer.logger": "[console,file]",
        "trainer.project_name": "tandem",
        "trainer.experiment_name": "demo",
        "hydra.run.dir": paths.verl / "hydra",
    }
    arguments = [f"{name}={_hydra_value(value)}" for name, value in settings.items()]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *arguments, *overrides]


def verl_environment(paths: Paths) -> dict[str, str]:
    """The environment of a run: this process's, a CPU platform for verl, nothing online."""
    threads = str(os.cpu_count() or 1)
    folders = [str(Path(__file__).parent / "on_cpu"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
        "PYTHONPATH": os.pathsep.join(folder for folder in folders if folder),
        "VERL_PLATFORM": "cpu",
        "VERL_FILE_LOGGER_PATH": str(paths.metrics),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HYDRA_FULL_ERROR": "1",
        "PYTHONUNBUFFERED": "1",
    }


def train(
    model: Path,
    train_file: Path,
    evaluation_file: Path,
    paths: Paths,
    training: Training,
    overrides: Sequence[str] = (),
    on_step: Callable[[int, Metrics], None] | None = None,
) -> Path:
    """Runs verl to its end and returns the folder of the trained senior's checkpoint.

    ``on_step`` is called with (step, metrics) as they appear. What an earlier run in the same
    folder left running, because it was killed, is ended first.

    Raises:
        TrainingError: verl stopped before the last step.
    """
    end_left(paths)
    paths.verl.mkdir(parents=True, exist_ok=True)
    paths.metrics.unlink(missing_ok=True)
    ray_folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # short: Ray puts sockets in it
    command = verl_command(
        model, train_file, evaluation_file, paths, training, ray_folder, overrides
    )
    try:
        code = run_marked(
            command,
            verl_environment(paths),
            paths.verl,
            paths,
            lambda process: _follow(process, paths.metrics, on_step),
        )
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)
    return _keep_checkpoint(paths, training, code)


def run_marked(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    paths: Paths,
    follow: Callable[[subprocess.Popen[bytes]], None],
) -> int:
    """Runs a trainer in ``folder``, its log in ``paths.log``; returns its exit code.

    ``follow`` waits for its end. However that comes, all that the trainer started is ended.
    """
    mark = uuid.uuid4().hex
    paths.mark.write_text(mark, encoding="utf-8")
    with paths.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**environment, _RUN_MARK: mark},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            follow(process)
        finally:
            _end(process, mark)
            paths.mark.unlink(missing_ok=True)
    return int(process.returncode)


def end_left(paths: Paths) -> None:
    """Ends every process of a run in this folder that was killed before it could do so itself."""
    if paths.mark.exists():
        _end_marked(paths.mark.read_text(encoding="utf-8"))
        paths.mark.unlink()


def read_metrics(path: Path) -> list[tuple[int, Metrics]]:
    """(step, metrics) of every complete line verl's file logger has written."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    records: list[Mapping[str, Any]] = [json.loads(line) for line in lines if line]
    return [(int(record["step"]), dict(record["data"])) for record in records]


def _hydra_value(value: object) -> str:
    """A value as Hydra's command line reads it; paths are quoted."""
    return f"'{value}'" if isinstance(value, Path) else str(value)


def _follow(
    process: subprocess.Popen[bytes],
    metrics: Path,
    on_step: Callable[[int, Metrics], None] | None,
) -> None:
    """Waits for the process and reports each step once."""
    reported = 0
    running = True
    while running:
        running = process.poll() is None
        records = read_metrics(metrics)
        for step, values in records[reported:]:
            if on_step is not None:
                on_step(step, values)
        reported = len(records)
        if running:
            time.sleep(0.5)


def _end(process: subprocess.Popen[bytes], mark: str, patience: float = 20.0) -> None:
    """Stops the run if it still runs, and every process it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _end_marked(mark)


def _end_marked(mark: str) -> None:
    left = list(_marked(mark))
    for one in left:
        one.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=5)
    for one in stubborn:
        one.kill()
    psutil.wait_procs(stubborn, timeout=5)


def _marked(mark: str) -> Iterator[psutil.Process]:
    """The living processes that inherited the run's mark."""
    for one in psutil.process_iter():
        try:
            if one.environ().get(_RUN_MARK) == mark and one.status() != psutil.STATUS_ZOMBIE:
                yield one
        except (psutil.Error, OSError):
            continue


def _keep_checkpoint(paths: Paths, training: Training, returncode: int) -> Path:
    saved = paths.verl / "checkpoints" / f"global_step_{training.steps}" / "actor" / "huggingface"
    if returncode != 0 or not (saved / "config.json").is_file():
        end = "\n".join(paths.log.read_text(errors="replace").splitlines()[-25:])
        raise TrainingError(
            f"verl ended with code {returncode} and no checkpoint of its last step. "
            f"The end of {paths.log}:\n{end}"
        )
    shutil.rmtree(paths.checkpoint, ignore_errors=True)
    shutil.move(saved, paths.checkpoint)
    shutil.rmtree(paths.verl / "checkpoints")
    _state_dtype(paths.checkpoint / "config.json")
    return paths.checkpoint


def _state_dtype(config_file: Path) -> None:
    """Makes the configuration say float32, as the weights are; verl 0.9.1 writes bfloat16."""
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["dtype"] = "float32"
    config_file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
