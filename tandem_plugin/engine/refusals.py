"""Configurations that a tandem engine rejects at startup, rather than generate wrong tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.junior import senior_model_config
from tandem_plugin.engine.wire import without_prefix
from tandem_plugin.errors import EngineError


def check_arguments(args: Any) -> None:
    """Raise :class:`EngineError` for engine arguments that are incompatible with tandem."""
    check_options(lambda name: getattr(args, name))
    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0").strip() not in ("", "0"):
        raise EngineError("rust-frontend-unsupported")


def check_options(option: Callable[[str], Any]) -> None:
    """Raise :class:`EngineError` for an option of vLLM that is incompatible with tandem.

    option: its value by its name; None if it is not set.
    """
    size = option("pipeline_parallel_size")
    if size is not None and int(size) > 1:
        raise EngineError("pipeline-parallel-unsupported", size=size)
    if option("speculative_config") is not None:
        raise EngineError("speculative-config-unsupported")
    if option("kv_transfer_config") is not None:
        raise EngineError("kv-transfer-unsupported")
    if option("enable_prompt_embeds"):
        raise EngineError("prompt-embeds-unsupported")


def check_config(vllm_config: Any) -> None:
    """Raise :class:`EngineError` for a finished configuration that would not run in tandem."""
    model = vllm_config.model_config
    if getattr(vllm_config.parallel_config, "enable_batch_sharded_sampling", False):
        raise EngineError("batch-sharded-sampling-unsupported")
    if model.runner_type != "generate":
        raise EngineError("runner-not-generative", runner=model.runner_type)
    adapted = getattr(vllm_config.lora_config, "target_modules", None) or ()
    if ends := [name for name in adapted if "lm_head" in name or "embed" in name]:
        raise EngineError("lora-modules-unsupported", layers=", ".join(ends))
    _check_kind(model)


def check_junior(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for a junior that would fail, or be wrong, in this engine.

    junior: its model configuration.
    """
    import vllm
    from vllm.platforms import current_platform

    _check_kind(junior)
    models = senior_model_config(vllm_config), junior
    tandem = TandemConfig.from_mapping(vllm_config.additional_config["tandem"])
    option = (vars(vllm_config.cache_config) | {"enable_lora": bool(vllm_config.lora_config)}).get
    kinds = ModelKind.of(models[0]), ModelKind.of(models[1])
    check_states(tandem, *kinds, option, vllm.__version__)
    senior, other = (AttentionShape.of(model, vllm_config.parallel_config) for model in models)
    check_attention_shapes(senior, other, str(current_platform.device_name), vllm.__version__)


class ModelKind(NamedTuple):
    """A model, and whether it has layers with recurrent states beside attention."""

    name: str
    architecture: str
    is_hybrid: bool

    @classmethod
    def of(cls, model: Any) -> ModelKind:
        """Of a model configuration."""
        return cls(model.model, without_prefix(model.architectures[0]), model.is_hybrid)


