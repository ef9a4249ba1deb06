"""Small random checkpoints of other families than :mod:`support.models` has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    FalconH1Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GraniteMoeHybridConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    NemotronHConfig,
    PretrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLTextConfig,
    Qwen2Config,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)

WINDOW = 8
"""Of sliding attention: shorter than the tests' prompts."""

_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
}
_GEMMA = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": WINDOW,
    "query_pre_attn_scalar": 32,
}
# Of a width that vLLM's CPU build pads.
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
# With recurrent states.
_DELTA = {
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
    "tie_word_embeddings": False,
}
_TWO_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
_MAMBA = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
    "tie_word_embeddings": False,
    **_TWO_HEADS,
}
_GRANITE = {
    **_MAMBA,
    "position_embedding_type": "rope",
    "layer_types": ["mamba", "attention"],
    "shared_intermediate_size": 128,
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
}
_WIDE = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
    "mamba_n_heads": 12,
    "mamba_d_state": 64,
    "num_attention_heads": 3,
}
_NEMOTRON = {
    "ssm_state_size": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "expand": 2,
    # Hugging Face's plain path differs from its fast one, and vLLM's, from the second chunk on and
    # at time steps below this one.
    "chunk_size": 512,
    "time_step_min": 1e-9,
    "layers_block_type": ["mamba", "mlp", "attention", "mlp"],
    "tie_word_embeddings": False,
}
_LFM2 = {
    "block_auto_adjust_ff_dim": False,
    "conv_dim": 64,
    "block_dim": 64,
    "layer_types": ["conv", "full_attention"],
    "tie_word_embeddings": True,
    **_TWO_HEADS,
}
FAMILIES: dict[str, Callable[..., PretrainedConfig]] = {
    "qwen3": lambda **shape: Qwen3Config(tie_word_embeddings=False, **shape),
    "qwen3-tied": lambda **shape: Qwen3Config(tie_word_embeddings=True, **shape),
    "qwen2-biased": lambda **shape: Qwen2Config(
        tie_word_embeddings=False, **{**shape, "num_attention_heads": 2, "num_key_value_heads": 1}
    ),
    "qwen3-moe": lambda **shape: Qwen3MoeConfig(
        moe_intermediate_size=48, tie_word_embeddings=False, **_EXPERTS, **shape
    ),
    "llama-tied": lambda **shape: LlamaConfig(tie_word_embeddings=True, **shape),
    "mistral-window": lambda **shape: MistralConfig(
        sliding_window=WINDOW, tie_word_embeddings=False, **shape
    ),
    "gemma3-tied": lambda **shape: Gemma3TextConfig(tie_word_embeddings=True, **_GEMMA, **shape),
    "qwen3-wide": lambda **shape: Qwen3Config(
        tie_word_embeddings=False,
        **{**shape, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3},
    ),
    "qwen3.5": lambda **shape: Qwen3_5TextConfig(**{**_DELTA, **shape}),
    "qwen3.5-large": lambda **shape: Qwen3_5TextConfig(
        **{**shape, **_DELTA, "linear_key_head_dim": 64, "linear_value_head_dim": 64}
    ),
    "qwen3-next": lambda **shape: Qwen3NextConfig(
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        **{**shape, **_EXPERTS, **_DELTA},
    ),
    "granite4": lambda **shape: GraniteMoeHybridConfig(**{**shape, **_GRANITE}),
    "granite4-wide": lambda **shape: GraniteMoeHybridConfig(**{**shape, **_GRANITE, **_WIDE}),
    "granite4-moe": lambda **shape: GraniteMoeHybridConfig(
        **{**shape, **_GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    "falcon-h1": lambda **shape: FalconH1Config(mamba_d_ssm=128, **{**shape, **_MAMBA}),
    "nemotron-h": lambda **shape: NemotronHConfig(**{**shape, **_NEMOTRON}),
    "lfm2": lambda **shape: Lfm2Config(**{**shape, **_LFM2}),
}


def make_family(folder: Path, family: str, *, seed: int, tokenizer: Any, **config: Any) -> Path:
    """A random checkpoint in float32; norms and biases are random as well."""
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    settings = {**_SHAPE, "vocab_size": len(tokenizer), **ids, **config}
    model = AutoModelForCausalLM.from_config(FAMILIES[family](**settings)).to(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += torch.randn_like(parameter) * 0.1
            else:
                by_channel = parameter.dim() == 3 and parameter.shape[1] == 1  # a convolution
                parameter.normal_(std=0.4 if by_channel else 0.15)
        if model.config.model_type.startswith("gemma"):
            # They are multiplied by the width's root: any token would only be repeated.
            model.get_input_embeddings().weight *= 0.1
    model.save_pretrained(folder)
    if model.config.model_type == "nemotron_h":
        rename_weights(folder / "model.safetensors", "backbone.embedding.", "backbone.embeddings.")
    return folder


_VISION = {"hidden_size": 32, "intermediate_size": 64}


def _gemma3_vision(config: PretrainedConfig) -> Any:
    tower = {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    whole = Gemma3Config(
        text_config=config.to_dict(), vision_config=_VISION | tower, mm_tokens_per_image=1
    )
    return Gemma3ForConditionalGeneration(whole)


def _qwen2_5_vision(config: PretrainedConfig) -> Any:
    text = Qwen2_5_VLTextConfig(**_sectioned(config, {"mrope_section": [4, 6, 6]}))
    tower = {"depth": 1, "num_heads": 2, "fullatt_block_indexes": [0]}
    whole = Qwen2_5_VLConfig(
        text_config=text.to_dict(),
        vision_config=_VISION | tower | {"out_hidden_size": config.hidden_size},
        tie_word_embeddings=config.tie_word_embeddings,
    )
    return Qwen2_5_VLForConditionalGeneration(whole)


def _qwen3_5_vision(config: PretrainedConfig) -> Any:
    sections = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
    tower = {"depth": 1, "num_heads": 2}
    whole = Qwen3_5Config(
        text_config=_sectioned(config, sections),
        vision_config=_VISION | tower | {"out_hidden_size": config.hidden_size},
        tie_word_embeddings=config.tie_word_embeddings,
    )
    return Qwen3_5ForConditionalGeneration(whole)


def _sectioned(config: PretrainedConfig, sections: dict[str, Any]) -> dict[str, Any]:
    """With M-RoPE: of text, its sections have equal positions."""
    settings = config.to_dict()
    settings.pop("model_type")
    return settings | {"rope_parameters": config.rope_parameters | sections}


UNIFIED: dict[str, tuple[str, Callable[[PretrainedConfig], Any]]] = {
    "gemma3": ("gemma3-tied", _gemma3_vision),
    "qwen2.5-vl": ("qwen2-biased", _qwen2_5_vision),
    "qwen3.5": ("qwen3.5", _qwen3_5_vision),
}
"""A text family, and a class that also sees images, by the family of unified checkpoints."""


def make_unified(folder: Path, text: Path, family: str = "qwen3.5") -> Path:
    """A checkpoint that also sees images, random there, with the text model of another one.

    Beside it ``model.safetensors`` under ``folder/trained``: by the names of the class in memory,
    as a trainer sends them.
    """
    AutoTokenizer.from_pretrained(text).save_pretrained(folder)
    model = UNIFIED[family][1](AutoConfig.from_pretrained(text)).float()
    weights = AutoModelForCausalLM.from_pretrained(text, dtype=torch.float32)
    model.model.language_model.load_state_dict(weights.model.state_dict())
    model.lm_head.load_state_dict(weights.lm_head.state_dict())
    model.save_pretrained(folder)
    (folder / "trained").mkdir()
    if family == "gemma3":
        _add_processor(folder)
    sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(sent, folder / "trained" / "model.safetensors")
    return folder


def _add_processor(folder: Path) -> None:
    """Which trainers load in the place of the tokenizer; Gemma's needs no torchvision."""
    settings = folder / "tokenizer_config.json"
    tokenizer = json.loads(settings.read_text(encoding="utf-8"))
    names = ("image_token", "boi_token", "eoi_token")
    tokens = dict.fromkeys(names, tokenizer["eos_token"])  # none of its own: no image is sent
    settings.write_text(json.dumps({**tokenizer, **tokens, "extra_special_tokens": tokens}))
    images = {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 28, "width": 28}}
    text = json.dumps({**images, "processor_class": "Gemma3Processor"})
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


def rename_weights(file: Path, old: str, new: str) -> None:
    """As published checkpoints have them; transformers (5.10) saves other names."""
    weights = {name.replace(old, new): weight for name, weight in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})


def quantise(checkpoint: Path) -> Path:
    """Give a checkpoint linear layers of 8-bit integers, as compressed-tensors writes them."""
    file, config = checkpoint / "model.safetensors", checkpoint / "config.json"
    weights = load_file(file)
    for name in [name for name in weights if name.endswith("proj.weight")]:
        scale = weights[name].abs().amax(1, keepdim=True) / 127
        weights |= {name: (weights[name] / scale).round().char(), name + "_scale": scale}
    save_file(weights, file, metadata={"format": "pt"})
    integers = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**integers, "strategy": "channel", "dynamic": False},
        "input_activations": {**integers, "strategy": "token", "dynamic": True},
    }
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    return checkpoint
