"""Inputs of advantages: rewards on trained tokens, sessions of several outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tandem_plugin.patching.wrapping import replaced

__all__ = [
    "advantages_of_sessions",
    "credit_rewards",
    "on_trained_tokens",
    "reading_whole_sessions",
]


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

    batch: its keys. verl puts a response's reward on its last token, which may be the junior's;
    estimators that walk back from there drop it. Applying it twice changes nothing more.
    """
    from tensordict import TensorDict

    where = {"keys": batch.keys, "partition_id": batch.partition_id}
    data = queue.kv_batch_get(**where, select_fields=["rm_scores", "response_mask"])
    columns = (data[name].unbind() for name in ("rm_scores", "response_mask"))
    moved = [on_trained_tokens(*row) for row in zip(*columns, strict=True)]
    column = torch.nested.as_nested_tensor(moved, layout=torch.jagged)
    queue.kv_batch_put(**where, fields=TensorDict({"rm_scores": column}, batch_size=len(moved)))


def reading_whole_sessions(module: Any, keys: Sequence[str]) -> AbstractContextManager[None]:
    """Let trainer V1 compute the advantages of sessions of several outputs so, meanwhile.

    module: ``verl.trainer.ppo.v1.trainer_base``. Where ``keys`` (uid, session and number of each
    output) have such a session, its ``compute_advantage_for_multi_trajectories`` is exchanged in
    the trainer's process, in verl 0.9: the trainer calls it between two of its own steps. Goes
    when: verl reads a session's advantage off its reward.
    """
    if all(str(key).endswith("_0") for key in keys):
        return nullcontext()
    return replaced(module, "compute_advantage_for_multi_trajectories", advantages_of_sessions)


def advantages_of_sessions(
    original: Callable[..., Any], data: Any, *, adv_estimator: Any, **settings: Any
) -> Any:
    """verl's advantages, with those of sessions whose last output the junior wrote alone.

    Under ``grpo`` trainer V1 reads a session's advantage off the first trained token of its last
    output and gives it to its other outputs: where there is no trained token, it reads 0. Here such
    an output has its first token trained while verl reads, and nothing of it afterwards; rewards,
    and with them advantages, are of whole responses in any case. Other estimators, which count
    trained tokens, take each output by itself.

    original: ``compute_advantage_for_multi_trajectories``. data: its ``DataProto``, with
    ``response_mask`` ``[outputs, length]``.
    """
    settings["adv_estimator"] = adv_estimator
    mask = data.batch["response_mask"]
    if getattr(adv_estimator, "value", adv_estimator) != "grpo" or mask.bool().any(dim=1).all():
        return original(data, **settings)
    readable = mask.clone()
    readable[~mask.bool().any(dim=1), 0] = 1
    data.batch["response_mask"] = readable
    found = original(data, **settings)
    found.batch["response_mask"] = mask
    for name in ("advantages", "returns"):
        found.batch[name] = found.batch[name] * mask
    return found
