"""Adapters (PEFT) that TRL trains: sent to the engine alone, or merged into weights that are sent.

An adapter that vLLM applies exactly as PEFT does is sent alone, and the engine holds its base once,
which is then also the junior. Any other is merged by PEFT into all of the senior's weights, and the
junior is loaded from its own checkpoint. What can be neither applied nor merged is rejected.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel
    from peft.tuners.lora import LoraLayer
    from peft.tuners.tuners_utils import BaseTunerLayer
    from transformers import PreTrainedModel
    from trl.generation.vllm_generation import VLLMGeneration

Weights = Iterator[tuple[str, Any]]

_NAME = "default"
"""The name of the adapter that TRL and ``get_peft_model`` create."""

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The maximum ranks that vLLM accepts (``vllm.config.lora.MaxLoRARanks``)."""

_LORA_WEIGHT = re.compile(rf".*\.lora_[AB]\.{_NAME}\.weight")

_MERGED_VARIANTS = ("BdLora", "Dora", "Kasa", "MiCA", "Monteclora", "Velora")
"""PEFT's variants of LoRA (0.21) that its merged weights reproduce exactly; aLoRA, Arrow and
QA-LoRA have no merged weights."""


def is_adapted(model: PreTrainedModel | PeftModel) -> bool:
    """Whether a model is one of PEFT's, with an adapter."""
    if not hasattr(model, "peft_config"):
        return False
    from peft import PeftModel

    return isinstance(model, PeftModel)


def check_adapter(model: PreTrainedModel | PeftModel) -> None:
    """Raise :class:`ConfigError` for an adapter that the engine's senior could not have.

    model: TRL's, with or without an adapter.
    """
    if not is_adapted(model):
        if getattr(model, "_hf_peft_config_loaded", False):
            raise ConfigError(
                "trl-setting-unsupported", what="An adapter added by add_adapter", reason=_NOT_PEFTS
            )
        return
    for config in model.peft_config.values():
        if config.is_prompt_learning:
            raise ConfigError(
                "trl-setting-unsupported", what=type(config).__name__, reason=_NO_WEIGHTS
            )
        if getattr(config, "layer_replication", None):
            raise ConfigError(
                "trl-setting-unsupported", what="layer_replication", reason=_OTHER_LAYERS
            )
    for name, layer in _adapted_layers(model):
        if problem := _unmergeable(layer):
            raise ConfigError(
                "trl-setting-unsupported", what=f"{problem} ({name})", reason=_NOT_MERGED
            )
        if hasattr(layer, "get_param") and layer.get_param().dim() > 2:
            raise ConfigError(
                "trl-setting-unsupported", what=f"target_parameters of {name}", reason=_EXPERTS
            )
    if changed := _changed_of_tied(model.get_base_model()):
        raise ConfigError("trl-tied-adapter-layers", layers=" and ".join(changed))


_NOT_PEFTS = "TRL would send its tensors as if they were the model's"
_NO_WEIGHTS = "it trains a prompt, which is no weight of the model"
_OTHER_LAYERS = "the engine's model has the layers of the checkpoint"
_EXPERTS = "nobody has verified that the engine loads the merged weights of experts"
_NOT_MERGED = "vLLM does not apply it, and PEFT cannot merge it into the model's weights"


def _adapted_layers(model: PeftModel) -> Iterator[tuple[str, BaseTunerLayer]]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return (
        (n, module) for n, module in model.named_modules() if isinstance(module, BaseTunerLayer)
    )


def _unmergeable(layer: BaseTunerLayer) -> str:
    """What of an adapted layer PEFT cannot merge; empty if it can."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if type(layer).merge is BaseTunerLayer.merge:
        return type(layer).__name__
    for variant in getattr(layer, "lora_variant", {}).values():
        if not type(variant).__name__.startswith(_MERGED_VARIANTS):
            return type(variant).__name__
    has_bias = getattr(layer.get_base_layer(), "bias", None) is not None
    if any(getattr(layer, "lora_bias", {}).values()) and not has_bias:
        return "lora_bias=True for a layer without a bias"
    return ""


def _changed_of_tied(base: PreTrainedModel) -> list[str]:
    """Which of a tied embedding and head the adapter changes, unless both change as one weight."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    if not getattr(base.config, "tie_word_embeddings", False):  # of a whole model, not its text
        return []
    ends = {"embedding": base.get_input_embeddings(), "head": base.get_output_embeddings()}
    adapted = (BaseTunerLayer, AuxiliaryTrainingWrapper)
    changed = [name for name, end in ends.items() if isinstance(end, adapted)]
    embedding, head = ends.values()
    if not all(isinstance(end, AuxiliaryTrainingWrapper) for end in ends.values()):
        return changed
    tokens = getattr(head, "token_adapter", None)
    is_one = embedding.weight is head.weight if tokens is None else tokens.tied_adapter is not None
    return [] if is_one else changed


