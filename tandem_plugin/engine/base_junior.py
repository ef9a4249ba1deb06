"""The junior of a senior with an adapter (LoRA): the senior's own base, held once.

Adapters do not change the base, so both models can read the same weights: the junior shares the
base's layers and has its own attention layers, and with them its own caches. Anything that would
change the base after startup is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tandem_plugin.engine.junior import junior_config
from tandem_plugin.engine.layer_tensors import tensors_of
from tandem_plugin.engine.unsupported import Row, engine_view, is_older, of
from tandem_plugin.errors import EngineError
from tandem_plugin.unsupported import Option, Unsupported, check_supported, is_on, is_set


def is_shared(vllm_config: Any) -> bool:
    """Whether an engine's junior is the base of its senior's adapters, as it stands there."""
    tandem = vllm_config.additional_config["tandem"]
    is_base: bool = tandem["junior"] == vllm_config.model_config.model
    return vllm_config.lora_config is not None and is_base and tandem["junior_quantization"] is None


def join_base(senior: nn.Module, vllm_config: Any) -> Any:
    """The senior's base as a separate model that shares all of its layers except attention.

    senior: before vLLM wraps its layers in adapters, with or without weights. Modules that only
    contain other layers are the junior's own, since adapters are inserted there. Raises
    :class:`EngineError` for a model that is not built from such layers.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model

    config = junior_config(vllm_config)
    # On the meta device: its weights are discarded.
    with set_model_tag("junior"), torch.device("meta"):
        junior: nn.Module = initialize_model(
            vllm_config=config, model_config=config.model_config, prefix="junior"
        )
    _join(junior, senior, AttentionLayerBase)
    if any(tensor.is_meta for tensor in tensors_of(junior)):
        raise EngineError("base-weights-not-shareable", kind=type(junior).__name__)
    return junior


def _join(junior: nn.Module, senior: nn.Module, attention: type) -> None:
    """Give a module of the junior the tensors of the senior's counterpart."""
    # The same dictionaries: vLLM replaces tensors in them when it processes loaded weights.
    junior._parameters = senior._parameters
    junior._buffers = senior._buffers
    for name, value in list(vars(junior).items()):
        if isinstance(value, torch.Tensor) and value.is_meta:
            setattr(junior, name, getattr(senior, name))
        elif isinstance(value, list) and value and all(map(torch.is_tensor, value)):
            # What a model writes at every step, as Qwen3-VL's deepstack: each has its own.
            setattr(junior, name, [tensor.clone() for tensor in getattr(senior, name)])
    for name, part in junior._modules.items():
        senior_part = senior._modules[name]
        if part is None or senior_part is None:
            continue
        if part._modules or isinstance(part, attention):
            _join(part, senior_part, attention)
        else:
            junior._modules[name] = senior_part


def _unshareable(kind: str, name: str, rejects: Callable[[Any, Option], bool]) -> Unsupported:
    return Row(name, rejects, "lora-class-not-shareable", fields={"kind": kind})


_OF_ADAPTERS = (
    Row(
        "vllm",
        lambda version, _: is_older(version, (0, 29)),
        "lora-vllm-untested",
        fields={"version": of("vllm")},
    ),
)

_OF_SHARED_BASE = (
    _unshareable("a mixture of experts", "junior", lambda m, _: m.get_num_experts() > 0),
    _unshareable("a model of latent attention", "junior.use_mla", is_on),
    _unshareable("quantised", "config.quant_config", is_set),
    Row("config.weight_transfer_config", is_set, "lora-full-weight-transfer"),
    Row(
        "config.load_config.load_format",
        lambda load_format, _: load_format == "dummy",
        "lora-dummy-weights",
    ),
    Row(
        "config.cache_config.cache_dtype",
        lambda dtype, _: dtype not in ("auto", "float16", "bfloat16"),
        "lora-cache-scales",
        fields={"dtype": of("config.cache_config.cache_dtype")},
    ),
)


def check_base(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for adapters that this vLLM or this junior does not support.

    junior: its model configuration.
    """
    if vllm_config.lora_config is None:
        return
    from vllm import __version__

    view = engine_view(lambda name: None, vllm=__version__, junior=junior, config=vllm_config)
    check_supported(_OF_ADAPTERS, view)
    if is_shared(vllm_config):
        check_supported(_OF_SHARED_BASE, view)


def check_may_load(senior: Any) -> None:
    """Raise :class:`EngineError` if weights sent after startup would change the junior.

    senior: the composite model, of any mode.
    """
    if getattr(senior, "tandem_base_is_junior", False) and senior.tandem_has_run:
        raise EngineError("lora-full-weights-sent")


def check_may_sleep(senior: Any, level: int) -> None:
    """Raise :class:`EngineError` for a sleep that would discard weights that nothing reloads."""
    if level == 2 and getattr(senior, "tandem_base_is_junior", False):
        raise EngineError("lora-sleep-discards-base")
