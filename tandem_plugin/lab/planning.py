"""The memory that a pair of models needs, and the default memory of an engine on a CPU."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.files import open_file, parse_json, read_json, system_reason
from tandem_plugin.files.checkpoints import check_model, hub_access, missing_shards
from tandem_plugin.files.unified import VISION_PREFIXES, text_config

_LONGEST_HEADER = 10**8
"""The limit of the safetensors library, in bytes."""


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """The sizes of one decoder-only model."""

    name: str
    parameters: int
    stored: int | None
    """Bytes of the weights of a quantised checkpoint on disk; None for any other."""
    layers: int
    """Those with attention."""
    heads: int
    kv_heads: int
    head_size: int
    longest: int
    """The maximum number of tokens of prompt and response."""
    states: PlannedStates | None = None
    """The layers that keep a recurrent state; None for a model of attention alone."""
    linear: int = 0
    """Of the parameters, those of linear layers, which vLLM can quantise while it loads."""
    bits: float | None = None
    """Of each such parameter, scales included; None for the engine's own type."""
    encoding: int = 0
    """Values of the encoding of an image's token; 0 for a text model."""

    def weights(self, width: int) -> int:
        """The size of the weights in bytes, in an engine with values of ``width`` bytes."""
        if self.stored is not None:
            return self.stored
        bits = 8 * width if self.bits is None else self.bits
        return (self.parameters - self.linear) * width + int(self.linear * bits / 8)

    def cached_bytes(self, width: int) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_size * width

    def state_bytes(self, width: int) -> int:
        """Bytes of one sequence's recurrent states."""
        return 0 if self.states is None else self.states.layers * self.states.size(width, 1)

    def image_bytes(self, width: int, tokens: int) -> int:
        """Bytes that an engine for images has twice: of encodings, and of embeddings of a step.

        tokens: vLLM's ``max_num_batched_tokens``, which is also how many tokens of images its cache
        holds, unless one image has more.
        """
        return self.encoding * width * tokens

    def quantised_by(self, name: str) -> PlannedModel:
        """The model as vLLM quantises it while it loads; :class:`ConfigError` for other names."""
        if self.stored is not None or name not in _BITS:
            raise ConfigError(
                "plan-quantization-unknown", name=self.name, value=name, known=", ".join(_BITS)
            )
        return replace(self, bits=_BITS[name])


_BITS: Mapping[str, float] = {
    **dict.fromkeys(("fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"), 8),
    "mxfp8": 8.25,
    "mxfp4": 4.25,
}
"""vLLM's quantisations of a plain checkpoint that quantise its linear layers."""


@dataclass(frozen=True, slots=True)
class PlannedStates:
    """The layers of a model that keep a recurrent state, and the size of one state."""

    layers: int
    channels: int
    """Of the convolution, but for those of the groups."""
    groups: int
    """Groups of Mamba 2's heads; each GPU has at least one."""
    group_channels: int
    taps: int
    """Earlier tokens that the convolution reads."""
    recurrent: int
    """Values of the recurrent state; 0 for a short convolution."""
    width: int | None
    """Bytes of such a value; None for as many as the engine's values have."""

    def size(self, width: int, tensor_parallel: int) -> int:
        """Bytes of one layer's state on one GPU."""
        spread = self.groups % tensor_parallel == 0
        groups = self.groups if spread else tensor_parallel
        convolution = (self.channels + groups * self.group_channels) * self.taps * width
        return (convolution + self.recurrent * (self.width or width)) // tensor_parallel


