"""What drafting takes of a GPU's memory beside weights and KV cache, by the engine's own sizes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHUNK_BYTES", "DraftBytes", "draft_bytes"]

CHUNK_BYTES = 2**30
"""The most that logits of one chunk take in float32, as in vLLM's rejection sampler."""

_FLOAT32 = 4


@dataclass(frozen=True, slots=True)
class DraftBytes:
    """Bytes on each GPU."""

    kept: int
    """As long as the engine runs."""
    a_round: int
    """The most at any moment of a round, its logits included."""
    logits: int
    """Of ``a_round``, what vLLM's profiling sees itself: the logits of one row a request."""


def draft_bytes(
    *, requests: int, drafts: int, vocabulary: int, head: int, hidden: int, batch: int, chunk: int
) -> DraftBytes:
    """Upper bounds, by the shapes of the largest batch.

    requests: ``max_num_seqs``. head: bytes of one logit. hidden: bytes of the junior's hidden
    state of one token. batch: ``max_num_batched_tokens``. chunk: the most rows of logits that are
    worked on at once.

    With S requests, k drafts, V token ids and H the junior's hidden size, ``S k V + (S + 1) k H``
    values are kept, one row of them for padding. A round verifies n = S (k + 1) rows, at most the
    tokens of a batch: n V logits, and of a chunk of them twice their values in float32, with the
    requests' parameters and without what is rejected, and both distributions of one row a request.
    Drafting works on S rows.
    """
    kept = drafts * (requests * vocabulary * head + (requests + 1) * hidden)
    rows = min(requests * (drafts + 1), batch)
    chunk = min(rows, chunk)
    checked = chunk * 2 * _FLOAT32 + chunk // (drafts + 1) * 5 * _FLOAT32
    with_logprobs = chunk * 3 * head
    verifying = vocabulary * (rows * head + max(checked, with_logprobs))
    # Masks: a copy in float32, which of it is masked, and what is left. Penalties go with float32
    # heads alone: what they make of it, three times more.
    masked = 2 * head + _FLOAT32 + 1 + (3 * _FLOAT32 if head == _FLOAT32 else 0)
    return DraftBytes(
        kept, max(verifying, requests * vocabulary * masked), requests * vocabulary * head
    )
