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


TOWERS = r".*(visual|vision_model|connector).*"
"""The layers of a model that see images, for PEFT's ``exclude_modules``."""


def make_adapter(
    base: Path,
    folder: Path,
    *,
    seed: int,
    spread: float = 0.2,
    targets: str | list[str] = "",
    kind: str = "CausalLM",
    excluded: str | None = None,
) -> tuple[Path, Path]:
    """A random adapter of every linear layer, and a checkpoint with it merged.

    targets: other layers than those. kind: of the model, as the names of transformers' classes for
    any model end. excluded: layers without an adapter. Returns both folders.
    """
    import transformers
    from peft import LoraConfig, get_peft_model
    from transformers import AutoTokenizer

    loaded = getattr(transformers, f"AutoModelFor{kind}")
    model = loaded.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(
        r=RANK,
        lora_alpha=2 * RANK,
        target_modules=targets or "all-linear",
        exclude_modules=excluded,
    )
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
