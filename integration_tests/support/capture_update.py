"""Test hook: saves what optimizer steps and weight syncs had, and losses' gradients by token.

Under ``$TANDEM_TEST_CAPTURE``: ``step-<n>.pt`` with the parameters before the n-th optimizer step
and their gradients before clipping; ``loss-<n>.pt`` with the n-th micro-batch's mask, advantages
and the gradient of its loss by each token's logprob; ``engine.txt`` with hashes of the engine's
senior and junior, one line when they are built and one after each bucket of a weight sync.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from support.worker import digest
from tandem_plugin.patching.after_import import after_import

FOLDER = Path(os.environ.get("TANDEM_TEST_CAPTURE", "."))


def _save(kind: str, content: dict[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    count = len(list(FOLDER.glob(f"{kind}-*.pt")))
    torch.save(content, FOLDER / f"{kind}-{count}.pt")


def _whole(tensor: Any) -> torch.Tensor:
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().clone()


def _capture_steps(module: ModuleType) -> None:
    step = module.FSDPEngine.optimizer_step

    def optimizer_step(engine: Any) -> Any:
        named = dict(engine.module.named_parameters())
        _save(
            "step",
            {
                "parameters": {name: _whole(p) for name, p in named.items()},
                "gradients": {name: _whole(p.grad) for name, p in named.items()},
            },
        )
        return step(engine)

    module.FSDPEngine.optimizer_step = optimizer_step


def _capture_losses(module: ModuleType) -> None:
    vanilla = module.POLICY_LOSS_REGISTRY["vanilla"]

    def captured(*, log_prob: torch.Tensor, **arguments: Any) -> Any:
        with torch.enable_grad():
            leaf = log_prob.detach().requires_grad_()
            loss, _ = vanilla(log_prob=leaf, **arguments)
            (gradient,) = torch.autograd.grad(loss, leaf)
        _save(
            "loss",
            {
                "gradient": gradient,
                "response_mask": arguments["response_mask"].detach().clone(),
                "advantages": arguments["advantages"].detach().clone(),
            },
        )
        return vanilla(log_prob=log_prob, **arguments)

    module.POLICY_LOSS_REGISTRY["vanilla"] = captured


def _capture_weights(module: ModuleType) -> None:
    build = module._init

    @functools.wraps(build)  # vLLM reads the signature
    def init(model: Any, **arguments: Any) -> None:
        build(model, **arguments)
        load = model.load_weights

        def load_weights(weights: Any) -> Any:
            loaded = load(weights)
            _write_hashes(model)
            return loaded

        object.__setattr__(model, "load_weights", load_weights)
        _write_hashes(model)

    module._init = init


def _write_hashes(model: Any) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    senior, junior = digest(model.named_parameters()), digest(model.junior.named_parameters())
    with (FOLDER / "engine.txt").open("a") as lines:
        lines.write(f"{senior} {junior}\n")


after_import("tandem_plugin.engine.senior", _capture_weights)
after_import("verl.workers.engine.fsdp.transformer_impl", _capture_steps)
after_import("verl.trainer.ppo.core_algos", _capture_losses)