@dataclass(frozen=True, slots=True)
class PlannedCache:
    """One GPU's paged KV cache; senior and junior share its blocks."""

    block_bytes: int
    tokens: tuple[int, ...]
    """Tokens per block of each group of attention layers; a sequence has blocks in every group."""
    states: int = 0
    """Blocks of a sequence that hold recurrent states, whatever its length."""

    def blocks_of(self, tokens: int) -> int:
        """The blocks of a sequence."""
        return self.states + sum(-(-tokens // size) for size in self.tokens)

    def longest_sequence(self, blocks: int) -> int:
        """The longest sequence in so many blocks, in tokens; vLLM keeps one block itself."""
        step = min(self.tokens)
        steps = range(max(0, blocks - self.states))
        return step * max(0, bisect_left(steps, blocks, key=lambda n: self.blocks_of(n * step)) - 1)


def planned_cache(
    models: Sequence[PlannedModel], width: int, tensor_parallel: int, block_size: int
) -> PlannedCache:
    """The cache of an engine with these models, senior first, and values of ``width`` bytes.

    block_size: tokens per block, which vLLM enlarges for recurrent states. A block holds one page
    of each layer of a group. With attention alone, all layers are one group. With states, layers of
    one kind and shape form groups of equally many layers, and all pages are as large as the
    largest: the senior's attention, whose page has room for any state, or the junior's. With more
    GPUs than KV heads, each keeps one head. Layers that attend to a window are counted as if they
    kept every token. Source: ``ModelConfig.get_num_kv_heads``,
    ``Platform._align_hybrid_block_size`` and ``get_kv_cache_groups`` in
    ``vllm/v1/core/kv_cache_utils.py`` of vLLM 0.29, with its default layout and prefix caching.
    """
    attention: Counter[tuple[int, int]] = Counter()
    states: Counter[PlannedStates] = Counter()
    for model in models:
        attention[max(1, model.kv_heads // tensor_parallel), model.head_size] += model.layers
        if model.states is not None:
            # The junior's layers get the type that vLLM chose for the senior's.
            chosen = (models[0].states or model.states).width or model.states.width
            states[replace(model.states, layers=0, width=chosen)] += model.states.layers
    per_token = {shape: 2 * prod(shape) * width for shape in attention}
    if not states:
        layers = sum(per_token[shape] * count for shape, count in attention.items())
        return PlannedCache(block_size * layers, (block_size,))
    largest = max(state.size(width, tensor_parallel) for state in states)
    of_senior = next(iter(per_token.values()))
    block_size *= max(1, -(-largest // (block_size * of_senior)))
    page = block_size * max(per_token.values())
    counts = [*attention.values(), *states.values()]
    # vLLM's: a few padding layers rather than twice as many groups.
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    tokens: list[int] = []
    for shape, count in attention.items():
        ratio, remainder = divmod(page, block_size * per_token[shape])
        tokens += [block_size * (1 if remainder else ratio)] * -(-count // size)
    # Two: that of the last cached block, and the one that grows.
    held = 2 * sum(-(-count // size) for count in states.values())
    return PlannedCache(size * page, tuple(tokens), held)


def read_checkpoint(checkpoint: str, images: bool = False) -> PlannedModel:
    """Read the sizes in a checkpoint's ``config.json`` and in the headers of its safetensors.

    checkpoint: a folder, or a name on the Hugging Face Hub, from which no weights are downloaded.
    images: whether a unified checkpoint is built with its vision tower. Raises :class:`ConfigError`
    for a model that cannot be planned.
    """
    check_model(checkpoint, "checkpoint")
    folder = Path(checkpoint).expanduser()
    is_local = os.path.exists(folder)
    file = folder / "config.json" if is_local else _fetched(checkpoint)
    try:
        config = read_json(file)
        if not isinstance(config, dict):
            raise ValueError("it contains no JSON object")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            "plan-config-unreadable", given=checkpoint, file=file, reason=reason
        ) from error
    is_quantised = config.get("quantization_config") is not None
    encoding = 0
    if images:
        config, encoding = _seeing(config, checkpoint, file)
    elif (nested := text_config(config)) is not config:
        config = _whole(nested, checkpoint, file)
    _check_kind(config, checkpoint)
    attending, states = _layers(config, checkpoint)
    heads, hidden = _number(config, "num_attention_heads", checkpoint), config.get("hidden_size")
    by_default = hidden // heads if type(hidden) is int else None
    unread = () if images else VISION_PREFIXES
    tensors = None if is_local else _on_hub(checkpoint, unread)
    if tensors is None:
        tensors = _in_folder(file.parent, checkpoint, config, unread)
    return PlannedModel(
        name=checkpoint,
        parameters=sum(tensor.values for tensor in tensors),
        stored=sum(tensor.size for tensor in tensors) if is_quantised else None,
        layers=attending,
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads", checkpoint, heads),
        head_size=_number(config, "head_dim", checkpoint, by_default),
        longest=_number(config, "max_position_embeddings", checkpoint),
        states=states,
        linear=sum(tensor.values for tensor in tensors if tensor.is_linear),
        encoding=encoding,
    )


def _seeing(config: Mapping[str, Any], name: str, file: Path) -> tuple[Mapping[str, Any], int]:
    """The text model's configuration, and the values of the encoding of an image's token.

    Older checkpoints have the text model's fields next to ``vision_config``. Qwen3-VL encodes an
    image once more for each layer of its tower that also leads into the text model.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        raise ConfigError("plan-model-without-images", name=name)
    nested = config.get("text_config")
    if isinstance(nested, Mapping):
        text = _whole(nested, name, file)
    else:
        text = {key: value for key, value in config.items() if key != "vision_config"}
    vision = _whole(vision, name, file)
    levels = 1 + len(vision.get("deepstack_visual_indexes") or ())
    return text, levels * _number(text, "hidden_size", name)


_ATTENTION = ("attention", "full_attention", "sliding_attention")
_WITHOUT_CACHE = ("mlp", "moe")
_BLOCKS = {"M": "mamba", "*": "attention"}
"""Letters of ``hybrid_override_pattern``; all others stand for layers without a cache."""


def _whole(nested: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    """A nested configuration with what it leaves out: its class's defaults in transformers.

    ``PreTrainedConfig.to_diff_dict`` leaves those out of nested configurations alone. As it is
    without transformers, and of a kind that it does not know.
    """
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        kind = CONFIG_MAPPING[str(nested.get("model_type"))]
    except (ImportError, KeyError):
        return nested
    try:
        return {**kind.from_dict(dict(nested)).to_dict(), **nested}
    except Exception as error:  # each kind has its own
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError("plan-config-unreadable", given=name, file=file, reason=reason) from error


def _check_kind(config: Mapping[str, Any], name: str) -> None:
    if config.keys() & {"text_config", "vision_config", "kv_lora_rank"}:
        raise ConfigError("plan-model-unsupported", name=name, kind=config.get("model_type"))


def _layers(config: Mapping[str, Any], name: str) -> tuple[int, PlannedStates | None]:
    """How many layers attend, and those with states; a layer of Falcon-H1 has both."""
    layers = _number(config, "num_hidden_layers", name)
    kinds = Counter(config.get("layers_block_type") or config.get("layer_types") or ())
    if pattern := config.get("hybrid_override_pattern"):
        kinds = Counter(_BLOCKS.get(letter, "mlp") for letter in pattern)
    elif not kinds and config.get("model_type") == "falcon_h1":
        kinds = Counter(attention=layers, mamba=layers)
    elif not kinds and config.get("model_type") == "qwen3_next":
        attending = layers // _number(config, "full_attention_interval", name, 4)
        kinds = Counter(attention=attending, linear_attention=layers - attending)
    elif not kinds:
        kinds = Counter(attention=layers)
    attending = sum(kinds.pop(kind, 0) for kind in _ATTENTION)
    for kind in _WITHOUT_CACHE:
        kinds.pop(kind, None)
    if not kinds:
        return attending, None
    (kind, count), *further = kinds.items()
    if further or not attending or kind not in _STATES:
        raise ConfigError("plan-model-unsupported", name=name, kind=config.get("model_type"))
    return attending, _STATES[kind](config, name, count)


def _delta_net(config: Mapping[str, Any], name: str, layers: int) -> PlannedStates:
    keys, values, key_size, value_size, kernel = (
        _number(config, f"linear_{size}", name)
        for size in (
            *("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"),
            "conv_kernel_dim",
        )
    )
    return PlannedStates(
        layers=layers,
        channels=2 * keys * key_size + values * value_size,
        groups=0,
        group_channels=0,
        taps=kernel - 1,
        recurrent=values * value_size * key_size,
        width=_WIDTHS.get(config.get("mamba_ssm_dtype")),
    )


def _mamba(config: Mapping[str, Any], name: str, layers: int) -> PlannedStates:
    is_nemotron = "mamba_num_heads" in config
    heads, size, groups, state, kernel = (
        _number(config, key, name)
        for key in (
            ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
            if is_nemotron
            else (
                "mamba_n_heads",
                "mamba_d_head",
                "mamba_n_groups",
                "mamba_d_state",
                "mamba_d_conv",
            )
        )
    )
    return PlannedStates(
        layers=layers,
        channels=heads * size,
        groups=groups,
        group_channels=2 * state,
        taps=kernel - 1,
        recurrent=heads * size * state,
        width=_WIDTHS.get(config.get("mamba_ssm_cache_dtype", "float32")) if is_nemotron else None,
    )


def _short_convolution(config: Mapping[str, Any], name: str, layers: int) -> PlannedStates:
    channels = _number(config, "conv_dim", name, config.get("hidden_size"))
    taps = _number(config, "conv_L_cache", name, 3) - 1
    return PlannedStates(layers, channels, 0, 0, taps, 0, None)


_STATES: Mapping[str, Callable[[Mapping[str, Any], str, int], PlannedStates]] = {
    "linear_attention": _delta_net,
    "mamba": _mamba,
    "conv": _short_convolution,
}
_WIDTHS: Mapping[object, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


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


_DRAFTS = ("mtp.",)
"""Weights of vLLM's own drafts, which no engine in tandem loads."""


def _on_hub(name: str, unread: Sequence[str]) -> list[_Tensor] | None:
    """The tensors that an engine loads; None if the Hub does not know or cannot be reached.

    unread: how the names of others begin.
    """
    try:
        with hub_access(
            lambda reason: ConfigError("plan-model-not-found", name=name, reason=reason)
        ):
            from huggingface_hub import get_safetensors_metadata

            metadata = get_safetensors_metadata(name)
    except ConfigError:
        return None
    return [
        _Tensor(tensor.parameter_count, end - begin, _is_linear(name, tensor.shape))
        for file in metadata.files_metadata.values()
        for name, tensor in file.tensors.items()
        if not name.startswith((*unread, *_DRAFTS))
        for begin, end in [tensor.data_offsets]
    ]


def _in_folder(
    folder: Path, name: str, config: Mapping[str, Any], unread: Sequence[str]
) -> list[_Tensor]:
    if missing := missing_shards(folder):  # of a model on the Hub, its cache may have some
        raise ConfigError("model-shard-missing", what="checkpoint", model=name, file=missing[0])
    tensors: dict[str, _Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= _header(file)
    if not tensors:
        raise ConfigError("plan-weights-missing", given=name)
    if config.get("tie_word_embeddings"):  # some checkpoints contain the tensor under both names
        tensors.pop("lm_head.weight", None)
    skipped = (*unread, *_DRAFTS)
    return [tensor for name, tensor in tensors.items() if not name.startswith(skipped)]


class _Tensor(NamedTuple):
    values: int
    size: int
    """In bytes."""
    is_linear: bool
    """Whether it is the weight of a linear layer, those of experts included."""


def _is_linear(name: str, shape: Sequence[int]) -> bool:
    is_matrix = len(shape) == 2 or (len(shape) == 3 and ".experts." in name)
    return is_matrix and "embed" not in name and not name.startswith("lm_head.")


def _header(file: Path) -> dict[str, _Tensor]:
    """The tensors of a file, by name; :class:`ConfigError` if it cannot have them."""
    try:
        with open_file(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            behind = os.fstat(stream.fileno()).st_size - 8 - length
            if behind < 0 or length > _LONGEST_HEADER:
                raise ValueError(f"its header would have {length:,} bytes")
            header = parse_json(stream.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
        header.pop("__metadata__", None)
        return {name: _tensor(name, entry, behind) for name, entry in header.items()}
    except (OSError, ValueError) as error:
        reason = system_reason(error) if isinstance(error, OSError) else error
        raise ConfigError("plan-safetensors-invalid", file=file, reason=reason) from error


def _tensor(name: str, entry: object, behind: int) -> _Tensor:
    """A header's entry; behind: the bytes behind the header. ValueError if no tensor is like it."""
    entry = entry if isinstance(entry, dict) else {}
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not (_are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
        raise ValueError(f"the tensor {name[:60]!r} has no shape or no place in it")
    begin, end = offsets
    if not begin <= end <= behind:
        raise ValueError(f"it ends before the tensor {name[:60]!r} does")
    values, most = 1, 8 * (end - begin)  # no type is smaller than a bit
    for count in sorted(shape):  # zeros first: then no product grows beyond all bounds
        values *= count
        if values > most:
            raise ValueError(f"the tensor {name[:60]!r} has more values than bits")
    return _Tensor(values, end - begin, _is_linear(name, shape))


def _are_counts(numbers: object) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)


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
_STEP = 4096
"""Tokens of a step, vLLM's default for its CPU build."""
_REQUESTS, _PROMPT = 256, 1024
"""vLLM's ``max_num_seqs`` on a CPU, and a typical prompt length, for the largest useful cache."""
_UNPLANNED = 4 * _GIB
"""The most for models of unknown size before they are loaded."""


def cpu_arguments(
    models: Sequence[str], arguments: Mapping[str, Any], tokens: int
) -> tuple[dict[str, int], str]:
    """Engine arguments that fit the free memory, and a sentence that states the choice.

    Both are empty if the user chose through ``kv_cache_memory_bytes``, ``gpu_memory_utilization``
    or ``VLLM_CPU_KVCACHE_SPACE``. models: the senior, and the junior if there is one. tokens: the
    longest response. Raises :class:`EngineError` if not even one response fits.
    """
    chosen_memory = {"kv_cache_memory_bytes", "gpu_memory_utilization"} & arguments.keys()
    available = free_memory()
    if chosen_memory or os.environ.get("VLLM_CPU_KVCACHE_SPACE") or available is None:
        return {}, ""
    images = bool((arguments.get("limit_mm_per_prompt") or {}).get("image"))
    try:
        checkpoints = [read_checkpoint(model, images) for model in models]
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
    cache = planned_cache(checkpoints, width, 1, block)
    weights = _COPIES * sum(checkpoint.weights(width) for checkpoint in checkpoints)
    rows = int(arguments.get("max_num_batched_tokens") or _STEP)
    weights += 2 * sum(checkpoint.image_bytes(width, rows) for checkpoint in checkpoints)
    room = int(_SHARE * (available - weights - _PROCESS))
    longest = min(checkpoint.longest for checkpoint in checkpoints)
    max_model_len = arguments.get("max_model_len")
    target = int(max_model_len) if isinstance(max_model_len, int) and max_model_len > 0 else longest
    if cache.longest_sequence(room // cache.block_bytes) < min(target, tokens + 1):
        raise EngineError(
            "plan-memory-too-small",
            available=available / _GIB,
            weights=weights / _GIB,
            process=_PROCESS / _GIB,
            tokens=tokens,
        )
    requests = int(arguments.get("max_num_seqs") or _REQUESTS)
    # Whole requests, plus vLLM's reserved block; at least one request of the maximum length.
    blocks = cache.blocks_of(min(target, tokens + _PROMPT))
    useful = max(requests * blocks, cache.blocks_of(target)) + 1
    memory = min(room, useful * cache.block_bytes)
    chosen = {"kv_cache_memory_bytes": memory}
    fitting = cache.longest_sequence(memory // cache.block_bytes)
    if fitting < target and max_model_len is None:
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
