"""Legibility: how well the junior predicts what the senior wrote, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from tandem_plugin.errors import EvaluationError

__all__ = ["Head", "ResponseScore", "chunk_length", "chunk_scores", "score_response"]

Head: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""The last hidden states of some positions ``[positions, width]`` to logits ``[positions, V]``."""

WORKING_BYTES = 256 * 2**20
"""What the distributions of one chunk of positions may take."""

_COPIES = 5
"""Float64 tensors of a chunk's shape that are alive at a time, at most."""


@dataclass(frozen=True, slots=True)
class ResponseScore:
    """Sums over the positions of one response."""

    tokens: int
    cross_entropy: float
    """Of the junior's -log p(token), in nats."""
    overlap: float
    """Of alpha."""


def chunk_scores(
    senior: torch.Tensor, junior: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The junior's cross-entropy and the overlap of both: float64 ``[positions]`` each.

    senior, junior: logits ``[positions, V]``, of any floating type; each is normalised over its own
    vocabulary, and a token that only one model has overlaps with nothing. targets: the senior's
    token ids. Cross-entropy is -log p_jun(y_t | h_t) in nats; overlap is
    alpha = sum over v of min(p_sen(v | h_t), p_jun(v | h_t)). Both at temperature 1. Source:
    section 4.5 of the paper; Leviathan et al. (2023).
    """
    if senior.shape[0] != junior.shape[0] or targets.shape != junior.shape[:1]:
        raise EvaluationError(
            f"Logits of shape {list(senior.shape)} and {list(junior.shape)} do not go with "
            f"{list(targets.shape)} tokens."
        )
    read = torch.log_softmax(junior.double(), dim=-1)
    cross_entropy = -read.gather(-1, targets[:, None]).squeeze(-1)
    theirs = read.exp_()
    ours = torch.softmax(senior.double(), dim=-1)
    shared = min(ours.shape[-1], theirs.shape[-1])
    smaller = torch.minimum(ours[:, :shared], theirs[:, :shared])
    return cross_entropy, smaller.sum(dim=-1)


def chunk_length(vocabulary: int, working_bytes: int = WORKING_BYTES) -> int:
    """How many positions' distributions fit into ``working_bytes``, one at least."""
    return max(1, working_bytes // (8 * _COPIES * vocabulary))


def score_response(
    senior_states: torch.Tensor,
    senior_head: Head,
    junior_states: torch.Tensor,
    junior_head: Head,
    targets: Sequence[int],
    chunk: int,
) -> ResponseScore:
    """Scores one response, ``chunk`` positions at a time, never all of its logits at once.

    senior_states, junior_states: the hidden states ``[tokens, width]`` that predict the response's
    tokens, which are those of the position before each. Sums are taken in float64. Raises
    :class:`EvaluationError` where the result is not finite.
    """
    ids = torch.as_tensor(targets, dtype=torch.int64)
    cross_entropy = overlap = 0.0
    for part in _parts(len(ids), chunk):
        ours = senior_head(senior_states[part])
        theirs = junior_head(junior_states[part])
        surprise, shared = chunk_scores(ours, theirs, ids[part].to(theirs.device))
        cross_entropy += float(surprise.sum())
        overlap += float(shared.sum())
    if not (torch.isfinite(torch.tensor([cross_entropy, overlap])).all()):
        raise EvaluationError(
            "The logits of a model are not finite, so that nothing can be said of its responses: "
            "check the checkpoint, or read it with another dtype."
        )
    return ResponseScore(len(ids), cross_entropy, overlap)


def _parts(length: int, chunk: int) -> Iterator[slice]:
    for start in range(0, length, chunk):
        yield slice(start, min(start + chunk, length))
