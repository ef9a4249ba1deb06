"""What the speculative mode refuses at its start, beside what any tandem engine does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.speculative.memory import check_memory
from tandem_plugin.errors import EngineError

__all__ = ["check_drafting"]


def check_drafting(vllm_config: Any, config: TandemConfig) -> None:
    """Raise :class:`EngineError` for a finished configuration whose drafts nobody has proven."""
    if not getattr(vllm_config, "use_v2_model_runner", False):
        raise EngineError(
            "mode='speculative' needs vLLM's Model Runner V2, but vLLM chose V1 for this engine. "
            "Set VLLM_USE_V2_MODEL_RUNNER=1 where there is a GPU, or use mode='lockstep'."
        )
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    draft = vllm_config.speculative_config.draft_model_config
    refused = {
        "enable_dbo": getattr(parallel, "enable_dbo", False),
        "decode_context_parallel_size": parallel.decode_context_parallel_size > 1,
        "prefill_context_parallel_size": getattr(parallel, "prefill_context_parallel_size", 1) > 1,
        "enable_lora": vllm_config.lora_config is not None,
        "watermark_config": getattr(vllm_config, "watermark_config", None) is not None,
        "return_sampling_mask": getattr(model, "return_sampling_mask", False),
        "enable_trace_replay": getattr(model, "enable_trace_replay", False),
        "kv_sharing_fast_prefill": vllm_config.cache_config.kv_sharing_fast_prefill,
    }
    for name, asked in refused.items():
        if asked:
            raise EngineError(
                f"{name} does not go with mode='speculative'. Remove it, or use mode='lockstep'."
            )
    if parallel.data_parallel_size > 1 and (model.is_moe or draft.is_moe):
        raise EngineError(
            "data_parallel_size greater than 1 does not go with mode='speculative' and mixtures of "
            "experts: ranks would wait for each other where only one of them runs its junior. Use "
            "mode='lockstep'."
        )
    scheduler = vllm_config.scheduler_config
    if scheduler.max_num_batched_tokens < 2 * scheduler.max_num_seqs:
        raise EngineError(
            f"max_num_batched_tokens={scheduler.max_num_batched_tokens} is too little for "
            f"mode='speculative' with max_num_seqs={scheduler.max_num_seqs}: the junior reads two "
            "tokens of every request at once. Raise the first to twice the other, or lower that."
        )
    if isinstance(config.drafts, dict):
        if parallel.data_parallel_size > 1:
            raise EngineError(
                "A table of drafts does not go with data_parallel_size greater than 1: ranks that "
                "draft different numbers of tokens would wait for each other. Give one number, "
                f"such as drafts={config.max_drafts}."
            )
        _check_room(scheduler, config.drafts)
    check_memory(vllm_config)


def _check_room(scheduler: Any, table: dict[int, int]) -> None:
    """Raise :class:`EngineError` where a step has no room for the drafts of a whole batch.

    vLLM counts two tokens of a request more than its drafts, lets requests that do not fit wait,
    and chooses the number of drafts by those that did: so there must be room for one more, which
    may still have the most drafts.
    """
    largest, most = scheduler.max_num_seqs, max(table.values())
    room = min(
        scheduler.max_num_batched_tokens,
        scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens,
    )
    for first, after in pairwise([*table, max(largest, *table) + 1]):
        requests = min(after - 1, largest)
        needed = requests * (table[first] + 2) + (most + 2 if requests < largest else 0)
        if first <= largest and needed > room:
            raise EngineError(
                f"drafts={table} does not fit: {requests} requests with {table[first]} drafts each "
                f"need {needed} tokens in a step, and max_num_batched_tokens leaves {room}. Raise "
                f"max_num_batched_tokens to {needed}, lower max_num_seqs, or draft fewer tokens "
                f"from batch size {first} on."
            )
