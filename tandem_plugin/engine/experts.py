"""Mixtures of experts as juniors: what of vLLM's machinery for experts does not know of them."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import EngineError

__all__ = ["check_experts"]


def check_experts(vllm_config: Any, junior: Any) -> None:
    """Raise :class:`EngineError` where experts are to be moved and the junior has some.

    vLLM's balancing of experts (``enable_eplb``) counts and moves those of the engine's own model;
    the junior's layers would be built for it, and nobody would tell them where their experts are.
    A senior of experts with a dense junior is as vLLM has it. junior: its model configuration.
    """
    if vllm_config.parallel_config.enable_eplb and junior.get_num_experts():
        raise EngineError(
            f"enable_eplb does not go with the junior {junior.model!r}, a mixture of experts: vLLM "
            "would balance the senior's experts alone and leave the junior's layers without a map "
            "of theirs. Leave enable_eplb out, or choose a dense junior."
        )
