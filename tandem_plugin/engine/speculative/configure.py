"""Configures an engine for the speculative mode, and rejects what it does not support."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.speculative.patches import give_drafts_their_targets_ids
from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from vllm.config import ModelConfig, VllmConfig
    from vllm.engine.arg_utils import EngineArgs

_OLDEST = (0, 29)
"""The first vLLM whose Model Runner V2 and rejection sampler support this mode."""


def check_drafting_options(option: Callable[[str], Any], version: str) -> None:
    """Raise :class:`EngineError` for a vLLM or one of its options that this mode does not support.

    option: its value by its name; None if it is not set. version: vLLM's.
    """
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST:
        raise EngineError("speculative-vllm-too-old", version=version)
    if option("logits_processors"):
        raise EngineError("speculative-logits-processors")
    for name in ("enable_lora", "enable_dbo"):
        if option(name):
            raise EngineError("speculative-setting-unsupported", name=name)


def ask_for_drafts(
    args: EngineArgs,
    config: TandemConfig,
    junior: str,
    revision: str | None,
    code_revision: str | None,
) -> None:
    """Configure the junior as vLLM's draft model, in engine arguments with the speculative mode.

    revision, code_revision: the junior's, if not its newest. Raises like
    :func:`check_drafting_options`.
    """
    import vllm

    check_drafting_options(lambda name: getattr(args, name, None), vllm.__version__)
    give_drafts_their_targets_ids()
    args.speculative_config = {
        "method": "draft_model",
        "model": junior,
        "revision": revision,
        "code_revision": code_revision,
        "num_speculative_tokens": config.max_drafts,
        "num_speculative_tokens_per_batch_size": _ranges(config.drafts),
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "standard",
    }


def make_junior_the_draft(vllm_config: VllmConfig, junior: ModelConfig) -> None:
    """Let the speculator build tandem's junior, in a finished configuration.

    junior: the junior's model configuration, read as in lockstep; vLLM's own draft model
    configuration ignores the senior's. Only the number of token ids differs: it is the senior's
    (:func:`~tandem_plugin.engine.speculative.patches.give_drafts_their_targets_ids`).
    """
    speculative = vllm_config.speculative_config
    junior.model_arch_config.vocab_size = speculative.target_model_config.get_vocab_size()
    speculative.draft_model_config = junior


def _ranges(drafts: int | dict[int, int] | None) -> list[tuple[int, int, int]] | None:
    """A table of drafts as vLLM's, of (first batch size, last, drafts); None without one.

    vLLM applies the last number to all larger batch sizes.
    """
    if not isinstance(drafts, dict) or len(set(drafts.values())) == 1:
        return None
    firsts = [*drafts, max(drafts) + 1]
    return [(first, after - 1, drafts[first]) for first, after in pairwise(firsts)]


def check_drafting(vllm_config: VllmConfig, config: TandemConfig) -> None:
    """Raise :class:`EngineError` for a finished configuration with unverified drafting."""
    if not getattr(vllm_config, "use_v2_model_runner", False):
        raise EngineError("speculative-runner-v1")
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    draft = vllm_config.speculative_config.draft_model_config
    unsupported = {
        "enable_dbo": getattr(parallel, "enable_dbo", False),
        "decode_context_parallel_size": parallel.decode_context_parallel_size > 1,
        "prefill_context_parallel_size": getattr(parallel, "prefill_context_parallel_size", 1) > 1,
        "enable_lora": vllm_config.lora_config is not None,
        "watermark_config": getattr(vllm_config, "watermark_config", None) is not None,
        "return_sampling_mask": getattr(model, "return_sampling_mask", False),
        "enable_trace_replay": getattr(model, "enable_trace_replay", False),
        "kv_sharing_fast_prefill": vllm_config.cache_config.kv_sharing_fast_prefill,
    }
    for name, is_set in unsupported.items():
        if is_set:
            raise EngineError("speculative-setting-unsupported", name=name)
    if parallel.data_parallel_size > 1 and (model.is_moe or draft.is_moe):
        raise EngineError("speculative-data-parallel-experts")
    scheduler = vllm_config.scheduler_config
    if scheduler.max_num_batched_tokens < 2 * scheduler.max_num_seqs:
        raise EngineError(
            "speculative-batched-tokens-too-few",
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
        )
    if isinstance(config.drafts, dict) and parallel.data_parallel_size > 1:
        raise EngineError("drafts-data-parallel", drafts=config.max_drafts)
