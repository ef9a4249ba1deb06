"""The junior of a senior with an adapter (LoRA): the senior's own base, held once.

Adapters do not change the base, so both models can read the same weights: the junior shares the
base's layers and has its own attention layers, and with them its own caches. Anything that would
change the base after startup is rejected.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tandem_plugin.engine.junior import junior_config
from tandem_plugin.engine.layer_tensors import tensors_of
from tandem_plugin.errors import EngineError


def is_shared(vllm_config: Any) -> bool:
    """Whether an engine's junior is the base of its senior's adapters."""
    junior: str = vllm_config.additional_config["tandem"]["junior"]
    return vllm_config.lora_config is not None and junior == vllm_config.model_config.model


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
    for name, own in junior._modules.items():
        senior_part = senior._modules[name]
        if own is None or senior_part is None:
            continue
        if own._modules or isinstance(own, attention):
            _join(own, senior_part, attention)
        else:
            junior._modules[name] = senior_part


def check_base(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for adapters that this vLLM or this junior does not support.

    junior: its model configuration.
    """
    if vllm_config.lora_config is None:
        return
    from packaging.version import Version
    from vllm import __version__

    if Version(__version__) < Version("0.29"):
        raise EngineError("lora-vllm-untested", version=__version__)
    if not is_shared(vllm_config):
        return
    kinds = {
        "a mixture of experts": junior.get_num_experts() > 0,
        "a model of latent attention": junior.use_mla,
        "quantised": vllm_config.quant_config is not None,
    }
    for kind, is_so in kinds.items():
        if is_so:
            raise EngineError("lora-class-not-shareable", kind=kind)
    if getattr(vllm_config, "weight_transfer_config", None) is not None:
        raise EngineError("lora-full-weight-transfer")
    load_format = vllm_config.load_config.load_format
    if load_format == "dummy":
        raise EngineError("lora-dummy-weights")
    dtype = vllm_config.cache_config.cache_dtype
    if dtype not in ("auto", "float16", "bfloat16"):
        raise EngineError("lora-cache-scales", dtype=dtype)


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