def why_merged(
    generation: VLLMGeneration, arguments: Mapping[str, Any], config: TandemConfig
) -> str:
    """Why an adapter cannot be sent alone to an engine whose junior is its base; empty if it can.

    generation: TRL's ``VLLMGeneration``. arguments: of ``vllm.LLM``.
    """
    model = arguments["model"]
    if (
        not config.is_own_junior(model, arguments.get("revision"))
        or config.junior_quantization is not None
    ):
        return "another junior"
    settings = {
        "mode='speculative'": config.max_drafts,
        "a quantised base": arguments["quantization"],
        "vLLM's sleep mode": arguments["enable_sleep_mode"],
        "FSDP": generation._dist.is_fsdp,
    }
    for name, is_on in settings.items():
        if is_on:
            return name
    gather = generation._dist.gather_params
    files = _weight_files(model, arguments.get("revision"))
    return _unread(generation.model) or _changed_base(generation.model, files, gather)


def check_sent_alone(model: PreTrainedModel | PeftModel, name: str) -> None:
    """Raise :class:`ConfigError` for an adapter that a server would not apply as PEFT does.

    model: TRL's, whose adapter alone is sent to a server. name: of the model that the server has.
    """
    if not is_adapted(model):
        return
    problem = _unread(model)
    if _is_sharded(model):
        print(
            "WARNING: the model is sharded, so its base was not compared with the server's: "
            "adapters that change the base (PiSSA, OLoRA) would be applied to another one.",
            file=sys.stderr,
            flush=True,
        )
    else:
        files = _weight_files(name, None)
        problem = problem or _changed_base(model, files, lambda weights: nullcontext())
    if problem:
        raise ConfigError("trl-adapter-sent-differs", problem=problem)


def _is_sharded(model: PeftModel) -> bool:
    """Whether this process holds parts of weights alone: under FSDP 2 or DeepSpeed ZeRO-3."""
    weights = list(model.parameters())
    return any(hasattr(weight, "full_tensor") or hasattr(weight, "ds_id") for weight in weights)


def _unread(model: PeftModel) -> str:
    """What of an adapter vLLM would not read; empty for plain LoRA of a text model's layers."""
    from peft.tuners.lora import LoraLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    adapter = model.peft_config.get(_NAME)
    if adapter is None or adapter.peft_type != "LORA" or model.active_adapters != [_NAME]:
        return "an adapter other than one of LoRA"
    if adapter.r > _RANKS[-1]:
        return f"a rank of {adapter.r}"
    for name, weight in model.named_parameters():
        if weight.requires_grad and not _LORA_WEIGHT.fullmatch(name):
            return f"training of {name}"
    language = set(model.get_base_model().get_decoder().modules())
    for name, layer in model.named_modules():
        if isinstance(layer, AuxiliaryTrainingWrapper):
            return f"training of {name}"
        if isinstance(layer, LoraLayer) and layer not in language:
            return f"LoRA outside the language model, of {name}"
        if isinstance(layer, LoraLayer) and not _is_plain(layer, adapter, model):
            return f"the kind of LoRA of {name}"
    return ""


def _is_plain(layer: LoraLayer, adapter: LoraConfig, model: PeftModel) -> bool:
    """Whether vLLM computes a layer as PEFT does, with the adapter's one rank and scaling."""
    from peft.tuners.lora import Linear
    from torch import nn

    root = math.sqrt(adapter.r) if adapter.use_rslora else adapter.r
    return (
        type(layer) is Linear
        and type(layer.get_base_layer()) is nn.Linear
        and layer is not model.get_base_model().get_output_embeddings()
        and layer.r.get(_NAME) == adapter.r
        and layer.scaling.get(_NAME) == adapter.lora_alpha / root
        and _NAME not in layer.lora_variant
    )


