"""The junior's pass on a separate CUDA stream, where a graph holds a step.

In lockstep the two passes of a step need nothing of each other until the heads, and at small
batches one pass leaves bandwidth of the device idle. A whole step that vLLM captures in a CUDA
graph forks before them and joins after them; every other step runs them one after the other. What
passes write besides their own tensors must not be shared: memory of a graph's pool is given out
again on its own stream only, and the junior's layers form attention groups of their own.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from tandem_plugin.engine.unsupported import Row, engine_view
from tandem_plugin.errors import EngineError
from tandem_plugin.unsupported import Option, Unsupported, check_supported, is_on, is_set

logger = logging.getLogger(__name__)

_BACKENDS = ("FLASH_ATTN", "TRITON_ATTN", "CPU_ATTN")
"""Attention backends that write only a builder's own buffers. FlashInfer's builders share
one workspace."""

Pass = Callable[[], torch.Tensor]
"""A model's forward pass, which returns its hidden states."""


class JuniorStream:
    """The stream of the junior's passes."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def both(self, senior: Pass, junior: Pass) -> torch.Tensor:
        """Hidden states of both models within a capture: ``[tokens, senior's + junior's]``.

        Raises :class:`EngineError` for attention metadata that both would write.
        """
        _check_metadata()
        main = torch.cuda.current_stream()
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            of_junior = junior()
        of_senior = senior()
        main.wait_stream(self._side)
        return torch.cat([of_senior, of_junior], dim=-1)


def is_capturing() -> bool:
    """Whether a CUDA graph is captured of what runs now: not so where pieces of a step are."""
    return torch.cuda.is_current_stream_capturing()


def junior_stream(vllm_config: Any, senior: Any, junior: Any) -> JuniorStream | None:
    """The junior's stream for an engine that asks for it, if its graphs hold whole steps.

    The junior's attention layers get metadata builders of their own: a group of vLLM's shares what
    its kernels write, such as FlashAttention 3's semaphore, which is right for passes that follow
    each other. Raises :class:`EngineError` for an attention backend that has not been verified.
    """
    if not vllm_config.additional_config["tandem"].get("junior_stream"):
        return None
    for layer in [*_attention(senior), *_attention(junior)]:
        if (name := layer.get_attn_backend().get_name()) not in _BACKENDS:
            raise EngineError("junior-stream-unsupported", what=f"the attention backend {name}")
    for layer in _attention(junior):
        layer.attn_backend = _separate(layer.attn_backend)
    mode = vllm_config.compilation_config.cudagraph_mode
    if mode is None or not mode.has_full_cudagraphs():
        logger.warning(
            "junior_stream has no effect: no CUDA graph of this engine holds a whole step "
            "(cudagraph_mode=%s).",
            "NONE" if mode is None else mode.name,
        )
        return None
    return JuniorStream(vllm_config.device_config.device)


def _shared(feature: str, name: str, rejects: Callable[[Any, Option], bool]) -> Unsupported:
    return Row(name, rejects, "junior-stream-unsupported", fields={"what": feature})


def _of_either(feature: str, rejects: Callable[[Any], bool]) -> tuple[Unsupported, ...]:
    return tuple(
        _shared(feature, model, lambda model, _: bool(rejects(model)))
        for model in ("senior", "junior")
    )


_OF_BOTH_PASSES = (
    Row(
        "config.parallel_config.tensor_parallel_size",
        lambda size, _: size > 1,
        "junior-stream-unsupported",
        fields={
            "what": lambda option: (
                f"tensor_parallel_size={option('config.parallel_config.tensor_parallel_size')}"
            )
        },
    ),
    *_of_either("a mixture of experts", lambda model: model.get_num_experts()),
    *_of_either("latent attention", lambda model: model.use_mla),
    *_of_either("linear attention", lambda model: model.is_hybrid or model.is_attention_free),
    *_of_either("a quantised model", lambda model: model.quantization),
    _shared("adapters (LoRA)", "config.lora_config", is_set),
    _shared("dual-batch overlap", "config.parallel_config.use_ubatching", is_on),
    _shared(
        "prefetched weights",
        "config.offload_config.prefetch.offload_group_size",
        lambda size, _: (size or 0) > 0,
    ),
)


def check_junior_stream(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for an engine whose passes would write to memory that they share.

    junior: its model configuration. Workspaces of experts and of latent attention, communicators,
    caches of quantised kernels and buffers of prefetched weights belong to the process.
    """
    if vllm_config.additional_config["tandem"]["junior_stream"]:
        senior = vllm_config.model_config
        view = engine_view(lambda name: None, senior=senior, junior=junior, config=vllm_config)
        check_supported(_OF_BOTH_PASSES, view)


def _attention(model: Any) -> list[Any]:
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    return [module for module in model.modules() if isinstance(module, AttentionLayerBase)]


@functools.cache
def _separate(backend: type[Any]) -> type[Any]:
    """A backend under a different name, by which vLLM's runners tell attention groups apart.

    Source: ``full_cls_name()``, in ``initialize_attn_backend`` and V2's ``init_attn_backend``.
    """
    return type("Junior" + backend.__name__, (backend,), {"__module__": __name__})


def _check_metadata() -> None:
    """That no layer of the junior shares its metadata, and so its builder, with the senior's."""
    from vllm.forward_context import get_forward_context

    metadata = get_forward_context().attn_metadata
    if not isinstance(metadata, dict):
        raise EngineError(
            "junior-stream-unsupported", what="attention that is planned in parts of a batch"
        )
    by_model: dict[bool, set[int]] = {True: set(), False: set()}
    for name, layer_metadata in metadata.items():
        by_model[name.startswith("junior.")].add(id(layer_metadata))
    if not all(by_model.values()) or by_model[True] & by_model[False]:
        raise EngineError("junior-stream-unsupported", what="an attention group of both models")
