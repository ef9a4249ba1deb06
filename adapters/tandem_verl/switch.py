"""The one flag: where a verl configuration enables tandem, and settings that verl would ignore.

This runs in every verl run, so it imports the standard library alone.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.config import TandemConfig

FLAG = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"
"""The configuration node whose presence turns tandem on."""

MODES = ("sync", "colocate_async", "separate_async")
"""Modes of trainer V1: the last two interrupt responses to sync weights, and resume them."""

OUR_MODE = "tandem_"
"""Prefix of a mode's name under which verl finds the trainer of a tandem run."""

_USERS = frozenset({
    "data", "custom", "env_vars", "reward_kwargs", "sampler_kwargs", "apply_chat_template_kwargs"
})  # fmt: skip
"""Keys of verl's configuration below which names are the user's own."""


def tandem_node(config: Any) -> Any | None:
    """The tandem node of a verl configuration; None if it does not enable tandem.

    config: the whole configuration, or only its ``actor_rollout_ref.rollout`` node, as verl's
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
    """The checked settings of a tandem run; who: the part of it that reads them.

    Raises :class:`ConfigError` for invalid settings, and :class:`EngineError` if the configuration
    does not enable tandem any more.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.errors import EngineError

    node = tandem_node(config)
    if node is None:
        raise EngineError("TP530", who=who)
    return TandemConfig.from_mapping(node)


def check_places(config: Any) -> None:
    """Raise :class:`ConfigError` for tandem settings that a run would ignore.

    config: verl's whole configuration, an OmegaConf node or a mapping. Hydra takes
    ``+any.path=value``, and verl ignores keys that it does not know: a run with a misplaced flag
    would train without tandem.
    """
    is_on = tandem_node(config) is not None
    places = list(_misplaced(_plain(config), ""))
    if not is_on and os.environ.get("TANDEM_CONFIG", "").strip():
        places.append("the environment variable TANDEM_CONFIG")
    if not places:
        return
    outcome = "they would be ignored" if is_on else "the run would train without tandem"
    from tandem_plugin.errors import ConfigError

    raise ConfigError("TP509", places=", ".join(places), outcome=outcome, flag=FLAG)


def _plain(config: Any) -> Any:
    """The configuration as mappings, with interpolations unresolved."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        return omegaconf.OmegaConf.to_container(config, resolve=False)
    return config


def _misplaced(node: Any, prefix: str) -> Iterator[str]:
    """The path of every key that names tandem, or misspells it, outside :data:`FLAG`."""
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        path, name = f"{prefix}{key}", str(key).lower()
        if path == FLAG or key in _USERS or value is None or value is False:
            continue
        is_similar = difflib.SequenceMatcher(None, name, "tandem").ratio() >= 0.8
        if name == "tandem" or (is_similar and isinstance(value, Mapping)):
            yield path
        else:
            yield from _misplaced(value, f"{path}.")
