"""vLLM's compiler settings for an engine with two models."""

from __future__ import annotations

import json
import logging
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

logger = logging.getLogger(__name__)

_COMPILED = ("junior", "mode", "drafts")
"""The tandem settings that a model's compiled graphs may depend on."""


class AdditionalConfig(UserDict[str, Any]):
    """An engine's ``additional_config``, hashed over the settings that compiled graphs depend on.

    vLLM hashes a whole ``dict`` into the key of its compilation cache, and calls ``compute_hash()``
    of any other object. A new schedule, seed or record reuses the compiled graphs. Settings of
    other plugins are hashed whole. Source: ``VllmConfig.compute_hash`` of vLLM 0.24 to 0.33.
    """

    def compute_hash(self) -> str:
        """A hash that is the same in every process."""
        tandem = self["tandem"]
        hashed = self.data | {"tandem": {name: tandem[name] for name in _COMPILED}}
        return sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def keep_all_reduces_plain(vllm_config: Any, junior: Any) -> None:
    """Turn off the fusion of all-reduce and RMSNorm if the models differ in width.

    With tensor parallelism on Hopper and Blackwell, vLLM fuses them through FlashInfer. A process
    has one workspace, which the first compiled model sizes for its own hidden size; a wider model
    then crashes the engine. junior: its model configuration. Source: ``AllReduceFusionPass`` and
    ``get_fi_ar_workspace`` of vLLM 0.24 to 0.33.
    """
    width, junior_width = vllm_config.model_config.get_hidden_size(), junior.get_hidden_size()
    passes = vllm_config.compilation_config.pass_config
    if width == junior_width or not passes.fuse_allreduce_rms:
        return
    passes.fuse_allreduce_rms = False
    logger.warning(
        "The hidden sizes of senior (%d) and junior (%d) differ, so "
        "fuse_allreduce_rms is disabled: its workspace fits only one of them.",
        width,
        junior_width,
    )


@contextmanager
def keep_compile_ranges(vllm_config: Any) -> Iterator[None]:
    """Keep the senior's ranges of batch sizes that vLLM compiles for.

    A derived configuration recomputes them from its own model's hidden size, in
    the compilation config that both share. Source: ``VllmConfig._set_compile_ranges``.
    """
    compilation = vllm_config.compilation_config
    ranges = compilation.compile_ranges_endpoints
    try:
        yield
    finally:
        compilation.compile_ranges_endpoints = ranges
