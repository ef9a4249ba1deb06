"""The senior of a speculative engine: its own vLLM class, which only names another model state."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from tandem_plugin.engine.board import author_board
from tandem_plugin.engine.heads import without_foreign_ids
from tandem_plugin.engine.names import SPECULATIVE_PREFIX
from tandem_plugin.engine.patches.cpu_weights import keep_cpu_linear_weights
from tandem_plugin.engine.patches.drafts import draft_as_many_as_asked, let_workers_tell_of_drafts
from tandem_plugin.engine.vocabularies import shared_vocabulary

__all__ = ["speculative_class"]


def __getattr__(name: str) -> type[nn.Module]:
    """``senior.TandemSpeculativeQwen3ForCausalLM``: vLLM looks classes up by name."""
    if name.startswith(SPECULATIVE_PREFIX):
        return speculative_class(name.removeprefix(SPECULATIVE_PREFIX))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def speculative_class(architecture: str) -> type[nn.Module]:
    """The subclass of one of vLLM's model classes that drafts in tandem."""
    from vllm import ModelRegistry

    from tandem_plugin.engine.composite import load_weights

    senior_class = ModelRegistry.models[architecture].load_model_cls()
    members = {
        "__init__": _init,
        "__module__": __name__,
        "__qualname__": SPECULATIVE_PREFIX + architecture,
        "__doc__": f"{architecture} as the senior of an engine whose junior drafts.",
        "compute_logits": _compute_logits,
        "get_model_state_cls": _get_model_state_cls,
        "load_weights": load_weights,
        "_senior": senior_class,
    }
    return type(SPECULATIVE_PREFIX + architecture, (senior_class,), members)


def _init(self: Any, *, vllm_config: Any, prefix: str = "") -> None:
    if vllm_config.device_config.device_type == "cpu":
        keep_cpu_linear_weights()
    draft_as_many_as_asked()
    let_workers_tell_of_drafts()
    self._senior.__init__(self, vllm_config=vllm_config, prefix=prefix)
    object.__setattr__(self, "tandem_board", author_board(vllm_config))
    self.tandem_shared_ids = shared_vocabulary(vllm_config)


def _compute_logits(self: Any, *arguments: Any, **options: Any) -> torch.Tensor | None:
    """The senior's own, without ids that the junior could not read."""
    logits: torch.Tensor | None = self._senior.compute_logits(self, *arguments, **options)
    return logits if logits is None else without_foreign_ids(logits, self.tandem_shared_ids)


def _get_model_state_cls(self: Any) -> type[Any]:
    """Model Runner V2 asks for the class that keeps its state: the senior's own, with authors."""
    from tandem_plugin.engine.composite import senior_state
    from tandem_plugin.engine.speculative.state import speculative_model_state

    state: type[Any] = speculative_model_state(senior_state(self))
    return state
