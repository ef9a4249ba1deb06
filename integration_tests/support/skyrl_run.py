"""Runs SkyRL's own trainer on a CPU in a process of its own; as a program it is that process.

Everything is SkyRL's: its entry task, Ray actors, FSDP policy, vLLM servers, router, weight sync by
files (``delta``), evaluation and export. Its settings come on the command line; what breaks it, by
a function's name in an environment variable.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.openrlhf_machine import WITHOUT_FLASH_ATTN, path, variables_of_ray
from support.trainer_run import TrainerRun, run_trainer

ROOT = Path(__file__).resolve().parents[2]
ON_CPU = Path(__file__).with_name("skyrl_on_cpu")
_SABOTAGE = "TANDEM_TEST_SABOTAGE"
_WORDS = "software license work derivative contributor liability warranty patent source object"


class SkyRLRun(TrainerRun):
    """What one run of SkyRL left."""

    UPDATED = "Started: 'policy_train'"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What the trainer logged, one mapping an entry, with its ``step``."""
        file = self.folder / "metrics.jsonl"
        return [json.loads(one) for one in file.read_text().splitlines()] if file.exists() else []

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The metrics of training steps."""
        return [one for one in self.metrics if "policy/policy_loss" in one]

    def rollouts(self) -> list[dict[str, Any]]:
        """The dumps of all steps, in their order."""
        files = sorted((self.folder / "rollouts").glob("*.jsonl"), key=lambda f: int(f.stem))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def batch(self, step: int) -> dict[str, Any]:
        """What a step was trained on, as SkyRL dumps it."""
        name = f"global_step_{step}_training_input.pkl"
        with (self.folder / "export" / "dumped_data" / name).open("rb") as file:
            return pickle.load(file)  # type: ignore[no-any-return]

    def exported(self, step: int) -> Path:
        """The policy after a step."""
        return self.folder / "export" / f"global_step_{step}" / "policy"


class SkyRLBench:
    """A model on which SkyRL trains."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model

    @classmethod
    def make(cls, folder: Path, model: Path) -> SkyRLBench:
        words = _WORDS.split()
        rows = [
            {
                "prompt": [{"role": "user", "content": f"Write of the {words[i % 10]} {i}."}],
                "env_class": "letters",
                "letter": "aeiotn"[i % 6],
            }
            for i in range(16)
        ]
        folder.mkdir(exist_ok=True)
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return cls(folder, model)

    def run(
        self,
        tandem: Mapping[str, Any],
        *,
        sabotage: str = "",
        folder: Path | None = None,
        name: str = "run",
        watch: str | None = None,
        timeout: float = 540,
        **settings: Any,
    ) -> SkyRLRun:
        """One run; tandem: its settings; settings: SkyRL's over a small run's, with "__" for a dot.

        folder: where checkpoints are, if another run resumes them.
        """
        data = f"['{self.folder / 'train.jsonl'}']"
        models = ("trainer.policy.model.path", "trainer.ref.model.path")
        rows = dict.fromkeys(("data.train_data", "data.val_data"), data)
        experiment = {**rows, **dict.fromkeys(models, self.model), **SMALL}
        own = {
            **experiment,
            **{key.replace("__", "."): value for key, value in settings.items()},
        }

        def started(out: Path, ray: Path) -> tuple[list[str], dict[str, str]]:
            kept = folder or out
            places = {
                f"{_ENGINE}delta_weight_sync.sync_dir": out / "delta",
                f"{_ENGINE}delta_weight_sync.local_checkpoint_dir": out / "cache",
                "trainer.ckpt_path": kept / "checkpoints",
                "trainer.export_path": out / "export",
                "trainer.log_path": out / "logs",
            }
            flags = {"rollouts": str(out / "rollouts"), **tandem}
            command = [sys.executable, "-m", "support.skyrl_run"]
            for key, value in flags.items():
                command += [f"--tandem.{key}", json.dumps(value)]
            command += [f"{key}={_written(value)}" for key, value in {**own, **places}.items()]
            parts = [
                ON_CPU,
                WITHOUT_FLASH_ATTN,
                ROOT,
                ROOT / "adapters",
                ROOT / "integration_tests",
            ]
            paths = [*map(str, parts), *filter(None, [os.environ.get("PYTHONPATH")])]
            variables = {
                **os.environ,
                **variables_of_ray(ray),
                "PATH": path(),
                "RAY_OVERRIDE_RESOURCES": '{"CPU": 8, "GPU": 4, "object_store_memory": 200000000}',
                "PYTHONPATH": os.pathsep.join(paths),
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "SKYRL_DUMP_INFRA_LOG_TO_STDOUT": "1",
                _SABOTAGE: sabotage,
            }
            return command, variables

        return SkyRLRun(**vars(run_trainer(self.folder, name, started, watch, timeout)))


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_ENGINE = "generator.inference_engine."

ON_A_CPU: Mapping[str, Any] = {
    "data.dataloader.num_workers": 0,
    "trainer.bf16": False,
    "trainer.placement.colocate_all": False,
    "trainer.placement.colocate_policy_ref": False,
    "trainer.flash_attn": False,
    "trainer.remove_microbatch_padding": False,
    "trainer.policy.fsdp_config.mixed_precision.param_dtype": "fp32",
    "trainer.ref.fsdp_config.mixed_precision.param_dtype": "fp32",
    "trainer.enable_ray_gpu_monitor": False,
    f"{_ENGINE}model_dtype": "float32",
    f"{_ENGINE}enforce_eager": True,
    f"{_ENGINE}max_num_seqs": 16,
    f"{_ENGINE}gpu_memory_utilization": 0.1,
    f"{_ENGINE}enable_ray_prometheus_stats": False,
    f"{_ENGINE}distributed_executor_backend": "mp",
    f"{_ENGINE}engine_init_kwargs.worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker",
    f"{_ENGINE}engine_init_kwargs.max_model_len": 512,
    f"{_ENGINE}weight_sync_backend": "delta",
}
"""What SkyRL needs on a machine without a GPU."""

SMALL: Mapping[str, Any] = {
    **ON_A_CPU,
    "environment.env_class": "letters",
    "trainer.strategy": "fsdp",
    "trainer.gradient_checkpointing": False,
    "trainer.policy.optimizer_config.lr": 1e-2,
    "trainer.algorithm.use_kl_loss": False,
    "trainer.train_batch_size": 4,
    "trainer.policy_mini_batch_size": 4,
    "trainer.micro_train_batch_size_per_gpu": 4,
    "trainer.micro_forward_batch_size_per_gpu": 4,
    "trainer.epochs": 1,
    "trainer.max_training_steps": 2,
    "trainer.max_prompt_length": 100,
    "trainer.eval_interval": -1,
    "trainer.eval_before_train": False,
    "trainer.eval_batch_size": 8,
    "trainer.ckpt_interval": -1,
    "trainer.hf_save_interval": 1,
    "trainer.resume_mode": "none",
    "trainer.logger": "console",
    "trainer.dump_data_batch": True,
    "generator.n_samples_per_prompt": 4,
    "generator.max_turns": 2,
    "generator.max_input_length": 400,
    "generator.sampling_params.max_generate_length": 16,
}
"""A run of seconds: no reference model, two turns of 16 tokens, four samples of each prompt."""


def main() -> None:
    """The command's own process."""
    from support.skyrl_experiment import LettersExp
    from tandem_skyrl.__main__ import main as run

    run(LettersExp)


if __name__ == "__main__":
    main()
