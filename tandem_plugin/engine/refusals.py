"""What a tandem engine refuses at its start: better no tokens than tokens that are not tandem's."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import EngineError

__all__ = ["check_arguments", "check_config"]


def check_arguments(args: Any) -> None:
    """Raise :class:`EngineError` for engine arguments that do not go with tandem."""
    import vllm.envs as envs

    if args.pipeline_parallel_size > 1:
        raise EngineError(
            f"pipeline_parallel_size={args.pipeline_parallel_size} does not go with tandem: the "
            "author of a token is chosen where both models end. Set pipeline_parallel_size=1 and "
            "use tensor parallelism."
        )
    if args.speculative_config is not None:
        raise EngineError(
            "speculative_config does not go with tandem: draft tokens would have no author. "
            "Remove it."
        )
    if envs.VLLM_USE_V2_MODEL_RUNNER:
        raise EngineError(
            "VLLM_USE_V2_MODEL_RUNNER is set, and tandem does not run on vLLM's Model Runner V2 "
            "yet. Unset it: tandem then selects Model Runner V1."
        )
    if args.async_scheduling:
        raise EngineError(
            "async_scheduling does not go with tandem on Model Runner V1: the last token is not "
            "known when its successor's author is chosen. Leave it out."
        )
    if args.enable_lora:
        raise EngineError(
            "enable_lora does not go with tandem yet: merge the adapter into the senior's "
            "checkpoint."
        )
    if args.kv_transfer_config is not None:
        raise EngineError(
            "kv_transfer_config does not go with tandem: connectors were not made for two models' "
            "caches in one engine. Remove it."
        )


def check_config(vllm_config: Any) -> None:
    """Raise :class:`EngineError` for a finished configuration that would not run in tandem."""
    model = vllm_config.model_config
    if getattr(vllm_config, "use_v2_model_runner", False):
        raise EngineError(
            "vLLM chose Model Runner V2 for this engine, and tandem does not run on it yet. Set "
            "VLLM_USE_V2_MODEL_RUNNER=0."
        )
    if model.runner_type != "generate":
        raise EngineError(f"runner={model.runner_type!r} does not generate; tandem needs generate.")
    if model.is_multimodal_model:
        raise EngineError(f"{model.model!r} is multimodal; tandem runs text models only.")
    if model.is_hybrid or model.is_attention_free:
        raise EngineError(
            f"{model.model!r} keeps state outside paged attention; tandem runs attention models "
            "only."
        )
    if model.is_encoder_decoder:
        raise EngineError(f"{model.model!r} is an encoder-decoder; tandem runs decoders only.")
