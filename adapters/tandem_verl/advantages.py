"""Advantages of sessions of several outputs whose last one the junior wrote alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tandem_plugin.patching.wrapping import replaced

__all__ = ["advantages_of_sessions", "reading_whole_sessions"]


def reading_whole_sessions(module: Any, keys: Sequence[str]) -> AbstractContextManager[None]:
    """Let trainer V1 compute the advantages of sessions of several outputs in this way.

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
    output and gives it to its other outputs; without a trained token, it reads 0. Here the first
    token of such an output is marked as trained while verl reads, and unmarked afterwards; rewards,
    and with them advantages, are of whole responses in any case. Other estimators, which count
    trained tokens, treat each output separately.

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
