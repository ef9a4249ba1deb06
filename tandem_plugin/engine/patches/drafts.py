"""Drafts: over which ids, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.names import SPECULATIVE_PREFIX, TELL_OF_DRAFTS
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["give_drafts_their_targets_ids", "let_workers_tell_of_drafts"]


def give_drafts_their_targets_ids() -> None:
    """Let a junior draft whose vocabulary is padded to another length than the senior's.

    Touches: ``SpeculativeConfig.verify_equal_vocab_size_if_draft_model`` and the number of token
    ids in the draft's ``model_arch_config``, by which the speculator sizes its buffers; the junior
    gives its logits over as many. Versions: 0.29 to 0.32. Why: vLLM's draft models must have as
    many ids as their targets, padding included. Goes when: they need no more.
    """
    from vllm.config import SpeculativeConfig

    def wrapper(verify: Callable[..., Any], speculative: Any) -> Any:
        target, draft = speculative.target_model_config, speculative.draft_model_config
        architectures = getattr(getattr(target, "hf_config", None), "architectures", None) or [""]
        if draft is not None and architectures[0].startswith(SPECULATIVE_PREFIX):
            draft.model_arch_config.vocab_size = target.get_vocab_size()
        return verify(speculative)

    wrap_once(SpeculativeConfig, "verify_equal_vocab_size_if_draft_model", wrapper)


def let_workers_tell_of_drafts() -> None:
    """Let ``collective_rpc("tandem_draft_stats")`` return each worker's counters of drafting.

    Touches: ``WorkerBase``, which gets one method more. Versions: 0.29 to 0.32. Why: a worker's
    numbers reach the front end by ``collective_rpc`` alone, which takes functions only where
    ``VLLM_ALLOW_INSECURE_SERIALIZATION`` is set, and names of the worker's methods everywhere
    (``worker_extension_cls`` is taken by trainers). Goes when: vLLM lets a model state add to its
    statistics.
    """
    from vllm.v1.worker.worker_base import WorkerBase

    from tandem_plugin.engine.speculative.rounds import worker_draft_stats

    setattr(WorkerBase, TELL_OF_DRAFTS, worker_draft_stats)
