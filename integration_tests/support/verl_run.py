"""Runs verl's own trainer on a tiny model, on a CPU or a GPU, and reads back what it left."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import faults
from support.device import SHARE
from support.trainer_run import TrainerRun, given, run_trainer

ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm"
TANDEM = f"+{ENGINE}.additional_config.tandem"
"""The one flag: the node under which tandem's settings stand."""

_HYPERPARAMETERS = (
    "actor_rollout_ref.actor.optim",
    "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.rollout.name",
    "algorithm.",
    "reward.custom_reward_function",
)
"""What a recipe says itself; the rest is the machine and the sizes."""

_RAY_TOO_SLOW = "The current node timed out during startup"

_REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """How often the letter e is there: differs between siblings, so advantages are not zero."""
    return solution_str.count("e") / 100.0
'''


def pictures_of(number: int) -> list[Any]:
    """The pictures of a prompt: one or two, of sizes that verl leaves as they are."""
    from support.images import picture

    seeds = range(number, number + 1 + number % 2)
    return [picture(seed, (84 + 28 * (seed % 3), 84)) for seed in seeds]


def stored_pictures(number: int) -> list[dict[str, bytes]]:
    """The same as Parquet has them."""
    files = [io.BytesIO() for _ in pictures_of(number)]
    for picture, file in zip(pictures_of(number), files, strict=True):
        picture.save(file, "PNG")
    return [{"bytes": file.getvalue()} for file in files]


class VerlRun(TrainerRun):
    """What one run of verl left."""

    UPDATED = "actor/grad_norm"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """verl's metrics, one mapping a logged step."""
        file = self.folder / "metrics.jsonl"
        if not file.exists():
            return []
        return [json.loads(line)["data"] for line in file.read_text().splitlines()]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The metrics of training steps."""
        return [step for step in self.metrics if "training/global_step" in step]

    def rollouts(self, step: int, kind: str = "rollouts") -> list[dict[str, Any]]:
        """The dump of one step: ``kind`` is "rollouts" or "validation"."""
        lines = (self.folder / kind / f"{step}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class VerlBench:
    """A tiny model with data and a reward, on which runs are made."""

    folder: Path
    model: Path
    python: str = sys.executable
    """The interpreter of the environment that the trainer runs in."""
    device: str = "cpu"
    """verl's name of it; on "cuda" the engine runs as users have it."""

    @classmethod
    def make(
        cls,
        folder: Path,
        model: Path,
        python: str = sys.executable,
        agents: Sequence[str] = (),
        device: str = "cpu",
        pictures: bool = False,
    ) -> VerlBench:
        """Write prompts and a reward for ``model``, a checkpoint with a chat template.

        agents: the names of the agent loops that prompts in turn go through; verl's default without
        any. pictures: whether each prompt begins with some, in columns such as geo3k's.
        """
        import pandas

        folder.mkdir(parents=True, exist_ok=True)

        def shown(number: int) -> list[dict[str, bytes]]:
            return stored_pictures(number) if pictures else []

        def rows(count: int, first: int) -> Any:
            return pandas.DataFrame(
                {
                    "data_source": "tiny",
                    "prompt": [
                        {
                            "role": "user",
                            "content": "<image>" * len(shown(i)) + f"Say the letter e {i} times",
                        }
                    ],
                    **({"images": shown(i)} if pictures else {}),
                    "ability": "spelling",
                    "reward_model": {"style": "rule", "ground_truth": "e"},
                    "extra_info": {"index": i, "split": "train"},
                    **({"agent_name": agents[i % len(agents)]} if agents else {}),
                }
                for i in range(first, first + count)
            )

        rows(16, 0).to_parquet(folder / "train.parquet")
        rows(2, 100).to_parquet(folder / "validation.parquet")
        (folder / "reward.py").write_text(_REWARD)
        return cls(folder, model, python, device)

    def run(
        self,
        *overrides: str,
        environment: dict[str, str] | None = None,
        hook: str | Sequence[str] = (),
        fault: str = "",
        watch: str | None = None,
        timeout: float = 1100,
        name: str = "run",
        recipe: Sequence[str] = (),
        keeps: Sequence[str] = (),
    ) -> VerlRun:
        """Run ``python -m verl.trainer.main_ppo`` with these overrides, at most ``timeout`` s.

        recipe: the command of a recipe, run in its place with the machine and the sizes overridden,
        and nothing else. keeps: how further settings begin that the recipe says itself. hook:
        modules of ``support`` that verl loads in each of its processes, before plugins. fault: one
        of :mod:`support.faults`, planted likewise. watch: a
        sentence of the log from whose first appearance to measure the end.
        Ray gives itself 30 s to start, fixed: on a busy machine that may take another attempt.
        """
        hooks = [hook] if isinstance(hook, str) else list(hook)
        hooks += ["faults"] if fault else []

        def started(out: Path, ray: Path) -> tuple[list[str], dict[str, str]]:
            settings = self._settings(out)
            if recipe:
                kept = (*_HYPERPARAMETERS, *keeps)
                settings = [one for one in settings if not one.startswith(kept)]
            command = recipe or [self.python, "-m", "verl.trainer.main_ppo"]
            variables = given(self._environment(out, ray, hooks), environment or {})
            variables[faults.VARIABLE] = fault
            return [*command, *settings, *overrides], variables

        for _ in range(3):
            run = run_trainer(self.folder, name, started, watch, timeout)
            if _RAY_TOO_SLOW not in run.log:
                break
        return VerlRun(**vars(run))

    def _environment(self, out: Path, ray: Path, hooks: list[str]) -> dict[str, str]:
        modules = [f"support.{hook}" for hook in hooks]
        if self.device == "cpu":
            modules = ["tandem_verl.on_cpu", *modules]
        tests = Path(__file__).parents[1]
        helpers = tests.parent / "tests" / "helpers"
        paths = [str(tests), str(helpers), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PATH": os.pathsep.join([str(Path(self.python).parent), os.environ["PATH"]]),
            "VERL_USE_EXTERNAL_MODULES": ",".join(modules),
            "VERL_FILE_LOGGER_PATH": str(out / "metrics.jsonl"),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "1",
            "HYDRA_FULL_ERROR": "1",
            "HF_HUB_OFFLINE": "1",
            "RAY_TMPDIR": str(ray),  # no argument, which would make it another run of a recipe
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "0",
            "RAY_prestart_worker_first_driver": "0",
            "RAY_worker_niceness": "0",  # else the engines tested beside it starve them
            "PYTHONWARNINGS": "ignore",
        }

    def _settings(self, out: Path) -> list[str]:
        actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
        return [
            f"trainer.device={self.device}",
            "trainer.nnodes=1",
            "trainer.n_gpus_per_node=1",
            "ray_kwargs.ray_init.num_cpus=16",
            "+ray_kwargs.ray_init.num_gpus=1",
            "+ray_kwargs.ray_init.address=local",
            "+ray_kwargs.ray_init.object_store_memory=200000000",
            "+ray_kwargs.ray_init.include_dashboard=False",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            "transfer_queue.backend.SimpleStorage.total_storage_size=1000",
            f"data.train_files={self.folder}/train.parquet",
            f"data.val_files={self.folder}/validation.parquet",
            "data.train_batch_size=4",
            "data.max_prompt_length=64",
            "data.max_response_length=32",
            "data.dataloader_num_workers=0",
            "data.seed=1",
            f"actor_rollout_ref.model.path={self.model}",
            "actor_rollout_ref.model.use_remove_padding=False",
            "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
            "actor_rollout_ref.model.enable_gradient_checkpointing=False",
            f"{actor}.strategy=fsdp2",
            f"{actor}.fsdp_config.use_torch_compile=False",
            f"+{actor}.fsdp_config.mixed_precision="
            "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
            f"{actor}.ppo_mini_batch_size=4",
            f"{actor}.ppo_micro_batch_size_per_gpu=4",
            f"{actor}.optim.lr=1e-3",
            f"{actor}.use_kl_loss=False",
            f"{rollout}.name=vllm",
            f"{rollout}.n=2",
            f"{rollout}.tensor_model_parallel_size=1",
            *(
                [f"{rollout}.dtype=bfloat16", f"{rollout}.gpu_memory_utilization={SHARE}"]
                if self.device == "cuda"
                else [
                    f"{rollout}.dtype=float32",
                    f"{rollout}.enforce_eager=True",
                    f"{rollout}.free_cache_engine=False",
                    f"+{rollout}.enable_sleep_mode=False",
                    f"{rollout}.gpu_memory_utilization=0.1",
                ]
            ),
            f"{rollout}.max_model_len=128",
            f"{rollout}.max_num_seqs=8",
            f"{rollout}.max_num_batched_tokens=512",
            f"{rollout}.log_prob_micro_batch_size_per_gpu=4",
            f"{rollout}.agent.num_workers=1",
            f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes=16",
            "reward.num_workers=1",
            f"reward.custom_reward_function.path={self.folder}/reward.py",
            "reward.custom_reward_function.name=compute_score",
            "algorithm.adv_estimator=grpo",
            "trainer.total_training_steps=2",
            "trainer.val_before_train=False",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
            "trainer.resume_mode=disable",
            'trainer.logger=["console","file"]',
            f"trainer.default_local_dir={out}/checkpoints",
            f"trainer.rollout_data_dir={out}/rollouts",
            f"trainer.validation_data_dir={out}/validation",
        ]
