"""The junior-imitation term of the original tandem formulation, which the paper sets to 0.

``lambda_jun`` times the mean, over the tokens of an optimizer step that the junior wrote, of the
senior's -log p (section 2 of the paper, on lambda_jun). Each framework sums its loss over
micro-batches and averages gradients over data-parallel ranks: so the mean's denominator is the
whole step's, and the term is scaled as the framework's own losses are.
"""

from __future__ import annotations

from typing import Any

IMITATION_METRIC = "junior_imitation_loss"
"""The term's name in a trainer's log, without its weight."""


def imitation_loss(
    log_probs: Any, junior_mask: Any, tokens: Any, ranks: int
) -> tuple[Any, dict[str, Any]]:
    """One micro-batch's share of the mean of -log p over the junior's tokens, and its metric.

    log_probs: float tensor ``[rows, length]``, the senior's log-probability of each token.
    junior_mask: 0 or 1 of the same shape. tokens: the number of the junior's tokens in the whole
    optimizer step, over all ranks (with 0, the term is 0). ranks: the number over which the
    framework averages gradients. Values outside the mask are ignored, even infinite ones. The
    metric is the same value, detached, by its name in a trainer's log.
    """
    is_junior = junior_mask.bool()
    term = -log_probs.masked_fill(~is_junior, 0.0).sum() / (tokens + (tokens == 0)) * ranks
    return term, {IMITATION_METRIC: term.detach()}
