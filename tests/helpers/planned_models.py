"""Checkpoints for plans: a configuration, and weights that consist of a header alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

QWEN3_4B = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
}
QWEN3_2B = QWEN3_4B | {"num_hidden_layers": 28, "max_position_embeddings": 40960}
LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
PARAMETERS = 1_720_574_976


def checkpoint(folder: Path, config: dict[str, Any], parameters: int = PARAMETERS) -> Path:
    """A folder with a configuration, and the header of weights in bfloat16; none if 0."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if parameters:
        shard(folder / "model.safetensors", {"model.a": ([parameters], 2 * parameters)})
    return folder


def shard(file: Path, tensors: dict[str, tuple[list[int], int]]) -> None:
    """A file of safetensors without its data. tensors: shape and bytes by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, (shape, size) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, start + size]}
        start += size
    written = json.dumps(header).encode()
    file.write_bytes(len(written).to_bytes(8, "little") + written)
