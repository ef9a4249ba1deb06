"""The size of a model in memory: its weights, and its KV cache per token."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.files import check_model, open_file, read_file
from tandem_plugin.files.strict_json import parse_json

__all__ = ["KvCache", "PlannedModel", "read_checkpoint"]

_LONGEST_HEADER = 2**27


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """The sizes of one decoder-only model."""

    name: str
    parameters: int
    stored: int | None
    """Bytes of the weights of a quantised checkpoint on disk; None for any other."""
    layers: int
    kv_heads: int
    head_size: int
    longest: int
    """The maximum number of tokens of prompt and response."""

    def weights(self, width: int) -> int:
        """The size of the weights in bytes, in an engine with values of ``width`` bytes."""
        return self.parameters * width if self.stored is None else self.stored

    def kv_values(self, tensor_parallel: int) -> int:
        """Values per token in one GPU's KV cache; with more GPUs than KV heads, each keeps one.

        Source: ``get_num_kv_heads`` of vLLM's ``ModelConfig``.
        """
        return self.layers * 2 * max(1, self.kv_heads // tensor_parallel) * self.head_size


@dataclass(frozen=True, slots=True)
class KvCache:
    """The paged KV cache of one GPU: senior and junior share block tables.

    A block holds ``block_size`` tokens in every layer of both models. Source: vLLM's
    ``vllm/v1/kv_cache_interface.py`` (``page_size_bytes``) and ``get_kv_cache_config_from_groups``
    in ``vllm/v1/core/kv_cache_utils.py``, for layers that all keep every token.
    """

    block_size: int
    """Tokens per block."""
    bytes_per_block: int

    @classmethod
    def of(
        cls, models: Sequence[PlannedModel], width: int, tensor_parallel: int, block_size: int
    ) -> KvCache:
        """The cache of ``models`` on one GPU. width: bytes per value."""
        values = sum(model.kv_values(tensor_parallel) for model in models)
        return cls(block_size, block_size * values * width)

    def blocks(self, memory: int) -> int:
        """The number of blocks in ``memory`` bytes."""
        return max(0, memory) // self.bytes_per_block

    def longest(self, memory: int) -> int:
        """The longest sequence in ``memory`` bytes, in tokens; vLLM keeps one block itself."""
        return max(0, self.blocks(memory) - 1) * self.block_size


def read_checkpoint(given: str) -> PlannedModel:
    """Read the sizes in a checkpoint's ``config.json`` and in the headers of its safetensors.

    given: a folder, or a name on the Hugging Face Hub, from which no weights are downloaded. Raises
    :class:`ConfigError` for a model that cannot be planned.
    """
    check_model(given, "checkpoint")
    folder = Path(given).expanduser()
    is_local = os.path.exists(folder)
    file = folder / "config.json" if is_local else _fetched(given)
    try:
        config = parse_json(read_file(file))
        if not isinstance(config, dict):
            raise ValueError("it contains no JSON object")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError("TP931", given=given, file=file, reason=reason) from error
    _check_kind(config, given)
    heads, hidden = _number(config, "num_attention_heads", given), config.get("hidden_size")
    by_default = hidden // heads if type(hidden) is int else None
    on_hub = None if is_local else _on_hub(given)
    parameters, size = on_hub or _in_folder(file.parent, given, config)
    return PlannedModel(
        name=given,
        parameters=parameters,
        stored=size if config.get("quantization_config") is not None else None,
        layers=_number(config, "num_hidden_layers", given),
        kv_heads=_number(config, "num_key_value_heads", given, heads),
        head_size=_number(config, "head_dim", given, by_default),
        longest=_number(config, "max_position_embeddings", given),
    )


def _check_kind(config: Mapping[str, Any], name: str) -> None:
    kind = config.get("model_type")
    if "text_config" in config or "vision_config" in config:
        raise ConfigError("TP938", name=name, kind=kind)
    if others := {*(config.get("layer_types") or [])} - {"full_attention", "sliding_attention"}:
        raise ConfigError("TP939", name=name, kind=kind, layers=sorted(others))
    if "kv_lora_rank" in config:
        raise ConfigError("TP941", name=name, kind=kind)


def _number(config: Mapping[str, Any], key: str, name: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        kind = config.get("model_type") or "no model_type"
        raise ConfigError("TP940", name=name, kind=kind, key=key, value=value)
    return value


def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0][:200]
        raise ConfigError(
            "TP934", name=name, error_type=type(error).__name__, first=first
        ) from error


def _on_hub(name: str) -> tuple[int, int] | None:
    """Parameters, and their bytes on disk; None if the Hub does not know or cannot be reached."""
    try:
        from huggingface_hub import get_safetensors_metadata

        found = get_safetensors_metadata(name)
    except Exception:
        return None
    tensors = [t for file in found.files_metadata.values() for t in file.tensors.values()]
    return (
        sum(t.parameter_count for t in tensors),
        sum(t.data_offsets[1] - t.data_offsets[0] for t in tensors),
    )


def _in_folder(folder: Path, name: str, config: Mapping[str, Any]) -> tuple[int, int]:
    tensors: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= _header(file)
    if not tensors:
        raise ConfigError("TP933", given=name)
    if config.get("tie_word_embeddings"):  # some checkpoints contain the tensor under both names
        tensors.pop("lm_head.weight", None)
    offsets = [tensor["data_offsets"] for tensor in tensors.values()]
    return (
        sum(prod(tensor["shape"]) for tensor in tensors.values()),
        sum(stop - start for start, stop in offsets),
    )


def _header(file: Path) -> dict[str, Any]:
    try:
        with open_file(file) as stream:
            length = min(int.from_bytes(stream.read(8), "little"), _LONGEST_HEADER)
            header: dict[str, Any] = json.loads(stream.read(length))
    except ValueError as error:
        raise ConfigError("TP935", file=file) from error
    header.pop("__metadata__", None)
    return header
