"""Runs TRL's own trainer in a process of its own; as a program it is that process.

What it should do comes as JSON on its command line; what breaks it, by a function's name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import trl_tools
from support.device import SHARE, is_gpu
from support.trainer_run import TrainerRun, free_port, run_trainer

ROOT = Path(__file__).resolve().parents[2]


class TRLRun(TrainerRun):
    """What one run of TRL left."""

    UPDATED = "grad_norm"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """TRL's metrics, one mapping a log entry."""
        state = self.folder / "history.json"
        return json.loads(state.read_text()) if state.exists() else []

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The metrics of training steps."""
        return [one for one in self.metrics if "grad_norm" in one]

    def caught(self, rank: int = 0) -> dict[str, Any]:
        """What a run with tools generated, and what its losses were computed of."""
        found: dict[str, Any] = json.loads((self.folder / f"caught-{rank}.json").read_text())
        return found

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        """The dump of one step."""
        lines = (self.folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


class TRLBench:
    """A model on which TRL trains."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model

    @classmethod
    def make(cls, folder: Path, model: Path) -> TRLBench:
        folder.mkdir(exist_ok=True)
        return cls(folder, model)

    def run(
        self,
        tandem: Mapping[str, Any] | None = None,
        *,
        sabotage: str = "",
        lora: Mapping[str, Any] | None = None,
        tools: str = "",
        server: str = "",
        engine: Mapping[str, Any] | None = None,
        processes: int = 1,
        data: Path | None = None,
        reward: str = "",
        name: str = "run",
        watch: str | None = None,
        timeout: float = 600,
        environment: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> TRLRun:
        """One run; tandem: its settings; arguments: of ``GRPOConfig``, over a small run's.

        tools: a name of :data:`support.trl_tools.CASES`; what TRL then makes of its responses, and
        what it computes losses of, is in the folder. server: the address of one with the backend
        of :mod:`support.weight_transfer`. engine: further arguments of vLLM. reward: the name of
        a function here.
        """
        case = {
            "model": str(self.model),
            "tandem": tandem,
            "sabotage": sabotage,
            "lora": lora,
            "tools": tools,
            "server": server,
            "engine": dict(engine or {}),
            "data": None if data is None else str(data),
            "reward": reward,
            "arguments": arguments,
        }

        def started(out: Path, _: Path) -> tuple[list[str], dict[str, str]]:
            paths = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "integration_tests")]
            paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
            own = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                # TRL tries the same few ports first, so that two runs at once may take one.
                "MASTER_PORT": str(free_port()),
                **(environment or {}),
            }
            launched = ("-m", "torch.distributed.run", f"--nproc_per_node={processes}")
            launch = launched if processes > 1 else ()
            return [sys.executable, *launch, "-m", "support.trl_run", json.dumps(case)], own

        done = run_trainer(self.folder, name, started, watch, timeout)
        return TRLRun(**vars(done))


