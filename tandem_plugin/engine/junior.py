"""The junior: a second, frozen model inside the senior's engine."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from tandem_plugin.engine.compilation import keep_compile_ranges
from tandem_plugin.engine.text_models import keep_text_config, read_text_weights
from tandem_plugin.engine.wire import without_prefix
from tandem_plugin.errors import EngineError
from tandem_plugin.files.checkpoints import check_model
from tandem_plugin.files.unified import text_architecture

_PLACEHOLDERS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
"""Where the configurations of Hugging Face's name the ids that stand for images and videos."""


def senior_model_config(vllm_config: Any) -> Any:
    """The senior's model configuration, given the engine's or its draft model's configuration."""
    drafting = vllm_config.speculative_config
    return vllm_config.model_config if drafting is None else drafting.target_model_config


def junior_model_config(vllm_config: Any) -> Any:
    """The junior's model configuration: the same in the front end and in every worker.

    The senior's own checkpoint is read as the senior reads it: revision, overrides of its
    configuration (rope among them), quantisation, length. A different checkpoint is read by its own
    config.json. In both cases the junior uses the engine's dtype, output layer type
    (``head_dtype``), ``max_model_len`` and ``trust_remote_code``, and ``junior_quantization`` if it
    is set. Raises :class:`EngineError` for a checkpoint that cannot run with these, such as one
    with a smaller maximum length, and :class:`ConfigError` if there is no checkpoint.
    """
    from vllm.config import ModelConfig, VllmConfig

    senior = senior_model_config(vllm_config)
    tandem = vllm_config.additional_config["tandem"]
    path = tandem["junior"]
    if path == senior.model:
        settings = {f.name: getattr(senior, f.name) for f in fields(senior) if f.init}
        settings |= {"skip_tokenizer_init": True, **_as_checkpoint(senior, vllm_config)}
        settings["multimodal_config"] = None  # vLLM asks it before it knows the architecture
    else:
        check_model(path, "junior")
        settings = _as_engine(senior, path)
        if not sees_images(vllm_config):
            settings["hf_overrides"] |= _as_text(path, senior)
    settings |= _quantised(tandem["junior_quantization"])
    try:
        junior = ModelConfig(**settings)
        if junior.quantization is not None:
            VllmConfig.get_quantization_config(junior, _load_config(vllm_config))
    except ValueError as error:
        raise EngineError(
            "junior-engine-incompatible",
            path=path,
            max_model_len=senior.max_model_len,
            dtype=senior.dtype,
            quantization=tandem["junior_quantization"],
            reason=_told(error),
        ) from error
    return _with_inputs_of(senior, keep_text_config(junior))


def sees_images(vllm_config: Any) -> bool:
    """Whether a tandem engine answers prompts with images."""
    return bool(vllm_config.additional_config["tandem"].get("images"))


def placeholder_ids(vllm_config: Any) -> list[int]:
    """The token ids that stand for images and videos in prompts; empty without ``images``."""
    if not sees_images(vllm_config):
        return []
    config = vllm_config.model_config.hf_config
    ids = {getattr(config, name, None) for name in _PLACEHOLDERS}
    return sorted(token_id for token_id in ids if isinstance(token_id, int))


def _with_inputs_of(senior: Any, junior: Any) -> Any:
    """A junior's configuration with the senior's settings of images: limits, processor, tower."""
    if senior.multimodal_config is not None and junior.multimodal_config is not None:
        junior.multimodal_config = senior.multimodal_config
    return junior


def _as_engine(senior: Any, path: str) -> dict[str, Any]:
    """What the engine decides of the configuration of a junior with its own checkpoint."""
    head_dtype = getattr(senior.hf_config, "head_dtype", None)
    overrides = {} if head_dtype is None else {"head_dtype": head_dtype}
    return {
        "model": path,
        "runner": "generate",
        "tokenizer": senior.tokenizer,
        "tokenizer_revision": senior.tokenizer_revision,
        "skip_tokenizer_init": True,
        "trust_remote_code": senior.trust_remote_code,
        "dtype": senior.dtype,
        "seed": senior.seed,
        "max_model_len": senior.max_model_len,
        "enforce_eager": senior.enforce_eager,
        "disable_sliding_window": senior.disable_sliding_window,
        "hf_overrides": overrides,
    }


def _quantised(name: str | None) -> dict[str, Any]:
    """The configuration of one of vLLM's quantisations, in place of the senior's; {} for None."""
    if name is None:
        return {}
    from vllm.config.quantization import resolve_quantization_config

    return {"quantization": name, "quantization_config": resolve_quantization_config(name, None)}


def _as_text(path: str, senior: Any) -> dict[str, Any]:
    """The override by which a junior with a unified checkpoint is its text model."""
    from vllm.transformers_utils.config import get_config

    names = get_config(path, senior.trust_remote_code).architectures or []
    texts = [text_architecture(name) for name in names]
    return {} if texts == names else {"architectures": texts}


