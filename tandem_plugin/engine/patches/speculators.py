"""The speculator of Model Runner V2, and which drafts it knows."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_plugin.engine.names import asks_for_tandem
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["draft_with_the_junior", "let_runner_v2_draft"]

_RUNNER = "vllm.v1.worker.gpu.model_runner"


def draft_with_the_junior() -> None:
    """Let Model Runner V2 take tandem's speculator for an engine in the speculative mode.

    Touches: ``init_speculator`` as the runner's module has it, once that is imported, and
    ``GPUModelRunner.execute_model`` where the runner does not tell a speculator how many drafts the
    scheduler asked for. Versions: 0.29 to 0.32. Why: the runner makes speculators of vLLM's own
    kinds alone. Until 0.30 it has none with a model of its own; the later one reads every draft a
    second time and runs without CUDA graphs. Goes when: a configuration can name a speculator's
    class, and all supported runners pass ``num_speculative_tokens``.
    """
    after_import(_RUNNER, _wrap_runner)


def let_runner_v2_draft() -> None:
    """Let vLLM choose Model Runner V2 for an engine in the speculative mode.

    Touches: ``VllmConfig._get_v2_model_runner_unsupported_features``. Versions: 0.29, 0.30. Why:
    it names every draft model there, because vLLM's own speculators of V2 have none. Goes when:
    vLLM 0.31 is the oldest that is supported.
    """
    from vllm.config import VllmConfig

    name = "_get_v2_model_runner_unsupported_features"
    if not hasattr(VllmConfig, name):  # before 0.29, where the mode is refused by its version
        return

    def wrapper(unsupported: Callable[..., Any], vllm_config: Any) -> list[str]:
        found: list[str] = unsupported(vllm_config)
        if not _drafts_in_tandem(vllm_config):
            return found
        return [feature for feature in found if feature != "speculative method 'draft_model'"]

    wrap_once(VllmConfig, name, wrapper)


def _wrap_runner(runner: ModuleType) -> None:
    def init(original: Callable[..., Any], vllm_config: Any, device: Any, *rest: Any) -> Any:
        if not _drafts_in_tandem(vllm_config):
            return original(vllm_config, device, *rest)
        from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

        return JuniorSpeculator(vllm_config, device)

    def execute(
        original: Callable[..., Any], owner: Any, output: Any, *rest: Any, **more: Any
    ) -> Any:
        if hasattr(owner.speculator, "asked"):
            owner.speculator.asked = output.num_spec_tokens_to_schedule
        return original(owner, output, *rest, **more)

    wrap_once(runner, "init_speculator", init)
    if "num_spec_tokens_to_schedule" not in runner.ExecuteModelState._fields:
        wrap_once(runner.GPUModelRunner, "execute_model", execute)


def _drafts_in_tandem(vllm_config: Any) -> bool:
    """Also of the junior's own configuration, which is made of the engine's."""
    drafts = vllm_config.speculative_config is not None  # a user's own is refused in tandem
    return drafts and asks_for_tandem(vllm_config.additional_config)
