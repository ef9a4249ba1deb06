"""The engine configuration of the speculative mode: vLLM's own draft model, which is the junior."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.names import JUNIOR, SCHEDULERS
from tandem_plugin.engine.patches.drafts import give_drafts_their_targets_ids
from tandem_plugin.errors import EngineError

__all__ = ["ask_for_drafts", "choose_scheduler", "make_junior_the_draft"]

_SPECULATOR = "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator"


def ask_for_drafts(
    args: Any,
    config: TandemConfig,
    junior: str,
    revision: str | None,
    code_revision: str | None,
) -> None:
    """Ask vLLM for a draft model, in engine arguments that ask for the speculative mode.

    revision, code_revision: the junior's, where they are not its newest. Raises
    :class:`EngineError` where this vLLM's Model Runner V2 has none.
    """
    if not _has_speculator():
        import vllm

        raise EngineError(
            "mode='speculative' needs a draft model in vLLM's Model Runner V2, which vLLM "
            f"{vllm.__version__} does not have: use vLLM 0.32.0 or newer, or mode='lockstep'."
        )
    if args.logits_processors:
        raise EngineError(
            "logits_processors do not go with mode='speculative': nobody has shown that they treat "
            "the junior's drafts as its tokens. Remove them, or use mode='lockstep'."
        )
    if config.adaptive_drafts and args.scheduler_cls is not None:
        raise EngineError(
            f"scheduler_cls={args.scheduler_cls!r} does not go with adaptive_drafts, which brings "
            "a scheduler of its own. Leave one of the two out."
        )
    give_drafts_their_targets_ids()
    args.speculative_config = {
        "method": "draft_model",
        "model": junior,
        "revision": revision,
        "code_revision": code_revision,
        "num_speculative_tokens": config.drafts,
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "standard",
    }


def make_junior_the_draft(vllm_config: Any, junior: Any) -> None:
    """Let the speculator make tandem's junior, in a finished configuration.

    junior: the junior's model configuration, read as in lockstep; vLLM's own of a draft model
    knows nothing of the senior's. Only the class is another one, and the number of token ids, which
    is the senior's (:func:`~tandem_plugin.engine.patches.drafts.give_drafts_their_targets_ids`).
    """
    speculative = vllm_config.speculative_config
    junior.hf_config = copy.copy(junior.hf_config)
    junior.hf_config.architectures = [JUNIOR]
    junior.model_arch_config.vocab_size = speculative.target_model_config.get_vocab_size()
    speculative.draft_model_config = junior


def choose_scheduler(vllm_config: Any, config: TandemConfig) -> None:
    """Let a scheduler choose the number of drafts where it is to adapt."""
    if config.adaptive_drafts:
        scheduler = vllm_config.scheduler_config
        kind = "AdaptiveAsyncScheduler" if scheduler.async_scheduling else "AdaptiveScheduler"
        scheduler.scheduler_cls = f"{SCHEDULERS}.{kind}"


def _has_speculator() -> bool:
    try:
        return importlib.util.find_spec(_SPECULATOR) is not None
    except ModuleNotFoundError:
        return False