def main(case: dict[str, Any]) -> None:
    """The trainer's own process."""
    import datasets
    from trl import GRPOConfig, RLOOConfig

    arguments = {
        "output_dir": "out",
        "use_cpu": not is_gpu(),
        "bf16": is_gpu(),
        "use_vllm": True,
        "vllm_gpu_memory_utilization": SHARE if is_gpu() else 0.2,
        "vllm_max_model_length": 160,
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "num_generations_eval": 1,
        "max_completion_length": 24,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "model_init_kwargs": {"dtype": "bfloat16" if is_gpu() else "float32"},
        **case["arguments"],
    }
    if case["data"]:
        rows = datasets.load_dataset("parquet", data_files=case["data"], split="train")
    else:
        prompts = [f"Say which licence number {i} is." for i in range(16)]
        rows = datasets.Dataset.from_list(
            [{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts]
        )
    if case["tools"] == "pictures":
        rows = with_images(rows)
    if case["server"]:
        arguments |= {"vllm_mode": "server", "vllm_server_base_url": case["server"]}
        sync_by_files(Path("weights"))
    resumed = arguments.pop("resume_from_checkpoint", None)
    config = RLOOConfig if case["tools"] == "rloo" else GRPOConfig
    trainer = made_trainer(case, config(**arguments), rows)
    caught = trl_tools.watched(trainer) if case["tools"] else None
    if case["tools"] == "pictures":
        trainer.add_callback(trl_tools.kept_gradients())
    trainer.train(resume_from_checkpoint=resumed)
    if caught is not None:
        rank = trainer.accelerator.process_index
        Path(f"caught-{rank}.json").write_text(json.dumps(caught))
        if not case["server"]:
            trl_tools.settle(trainer)
    trainer.save_model("senior")
    trainer.processing_class.save_pretrained("senior")
    Path("history.json").write_text(json.dumps(trainer.state.log_history))


def with_images(rows: Any) -> Any:
    """One to three pictures for each prompt."""
    import datasets

    from support.images import picture

    pictures = [[picture(10 * i + n) for n in range(1 + i % 3)] for i in range(len(rows))]
    return datasets.Dataset.from_dict({"prompt": list(rows["prompt"]), "images": pictures})


def made_trainer(case: dict[str, Any], config: Any, rows: Any) -> Any:
    from trl import GRPOTrainer

    rollouts = None
    if case["tandem"] is not None:
        from tandem_trl import tandem_rollouts

        engine = {} if is_gpu() or case["server"] else {"enforce_eager": True, "dtype": "float32"}
        engine |= case["engine"]
        rollouts = tandem_rollouts(engine, **{"rollouts": "rollouts", **case["tandem"]})
    if case["sabotage"]:
        rollouts = globals()[case["sabotage"]](rollouts)
    reward = globals()[case["reward"]] if case["reward"] else count_e
    if case["data"]:
        from tandem_plugin.grading.rewards.trl_reward import math_reward as reward
    more: dict[str, Any] = {}
    if case["tools"]:
        trainer_class, more = trl_tools.CASES[case["tools"]](case["model"])
        if case["tools"] == "environments":
            names = ["adder", "silent"]
            rows = rows.map(lambda _, i: {"environment": names[i % 2]}, with_indices=True)
    else:
        trainer_class = GRPOTrainer
    return trainer_class(
        model=case["model"],
        reward_funcs=reward,
        args=config,
        train_dataset=rows.add_column("part", ["training"] * len(rows)),
        eval_dataset=rows.select(range(EVALUATED[case["reward"]])).add_column(
            "part", ["validation"] * EVALUATED[case["reward"]]
        ),
        rollout_func=rollouts,
        peft_config=adapter(case["lora"]) if case["lora"] else None,
        **more,
    )


def sync_by_files(folder: Path) -> None:
    """What a GPU does by NCCL."""
    from trl.generation.vllm_client import VLLMClient

    from support.weight_transfer import TRLFiles

    def begin(client: Any, device: Any = 0) -> None:
        def post(path: str, body: dict[str, Any]) -> Any:
            return client._post(client.base_url + path, json=body)

        client.files = TRLFiles(post, folder.absolute())
        client.files.begin()

    VLLMClient.init_communicator = begin
    VLLMClient.update_named_params = lambda client, metadata, named: client.files.send(named)


def adapter(settings: dict[str, Any]) -> Any:
    from peft import LoraConfig

    return LoraConfig(**settings)


def count_e(completions: Any, **_: Any) -> list[float]:
    """Differs between siblings, so that advantages are not zero."""
    return [sum(str(m["content"]).count("e") for m in one) / 10 for one in completions]


def contrary(completions: Any, part: list[str], **_: Any) -> list[float]:
    """Training rewards what validation does not: a response without an e."""
    counts = [sum(str(m["content"]).count("e") for m in one) for one in completions]
    validates = part[0] == "validation"
    return [float(count > 0) if validates else -count / 10 for count in counts]


EVALUATED = {"": 4, "contrary": 16}
"""The problems of an evaluation, by the reward."""


def without_mask(rollouts: Any) -> Any:
    """Rollouts whose mask gets lost on the way to the loss."""

    def respond(prompts: Any, trainer: Any) -> Any:
        return {name: v for name, v in rollouts(prompts, trainer).items() if name != "env_mask"}

    return respond


def complemented_mask(rollouts: Any) -> Any:
    """The junior's tokens in the place of the senior's."""

    def respond(prompts: Any, trainer: Any) -> Any:
        given = rollouts(prompts, trainer)
        return {**given, "env_mask": [[1 - bit for bit in mask] for mask in given["env_mask"]]}

    return respond


def foreign_fingerprint(rollouts: Any) -> Any:
    """A trainer that reads other boundaries than its engine."""
    settings = rollouts.config.settings()
    rollouts.config = type(rollouts.config).from_mapping({**settings, "boundaries": "newline"})
    return rollouts


def without_tool_loop(rollouts: Any) -> Any:
    """A tool loop that the adapter did not wrap."""
    rollouts._tool_loop = lambda loop, *arguments: loop(*arguments)
    return rollouts


def without_rows(rollouts: Any) -> Any:
    """A tool loop that extends its prompts in another way."""
    from tandem_trl.engine import TandemPrompt

    del TandemPrompt.__add__
    return rollouts


def rotated_rows(rollouts: Any) -> Any:
    """Each row's later turns with the seeds of the next row."""
    from tandem_trl.engine import TandemPrompt

    def extended(prompt: Any, more: Any) -> Any:
        rows = list(rollouts._batch.trajectories)
        following = rows[(rows.index(prompt.trajectory) + 1) % len(rows)]
        return TandemPrompt([*prompt, *more], following)

    TandemPrompt.__add__ = extended
    return rollouts


def second_trainer(rollouts: Any) -> Any:
    """Rollouts that were made for another trainer."""
    from tandem_trl import tandem_rollouts

    tandem_rollouts({"enforce_eager": True, "dtype": "float32"}, schedule="word")
    return rollouts


if __name__ == "__main__":
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    main(json.loads(sys.argv[1]))
