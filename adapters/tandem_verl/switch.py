"""The one flag: where a verl configuration asks for tandem, and for what.

Importing this imports the standard library alone: the adapter's last resort stands on it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.config import TandemConfig

__all__ = [
    "BYPASS_LOSS",
    "FLAG",
    "KEPT",
    "MODES",
    "OUR_BYPASS_LOSS",
    "OUR_MODE",
    "running_config",
    "tandem_node",
]

FLAG = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"
"""The configuration node whose presence turns tandem on."""

KEPT = "actor_rollout_ref.rollout.engine_kwargs.tandem"
"""Where the adapter keeps what it replaced: verl reads of this mapping only its engine's entry."""

MODES = ("sync", "colocate_async", "separate_async")
"""Modes of trainer V1: the last two interrupt responses to sync weights, and go on with them."""

OUR_MODE = "tandem_"
"""What comes before a mode's name where verl looks up the trainer of a run in tandem."""

BYPASS_LOSS = "bypass_mode"
"""verl's policy loss that corrects for the rollouts' own log-probabilities."""

OUR_BYPASS_LOSS = OUR_MODE + BYPASS_LOSS
"""The same loss where verl looks it up for a run in tandem: 0 for a micro-batch without a trained
token."""


def tandem_node(config: Any) -> Any | None:
    """The tandem node of a verl configuration; None where it asks for none.

    config: the whole configuration, or its ``actor_rollout_ref.rollout`` node alone, as verl's
    servers hold it; a mapping, an OmegaConf node or a dataclass.
    """
    rollout = _inner(_inner(config, "actor_rollout_ref"), "rollout")
    if rollout is None:
        rollout = config
    additional = _inner(_inner(_inner(rollout, "engine_kwargs"), "vllm"), "additional_config")
    if isinstance(additional, str):
        with suppress(ValueError, RecursionError):
            additional = json.loads(additional)
    return _inner(additional, "tandem")


def _inner(node: Any, name: str) -> Any | None:
    if node is None or isinstance(node, str):
        return None
    if hasattr(node, "get"):
        return node.get(name)
    return getattr(node, name, None)


def running_config(config: Any, who: str) -> TandemConfig:
    """The checked settings of a run that is in tandem; who: the part of it that asks.

    Raises :class:`ConfigError` for settings that are wrong, and :class:`EngineError` where the
    configuration does not ask for tandem any more.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.errors import EngineError

    node = tandem_node(config)
    if node is None:
        raise EngineError("TP530", who=who)
    return TandemConfig.from_mapping(node)
