"""Runs OpenRLHF's own trainer on a tiny model, on a CPU or a GPU, and reads back what it left."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support import faults, openrlhf_machine
from support.device import SHARE
from support.openrlhf_machine import WITHOUT_FLASH_ATTN
from support.trainer_run import TrainerRun, end_marked, free_port, marked, run_trainer
from tandem_plugin.patching.versions import installed_version

ROOT = Path(__file__).resolve().parents[2]
ON_CPU = Path(__file__).with_name("openrlhf_on_cpu")
"""What runs have on their PYTHONPATH for CUDA."""
STEP = re.compile(r"Global step (\d+): (\{.*\})")
EVALUATION = re.compile(r"eval_metrics: (\{.*\})")

_REWARD = '''
import torch

def reward_func(queries, prompts, labels, **_):
    """How often the letter e is there: differs between siblings, so advantages are not zero."""
    rewards = torch.tensor([q[len(p):].count("e") / 100.0 for q, p in zip(queries, prompts)])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"letters": rewards}}
'''


_AGENT = '''
import copy

from openrlhf.utils.agent import AgentExecutorBase

class AgentExecutor(AgentExecutorBase):
    """Two turns: the second is asked for with a sentence that no model wrote."""

    async def execute(
        self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None
    ):
        tokens = hf_tokenizer(text=prompt, add_special_tokens=False)["input_ids"]
        log_probs, ranges, text = [0.0] * len(tokens), [], ""
        for feedback in (" Again, please: ", ""):
            params = copy.deepcopy(sampling_params)
            params.max_tokens = 24
            output = (await llm_engine.generate(tokens, params)).outputs[0]
            said = list(output.token_ids)
            ranges.append((len(tokens), len(tokens) + len(said)))
            log_probs += [at[token].logprob for at, token in zip(output.logprobs, said)]
            added = hf_tokenizer(text=feedback, add_special_tokens=False)["input_ids"]
            tokens = tokens + said + list(added)
            log_probs += [0.0] * len(added)
            text += output.text
        reward = text.count("e") / 100.0
        return {
            "prompt": prompt,
            "label": label,
            "observation_tokens": tokens,
            "action_ranges": ranges,
            "rollout_log_probs": log_probs,
            "reward": reward,
            "scores": reward,
            "truncated": False,
            "extra_logs": {},
        }
'''


_HYPERPARAMETERS = (
    "--actor.adam.lr",
    "--actor.entropy_coef",
    "--actor.lr_warmup_ratio",
    "--algo.advantage.estimator",
    "--algo.advantage.is_correction_level",
    "--algo.kl.init_coef",
    "--ds.zero_stage",
    "--reward.remote_url",
)
"""What a recipe says itself; the rest is the machine and the sizes."""

_ARGUMENTS_OF_GPU = {"--vllm.gpu_memory_utilization": str(SHARE), "--vllm.sync_backend": "nccl"}


class OpenRLHFRun(TrainerRun):
    """What one run of OpenRLHF left."""

    UPDATED = "Train epoch"

    @property
    def steps(self) -> list[dict[str, float]]:
        """The metrics of training steps, as the trainer logged them."""
        return [ast.literal_eval(_plain(found[2])) for found in STEP.finditer(self.log)]

    @property
    def evaluations(self) -> list[dict[str, float]]:
        """The metrics of evaluations."""
        return [ast.literal_eval(_plain(found[1])) for found in EVALUATION.finditer(self.log)]


def _variables_of_gpu(ray: Path) -> dict[str, str]:
    return {"PATH": openrlhf_machine.path(), **openrlhf_machine.variables_of_ray(ray)}


def _wait_for(
    sentence: str, log: Path, process: subprocess.Popen[bytes], seconds: float = 120
) -> None:
    deadline = time.monotonic() + seconds
    while sentence not in (said := log.read_text(errors="replace")):
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.2)


def _plain(text: str) -> str:
    return re.sub(r"\bnan\b", "'nan'", re.sub(r"\x1b\[[0-9;]*m", "", text))


@dataclass(frozen=True)
class OpenRLHFBench:
    """A tiny model with prompts and a reward, on which runs are made."""

    folder: Path
    model: Path
    device: str = "cpu"
    """On "cuda" DeepSpeed and Ray take what they find there."""

    @classmethod
    def make(
        cls, folder: Path, model: Path, device: str = "cpu", pictures: bool = False
    ) -> OpenRLHFBench:
        """Write prompts, a reward and an agent for ``model``, which has a chat template.

        pictures: whether every prompt has a picture of its own, ``NUMBER.png``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, object]] = [
            {"input": f"Say the letter e {i} times", "label": "e"} for i in range(8)
        ]
        if pictures:
            from support.images import picture
        for number, row in enumerate(rows if pictures else ()):
            file = folder / f"{number}.png"
            picture(300 + number).save(file)
            row |= {"input": f"<image>{row['input']}", "images": [str(file)]}
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "prompts.jsonl").write_text(text)
        (folder / "reward.py").write_text(_REWARD)
        (folder / "agent.py").write_text(_AGENT)
        return cls(folder, model, device)

    def run(
        self,
        *arguments: str,
        command: str = "tandem_openrlhf.train_ppo_ray",
        python: Sequence[str] = (sys.executable,),
        environment: dict[str, str] | None = None,
        hooks: str = "",
        fault: str = "",
        watch: str | None = None,
        timeout: float = 900,
        name: str = "run",
        recipe: Sequence[str] = (),
        keeps: Sequence[str] = (),
    ) -> OpenRLHFRun:
        """Run ``python -m command`` with small settings and these arguments.

        python: what to run it with. recipe: the command of a recipe, run in its place with the
        machine and the sizes overridden, and nothing else. keeps: further settings that the recipe
        says itself. hooks: modules of ``support`` that every process imports first. fault: one of
        :mod:`support.faults`, planted there. watch: a
        sentence of the log from whose first appearance to measure the end.
        """

        def started(out: Path, ray: Path) -> tuple[list[str], dict[str, str]]:
            settings = self._settings(
                out, (*arguments, *(_HYPERPARAMETERS if recipe else ()), *keeps)
            )
            modules = f"{hooks} faults" if fault else hooks
            variables = self._environment(out, ray, modules) | (environment or {})
            variables[faults.VARIABLE] = fault
            return (
                [*(recipe or [*python, "-m", command]), *settings, *arguments],
                {key: value for key, value in variables.items() if value != ""},
            )

        run = run_trainer(self.folder, name, started, watch, timeout)
        return OpenRLHFRun(**vars(run))

    @contextlib.contextmanager
    def cluster(self, hooks: str, environment: dict[str, str]) -> Iterator[str]:
        """Start a Ray that knows nothing of the jobs to come; give its address; end it.

        hooks, environment: of all its processes, as for a run that starts its own Ray.
        """
        from ray.util import get_node_ip_address

        # Ray puts sockets there, whose paths must be short.
        ray = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))
        variables = self._environment(self.folder, ray, hooks) | environment | marked(ray)
        for name in ("RAY_ADDRESS", "RAY_OVERRIDE_RESOURCES"):
            variables.pop(name, None)
        port = free_port()
        log = ray / "start.txt"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
                    *("--port", str(port), "--ray-client-server-port", str(free_port())),
                    *("--temp-dir", str(ray), "--disable-usage-stats"),
                    *("--num-cpus", "8", "--num-gpus", "4", "--object-store-memory", "200000000"),
                    *("--include-dashboard", "false"),
                ],
                env=variables,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_for("Ray runtime started", log, process)
            yield f"{get_node_ip_address()}:{port}"
        finally:
            process.terminate()
            process.wait()
            end_marked(ray)
            shutil.rmtree(ray, ignore_errors=True)

    def _environment(self, out: Path, ray: Path, hooks: str) -> dict[str, str]:
        folder = {"cpu": "openrlhf_on_cpu", "cuda": "openrlhf_on_gpu"}[self.device]
        paths = [str(Path(__file__).with_name(folder))]
        if installed_version("flash-attn") is None:
            paths.append(str(WITHOUT_FLASH_ATTN))
        paths += [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        machine = openrlhf_machine.variables if self.device == "cpu" else _variables_of_gpu
        return {
            **os.environ,
            **machine(ray),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "TANDEM_TEST_HOOKS": " ".join(f"support.{hook}" for hook in hooks.split()),
        }

    def _settings(self, out: Path, arguments: tuple[str, ...]) -> list[str]:
        settings = {
            "--actor.model_name_or_path": str(self.model),
            **openrlhf_machine.ARGUMENTS,
            **({} if self.device == "cpu" else _ARGUMENTS_OF_GPU),
            "--algo.advantage.estimator": "group_norm",
            "--algo.advantage.is_correction_level": "token",
            "--algo.kl.init_coef": "0",
            "--reward.remote_url": str(self.folder / "reward.py"),
            "--data.prompt_dataset": str(self.folder / "prompts.jsonl"),
            "--data.input_key": "input",
            "--data.label_key": "label",
            "--data.max_len": "128",
            "--data.max_samples": "8",
            "--rollout.max_new_tokens": "48",
            "--rollout.batch_size": "4",
            "--rollout.n_samples_per_prompt": "4",
            "--rollout.micro_batch_size": "4",
            "--train.batch_size": "16",
            "--train.micro_batch_size": "4",
            "--actor.adam.lr": "3e-4",
            "--actor.lr_warmup_ratio": "0",
            "--actor.entropy_coef": "0",
            "--ckpt.path": str(out / "checkpoints"),
            "--ckpt.output_dir": str(out / "model"),
        }
        given = {argument.partition("=")[0] for argument in arguments}
        flags = ["--data.apply_chat_template"]
        if self.device == "cpu":
            flags.append("--vllm.enforce_eager")
        return [
            *flags,
            *(
                part
                for name, value in settings.items()
                if name not in given
                for part in (name, value)
            ),
        ]
