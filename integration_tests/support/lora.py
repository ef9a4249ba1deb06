"""Adapters (LoRA) for the small checkpoints, by PEFT, and the same weights merged.

Imported where there is no pytest as well.
"""

from __future__ import annotations

from pathlib import Path

import torch
import vllm
from packaging.version import Version

RANK = 8


def has_lora() -> bool:
    """Whether tandem runs adapters on this vLLM."""
    return Version(vllm.__version__) >= Version("0.29")


def make_adapter(
    base: Path, folder: Path, *, seed: int, spread: float = 0.2, targets: str | list[str] = ""
) -> tuple[Path, Path]:
    """A random adapter of every linear layer, and a checkpoint with it merged.

    targets: other layers than those. Returns both folders.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets or "all-linear")
    adapted = get_peft_model(model, config)
    torch.manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=spread)
    adapter, merged = folder / "adapter", folder / "merged"
    adapted.save_pretrained(adapter)
    adapted.merge_and_unload().save_pretrained(merged)
    AutoTokenizer.from_pretrained(base).save_pretrained(merged)
    return adapter, merged
