"""The senior of a speculative engine: its own vLLM class with a different model state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from tandem_plugin.engine.heads import without_foreign_ids
from tandem_plugin.engine.measures import Measures, measures_of
from tandem_plugin.engine.patches.cpu_weights import keep_cpu_weights
from tandem_plugin.engine.patches.worker import let_workers_tell_of_measures
from tandem_plugin.engine.speculative.patches import let_workers_tell_of_drafts
from tandem_plugin.engine.step_authors import StepAuthors, step_authors_of
from tandem_plugin.engine.tokenizer_check import shared_vocabulary

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class SpeculativeSenior(Protocol):
    """What the model state reads and sets of the senior, in addition to vLLM's own."""

    _senior: type[Any]
    """Its own vLLM class."""
    tandem_step_authors: StepAuthors
    tandem_measures: Measures
    tandem_states: torch.Tensor | None
    """``[n, hidden]``, the senior's hidden states of a step, if any step is measured."""
    tandem_probe: torch.Tensor | None
    """Logits ``[1, vocabulary]`` to return in place of the model's, to see what wrappers mask."""

    def compute_logits(self, hidden_states: torch.Tensor | None) -> torch.Tensor | None:
        """The senior's own logits: ``[n, vocabulary]``."""


def members() -> dict[str, Any]:
    """Attributes of the senior's class in this mode, by name."""
    return {"__init__": _init, "compute_logits": _compute_logits}


def state_class() -> type[Any]:
    """Attributes of Model Runner V2's model state in this mode."""
    from tandem_plugin.engine.speculative.state import SpeculativeState

    return SpeculativeState


def _init(self: Any, *, vllm_config: VllmConfig, prefix: str = "") -> None:
    if vllm_config.device_config.device_type == "cpu":
        keep_cpu_weights()
    let_workers_tell_of_drafts()
    self._senior.__init__(self, vllm_config=vllm_config, prefix=prefix)
    object.__setattr__(self, "tandem_step_authors", step_authors_of(vllm_config))
    let_workers_tell_of_measures()
    object.__setattr__(self, "tandem_measures", measures_of(vllm_config))
    self.tandem_shared_ids = shared_vocabulary(vllm_config)
    self.tandem_states = None
    self.tandem_probe = None


def _compute_logits(
    self: Any, hidden_states: torch.Tensor, *arguments: Any, **options: Any
) -> torch.Tensor | None:
    """The senior's own logits, without ids that the junior could not read.

    Keeps the hidden states for the sampler, which may measure them.
    """
    if self.tandem_probe is not None:
        probe: torch.Tensor = self.tandem_probe
        return probe
    if self.tandem_measures.is_on:
        self.tandem_states = hidden_states
    logits: torch.Tensor | None = self._senior.compute_logits(
        self, hidden_states, *arguments, **options
    )
    return logits if logits is None else without_foreign_ids(logits, self.tandem_shared_ids)
