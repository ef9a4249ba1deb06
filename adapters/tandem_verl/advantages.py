"""Rewards of estimators that sum them from each token on, moved to trained tokens."""

from __future__ import annotations

from typing import Any

import torch


def on_trained_tokens(rewards: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
    """Each reward on the last trained token at or before its own position.

    rewards, trained: ``[..., length]``; trained is true (or 1) where a token is trained. The sum of
    the rewards from a trained token's position on is unchanged, and all of it is now on trained
    tokens. A reward before the first trained token stays in place: no trained token led to it.
    """
    positions = torch.arange(rewards.shape[-1], device=rewards.device).expand_as(rewards)
    last = torch.where(trained.bool(), positions, -1).cummax(dim=-1).values
    return torch.zeros_like(rewards).scatter_add(-1, last.where(last >= 0, positions), rewards)


def credit_rewards(batch: Any, queue: Any) -> None:
    """Move the rewards of a batch of trainer V1 onto its trained tokens, in TransferQueue.

    batch: its keys. verl puts a response's reward on its last token, which may be the junior's.
    Applying it twice changes nothing more.
    """
    from tensordict import TensorDict

    where = {"keys": batch.keys, "partition_id": batch.partition_id}
    data = queue.kv_batch_get(**where, select_fields=["rm_scores", "response_mask"])
    columns = (data[name].unbind() for name in ("rm_scores", "response_mask"))
    moved = [on_trained_tokens(*row) for row in zip(*columns, strict=True)]
    column = torch.nested.as_nested_tensor(moved, layout=torch.jagged)
    queue.kv_batch_put(**where, fields=TensorDict({"rm_scores": column}, batch_size=len(moved)))
