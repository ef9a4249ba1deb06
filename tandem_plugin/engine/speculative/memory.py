"""What the speculative mode takes of a device's memory beside weights and KV cache.

Computed from the configuration: kept are the logits that drafts were sampled from and the junior's
hidden states behind them; a round takes, and gives back, the logits of every row that it verifies
and what is worked out of them. vLLM's profiling sees the first, and of the second only the logits
of one row a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tandem_plugin.errors import EngineError

__all__ = [
    "CHUNK_BYTES",
    "DraftMemory",
    "draft_memory",
    "row_chunks",
    "set_aside",
]

CHUNK_BYTES = 2**30
"""The most that logits of one chunk take in float32, as in vLLM's rejection sampler."""

_FLOAT32 = 4
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """Bytes on each device."""

    kept: int
    """As long as the engine runs."""
    a_round: int
    """The most at any moment of a round, its logits included."""
    logits: int
    """Of ``a_round``, what vLLM's profiling sees itself: the logits of one row a request."""
    settings: str
    """The settings that it follows from, in words."""

    def describe(self) -> str:
        """What is needed, for a sentence."""
        return (
            f"mode='speculative' with {self.settings} needs {self.kept / _GIB:.2f} GiB for drafts "
            f"and {self.a_round / _GIB:.2f} GiB for a round, beside weights and KV cache"
        )


def draft_memory(vllm_config: Any) -> DraftMemory:
    """Upper bounds of what a finished configuration needs, by the shapes of the largest batch.

    With S requests, k drafts, V token ids and H the junior's hidden size, ``S k V + (S + 1) k H``
    values are kept, one row of them for padding. A round verifies n = S (k + 1) rows, at most the
    tokens of a batch: n V logits, and of a chunk of them twice their values in float32, with the
    requests' parameters and without what is rejected, and both distributions of one row a request.
    Drafting works on S rows.
    """
    scheduler, model = vllm_config.scheduler_config, vllm_config.model_config
    drafting = vllm_config.speculative_config
    draft = drafting.draft_model_config
    requests, drafts = scheduler.max_num_seqs, drafting.num_speculative_tokens
    vocabulary, head = model.get_vocab_size(), model.head_dtype.itemsize
    hidden = draft.get_hidden_size() * draft.dtype.itemsize
    rows = min(requests * (drafts + 1), scheduler.max_num_batched_tokens)
    chunk = min(rows, _chunk_rows(vocabulary))
    checked = chunk * 2 * _FLOAT32 + chunk // (drafts + 1) * 5 * _FLOAT32
    with_logprobs = chunk * 3 * head
    # Masks: a copy in float32, which of it is masked, and what is left.
    masked = requests * (2 * head + _FLOAT32 + 1)
    return DraftMemory(
        kept=drafts * (requests * vocabulary * head + (requests + 1) * hidden),
        a_round=vocabulary * max(rows * head + max(checked, with_logprobs), masked),
        logits=requests * vocabulary * head,
        settings=f"max_num_seqs={requests}, drafts={drafts} and {vocabulary:,} token ids",
    )


def set_aside(memory: DraftMemory, device: torch.device) -> None:
    """Take what a round needs for a moment, while vLLM profiles: the KV cache then leaves it free.

    Raises :class:`EngineError` where there is not as much beside the weights.
    """
    try:
        torch.empty(memory.a_round - memory.logits, dtype=torch.uint8, device=device)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise EngineError("TP354", needs=memory.describe()) from error


def row_chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Rows of logits in chunks as large as vLLM's rejection sampler takes them."""
    size = _chunk_rows(vocabulary)
    for start in range(0, rows, size):
        yield slice(start, min(rows, start + size))


def _chunk_rows(vocabulary: int) -> int:
    return max(1, CHUNK_BYTES // (vocabulary * _FLOAT32))
