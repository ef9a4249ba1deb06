"""What a tandem engine rejects at startup, rather than generate wrong tokens.

Each row is read against an :func:`engine_view`. An engine's has vLLM's configuration and both
models' as vLLM read them; a driver's (:mod:`tandem_plugin.engine.local_models`) has the arguments
that a trainer will pass and the files of its machine, under the same names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.junior import senior_model_config
from tandem_plugin.engine.wire import without_prefix
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.versions import release
from tandem_plugin.unsupported import (
    Option,
    Unsupported,
    check_supported,
    is_on,
    is_set,
    option_of,
    view_of,
)

Row = partial(Unsupported, kind=EngineError)
"""A row of a table of engines."""


def of(name: str) -> Callable[[Option], Any]:
    """A field of an error: the value that a view has under a name."""
    return lambda option: option(name)


def engine_view(
    argument: Option,
    tandem: TandemConfig | None = None,
    vllm: str | None = None,
    senior: Any = None,
    junior: Any = None,
    config: Any = None,
) -> Option:
    """One engine as its tables know it: what is not known here is None.

    By the names ``senior.NAME`` and ``junior.NAME`` it has the attributes of vLLM's
    ``ModelConfig``; by ``config.NAME`` those of vLLM's finished configuration; by any other name
    an argument of vLLM's engines. vllm: its version.
    """
    return view_of(argument, tandem=tandem, vllm=vllm, senior=senior, junior=junior, config=config)


def architecture_of(model: Any) -> str:
    """A model's architecture, without tandem's prefix; model: as a view has it."""
    return without_prefix(str(model.architectures[0]))


def is_older(version: str | None, than: tuple[int, ...]) -> bool:
    """Whether a version is known, and older than a release; one without numbers is."""
    return version is not None and release(version) < than


def _is_pipelined(size: Any, option: Option) -> bool:
    return size is not None and int(size) > 1


ARGUMENTS = (
    Row(
        "pipeline_parallel_size",
        _is_pipelined,
        "pipeline-parallel-unsupported",
        fields={"size": of("pipeline_parallel_size")},
    ),
    Row("speculative_config", is_set, "speculative-config-unsupported"),
    Row("kv_transfer_config", is_set, "kv-transfer-unsupported"),
    Row("enable_prompt_embeds", is_on, "prompt-embeds-unsupported"),
    Row(
        "vllm",
        lambda version, option: (
            bool(option("tandem.junior_quantization")) and is_older(version, (0, 29))
        ),
        "junior-quantization-untested",
        fields={"version": of("vllm")},
    ),
)
"""Of vLLM's arguments, and of vLLM."""

_MODELS = ("senior", "junior")


def _kinds(model: str) -> tuple[Unsupported, ...]:
    name = of(f"{model}.model")
    return (
        Row(
            f"{model}.is_multimodal_model",
            lambda value, option: bool(value) and not option("tandem.images"),
            "multimodal-model-unsupported",
            fields={"model": name},
        ),
        Row(
            f"{model}.is_attention_free",
            is_on,
            "attention-free-model-unsupported",
            fields={"model": name},
        ),
        Row(
            f"{model}.is_encoder_decoder",
            is_on,
            "encoder-decoder-unsupported",
            fields={"model": name},
        ),
    )


KINDS = {model: _kinds(model) for model in _MODELS}
"""Of each model, which kinds of it cannot run."""

DELTA_NETS = frozenset(
    {
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3NextForCausalLM",
    }
)
"""Architectures whose states are gated delta nets', which vLLM's drafting rolls back."""

TESTED_HYBRIDS = DELTA_NETS | {
    "FalconH1ForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "Lfm2ForCausalLM",
    "NemotronHForCausalLM",
}
"""Architectures with recurrent states that were compared with Hugging Face's, in tandem."""

UNPROVEN_DRAFTING = "drafts_for_delta_net"
"""What ``unproven`` must list for drafts by an attention-only junior for such a senior."""