def junior_config(vllm_config: Any) -> Any:
    """The engine's configuration as seen by the junior while it is built.

    Made as vLLM makes a draft model: the same engine, a different model. The compilation config is
    shared, because attention layers register themselves in it.
    """
    from vllm.config.utils import replace

    junior = junior_model_config(vllm_config)
    with keep_compile_ranges(vllm_config):
        return replace(
            vllm_config,
            model_config=junior,
            cache_config=_cache_config(vllm_config, junior),
            load_config=_load_config(vllm_config),
            quant_config=None,
            lora_config=None,  # adapters are the senior's
        )


def _cache_config(vllm_config: Any, junior: Any) -> Any:
    """The engine's cache configuration, with the junior's sliding window in place of the senior's.

    Attention layers use this window if their model gives them none: a junior with full attention
    would use the senior's. A model whose layers differ gives each its own. junior: its model
    configuration. Source: ``EngineArgs.create_engine_config`` of vLLM 0.24 to 0.32.
    """
    config = copy.copy(vllm_config.cache_config)
    layer_types = getattr(junior.hf_text_config, "layer_types", None) or []
    is_uniform = all(kind == "sliding_attention" for kind in layer_types)
    config.sliding_window = junior.get_sliding_window() if is_uniform else None
    return config


def load_junior(vllm_config: Any) -> Any:
    """Build and load the junior of a tandem engine, once, from its own checkpoint.

    Each of its attention layers gets the prefix "junior" and thus its own paged KV cache, and
    shares the senior's block tables, slot mappings and positions. Weights always come from the
    checkpoint, even if the senior's start as dummies. Raises :class:`EngineError` for a quantised
    junior for which vLLM has no kernel on this device.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.model_executor.model_loader import get_model

    config = junior_config(vllm_config)
    read_text_weights(config.model_config.architecture)
    with set_model_tag("junior"), named_with_quantisation(config.model_config):
        model = get_model(vllm_config=config, model_config=config.model_config, prefix="junior")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


@contextmanager
def named_with_quantisation(junior: Any) -> Iterator[None]:
    """Names the junior and its quantisation in the error if vLLM cannot build it.

    Without a kernel vLLM's builds raise ``ValueError``, ``NotImplementedError`` or, where even the
    operator is missing, ``RuntimeError``. Running out of memory stays as it is.
    """
    import torch

    try:
        yield
    except (ValueError, NotImplementedError, RuntimeError) as error:
        if junior.quantization is None or isinstance(error, torch.OutOfMemoryError):
            raise
        raise EngineError(
            "junior-quantization-unsupported",
            path=junior.model,
            quantization=junior.quantization,
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _load_config(vllm_config: Any) -> Any:
    """How to load the junior's weights: as the senior's, if they are the same and not dummies."""
    from vllm.config import LoadConfig

    of_senior = vllm_config.load_config
    is_own = vllm_config.additional_config["tandem"]["junior"] == (
        senior_model_config(vllm_config).model
    )
    if is_own and of_senior.load_format != "dummy":
        return copy.copy(of_senior)
    return LoadConfig(load_format="auto", download_dir=of_senior.download_dir)


def _as_checkpoint(senior: Any, vllm_config: Any) -> dict[str, Any]:
    """The overrides in the configuration of a junior with the senior's own checkpoint.

    Its architecture has its plain name. If the senior starts from dummies, the engine's
    quantisation describes the weights to be synced. The junior is loaded from the checkpoint and
    keeps its quantisation.
    """
    overrides = senior.hf_overrides
    plain = {"architectures": [without_prefix(name) for name in senior.hf_config.architectures]}
    if vllm_config.load_config.load_format != "dummy":
        return {"hf_overrides": with_overrides(overrides, plain)}
    unquantised = ("quantization", "quantization_config")
    if not callable(overrides):
        overrides = {k: v for k, v in (overrides or {}).items() if k not in unquantised}
    return {
        "hf_overrides": with_overrides(overrides, plain),
        **{name: None for name in unquantised if hasattr(senior, name)},
    }


def with_overrides(overrides: Any, additions: dict[str, Any]) -> Any:
    """Overrides of a model's configuration, a mapping or a function, and more of them."""
    if overrides is None or isinstance(overrides, dict):
        return {**(overrides or {}), **additions}

    def override(hf_config: Any) -> Any:
        hf_config = overrides(hf_config)
        hf_config.update(additions)
        return hf_config

    return override


def _told(error: ValueError) -> str:
    """The message of an error, without pydantic's wrapping."""
    problems = error.errors() if hasattr(error, "errors") else []
    return str(problems[0]["msg"] if problems else error).removeprefix("Value error, ")
