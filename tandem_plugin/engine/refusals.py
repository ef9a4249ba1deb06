"""What a tandem engine refuses at its start: better no tokens than tokens that are not tandem's."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import EngineError

__all__ = ["check_arguments", "check_config"]


def check_arguments(args: Any) -> None:
    """Raise :class:`EngineError` for engine arguments that do not go with tandem."""
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
    if args.enable_prompt_embeds:
        raise EngineError(
            "enable_prompt_embeds does not go with tandem: the junior needs the prompt's token "
            "ids. Remove it."
        )


def check_config(vllm_config: Any) -> None:
    """Raise :class:`EngineError` for a finished configuration that would not run in tandem."""
    model = vllm_config.model_config
    if getattr(vllm_config.parallel_config, "enable_batch_sharded_sampling", False):
        raise EngineError(
            "enable_batch_sharded_sampling does not go with tandem: it reads the senior's logits "
            "past the choice of the author. Remove it."
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