UNPROVEN_OF_ENGINES = {UNPROVEN_DRAFTING: "drafts by a junior of attention for a delta net"}
"""The names that ``unproven`` may contain in any engine, and their meanings."""


def _hybrids(option: Option) -> list[Any]:
    """The models with recurrent states."""
    return [option(model) for model in _MODELS if option(f"{model}.is_hybrid")]


def _is_untested(model: Any, option: Option) -> bool:
    return bool(model and model.is_hybrid) and architecture_of(model) not in TESTED_HYBRIDS


def _cannot_draft(most: Any, option: Option) -> bool:
    """Whether a junior drafts that has states, or for a senior whose states are not rolled back."""
    senior = option("senior")
    rolls_back = senior is None or architecture_of(senior) in DELTA_NETS
    return bool(most and _hybrids(option)) and (bool(option("junior.is_hybrid")) or not rolls_back)


def _drafts_unproven(most: Any, option: Option) -> bool:
    return bool(most and _hybrids(option)) and UNPROVEN_DRAFTING not in option("tandem.unproven")


def _without_states(name: str, refused: object) -> Unsupported:
    return Row(
        name,
        lambda value, option: bool(_hybrids(option)) and (value is True or value == refused),
        "hybrid-setting-unsupported",
        fields={
            "model": lambda option: _hybrids(option)[0].model,
            "name": lambda option: f"{name}={option(name)}",
        },
    )


STATES = (
    *(
        Row(
            model,
            _is_untested,
            "hybrid-family-untested",
            fields={
                "model": of(f"{model}.model"),
                "architecture": lambda option, model=model: architecture_of(option(model)),
            },
        )
        for model in _MODELS
    ),
    Row(
        "vllm",
        # The first whose model classes state their states' sizes and copies by kind.
        lambda version, option: bool(_hybrids(option)) and is_older(version, (0, 29)),
        "hybrid-vllm-too-old",
        fields={"model": lambda option: _hybrids(option)[0].model, "version": of("vllm")},
    ),
    Row(
        "junior.is_hybrid",
        lambda value, option: bool(value and option("senior")) and not option("senior.is_hybrid"),
        "hybrid-junior-attention-senior",
        fields={"junior": of("junior.model"), "senior": of("senior.model")},
    ),
    _without_states("enable_lora", True),
    _without_states("mamba_cache_mode", "all"),  # the junior's blocks would be unaligned
    _without_states("use_replayssm", True),
    Row(
        "tandem.max_drafts",
        _cannot_draft,
        "hybrid-speculative-unsupported",
        fields={"model": lambda option: _hybrids(option)[-1].model},
    ),
    Row(
        "tandem.max_drafts",
        _drafts_unproven,
        "hybrid-speculative-unproven",
        fields={
            "model": lambda option: _hybrids(option)[0].model,
            "name": UNPROVEN_DRAFTING,
        },
    ),
)
"""Of recurrent states that would fail, or be wrong, in tandem."""

IMAGE_FAMILIES = frozenset(
    {
        "Idefics3ForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "SmolVLMForConditionalGeneration",
    }
)
"""Classes that were compared with Hugging Face's, in tandem, on prompts with images.

Closed: a class with further state behind ``embed_input_ids``, or with adapters by modality, could
be wrong without a sign of it.
"""

_LAYOUT = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "scale_factor",
    "vision_config.image_size",
    "vision_config.in_channels",
    "vision_config.num_channels",
    "vision_config.patch_size",
    "vision_config.spatial_merge_size",
    "vision_config.temporal_patch_size",
    "vision_config.tokens_per_second",
)
"""What decides how many tokens an image has, and their positions: computed for the senior alone."""


def _is_uncompared(model: Any, option: Option) -> bool:
    return model is not None and architecture_of(model) not in IMAGE_FAMILIES


def _classes_differ(junior: Any, option: Option) -> bool:
    models = [junior, option("senior")]
    return None not in models and len({*map(architecture_of, models)}) > 1


