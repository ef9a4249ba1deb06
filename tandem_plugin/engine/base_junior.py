"""The junior of a senior with an adapter (LoRA): the senior's own base, held once.

Adapters leave the base as it is, so that both models can read the same weights: the junior has the
base's layers under attention layers, and with these caches, of its own. The base must not change
afterwards: what would change it is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tandem_plugin.engine.junior import junior_config
from tandem_plugin.engine.junior_offload import tensors_of
from tandem_plugin.errors import EngineError

__all__ = ["check_base", "check_may_load", "check_may_sleep", "is_shared", "join_base"]


_CHANGES = (
    "the senior's base, which its adapters are for, is the junior of this engine as well and would "
    "change with it"
)


def is_shared(vllm_config: Any) -> bool:
    """Whether an engine's junior is the base that its senior's adapters are for."""
    junior: str = vllm_config.additional_config["tandem"]["junior"]
    return vllm_config.lora_config is not None and junior == vllm_config.model_config.model


def join_base(senior: nn.Module, vllm_config: Any) -> Any:
    """The senior's base as a model of its own: its layers, attention excepted.

    senior: before vLLM puts adapters around its layers, with or without weights. What only holds
    other layers is the junior's own, since adapters are put there. Raises :class:`EngineError` for
    a model that is not made of such layers.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model

    config = junior_config(vllm_config)
    # On no device: its weights are thrown away again.
    with set_model_tag("junior"), torch.device("meta"):
        junior: nn.Module = initialize_model(
            vllm_config=config, model_config=config.model_config, prefix="junior"
        )
    _join(junior, senior, AttentionLayerBase)
    if any(tensor.is_meta for tensor in tensors_of(junior)):
        raise EngineError(
            f"{type(junior).__name__} keeps tensors where a second reader does not find them, so "
            "that the junior cannot be the senior's base. Merge the adapter into the senior's "
            "checkpoint, or give a junior of its own."
        )
    return junior


def _join(junior: nn.Module, senior: nn.Module, attention: type) -> None:
    """Give a module of the junior what the senior's counterpart has."""
    # The very dictionaries: vLLM puts other tensors there where it processes loaded weights.
    junior._parameters = senior._parameters
    junior._buffers = senior._buffers
    for name, value in list(vars(junior).items()):
        if isinstance(value, torch.Tensor) and value.is_meta:
            setattr(junior, name, getattr(senior, name))
    for name, own in junior._modules.items():
        theirs = senior._modules[name]
        if own is None or theirs is None:
            continue
        if own._modules or isinstance(own, attention):
            _join(own, theirs, attention)
        else:
            junior._modules[name] = theirs


def check_base(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for adapters that this vLLM, or this junior, is not right with.

    junior: its model configuration.
    """
    if vllm_config.lora_config is None:
        return
    from packaging.version import Version
    from vllm import __version__

    if Version(__version__) < Version("0.29"):
        raise EngineError(
            f"enable_lora was not tested with vLLM {__version__}. Use vLLM 0.29 or newer, or merge "
            "the adapter into the senior's checkpoint."
        )
    if not is_shared(vllm_config):
        return
    kinds = {
        "a mixture of experts": junior.get_num_experts() > 0,
        "a model of latent attention": junior.use_mla,
        "quantised": vllm_config.quant_config is not None,
    }
    for kind, is_so in kinds.items():
        if is_so:
            raise EngineError(
                f"The senior is {kind}, so that its junior cannot read the same weights beside "
                "adapters (enable_lora). Merge the adapter into the senior's checkpoint, or give a "
                "junior of its own."
            )
    if getattr(vllm_config, "weight_transfer_config", None) is not None:
        raise EngineError(
            f"weight_transfer_config sends whole weights, but {_CHANGES}. Leave it out."
        )
    load_format = vllm_config.load_config.load_format
    if load_format == "dummy":
        raise EngineError(
            "load_format='dummy' does not go with enable_lora and a junior that is the senior's "
            "base: it would have no weights until some are sent. Set load_format='auto'."
        )
    dtype = vllm_config.cache_config.cache_dtype
    if dtype not in ("auto", "float16", "bfloat16"):
        raise EngineError(
            f"kv_cache_dtype={dtype!r} does not go with enable_lora and a junior that is the "
            "senior's base: its cache would have the scales of the senior's. Leave it out."
        )


def check_may_load(senior: Any) -> None:
    """Raise :class:`EngineError` where weights that came after the start would be the junior's.

    senior: the composite model, of any mode.
    """
    if getattr(senior, "tandem_base_is_junior", False) and senior.tandem_has_run:
        raise EngineError(
            f"Whole weights were sent to the engine, but {_CHANGES}. Send the adapter alone, or "
            "give tandem a junior of its own (a copy of the checkpoint in another folder)."
        )


def check_may_sleep(senior: Any, level: int) -> None:
    """Raise :class:`EngineError` for a sleep that would discard what nobody loads again."""
    if level == 2 and getattr(senior, "tandem_base_is_junior", False):
        raise EngineError(
            f"A sleep of level 2 discards weights, but {_CHANGES}. Sleep at level 1, which keeps "
            "them on the host."
        )
