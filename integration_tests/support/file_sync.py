"""A checkpoint engine of verl's that syncs weights through files: verl's own need a GPU.

It registers itself as the backend ``file``, where verl imports it as ``custom_backend_module``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

_PATIENCE = 300.0


@CheckpointEngineRegistry.register("file")
class FileCheckpointEngine(CheckpointEngine):  # type: ignore[misc]  # verl is not typed
    """One file a version of the weights, which the actor writes and the rollout waits for."""

    def __init__(self, bucket_size: int, folder: str, is_master: bool = False) -> None:
        self._folder = Path(folder)

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(
        cls, actors: int, rollouts: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        return {}, {}

    def init_process_group(self) -> None: ...

    def finalize(self) -> None: ...

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, Any]:
        written = self._file(global_steps).with_suffix(f".{os.getpid()}")
        torch.save({name: tensor.detach().cpu().clone() for name, tensor in weights}, written)
        written.rename(self._file(global_steps))
        return {}

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        waited = 0.0
        while not self._file(global_steps).exists():
            if waited > _PATIENCE:
                raise TimeoutError(f"No weights of version {global_steps} came.")
            await asyncio.sleep(0.05)
            waited += 0.05
        for item in torch.load(self._file(global_steps)).items():
            yield item

    def _file(self, global_steps: int | None) -> Path:
        return self._folder / f"{global_steps}.pt"