def _same_layout(name: str) -> Unsupported:
    senior, junior = (f"{model}.hf_config.{name}" for model in _MODELS)
    return Row(
        junior,
        lambda value, option: value != option(senior),
        "image-layouts-differ",
        fields={"name": name, "senior": of(senior), "junior": of(junior)},
    )


_OF_FILES = {"processor_class", "image_processor_type", "_name_or_path", "auto_map"}
"""Settings of a processor that have no effect on pixels."""


def _processing(model: str, option: Option) -> dict[str, Any]:
    settings = option(f"{model}.hf_image_processor_config") or {}
    return {name: value for name, value in settings.items() if name not in _OF_FILES}


def _differing_settings(option: Option) -> list[str]:
    senior, junior = (_processing(model, option) for model in _MODELS)
    names = sorted(senior.keys() | junior.keys())
    return [name for name in names if senior.get(name) != junior.get(name)]


def _not_with_images(name: str, why: str) -> Unsupported:
    return Row(
        name,
        is_on,
        "image-setting-unsupported",
        fields={"name": name.rpartition(".")[2], "why": why},
    )


_ENCODED_ELSEWHERE = "an image's encoding would come past the junior's tower"

IMAGES = (
    Row(
        "vllm",
        lambda version, _: is_older(version, (0, 29)),
        "images-vllm-untested",
        fields={"version": of("vllm")},
    ),
    *(
        Row(
            model,
            _is_uncompared,
            "image-family-uncompared",
            fields={
                "model": of(f"{model}.model"),
                "architecture": lambda option, model=model: architecture_of(option(model)),
                "families": ", ".join(sorted(IMAGE_FAMILIES)),
            },
        )
        for model in _MODELS
    ),
    Row(
        "junior",
        _classes_differ,
        "image-classes-differ",
        fields={
            "senior": lambda option: architecture_of(option("senior")),
            "junior": lambda option: architecture_of(option("junior")),
        },
    ),
    Row(
        "tandem.max_drafts",
        is_on,
        "images-speculative-unsupported",
    ),
    *map(_same_layout, _LAYOUT),
    Row(
        "junior.hf_image_processor_config",
        lambda _, option: bool(_differing_settings(option)),
        "image-processors-differ",
        fields={"names": lambda option: ", ".join(_differing_settings(option))},
    ),
    _not_with_images("config.compilation_config.cudagraph_mm_encoder", _ENCODED_ELSEWHERE),
    _not_with_images(
        "config.compilation_config.compile_mm_encoder", "two compiled towers were not compared"
    ),
    _not_with_images("config.ec_transfer_config", _ENCODED_ELSEWHERE),
    _not_with_images("tandem.junior_quantization", "quantised towers were not compared"),
    _not_with_images(
        "config.lora_config.enable_tower_connector_lora",
        "adapters of towers were not compared",
    ),
    _not_with_images(
        "config.parallel_config.enable_dbo", "both halves of a step would share one buffer"
    ),
    _not_with_images("senior.multimodal_config.enable_mm_embeds", _ENCODED_ELSEWHERE),
    _not_with_images("senior.multimodal_config.language_model_only", "no tower would be built"),
    _not_with_images(
        "senior.multimodal_config.mm_encoder_only", "no language model would be built"
    ),
    _not_with_images(
        "senior.multimodal_config.video_pruning_rate",
        "it adds columns to an encoding, which the junior would take for its own",
    ),
    Row(
        "senior.multimodal_config",
        lambda settings, _: settings is not None and settings.get_limit_per_prompt("video") > 0,
        "images-with-videos",
    ),
)
"""Of images that would be seen wrongly, or by one model alone."""

TILED_FAMILIES = frozenset({"Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"})
"""Classes whose images have tags between their tokens. Source: ``Idefics3MultiModalProcessor``."""

