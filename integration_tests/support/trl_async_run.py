"""Runs TRL's asynchronous trainer in a process of its own, against a server in tandem.

A CPU lacks two things: FlashAttention 3, here a plain attention in its place, and NCCL, here files
(:mod:`support.weight_transfer`) or adapters, which TRL publishes as files anyway. The child process
of the worker imports this module for its tools, and so has their parser.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from trl.experimental.async_grpo import async_rollout_worker

from support import trl_tools
from support.trainer_run import run_trainer
from support.trl_run import ROOT, TRLRun
from tandem_plugin.training.authorship_wire import AUTHORSHIP

LORA = "trl-policy"
"""The name by which ``AsyncGRPOTrainer`` publishes adapters."""


def run_async(
    folder: Path,
    name: str,
    model: Path,
    server: str,
    tandem: Mapping[str, Any],
    watch: str | None = None,
    **case: Any,
) -> TRLRun:
    """One run.

    case: ``lora``, ``environment``, ``resumed`` (a checkpoint), and ``arguments`` of
    ``AsyncGRPOConfig``.
    """
    case |= {"model": str(model), "server": server, "tandem": dict(tandem)}

    def started(out: Path, _: Path) -> tuple[list[str], dict[str, str]]:
        paths = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "integration_tests")]
        paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        own = {"PYTHONPATH": os.pathsep.join(paths), "TRL_EXPERIMENTAL_SILENCE": "1"}
        command = [sys.executable, "-m", "support.trl_async_run", json.dumps(case)]
        return command, {**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""}

    return TRLRun(**vars(run_trainer(folder, name, started, watch, 600)))


def parse(reader: Any, ids: Any, prefix: Any = None, tools: Any = None) -> dict[str, Any]:
    """In place of TRL's: two turns of three call the tool."""
    message = {"role": "assistant", "content": reader.decode(ids, skip_special_tokens=True)}
    if not tools or sum(ids) % 3 == 2:
        return message
    call = {"name": "add", "arguments": {"a": len(ids) % 5, "b": 1}}
    return {**message, "tool_calls": [{"type": "function", "function": call}]}


async_rollout_worker.parse_response = parse


def count_e(completions: Any, **_: Any) -> list[float]:
    """Differs between siblings."""
    return [sum(str(m["content"]).count("e") for m in one) / 10 for one in completions]


def varlen(
    q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *_: Any, softmax_scale: Any, **__: Any
) -> Any:
    """``flash_attn_varlen_func``: segments of queries, causal from the end of their keys."""
    outputs = []
    bounds = [t.tolist() for t in (starts_q[:-1], starts_q[1:], starts_k[:-1], starts_k[1:])]
    for a, b, c, d in zip(*bounds, strict=True):
        query, key, value = (one.transpose(0, 1) for one in (q[a:b], k[c:d], v[c:d]))
        groups = query.shape[0] // key.shape[0]
        rows, columns = torch.arange(b - a)[:, None], torch.arange(d - c)[None]
        outputs.append(
            torch.nn.functional.scaled_dot_product_attention(
                query,
                key.repeat_interleave(groups, 0),
                value.repeat_interleave(groups, 0),
                attn_mask=columns <= rows + (d - c) - (b - a),
                scale=softmax_scale,
            ).transpose(0, 1)
        )
    return torch.cat(outputs)


class FileTransfer:
    """TRL's ``WeightTransferProtocol``."""

    def __init__(self, url: str, folder: Path) -> None:
        from support.weight_transfer import TRLFiles

        self._url = url
        self._files = TRLFiles(self._post, folder.absolute())

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.status == 200

    def init_weight_transfer(self) -> None:
        self._files.begin()

    def pause(self) -> None:
        self._post("/pause?mode=keep", {})

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        self._files.send(iterator)

    def resume(self) -> None:
        self._post("/resume", {})

    def destroy(self) -> None: ...


def main(case: Mapping[str, Any]) -> None:
    """The trainer's own process."""
    from datasets import Dataset
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    from tandem_trl.async_rollouts import TandemRolloutWorker

    stand_in_for_a_gpu()
    prompts = [f"Say which licence number {i} is." for i in range(8)]
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": one}]} for one in prompts])
    settings = {
        "output_dir": "out",
        "use_cpu": True,
        "bf16": False,
        "dtype": "float32",
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_steps": 3,
        "max_completion_length": 8,
        "learning_rate": 1e-3,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "no",
        "vllm_server_base_url": case["server"],
        "token_budget": -1,
        "max_inflight_tasks": 8,
        "gradient_checkpointing": False,
        "max_tool_calling_iterations": 3,
        **case.get("arguments", {}),
    }
    args, tokenizer = AsyncGRPOConfig(**settings), trl_tools.tokenizer(case["model"])
    more: dict[str, Any] = {"weight_transfer": FileTransfer(case["server"], Path("weights"))}
    if case.get("lora"):
        from peft import LoraConfig

        more = {"peft_config": LoraConfig(**case["lora"])}
    of_worker: dict[str, Any] = {"tools": [trl_tools.add], "reward_funcs": [count_e]}
    if case.get("environment"):
        of_worker = {"environment_factory": trl_tools.Adder, "reward_funcs": []}
    worker = TandemRolloutWorker(
        args,
        tandem={"rollouts": "rollouts", **case["tandem"]},
        model_name=case["model"],
        processing_class=tokenizer,
        dataset=rows,
        lora_name=LORA if case.get("lora") else None,
        **of_worker,
    )
    trainer = AsyncGRPOTrainer(
        model=case["model"],
        reward_funcs=[count_e],
        args=args,
        train_dataset=rows,
        processing_class=tokenizer,
        rollout_worker=worker,
        callbacks=[worker.callback()],
        **more,
    )
    caught = watched(trainer, worker)
    trainer.train(resume_from_checkpoint=case.get("resumed"))
    trainer.save_model("senior")
    Path("caught-0.json").write_text(json.dumps(caught))
    Path("history.json").write_text(json.dumps(trainer.state.log_history))


def stand_in_for_a_gpu() -> None:
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=varlen)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None


def watched(trainer: Any, worker: Any) -> dict[str, list[Any]]:
    """The samples that were admitted, and the (label, log-probability) of each loss."""
    caught: dict[str, list[Any]] = {"samples": [], "losses": []}
    admit, loss = worker.admit, trainer.compute_loss

    def admitted(sample: Any) -> None:
        admit(sample)
        prompt, columns_sent = sample.tandem
        columns = (sample.input_ids, sample.completion_mask, sample.old_log_probs)
        ids, mask, old = (one.tolist() for one in columns)
        one = {"ids": ids, "mask": mask, "old": old, "group": sample.group_id, "prompt": prompt}
        segments = [list(segment) for segment in columns_sent[AUTHORSHIP]["segments"]]
        caught["samples"].append({**one, "segments": segments, "version": sample.model_version})

    def computed(model: Any, inputs: Any, *args: Any, **more: Any) -> Any:
        chosen = inputs["token_index"] >= 0
        labels = inputs["shift_labels"][inputs["attention_mask"].bool()]
        labels = labels[inputs["token_index"][chosen]].tolist()
        caught["losses"] += zip(labels, inputs["old_log_probs"][chosen].tolist(), strict=True)
        return loss(model, inputs, *args, **more)

    worker.admit, trainer.compute_loss = admitted, computed
    return caught


if __name__ == "__main__":
    from support import trl_async_run  # by the name that the child knows

    trl_async_run.main(json.loads(sys.argv[1]))
