"""The device memory that the speculative mode takes in addition to weights and KV cache.

Computed from the configuration. Permanent: the logits that drafts were sampled from and the
junior's hidden states there. Temporary, within a round: the logits of every row that it verifies
and the intermediate results. vLLM's profiling sees the lasting part, and of the temporary one
only the logits of one row per request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from vllm.config import VllmConfig

CHUNK_BYTES = 2**30
"""The maximum size of one chunk's logits in float32, as in vLLM's rejection sampler."""

_FLOAT32 = 4
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """Bytes on each device."""

    lasting: int
    """Held while the engine runs."""
    a_round: int
    """The peak within a round, its logits included."""
    logits: int
    """The part of ``a_round`` that vLLM's profiling sees: the logits of one row per request."""
    settings: str
    """The settings that determine it, in words."""

    def describe(self) -> str:
        """The required memory, for an error message."""
        return (
            f"mode='speculative' with {self.settings} needs {self.lasting / _GIB:.2f} GiB for "
            f"drafts and {self.a_round / _GIB:.2f} GiB for a round, next to weights and KV cache"
        )


def draft_memory(vllm_config: VllmConfig) -> DraftMemory:
    """Upper bounds for a finished configuration, from the shapes of the largest batch.

    With S requests, k drafts, V token ids and H the junior's hidden size, ``S k V + (S + 1) k H``
    values are lasting, including one row for padding. A round verifies n = S (k + 1) rows, at
    most the tokens of a batch: n V logits; per chunk, two float32 copies of its values, before and
    after the requests' parameters and rejection; and both distributions of one row per request.
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
    # Masks: a float32 copy, the mask, and the result.
    masked = requests * (2 * head + _FLOAT32 + 1)
    return DraftMemory(
        lasting=drafts * (requests * vocabulary * head + (requests + 1) * hidden),
        a_round=vocabulary * max(rows * head + max(checked, with_logprobs), masked),
        logits=requests * vocabulary * head,
        settings=f"max_num_seqs={requests}, drafts={drafts} and {vocabulary:,} token ids",
    )


def set_aside(memory: DraftMemory, device: torch.device) -> None:
    """Allocate a round's memory briefly while vLLM profiles, so the KV cache leaves it free.

    Raises :class:`EngineError` if it does not fit with the weights.
    """
    try:
        torch.empty(memory.a_round - memory.logits, dtype=torch.uint8, device=device)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise EngineError("speculative-memory-too-small", needs=memory.describe()) from error


def row_chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Rows of logits, in chunks of the size that vLLM's rejection sampler uses."""
    size = _chunk_rows(vocabulary)
    for start in range(0, rows, size):
        yield slice(start, min(rows, start + size))


def _chunk_rows(vocabulary: int) -> int:
    return max(1, CHUNK_BYTES // (vocabulary * _FLOAT32))