IMAGES_OF_TRAINERS = (
    Row(
        "senior",
        lambda model, _: model is not None and architecture_of(model) in TILED_FAMILIES,
        "image-family-untrained",
        fields={
            "model": of("senior.model"),
            "architecture": lambda option: architecture_of(option("senior")),
            "families": ", ".join(sorted(IMAGE_FAMILIES - TILED_FAMILIES)),
        },
    ),
)
"""Of images in a trainer's prompts, which reach the engine as token ids with all of their tokens.

Trainers and adapters make one placeholder of each run of equal ones, as vLLM expects it. Of an
image with tags several runs would be left.
"""


def rows_of_images(tandem: TandemConfig) -> tuple[Unsupported, ...]:
    """:data:`IMAGES` in a run with ``images``, otherwise none."""
    return IMAGES if tandem.images else ()


def _adapted_ends(modules: Any) -> list[str]:
    return [name for name in modules or () if "lm_head" in name or "embed" in name]


_CONFIG = (
    Row(
        "config.parallel_config.enable_batch_sharded_sampling",
        is_on,
        "batch-sharded-sampling-unsupported",
    ),
    Row(
        "config.model_config.runner_type",
        lambda runner, _: runner != "generate",
        "runner-not-generative",
        fields={"runner": of("config.model_config.runner_type")},
    ),
    Row(
        "config.lora_config.target_modules",
        lambda modules, _: bool(_adapted_ends(modules)),
        "lora-modules-unsupported",
        fields={
            "layers": lambda option: ", ".join(
                _adapted_ends(option("config.lora_config.target_modules"))
            )
        },
    ),
)
"""Of a finished configuration."""

_EXPERTS = (
    # vLLM's balancing counts and moves the experts of the engine's own model; the junior's layers
    # would be built for it, but never learn where their experts are.
    Row(
        "config.parallel_config.enable_eplb",
        lambda value, option: bool(value and option("junior").get_num_experts()),
        "eplb-junior-experts",
        fields={"junior": of("junior.model")},
    ),
    # If the engine's own model is dense, vLLM creates no process group for experts, which their
    # layers need. A mixture-of-experts senior with a dense junior works.
    Row(
        "junior.is_moe",
        lambda value, option: bool(value) and not option("senior.is_moe"),
        "junior-experts-senior-dense",
        fields={"junior": of("junior.model")},
    ),
)
"""Of a mixture-of-experts junior that vLLM cannot run in this engine."""

_BREAKABLE = frozenset({"DeepseekV4ForCausalLM", "MiniMaxM3SparseForCausalLM"})
"""The default for versions of vLLM without ``DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES``."""


def _is_breakable(model: Any, option: Option) -> bool:
    """Whether vLLM captures a model in breakable CUDA graphs.

    vLLM decides by the name of the architecture and sets an environment variable, after the senior
    was built under its tandem name.
    """
    from vllm.config import vllm as config

    breakable = getattr(config, "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES", _BREAKABLE)
    is_allowed = os.environ.get("VLLM_USE_BREAKABLE_CUDAGRAPH") != "0"
    return is_allowed and architecture_of(model) in breakable


_GRAPHS = {
    model: Row(
        model,
        _is_breakable,
        "breakable-graphs-untested",
        fields={
            "model": of(f"{model}.model"),
            "architecture": lambda option, model=model: architecture_of(option(model)),
        },
    )
    for model in _MODELS
}


def check_arguments(args: Any, config: TandemConfig) -> None:
    """Raise :class:`EngineError` for engine arguments that are incompatible with tandem."""
    import vllm

    check_supported(ARGUMENTS, engine_view(option_of(args), config, vllm.__version__))
    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0").strip() not in ("", "0"):
        raise EngineError("rust-frontend-unsupported")


def check_config(vllm_config: Any, tandem: TandemConfig | None = None) -> None:
    """Raise :class:`EngineError` for a finished configuration that would not run in tandem."""
    view = engine_view(
        lambda name: None, tandem, senior=vllm_config.model_config, config=vllm_config
    )
    check_supported((*_CONFIG, *KINDS["senior"], _GRAPHS["senior"]), view)


