"""The memory that a pair of models needs, and the default memory of an engine on a CPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.files import open_file, parse_json, read_file
from tandem_plugin.files.checkpoints import check_model, hub_access

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


def kv_block_bytes(
    models: Sequence[PlannedModel], width: int, tensor_parallel: int, block_size: int
) -> int:
    """Bytes of a block of one GPU's paged KV cache, whose block tables senior and junior share.

    A block holds ``block_size`` tokens in every layer of both models, as values of ``width`` bytes;
    with more GPUs than KV heads, each keeps one head. Source: vLLM's ``get_num_kv_heads`` in
    ``ModelConfig``, ``page_size_bytes`` in ``vllm/v1/kv_cache_interface.py`` and
    ``get_kv_cache_config_from_groups`` in ``vllm/v1/core/kv_cache_utils.py``, for layers that all
    keep every token.
    """
    heads = [max(1, model.kv_heads // tensor_parallel) for model in models]
    values = sum(2 * m.layers * n * m.head_size for m, n in zip(models, heads, strict=True))
    return block_size * values * width


def longest_sequence(blocks: int, block_size: int) -> int:
    """The longest sequence in so many blocks, in tokens; vLLM keeps one block itself."""
    return max(0, blocks - 1) * block_size


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
        raise ConfigError(
            "plan-config-unreadable", given=given, file=file, reason=reason
        ) from error
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
    others = {*(config.get("layer_types") or [])} - {"full_attention", "sliding_attention"}
    if others or config.keys() & {"text_config", "vision_config", "kv_lora_rank"}:
        raise ConfigError("plan-model-unsupported", name=name, kind=config.get("model_type"))


def _number(config: Mapping[str, Any], key: str, name: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        kind = config.get("model_type") or "no model_type"
        raise ConfigError("plan-config-size-invalid", name=name, kind=kind, key=key, value=value)
    return value


def _fetched(name: str) -> Path:
    with hub_access(lambda reason: ConfigError("plan-model-not-found", name=name, reason=reason)):
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(name, "config.json"))


def _on_hub(name: str) -> tuple[int, int] | None:
    """Parameters, and their bytes on disk; None if the Hub does not know or cannot be reached."""
    try:
        with hub_access(
            lambda reason: ConfigError("plan-model-not-found", name=name, reason=reason)
        ):
            from huggingface_hub import get_safetensors_metadata

            found = get_safetensors_metadata(name)
    except ConfigError:
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
        raise ConfigError("plan-weights-missing", given=name)
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
        raise ConfigError("plan-safetensors-invalid", file=file) from error
    header.pop("__metadata__", None)
    return header


# An engine on this machine's CPU.

_GIB = 2**30
_BLOCK = 128
"""Tokens of a block in vLLM's CPU build."""
_COPIES = 2
"""That build computes with packed copies of weights, and a tandem engine keeps both."""
_PROCESS = 2 * _GIB
"""For Python, PyTorch, compiled code and activations."""
_SHARE = 0.7
"""Share of the rest for the KV cache: other programs need memory too."""
_REQUESTS, _PROMPT = 256, 1024
"""vLLM's ``max_num_seqs`` on a CPU, and a typical prompt length, for the largest useful cache."""
_UNPLANNED = 4 * _GIB
"""The most for models whose sizes are not known before they are loaded."""


def cpu_arguments(
    models: Sequence[str], arguments: Mapping[str, Any], tokens: int
) -> tuple[dict[str, int], str]:
    """Engine arguments that fit the free memory, and a sentence that states the choice.

    Both are empty if the user chose through ``kv_cache_memory_bytes``, ``gpu_memory_utilization``
    or ``VLLM_CPU_KVCACHE_SPACE``. models: the senior, and the junior if there is one. tokens: the
    longest response. Raises :class:`EngineError` if not even one response fits.
    """
    own = {"kv_cache_memory_bytes", "gpu_memory_utilization"} & arguments.keys()
    available = free_memory()
    if own or os.environ.get("VLLM_CPU_KVCACHE_SPACE") or available is None:
        return {}, ""
    try:
        checkpoints = [read_checkpoint(model) for model in models]
    except ConfigError:  # vLLM may still support it
        memory = min(_UNPLANNED, int(_SHARE * max(0, available - _PROCESS) / 2))
        chosen = {"kv_cache_memory_bytes": memory}
    else:
        chosen = _planned(checkpoints, arguments, tokens, available)
    return chosen, _sentence(chosen, available)


def _planned(
    checkpoints: Sequence[PlannedModel], arguments: Mapping[str, Any], tokens: int, available: int
) -> dict[str, int]:
    width = 4 if str(arguments.get("dtype")) in ("float32", "float") else 2
    block = int(arguments.get("block_size") or _BLOCK)
    each_block = kv_block_bytes(checkpoints, width, 1, block)
    weights = _COPIES * sum(one.weights(width) for one in checkpoints)
    room = int(_SHARE * (available - weights - _PROCESS))
    longest = min(one.longest for one in checkpoints)
    given = arguments.get("max_model_len")
    target = int(given) if isinstance(given, int) and given > 0 else longest
    if longest_sequence(room // each_block, block) < min(target, tokens + 1):
        raise EngineError(
            "plan-memory-too-small",
            available=available / _GIB,
            weights=weights / _GIB,
            process=_PROCESS / _GIB,
            tokens=tokens,
        )
    requests = int(arguments.get("max_num_seqs") or _REQUESTS)
    # Whole requests, plus vLLM's reserved block; at least one request of the maximum length.
    each = -(-min(target, tokens + _PROMPT) // block)
    useful = max(requests * each, -(-target // block)) + 1
    memory = min(room, useful * each_block)
    chosen = {"kv_cache_memory_bytes": memory}
    fitting = longest_sequence(memory // each_block, block)
    if fitting < target and given is None:
        chosen["max_model_len"] = fitting
    return chosen


def _sentence(chosen: Mapping[str, int], available: int) -> str:
    longest = chosen.get("max_model_len")
    reads = "" if longest is None else f" and reads up to {longest:,} tokens"
    return (
        f"On this CPU the engine uses {chosen['kv_cache_memory_bytes'] / _GIB:.1f} GiB for its KV "
        f"cache{reads}: {available / _GIB:.1f} GiB are free. Override this with --engine "
        "kv_cache_memory_bytes=BYTES and --engine max_model_len=TOKENS."
    )


def free_memory() -> int | None:
    """Available bytes of this machine's memory; None if Linux does not report them.

    In a container with a lower limit, the container's.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        total, available = sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, ValueError, LookupError):
        return None
    limit, used = _control_group()
    if limit is not None and limit < total:
        return max(0, min(available, limit - used))
    return available


def _control_group() -> tuple[int | None, int]:
    """The limit of this control group's memory, and how much of it is used."""
    folder = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return int((folder / limit).read_text()), int((folder / used).read_text())
        except (OSError, ValueError):  # "max": there is no limit
            continue
    return None, 0
