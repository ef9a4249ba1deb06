"""Adapters (LoRA) with which verl's engine would not have the actor's weights.

verl sends an adapter's matrices and its configuration, where vLLM reads only the rank and the
scaling; or it merges the adapter by PEFT (``model.lora.merge=True``), and sends the layers of LoRA.
The options were measured by ``tests/adapters/tandem_verl/test_lora.py`` (verl 0.9.1, PEFT 0.21).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.files.checkpoints import local_json

if TYPE_CHECKING:
    from omegaconf import DictConfig

logger = logging.getLogger(__name__)

_SENT = frozenset({
    "r", "lora_alpha", "lora_dropout", "use_rslora", "fan_in_fan_out", "init_lora_weights",
    "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path",
    "revision", "inference_mode", "megatron_core", "qalora_group_size", "ensure_weight_tying",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config",
})  # fmt: skip
"""Options of an adapter that leave its product of two matrices, with one scaling, all there is."""

_MERGED = _SENT | {
    "bias", "use_dora", "rank_pattern", "alpha_pattern", "target_parameters", "kasa_config",
    "monteclora_config", "velora_config", "use_bdlora",
}  # fmt: skip
"""Options of an adapter that PEFT merges whole into the layers of LoRA."""

_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways to initialise an adapter that change the base, as ``init_lora_weights`` begins."""

_ENDS = ("lm_head", "model.embed_tokens")

_MATCHING = ("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern")
"""Options by which PEFT chooses the layers of an adapter."""


_MERGE = "Set actor_rollout_ref.model.lora.merge=True, or train an adapter without it."
_EXCLUDE = (
    "Leave the vision tower and its connector out of the adapter, for Qwen's models by "
    "actor_rollout_ref.model.exclude_modules='.*visual.*'."
)
_NO_REMEDY = "Train an adapter without it."


def check_adapter(model: DictConfig) -> None:
    """Raise :class:`ConfigError` for an adapter that the engine would not have as the actor has it.

    model: ``actor_rollout_ref.model`` of verl's configuration. An adapter that is to be continued
    is read where PEFT would read it without a download, in a folder or in the Hub's cache; a
    warning is logged if it was not.
    """
    path, rank = model.get("lora_adapter_path"), int(model.get("lora_rank") or 0)
    megatrons = model.get("lora") or {}
    is_merged = bool(megatrons.get("merge"))
    if megatrons.get("rank") and not is_merged and megatrons.get("type", "lora") != "lora":
        raise ConfigError(
            "verl-adapter-differs", what=f"lora.type={megatrons.get('type')}", remedy=_MERGE
        )
    if path and not rank:
        raise ConfigError("verl-adapter-ignored", path=path)
    if not rank:
        return
    options = ("target_modules", "target_parameters", "exclude_modules")
    adapter = {name: model.get(name) for name in options} | {"r": rank}
    if path and (existing := local_json(path, "adapter_config.json")):
        adapter = existing
    elif path:
        logger.warning(
            "lora_adapter_path=%r has no adapter_config.json on this machine: whether the engine "
            "would have the adapter as PEFT loads it was not checked. Download it first, for "
            "example with `hf download`.",
            path,
        )
    if problem := _unsupported_option(adapter, rank, is_merged, str(model.path)):
        raise ConfigError(
            "verl-adapter-differs", what=problem, remedy=_NO_REMEDY if is_merged else _MERGE
        )
    if layer := _layer_of_tower(adapter, str(model.path)):
        raise ConfigError(
            "verl-adapter-differs", what=f"target_modules with {layer}", remedy=_EXCLUDE
        )


def _unsupported_option(adapter: Mapping[str, Any], rank: int, is_merged: bool, base: str) -> str:
    """The option of an adapter that the engine would not have; empty if it has everything.

    adapter: PEFT's options. rank: the largest that the engine takes. is_merged: whether it gets
    merged weights. base: the path or name of the model.
    """
    supported = _MERGED if is_merged else _SENT
    for name, value in adapter.items():
        if name not in supported and value not in (None, False, "none", [], {}):
            return f"{name}={value}"
    initialised = str(adapter.get("init_lora_weights"))
    if not is_merged and initialised.startswith(_CHANGES_BASE):
        return f"init_lora_weights={initialised}"
    if not is_merged and adapter["r"] > rank:
        return f"r={adapter['r']}, above lora_rank={rank}"
    ends = _ends(adapter.get("target_modules"))
    if ends and (not is_merged or _is_tied(base)):
        return f"target_modules with {ends}"
    return ""


def _ends(targets: str | Iterable[object] | None) -> str:
    """The first of head and embedding that PEFT would adapt; empty if it adapts neither."""
    if isinstance(targets, str):
        return next((end for end in _ENDS if re.fullmatch(targets, end)), "")
    names = {str(name) for name in targets or ()}
    return next((end for end in _ENDS if names & {end, end.rpartition(".")[2]}), "")


def _is_tied(path: str) -> bool:
    """Whether a checkpoint on this machine has one weight for its embedding and its head."""
    config = local_json(path, "config.json")
    parts = (config, config.get("text_config", {}))  # transformers reads the first, vLLM either
    return any(part.get("tie_word_embeddings") for part in parts)


def _layer_of_tower(adapter: Mapping[str, Any], path: str) -> str:
    """The first layer that PEFT would adapt outside the language model; empty for none.

    The engine takes no adapter of such layers, and verl does not merge all of them: its
    ``fsdp_merge_unmerge`` (0.9.1) passes over what FSDP 2 wraps with the root alone, as a Qwen
    tower's merger, and would send its base.

    path: of a checkpoint, read if it is on this machine and needs no remote code. The layers
    are those of verl's own class for it, without weights, as PEFT itself matches them.
    """
    config = local_json(path, "config.json")
    if "vision_config" not in config or "auto_map" in config:
        return ""
    import torch
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.tuners_utils import BaseTunerLayer
    from transformers import AutoConfig
    from verl.utils.model import get_hf_auto_model_class
    from verl.utils.py_functional import convert_to_regular_types

    hf_config = AutoConfig.from_pretrained(path, local_files_only=True)
    with torch.device("meta"):
        model = get_hf_auto_model_class(hf_config).from_config(hf_config)
    options = convert_to_regular_types({name: adapter.get(name) for name in _MATCHING})
    inject_adapter_in_model(LoraConfig(r=1, **options), model, low_cpu_mem_usage=True)
    language = set(model.get_decoder().modules())
    layers = (
        name
        for name, layer in model.named_modules()
        if isinstance(layer, BaseTunerLayer) and layer not in language
    )
    return next(layers, "")
