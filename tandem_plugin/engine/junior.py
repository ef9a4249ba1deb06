"""The junior: a second, frozen model inside the senior's engine."""

from __future__ import annotations

from typing import Any

__all__ = ["load_junior"]


def load_junior(vllm_config: Any) -> Any:
    """Build and load the junior of a tandem engine, once, from its own checkpoint.

    Every attention layer of it gets the prefix "junior" and with that its own paged KV cache,
    while block tables, slot mappings and positions are the senior's. Weights always come from the
    checkpoint, also when the senior's start as dummies.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.config import LoadConfig, ModelConfig
    from vllm.config.utils import replace
    from vllm.model_executor.model_loader import get_model

    senior = vllm_config.model_config
    path = vllm_config.additional_config["tandem"]["junior"]
    model_config = ModelConfig(
        model=path,
        tokenizer=senior.tokenizer,
        skip_tokenizer_init=True,
        trust_remote_code=senior.trust_remote_code,
        dtype=senior.dtype,
        seed=senior.seed,
        max_model_len=senior.max_model_len,
        enforce_eager=senior.enforce_eager,
    )
    load_config = LoadConfig(load_format="auto", download_dir=vllm_config.load_config.download_dir)
    # As vLLM itself makes a draft model's configuration: the same engine, another model. The
    # compilation config stays shared, since attention layers register themselves in it.
    junior_config = replace(
        vllm_config, model_config=model_config, load_config=load_config, quant_config=None
    )
    with set_model_tag("junior"):
        model = get_model(vllm_config=junior_config, model_config=model_config, prefix="junior")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model
