"""CUDA graphs of the junior's rounds: one for each size of a batch and length of drafts.

Touches: ``CudaGraphManager``'s captures and dispatch, by a subclass, and
``num_speculative_tokens_per_batch_size`` of vLLM's configuration, for which vLLM captures the
senior's steps of every length that it names. Versions: 0.29 to 0.32. Why: vLLM's manager knows
lengths by batch size alone. Goes when: a manager takes lengths of its own.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor, CudaGraphManager

__all__ = ["RoundDescriptor", "RoundGraphs", "lengths_of_rounds"]


@dataclass(frozen=True)
class RoundDescriptor(BatchExecutionDescriptor):  # type: ignore[misc]  # vllm is untyped here
    """A graph of a round: vLLM's description, and the number of drafts."""

    drafts: int = 0


class RoundGraphs(CudaGraphManager):  # type: ignore[misc]
    """vLLM's manager of graphs, for rounds of each of some lengths."""

    _capture_descs: dict[Any, list[Any]]

    def __init__(
        self,
        vllm_config: Any,
        device: torch.device,
        mode: CUDAGraphMode,
        width: int,
        lengths: tuple[int, ...],
    ) -> None:
        """width: the tokens of a request by which sizes are counted. lengths: of drafts."""
        super().__init__(_without_lengths(vllm_config), device, mode, width)
        self._width, self._lengths = width, frozenset(lengths)
        longest_first = sorted(lengths, reverse=True)
        self._capture_descs = {
            kind: [RoundDescriptor(**vars(desc), drafts=k) for desc in descs for k in longest_first]
            for kind, descs in self._capture_descs.items()
        }

    def of(self, requests: int, drafts: int) -> RoundDescriptor | None:
        """The graph for a batch and a length; None where there is none."""
        found = self.dispatch(requests, self._width * requests, self._width, 0)
        if found.cg_mode != CUDAGraphMode.FULL or drafts not in self._lengths:
            return None
        return RoundDescriptor(**vars(found), drafts=drafts)


def lengths_of_rounds(vllm_config: Any) -> tuple[int, ...]:
    """The lengths that an engine's rounds can have."""
    speculative = vllm_config.speculative_config
    table = speculative.num_speculative_tokens_per_batch_size
    if table is None:
        return (speculative.num_speculative_tokens,)
    return tuple(length for _, _, length in table)


def _without_lengths(vllm_config: Any) -> Any:
    """A configuration of which vLLM's manager does not make steps of the senior's lengths."""
    plain = copy(vllm_config)
    plain.speculative_config = copy(vllm_config.speculative_config)
    plain.speculative_config.num_speculative_tokens_per_batch_size = None
    return plain
