"""How far two models' next tokens are apart at single places of a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tandem_plugin.errors import EvaluationError

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.reader import Reader

__all__ = ["divergence", "divergence_at"]


def divergence(senior: torch.Tensor, junior: torch.Tensor) -> torch.Tensor:
    """KL(senior || junior) of next-token distributions, in nats: float64 ``[positions]``.

    senior, junior: logits ``[positions, V]`` of any floating type, at temperature 1. Rows of a
    padded vocabulary that only one model has are left out of both. Source: the paper's KL-Reg
    objective (appendix on KL regularisation).
    """
    if senior.shape[0] != junior.shape[0]:
        raise EvaluationError(
            f"Logits of shape {list(senior.shape)} and {list(junior.shape)} are not of the same "
            "positions."
        )
    shared = min(senior.shape[-1], junior.shape[-1])
    ours = torch.log_softmax(senior[:, :shared].double(), dim=-1)
    theirs = torch.log_softmax(junior[:, :shared].double(), dim=-1).to(ours.device)
    return (ours.exp() * (ours - theirs)).sum(dim=-1).clamp(min=0)


def divergence_at(
    writer: Reader,
    reader: Reader,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    positions: Sequence[int],
) -> list[float]:
    """The divergence behind each prefix of a response: where ``positions`` tokens are written.

    writer, reader: senior and junior. Raises :class:`EvaluationError` where it is not finite.
    """
    ids = response_ids[: max(positions) + 1]
    chosen = list(positions)
    found = divergence(
        writer.head(writer.states(prompt_ids, ids)[chosen]),
        reader.head(reader.states(prompt_ids, ids)[chosen]),
    )
    if not torch.isfinite(found).all():
        raise EvaluationError(
            "The logits of a model are not finite, so that nothing can be said of its responses: "
            "check the checkpoint, or read it with another dtype."
        )
    values: list[float] = found.tolist()
    return values