DELTA_NETS = frozenset({"Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "Qwen3NextForCausalLM"})
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

_OLDEST = (0, 29)
"""The first vLLM whose model classes state their states' sizes and copies by kind."""


def check_states(
    tandem: TandemConfig,
    senior: ModelKind | None,
    junior: ModelKind | None,
    option: Callable[[str], Any],
    version: str | None,
) -> None:
    """Raise :class:`EngineError` for recurrent states that would fail, or be wrong, in tandem.

    option: an argument of vLLM by its name, None if it is not set. None also stands for a model or
    a version of vLLM that is not known.
    """
    models = [model for model in (senior, junior) if model and model.is_hybrid]
    if not models:
        return
    for model in models:
        if model.architecture not in TESTED_HYBRIDS:
            raise EngineError(
                "hybrid-family-untested", model=model.name, architecture=model.architecture
            )
    hybrid = [model.name for model in models]
    if version and tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST:
        raise EngineError("hybrid-vllm-too-old", model=hybrid[0], version=version)
    if len(hybrid) == 1 and senior and junior and junior.is_hybrid:
        raise EngineError("hybrid-junior-attention-senior", junior=junior.name, senior=senior.name)
    for name, refused in _WITHOUT_STATES.items():
        if (value := option(name)) and refused in (value, True):
            raise EngineError("hybrid-setting-unsupported", model=hybrid[0], name=f"{name}={value}")
    if not tandem.max_drafts:
        return
    if (junior and junior.is_hybrid) or (senior and senior.architecture not in DELTA_NETS):
        raise EngineError("hybrid-speculative-unsupported", model=hybrid[-1])
    if UNPROVEN_DRAFTING not in tandem.unproven:
        raise EngineError("hybrid-speculative-unproven", model=hybrid[0], name=UNPROVEN_DRAFTING)


_WITHOUT_STATES = {"enable_lora": True, "mamba_cache_mode": "all", "use_replayssm": True}
"""Settings rejected with recurrent states; in mode "all" the junior's blocks would be unaligned."""


class AttentionShape(NamedTuple):
    """The shapes of a model's attention, on one device of a tensor-parallel group."""

    query_heads: int
    kv_heads: int
    head_size: int
    is_latent: bool
    """Whether it is multi-head latent attention, which has another kind of cache."""

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
    if senior == junior:
        return
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if senior.is_latent or junior.is_latent:
        reason, remedy = "vLLM plans latent attention only for the senior's shapes", ""
    elif device == "cpu":
        return
    elif device != "cuda":
        reason, remedy = f"it has not been verified that vLLM plans for both on {device}", ""
    elif release < (0, 29):
        reason = f"vLLM {version} plans GPU attention only for the senior's shapes"
        remedy = ", or use vLLM 0.29 or newer"
    elif junior.head_size > senior.head_size:
        reason, remedy = "vLLM sizes its buffers for the senior's head size", ""
    else:
        return
    raise EngineError(
        "attention-kinds-differ", senior=senior, junior=junior, reason=reason, otherwise=remedy
    )


def check_experts(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` for a mixture-of-experts junior that vLLM cannot run here.

    vLLM's balancing of experts (``enable_eplb``) counts and moves those of the engine's own model;
    the junior's layers would be built for it, but never learn where their experts are. If the
    engine's own model is dense, vLLM creates no process group for experts, which their layers need.
    A mixture-of-experts senior with a dense junior works. junior: its model configuration.
    """
    if vllm_config.parallel_config.enable_eplb and junior.get_num_experts():
        raise EngineError("eplb-junior-experts", junior=junior.model)
    if junior.is_moe and not senior_model_config(vllm_config).is_moe:
        raise EngineError("junior-experts-senior-dense", junior=junior.model)


def _check_kind(model: Any) -> None:
    if model.is_multimodal_model:
        raise EngineError("multimodal-model-unsupported", model=model.model)
    if model.is_attention_free:
        raise EngineError("attention-free-model-unsupported", model=model.model)
    if model.is_encoder_decoder:
        raise EngineError("encoder-decoder-unsupported", model=model.model)
    _check_graphs(model)


_BREAKABLE = frozenset({"DeepseekV4ForCausalLM", "MiniMaxM3SparseForCausalLM"})
"""The default for versions of vLLM without ``DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES``."""


def _check_graphs(model: Any) -> None:
    """Raise :class:`EngineError` for a model that vLLM captures in breakable CUDA graphs.

    vLLM decides by the name of the architecture and sets an environment variable, after the senior
    was built under its tandem name.
    """
    from vllm.config import vllm as config

    breakable = getattr(config, "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES", _BREAKABLE)
    architecture = without_prefix(model.architectures[0])
    if architecture in breakable and os.environ.get("VLLM_USE_BREAKABLE_CUDAGRAPH") != "0":
        raise EngineError("breakable-graphs-untested", model=model.model, architecture=architecture)
