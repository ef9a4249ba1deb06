"""What two models make of a token: tensor operations over rows of logits."""

from __future__ import annotations

import torch

__all__ = ["token_scores", "totals"]


def token_scores(senior: torch.Tensor, junior: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Both models' log p of each token, and their overlap there: float32 ``[rows, 3]``.

    senior, junior: each model's own logits ``[rows, V]``, of any floating type; each is normalised
    over its own vocabulary, and a token that only one has overlaps with nothing. tokens: int64
    ``[rows]``, ids that both have. The overlap is alpha = sum over v of min(p_sen(v), p_jun(v)),
    at temperature 1. Source: section 4.5 of the paper; Leviathan et al. (2023).
    """
    senior, junior = senior.float(), junior.float()
    ours, theirs = _log_of_sum(senior), _log_of_sum(junior)
    shared = min(senior.shape[-1], junior.shape[-1])
    smaller = torch.minimum(
        senior[:, :shared] - ours.float(), junior[:, :shared] - theirs.float()
    ).exp_()
    column = tokens.long().clamp(0, shared - 1)[:, None]  # rows without a token have any
    scores = [
        senior.gather(1, column) - ours,
        junior.gather(1, column) - theirs,
        smaller.sum(dim=-1, keepdim=True, dtype=torch.float64),
    ]
    return torch.cat(scores, dim=1).float()


def _log_of_sum(logits: torch.Tensor) -> torch.Tensor:
    """By what a row's log p are less than its logits: float64 ``[rows, 1]``.

    Exponentials are taken in float32, and summed in float64: torch's own log_softmax is some 1e-5
    off in float32 over vocabularies of today.
    """
    largest = logits.amax(dim=-1, keepdim=True)
    total = (logits - largest).exp_().sum(dim=-1, keepdim=True, dtype=torch.float64)
    return largest + total.log_()


def totals(scores: torch.Tensor, authors: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    """What rows add to the sums, in the order of :class:`MeasureSums`' fields: float64 ``[5]``.

    scores: ``[rows, 3]``, as :func:`token_scores` has them. authors: bool ``[rows]``, true =
    senior. written: bool ``[rows]``; the others count nothing, whatever their scores are.
    """
    ours, theirs, overlap = scores.double().unbind(1)
    senior, junior = written & authors, written & ~authors

    def total(of: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.where(of, values, 0.0).sum()

    return torch.stack(
        [
            senior.sum().double(),
            total(senior, -theirs),
            total(senior, overlap),
            junior.sum().double(),
            total(junior, -ours),
        ]
    )
