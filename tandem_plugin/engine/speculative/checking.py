"""What becomes of drafts, by their authors: the rules of a round, in tensor operations.

Shapes: ``rows`` requests of a step, ``size`` slots, ``k`` drafts a round, ``n`` rows of logits: of
each request one for every draft and one behind the last.
"""

from __future__ import annotations

import torch

__all__ = ["agreed", "excess", "of_rows", "standing", "with_standing"]


def standing(authors: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """The drafts that stand as they are, because the junior is their author: bool ``[size, k]``.

    authors: bool ``[size, k + 1]``, who writes each position, true = senior. held: int64
    ``[size]``, how many drafts a slot has.
    """
    steps = torch.arange(authors.shape[1] - 1, device=authors.device)
    return ~authors[:, :-1] & (steps < held[:, None])


def of_rows(
    by_step: torch.Tensor, expanded_slots: torch.Tensor, expanded_steps: torch.Tensor
) -> torch.Tensor:
    """Of bool ``[size, k]``, what holds for each row of logits: bool ``[n]``.

    expanded_slots, expanded_steps: int ``[n]``, the slot of each row and its place in the round.
    """
    steps = expanded_steps.long()
    last = by_step.shape[1] - 1
    return by_step[expanded_slots.long(), steps.clamp(max=last)] & (steps <= last)


def with_standing(
    processed: torch.Tensor, stands: torch.Tensor, drafted: torch.Tensor
) -> torch.Tensor:
    """The target's rows for rejection sampling, in which a draft that stands is all there is.

    Checked against the junior's own row it could be rejected: in float32 "log p > log u + log p"
    fails for some u, and nothing would be left to sample from. processed: ``[n, vocabulary]``.
    stands: bool ``[n]``. drafted: int64 ``[n, 1]``, each row's draft.
    """
    rows = processed.masked_fill(stands[:, None], -torch.inf)
    own = rows.gather(1, drafted).masked_fill(stands[:, None], 0.0)
    return rows.scatter_(1, drafted, own)


def agreed(target: torch.Tensor, draft: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Where the rejection of a draft left nothing to sample from: bool ``[rows]``.

    Two models that agree to the bit agree on every draft, but in float32 "log p > log u + log p"
    fails for some u, about once in ten million drafts; vLLM would write token 0. target:
    ``[rows, vocabulary]``, processed; draft: the same before the temperature, float32 ``[rows]``.
    """
    scale = torch.where(temperature == 0, 1, temperature)[:, None]
    p, q = target.float().softmax(-1), (draft.float() / scale).softmax(-1)
    return (temperature != 0) & ~(p > q).any(-1)


def excess(authors: torch.Tensor, held: torch.Tensor, num_sampled: torch.Tensor) -> torch.Tensor:
    """The rows whose token behind the last draft is the junior's: bool ``[rows]``.

    The senior's logits were all there was to sample it from, so it is none. authors: bool
    ``[rows, k + 1]``. held, num_sampled: int ``[rows]``, the drafts and the sampled tokens. A row
    without drafts keeps its one token.
    """
    juniors = ~authors.gather(1, held[:, None])[:, 0]
    return (num_sampled == held + 1) & (held > 0) & juniors
