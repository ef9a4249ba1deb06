"""Encodings of images that were made with earlier weights."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_plugin.engine.wire import asks_for_tandem
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once


def drop_encodings_with_prefixes() -> None:
    """Let a reset of the prefix cache reset the cache of encoded images as well.

    Touches: ``EngineCore.reset_prefix_cache`` and ``EngineCore.reset_encoder_cache``, in the
    engine's process, once vLLM imports them. Versions: 0.29 to 0.32, tandem engines with images
    only. Why: after a weight sync, trainers reset the prefix cache, and all but verl forget this
    one; the new senior would then see images through its old tower. The worker alone cannot reset
    it: the scheduler would still count an image as encoded. Goes when: vLLM resets both.
    """
    after_import("vllm.v1.engine.core", _wrap_reset)


def _wrap_reset(core: ModuleType) -> None:
    def reset(reset: Callable[..., bool], engine: Any, *arguments: Any, **options: Any) -> bool:
        done = reset(engine, *arguments, **options)
        additional = engine.vllm_config.additional_config
        if asks_for_tandem(additional) and additional["tandem"].get("images"):
            engine.reset_encoder_cache()
        return done

    wrap_once(core.EngineCore, "reset_prefix_cache", reset)
