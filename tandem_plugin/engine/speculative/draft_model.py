"""The junior as vLLM's draft model: frozen, and loaded from its own checkpoint.

vLLM finds in it a model without parameters: so no dummy initialisation, weight sync or draft update
reaches the model inside, whose tensors are buffers, which a deep sleep keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import nn

from tandem_plugin.engine.heads import in_seniors_ids
from tandem_plugin.engine.junior import load_junior
from tandem_plugin.engine.junior_offload import HostCopy
from tandem_plugin.engine.patches.sleep import copy_juniors_out_once
from tandem_plugin.errors import EngineError

__all__ = ["TandemJunior", "junior_of"]

_juniors: WeakValueDictionary[int, TandemJunior] = WeakValueDictionary()
"""Weakly: where vLLM clears an engine, its junior goes, though another one starts here later."""


class TandemJunior(nn.Module):
    """The draft model that vLLM sees: the junior is inside."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        # Not through nn.Module.__setattr__, which would register the junior as a submodule.
        copy_juniors_out_once()
        object.__setattr__(self, "junior", load_junior(vllm_config))
        self.tandem_host_copy = HostCopy(self.junior)
        self.config = self.junior.config
        target = vllm_config.speculative_config.target_model_config
        self._vocabulary = int(target.get_vocab_size())
        self.banned: torch.Tensor | None = None
        """bool ``[vocabulary]``, the ids that nobody may write; None for none."""
        self._frozen = False
        _juniors[_key(vllm_config)] = self

    junior: Any

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The junior's hidden states: ``[tokens, hidden]``."""
        hidden: torch.Tensor = self.junior(input_ids, positions)
        return hidden

    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The junior's own logits, over the senior's ids: ``[rows, vocabulary]``.

        Those of banned ids are -inf.
        """
        logits: torch.Tensor = self.junior.compute_logits(hidden_states)
        logits = in_seniors_ids(logits, self._vocabulary)
        return logits if self.banned is None else logits.masked_fill_(self.banned, -torch.inf)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load nothing: the junior inside was loaded when it was made, and is frozen.

        Raises :class:`EngineError` for any load after the engine's start.
        """
        if self._frozen:
            raise EngineError("TP351")
        return set()

    def freeze(self) -> None:
        """Say that vLLM's start is over: from now on weights sent here are a mistake."""
        self._frozen = True

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor of the junior, unless its copy on the host is held.

        vLLM's sleep at level 2 keeps buffers.
        """
        if recurse and not self.tandem_host_copy.is_held:
            yield from ((prefix + name, p) for name, p in self.junior.named_parameters())
            yield from ((prefix + name, b) for name, b in self.junior.named_buffers())


def junior_of(vllm_config: Any) -> TandemJunior:
    """The junior that was made last for an engine of this process.

    Raises :class:`EngineError` where vLLM drafts with something else.
    """
    junior = _juniors.get(_key(vllm_config))
    if junior is None:
        raise EngineError("TP352")
    return junior


def _key(vllm_config: Any) -> int:
    """Engine and draft model share one compilation config: attention layers register in it."""
    return id(vllm_config.compilation_config)
