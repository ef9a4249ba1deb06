"""The one flag: where a verl configuration asks for tandem, and where nothing reads what it says.

Hydra takes ``+any.path=value``, and verl ignores what it does not know: a run with a misplaced flag
would train without tandem. This runs in every verl run, so importing it imports the standard
library alone; the core is imported only where engine arguments hold an ``additional_config``.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.config import TandemConfig

__all__ = [
    "ASYNC_TRAINING",
    "BYPASS_LOSS",
    "FLAG",
    "KEPT",
    "MODES",
    "OUR_BYPASS_LOSS",
    "OUR_MODE",
    "check_places",
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

ASYNC_TRAINING = "async_training"
"""The node that only the configuration of verl's ``fully_async_policy`` has."""

BYPASS_LOSS = "bypass_mode"
"""verl's policy loss that corrects for the rollouts' own log-probabilities."""

OUR_BYPASS_LOSS = OUR_MODE + BYPASS_LOSS
"""The same loss where verl looks it up for a run in tandem: 0 for a micro-batch without a trained
token."""


_PATH = FLAG.split(".")
_PARENT = _PATH[-2]

_USERS = frozenset(
    {
        "data",
        "custom",
        "env_vars",
        "reward_kwargs",
        "sampler_kwargs",
        "apply_chat_template_kwargs",
    }
)
"""Keys of verl's configuration below which names are the user's own."""

_PARAMETERS = frozenset({"p", "cap", "n", "first", "after", "end", "steps"})
"""Those of the built-in schedules."""

_COMMON = _PARAMETERS - {"p", "cap"} | {
    "mode",
    "record",
    "require",
    "rollouts",
    "seed",
    "validation",
}
"""Settings by whose names alone nobody can tell that they are tandem's, not another plugin's."""


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


def check_places(config: Any) -> None:
    """Raise :class:`ConfigError` for settings that a run would ignore, and say what to set instead.

    config: verl's whole configuration, an OmegaConf node or a mapping.
    """
    is_on = tandem_node(config) is not None
    found = list(_found(_plain(config), (), is_on))
    places = [path for path, _ in found]
    if not is_on and os.environ.get("TANDEM_CONFIG", "").strip():
        places.append("the environment variable TANDEM_CONFIG")
    if not places:
        return
    settings = {key: value for _, one in found for key, value in one.items()}
    flags = " ".join(
        f"+{FLAG}.{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        for key, value in (settings or {"schedule": "word"}).items()
    )
    outcome = "they would be ignored" if is_on else "the run would train without tandem"
    from tandem_plugin.errors import ConfigError

    raise ConfigError("TP509", places=", ".join(places), outcome=outcome, flags=flags)


def _plain(config: Any) -> Any:
    """The configuration as mappings, its interpolations as they are written."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        return omegaconf.OmegaConf.to_container(config, resolve=False)
    return config


def _found(
    node: Any, parents: tuple[str, ...], is_on: bool
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each misplaced path with the settings that it was given."""
    if not isinstance(node, Mapping):
        return
    is_additional = bool(parents) and _resembles(parents[-1], _PARENT)
    if is_additional and (settings := _stray(node, is_on)):
        yield ".".join((*parents, next(iter(settings)))), settings
    for key, value in node.items():
        path = (*parents, str(key))
        where = ".".join(path)
        if where == FLAG or key in _USERS or value is None or value is False:
            continue
        if _is_kept(where, value):
            continue
        if _is_tandem(path, value, is_additional):
            yield where, _given(value)
        elif _resembles(str(key), _PARENT):
            yield from _found(_parsed(value), path, is_on)
        else:
            yield from _found(value, path, is_on)


def _stray(additional: Mapping[str, Any], is_on: bool) -> Mapping[str, Any]:
    """The settings that stand directly in an ``additional_config``, without ``tandem`` before."""
    known = _settings() if additional else frozenset()
    telling = known if is_on else known - _COMMON
    found = {key: value for key, value in additional.items() if key in known}
    return found if telling & found.keys() else {}


def _is_kept(where: str, value: Any) -> bool:
    """Whether this is what the adapter itself writes into a run's configuration."""
    return (
        where == KEPT and isinstance(value, Mapping) and set(value) <= {"agent_loop_manager_class"}
    )


def _is_tandem(path: tuple[str, ...], value: Any, is_additional: bool) -> bool:
    """Whether a key says ``tandem``; near the right place also in another spelling."""
    *parents, key = path
    if key.lower() == "tandem":
        return True
    if is_additional:
        return key.lower().startswith("tandem") or _resembles(key, "tandem")
    is_near = parents == _PATH[: len(parents)] and _resembles(key, "tandem")
    return is_near and isinstance(value, Mapping) and bool(_settings() & value.keys())


def _resembles(key: str, name: str) -> bool:
    letters, others = (re.sub("[^a-z]", "", one.lower()) for one in (key, name))
    return difflib.SequenceMatcher(None, letters, others).ratio() >= 0.8


def _given(value: Any) -> Mapping[str, Any]:
    """The settings that a misplaced node holds, or that a single value stands for."""
    value = _parsed(value)
    if isinstance(value, Mapping):
        return value
    return {"schedule": value} if isinstance(value, str) else {}


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _settings() -> frozenset[str]:
    """The names of all settings; a few where the core, which a plain run needs not, is broken."""
    try:
        from tandem_plugin.config import TandemConfig
    except Exception:
        return _PARAMETERS | {"schedule", "junior"}
    return _PARAMETERS | TandemConfig.model_fields.keys()
