"""The one flag: where a verl configuration enables tandem, and settings that verl would ignore.

This module is imported in every verl run: at its top it imports the standard library alone.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.config import TandemConfig

FLAG = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"
"""The configuration node whose presence turns tandem on."""

MODES = ("sync", "colocate_async", "separate_async")
"""Modes of trainer V1: the last two interrupt responses to sync weights, and resume them."""

OUR_MODE = "tandem_"
"""Prefix of a mode's name under which verl finds the trainer of a tandem run."""

MANAGER = "tandem_verl.rollouts.TandemAgentLoopManager"
"""The agent-loop manager of every tandem run."""

MANAGER_KEY = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
"""The setting for the agent-loop manager."""

OWN_MANAGER_KEY = "trainer.v1.own_agent_loop_manager_class"
"""Where the user's own agent-loop manager is kept, which :data:`MANAGER` runs in tandem."""


def tandem_node(config: Any) -> Any | None:
    """The tandem node of a verl configuration; None if it does not enable tandem.

    config: the whole configuration, or only its ``actor_rollout_ref.rollout`` node, as verl's
    servers hold it; a mapping, an OmegaConf node or a dataclass.
    """
    rollout = _inner(_inner(config, "actor_rollout_ref"), "rollout")
    if rollout is None:
        rollout = config
    additional = _inner(_inner(_inner(rollout, "engine_kwargs"), "vllm"), "additional_config")
    return _inner(parsed(additional), "tandem")


def parsed(value: Any) -> Any:
    """The mapping in a string of JSON, as vLLM reads one; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _inner(node: Any, name: str) -> Any | None:
    if node is None or isinstance(node, Sequence):
        return None
    if hasattr(node, "get"):
        return node.get(name)
    return getattr(node, name, None)


def running_config(config: Any, who: str) -> TandemConfig:
    """The checked settings of a tandem run; who: the part of it that reads them.

    Raises :class:`ConfigError` for invalid settings, and :class:`EngineError` if the configuration
    does not enable tandem any more.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.errors import EngineError

    node = tandem_node(config)
    if node is None:
        raise EngineError("verl-configuration-lost", who=who)
    return TandemConfig.from_mapping(node)


def names_tandem(config: Any) -> bool:
    """Whether a run might be meant in tandem: a key contains the name, or the variable is set.

    config: verl's whole configuration, whose values are free. For where
    :func:`~tandem_verl.misplaced.check_places`, which says more, cannot be used.
    """

    def within(node: Any) -> bool:
        node = parsed(node)
        if isinstance(node, Mapping):
            return any("tandem" in str(key).lower() or within(node[key]) for key in node)
        return isinstance(node, list | tuple) and any(map(within, node))

    return by_variable() or within(plain(config))


def by_variable() -> bool:
    """Whether the environment variable has settings of tandem."""
    return bool(os.environ.get("TANDEM_CONFIG", "").strip())


def plain(config: Any) -> Any:
    """The configuration as mappings, with interpolations unresolved."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        return omegaconf.OmegaConf.to_container(config, resolve=False)
    return config


def at(config: Any, path: str) -> Any | None:
    """The value at a dotted path; None if there is none."""
    return functools.reduce(_inner, path.split("."), config)