def _changed_base(
    model: PeftModel,
    files: Mapping[str, Path],
    gather: Callable[[list[Any]], AbstractContextManager[Any]],
) -> str:
    """Which weight of the base is not the one that the engine loads; empty if there is none.

    files: those of the engine's checkpoint, by weight. gather: makes sharded weights whole. PiSSA,
    OLoRA, LoftQ, CorDA and KaSA change the base when the adapter is created, and a model that is
    passed in place of its name may have been changed before.
    """
    import torch
    from safetensors import safe_open

    for name, weight in model.named_parameters():
        if model.prefix in name:
            continue
        name = _name_in_base(name)
        if name not in files:
            return f"{name}, which the checkpoint does not name so"
        with gather([weight]), safe_open(files[name], "pt") as file:
            saved = file.get_tensor(name).to(weight.device, weight.dtype)
            if not torch.equal(saved, weight.data):
                return f"{name}, which is not as in the checkpoint"
    return ""


def _name_in_base(name: str) -> str:
    """The name that a parameter has without an adapter."""
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def _weight_files(model: str, revision: str | None) -> dict[str, Path]:
    """The safetensors file of each weight of a checkpoint; empty if none is found here."""
    from huggingface_hub import snapshot_download
    from safetensors import safe_open

    try:
        folder = Path(
            model
            if os.path.isdir(model)
            else snapshot_download(model, revision=revision, local_files_only=True)
        )
    except (OSError, ValueError):  # not in the cache
        return {}
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.exists():
        file_names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in file_names.items()}
    if not single.exists():
        return {}
    with safe_open(single, "pt") as file:
        return dict.fromkeys(file.keys(), single)


def lora_arguments(model: PeftModel) -> dict[str, Any]:
    """Engine arguments to apply the adapter."""
    rank = model.peft_config[_NAME].r
    return {"enable_lora": True, "max_lora_rank": next(most for most in _RANKS if most >= rank)}


def send_adapters(generation: VLLMGeneration, engine: Any) -> None:
    """Let weight syncs send the adapter alone; generation: TRL's, whose model has one."""
    generation.sync_weights = functools.partial(_send_adapter, generation, engine)


def _send_adapter(generation: VLLMGeneration, engine: Any) -> None:
    """Send the engine the current adapter, in place of ``sync_weights``."""
    from tandem_plugin.engine.llm import LoRARequest

    version = 1 if engine.adapter is None else engine.adapter.lora_int_id + 1
    with tempfile.TemporaryDirectory(prefix="tandem-adapter-") as folder:
        with generation._dist.gather_params(list(generation.model.parameters())):
            # False: otherwise PEFT queries the Hub for the size of the embedding.
            generation.model.save_pretrained(
                folder, save_embedding_layers=False, selected_adapters=[_NAME]
            )
        engine.adapter = LoRARequest(f"senior-{version}", version, folder)
        engine.llm_engine.add_lora(engine.adapter)
    engine.reset_prefix_cache()


def send_merged(generation: VLLMGeneration) -> None:
    """Let weight syncs send the weights of a merged adapter under the names of the model alone.

    Touches: ``_iter_named_params`` of one ``VLLMGeneration`` (TRL 1.16). Why: TRL does not know all
    of the names that PEFT gives the weights it trains besides LoRA's, such as those of single
    tokens. Goes when: it does.
    """
    model = generation.model
    names = _names_without_adapter(model.get_base_model())
    generation._iter_named_params = functools.partial(
        _weights_of_names, generation._iter_named_params, names, model.active_adapters
    )


def _names_without_adapter(base: PreTrainedModel) -> frozenset[str]:
    import torch

    with torch.device("meta"):
        plain = type(base)(copy.deepcopy(base.config))
    return frozenset(name for name, _ in plain.named_parameters())


def _weights_of_names(
    merged: Callable[[], Weights], names: frozenset[str], adapters: list[str]
) -> Weights:
    """The weights of all names; raises :class:`EngineError` if some have other names."""
    sent = set()
    for name, weight in merged():
        name = _name_in_base(name)
        for adapter in adapters:
            name = name.replace(f".modules_to_save.{adapter}.", ".")
        name = name.replace(".token_adapter.", ".")
        if name in names:
            sent.add(name)
            yield name, weight
    if lost := sorted(names - sent):
        raise EngineError("trl-sync-incomplete", names=", ".join(lost[:3]), count=len(lost))
