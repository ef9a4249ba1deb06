"""A backend for vLLM's own weight transfer that needs no GPU: chunks are files.

Its life cycle is that of vLLM's ``nccl`` and ``ipc`` backends: weights are reloaded layer by layer
between start and finish. An update may also be loaded as it comes, as ``sparse_nccl`` loads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

BACKEND = "tandem-test-files"


@dataclass
class Init(WeightTransferInitInfo):
    layerwise: bool


@dataclass
class Update(WeightTransferUpdateInfo):
    file: str


class FileTransfer(WeightTransferEngine[Init, Update]):
    """The worker's side."""

    init_info_cls, update_info_cls = Init, Update

    def init_transfer_engine(self, init_info: Init) -> None:
        self.layerwise = init_info.layerwise

    def start_weight_update(self) -> None:
        if self.layerwise:
            initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))  # there is nothing to wait for

    def receive_weights(self, update_info: Update) -> None:
        with safe_open(update_info.file, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                self.model.load_weights([(name, file.get_tensor(name))])

    def finish_weight_update(self) -> None:
        if self.layerwise:
            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass


class Extension:
    """The worker imports this module for it, and so knows the backend."""


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)

ARGUMENTS: dict[str, Any] = {
    "weight_transfer_config": {"backend": BACKEND},
    "worker_extension_cls": f"{__name__}.{Extension.__qualname__}",
}
"""With which an engine has the backend."""


def chunks(checkpoint: Path, folder: Path, count: int) -> Sequence[dict[str, Any]]:
    """The updates that send a checkpoint in ``count`` files, which cut through layers."""
    tensors = load_file(checkpoint / "model.safetensors")
    names, updates = sorted(tensors), []
    for number in range(count):
        part = names[number::count]
        file = folder / f"{checkpoint.name}-{number}-of-{count}.safetensors"
        save_file({name: tensors[name] for name in part}, file)
        updates.append({"file": str(file)})
    return updates


class TRLFiles:
    """The trainer's side, in place of the methods of TRL's clients that need NCCL."""

    def __init__(self, post: Callable[[str, dict[str, Any]], Any], folder: Path) -> None:
        """post: sends a body to a path of the server."""
        self._post, self._folder, self._sent = post, folder, 0
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self) -> None:
        self._post("/init_weight_transfer_engine", {"init_info": {"layerwise": True}})

    def send(self, weights: Iterable[tuple[str, Any]]) -> None:
        self._sent += 1
        file = self._folder / f"{self._sent}.safetensors"
        save_file({name: one.detach().clone().contiguous() for name, one in weights}, file)
        self._post("/start_weight_update", {})
        self._post("/update_weights", {"update_info": {"file": str(file)}})
        self._post("/finish_weight_update", {})


SERVER_OPTIONS = (
    *("--weight-transfer-config", json.dumps(ARGUMENTS["weight_transfer_config"])),
    *("--worker-extension-cls", ARGUMENTS["worker_extension_cls"]),
)
"""With which a server has the backend."""
