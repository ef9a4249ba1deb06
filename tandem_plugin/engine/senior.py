"""The senior of an engine in lockstep: its own vLLM class, which also holds the junior.

The senior's parameters keep their plain names, so frameworks find the model that they expect. The
junior is kept outside ``named_parameters()``, so no weight sync, dummy initialisation or
reprocessing reaches it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tandem_plugin.engine.base_junior import is_shared, join_base
from tandem_plugin.engine.heads import Heads
from tandem_plugin.engine.images import images_of
from tandem_plugin.engine.junior import load_junior, placeholder_ids
from tandem_plugin.engine.layer_tensors import kept_tensors
from tandem_plugin.engine.measures import measures_of
from tandem_plugin.engine.patches.cpu_weights import keep_cpu_weights
from tandem_plugin.engine.patches.lora import (
    adapt_no_ends,
    keep_adapters_to_their_requests,
    keep_the_mappers_former_name,
    refuse_reloading_a_shared_base,
    refuse_weights_without_a_place,
)
from tandem_plugin.engine.patches.worker import let_workers_tell_of_measures, prepare_sleep
from tandem_plugin.engine.step_authors import step_authors_of
from tandem_plugin.engine.streams import is_capturing, junior_stream
from tandem_plugin.engine.tokenizer_check import engine_rules
from tandem_plugin.errors import EngineError
from tandem_plugin.schedules import SoloWordSchedule

JUNIOR_PREFIX = "tandem_junior."


def members() -> dict[str, Any]:
    """Attributes of the senior's class in this mode, by name."""
    return {
        "__init__": _init,
        "forward": _forward,
        "compute_logits": _compute_logits,
        "named_buffers": _named_buffers,
    }


def state_class() -> type[Any]:
    """Attributes of Model Runner V2's model state in this mode."""
    from tandem_plugin.engine.runners.v2.state import AuthorsState

    return AuthorsState


def _init(self: Any, *, vllm_config: Any, prefix: str = "") -> None:
    if vllm_config.device_config.device_type == "cpu":
        keep_cpu_weights()
    self._senior.__init__(self, vllm_config=vllm_config, prefix=prefix)
    self.tandem_has_run = False
    prepare_sleep()
    shared = is_shared(vllm_config)
    junior = join_base(self, vllm_config) if shared else load_junior(vllm_config)
    # Not through nn.Module.__setattr__, which would register the junior as a submodule.
    object.__setattr__(self, "junior", junior)
    self.tandem_junior_width = int(junior.config.get_text_config().hidden_size)
    object.__setattr__(self, "tandem_images", images_of(self, junior, vllm_config))
    self.tandem_base_is_junior = shared
    self.tandem_junior_tensors = {} if shared else kept_tensors(junior)
    self.tandem_junior_stream = junior_stream(vllm_config, self, junior)
    if vllm_config.lora_config is not None:
        adapt_no_ends(self)
        refuse_weights_without_a_place()
        refuse_reloading_a_shared_base()
        keep_the_mappers_former_name()
        keep_adapters_to_their_requests()
    schedule = engine_rules(vllm_config).default.schedule
    senior_writes = isinstance(schedule, SoloWordSchedule)
    placeholders = placeholder_ids(vllm_config)
    heads = Heads(self, junior, self._senior, vllm_config, senior_writes, placeholders)
    object.__setattr__(self, "tandem_heads", heads)
    object.__setattr__(self, "tandem_step_authors", step_authors_of(vllm_config))
    let_workers_tell_of_measures()
    measures = measures_of(vllm_config)
    measures.read_by(functools.partial(self._senior.compute_logits, self), junior.compute_logits)
    object.__setattr__(self, "tandem_measures", measures)


def _forward(
    self: Any,
    input_ids: torch.Tensor | None,
    positions: torch.Tensor,
    intermediate_tensors: Any = None,
    inputs_embeds: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Both models over the same tokens: ``[tokens, senior's hidden + junior's hidden]``.

    The senior's half is copied before the junior runs: under piecewise CUDA graphs, what a model
    returns lies in memory that the other one's graphs overwrite. Source: the weak reference to the
    last piece's output in vLLM's ``vllm/compilation/cuda_graph.py``. In a graph of the whole step
    the passes may run concurrently.
    """
    run_junior = _junior_pass(self, input_ids, positions, inputs_embeds)
    run_senior = functools.partial(
        self._senior.forward,
        *(self, input_ids, positions, intermediate_tensors, inputs_embeds),
        **options,
    )
    self.tandem_has_run = True
    if self.tandem_junior_stream is not None and is_capturing():
        hidden_states: torch.Tensor = self.tandem_junior_stream.both(run_senior, run_junior)
        return hidden_states
    senior = run_senior()
    rows, width = senior.shape
    hidden: torch.Tensor = senior.new_empty(rows, width + self.tandem_junior_width)
    hidden[:, :width] = senior
    hidden[:, width:] = run_junior()
    return hidden


def _junior_pass(
    self: Any,
    input_ids: torch.Tensor | None,
    positions: torch.Tensor,
    inputs_embeds: torch.Tensor | None,
) -> Callable[[], torch.Tensor]:
    """The junior's pass over the same tokens, or over its own embeddings of them."""
    if inputs_embeds is None and input_ids is not None:
        return functools.partial(self.junior, input_ids, positions)
    if inputs_embeds is None or self.tandem_images is None:
        raise EngineError("request-prompt-embeds")
    embeddings = self.tandem_images.juniors_embeddings(len(inputs_embeds))
    return functools.partial(self.junior, None, positions, inputs_embeds=embeddings)


def _compute_logits(self: Any, hidden_states: torch.Tensor) -> torch.Tensor | None:
    """Each row's logits, from its author: ``[rows, vocabulary]``.

    Every later sampling parameter, mask and logprob applies to the author's logits. None on
    tensor-parallel ranks that have no logits.
    """
    authors = self.tandem_step_authors.take(hidden_states.shape[0])
    if authors is not None and self.tandem_measures.is_due():
        width = hidden_states.shape[1] - self.tandem_junior_width
        self.tandem_measures.keep(hidden_states[:, :width], hidden_states[:, width:])
    if authors is None and not self.tandem_step_authors.has_sampled:
        # vLLM profiles the memory of logits here: both heads' and the selection between them.
        authors = torch.ones(len(hidden_states), dtype=torch.bool, device=hidden_states.device)
    heads: Heads = self.tandem_heads
    return heads.logits(hidden_states, authors)


def _named_buffers(
    self: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Iterator[tuple[str, torch.Tensor]]:
    """The senior's buffers, and every tensor of the junior under ``tandem_junior.``.

    vLLM's sleep at level 2 discards all weights, but saves and restores buffers. A junior that is
    the senior's base has none of its own.
    """
    yield from self._senior.named_buffers(self, prefix, recurse, remove_duplicate)
    if recurse:
        for name, tensor in self.tandem_junior_tensors.items():
            yield prefix + JUNIOR_PREFIX + name, tensor
