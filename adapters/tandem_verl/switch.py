"""The one flag: where a verl configuration asks for tandem.

Only the standard library is used here: the adapter's last resort stands on this module.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["FLAG", "MODES", "OUR_MODE", "tandem_node"]

FLAG = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"
"""The configuration node whose presence turns tandem on."""


MODES = ("sync", "colocate_async", "separate_async")
"""Modes of trainer V1: the last two interrupt responses to sync weights, and go on with them."""

OUR_MODE = "tandem_"
"""What comes before a mode's name where verl looks up the trainer of a run in tandem."""


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
        additional = _parsed(additional)
    return _inner(additional, "tandem")


def _inner(node: Any, name: str) -> Any | None:
    if node is None or isinstance(node, str):
        return None
    if hasattr(node, "get"):
        return node.get(name)
    return getattr(node, name, None)


def _parsed(text: str) -> Any | None:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
