"""Runs that train an adapter (LoRA) and send the engine that alone (``lora.merge=False``)."""

from __future__ import annotations

from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.junior import is_seniors_checkpoint
from tandem_plugin.training.refusals import Refusal, Settings, each

__all__ = ["REFUSALS", "read_the_base"]

_MODEL, _ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
_MERGED = f"{_MODEL}.lora.merge"
_BACKEND = f"{_ROLLOUT}.checkpoint_engine.backend"
_RANK = f"{_MODEL}.lora_rank"


def _sent(rank: Any, of: Settings) -> bool:
    return bool(rank) and not of(_MERGED)


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        f"{_MODEL}.lora.rank",
        _sent,
        "TP503",
    ),
    *each(
        (f"{_MODEL}.lora_adapter_path", f"{_MODEL}.lora.adapter_path"),
        lambda path, of: _sent(path, of) and not of(_RANK),
        "TP506",
    ),
    Refusal(
        _RANK,
        lambda rank, of: _sent(rank, of) and of("tandem.max_drafts"),
        "TP504",
    ),
    Refusal(
        _RANK,
        lambda rank, of: _sent(rank, of) and of(_BACKEND) not in (None, "naive"),
        "TP505",
    ),
)


def read_the_base(config: Any, tandem: TandemConfig) -> None:
    """Let the engine read a base that is the junior as well from the checkpoint, at its start.

    config: verl's whole configuration, which changes. verl's default starts from dummies and sends
    the base once, as whole weights, which an engine refuses where they are the junior's too.
    """
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    path = str(model.path)
    is_base = any(is_seniors_checkpoint(one, path, None) for one in tandem.juniors or (path,))
    merged = (model.get("lora") or {}).get("merge")
    if model.get("lora_rank") and not merged and is_base and "dummy" in rollout.load_format:
        rollout.load_format = "auto"