def check_junior(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for a junior that would fail, or be wrong, in this engine.

    junior: its model configuration.
    """
    import vllm
    from vllm.platforms import current_platform

    tandem = TandemConfig.from_mapping(vllm_config.additional_config["tandem"])
    senior_config = senior_model_config(vllm_config)
    arguments = vars(vllm_config.cache_config) | {"enable_lora": bool(vllm_config.lora_config)}
    view = engine_view(
        arguments.get,
        tandem,
        vllm.__version__,
        senior_config,
        junior,
        vllm_config,
    )
    check_supported((*KINDS["junior"], _GRAPHS["junior"]), view)
    check_supported((*rows_of_images(tandem), *STATES), view)
    parallel = vllm_config.parallel_config
    senior, junior_shape = (AttentionShape.of(model, parallel) for model in (senior_config, junior))
    check_attention_shapes(
        senior, junior_shape, str(current_platform.device_name), vllm.__version__
    )
    check_supported(_EXPERTS, view)


class AttentionShape(NamedTuple):
    """The shapes of a model's attention, on one device of a tensor-parallel group."""

    query_heads: int
    kv_heads: int
    head_size: int
    is_latent: bool
    """Whether it is multi-head latent attention, which has a different kind of cache."""

    @classmethod
    def of(cls, model: Any, parallel: Any) -> AttentionShape:
        """Of a model configuration."""
        return cls(
            model.get_num_attention_heads(parallel),
            model.get_num_kv_heads(parallel),
            model.get_head_size(),
            bool(model.use_mla),
        )

    def __str__(self) -> str:
        kind = ", latent" if self.is_latent else ""
        return (
            f"{self.query_heads} query heads, {self.kv_heads} KV heads, head size "
            f"{self.head_size}{kind}"
        )


def _unplanned(
    name: str, rejects: Callable[[Any, Option], bool], reason: str, otherwise: str = ""
) -> Unsupported:
    def why(option: Option) -> str:
        return reason.format(device=option("device"), vllm=option("vllm"))

    return Row(
        name,
        rejects,
        "attention-kinds-differ",
        fields={
            "senior": of("senior"),
            "junior": of("junior"),
            "reason": why,
            "otherwise": otherwise,
        },
    )


_SHAPES = (
    *(
        _unplanned(
            f"{model}.is_latent", is_on, "vLLM plans latent attention only for the senior's shapes"
        )
        for model in _MODELS
    ),
    _unplanned(
        "device",
        lambda device, _: device not in ("cpu", "cuda"),
        "it has not been verified that vLLM plans for both on {device}",
    ),
    _unplanned(
        "vllm",
        lambda version, option: option("device") == "cuda" and is_older(version, (0, 29)),
        "vLLM {vllm} plans GPU attention only for the senior's shapes",
        ", or use vLLM 0.29 or newer",
    ),
    _unplanned(
        "junior.head_size",
        lambda size, option: option("device") == "cuda" and size > option("senior.head_size"),
        "vLLM sizes its buffers for the senior's head size",
    ),
)
"""Of two attention geometries that vLLM cannot plan separately."""


def check_attention_shapes(
    senior: AttentionShape, junior: AttentionShape, device: str, version: str
) -> None:
    """Raise :class:`EngineError` for two attention geometries that this vLLM cannot plan
    separately.

    device: vLLM's name of the platform. version: vLLM's. On GPUs, vLLM before 0.29 plans the
    attention of every layer for the shapes of the engine's own model (vllm-project/vllm#53336).
    Newer versions still do so for ROCm, for latent attention, and for the head size in Triton's
    buffers, which a smaller head fits into. CPUs have no such plan.
    """
    if senior != junior:
        view = SimpleNamespace(senior=senior, junior=junior, device=device, vllm=version)
        check_supported(_SHAPES, option_of(view))
