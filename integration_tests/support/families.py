"""Small random checkpoints of other families than :mod:`support.models` has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
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
                parameter.normal_(std=0.15)
        if model.config.model_type.startswith("gemma"):
            # They are multiplied by the width's root: any token would only be repeated.
            model.get_input_embeddings().weight *= 0.1
    model.save_pretrained(folder)
    return folder


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
