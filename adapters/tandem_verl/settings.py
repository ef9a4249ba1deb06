"""The one flag: where a verl configuration enables tandem, and settings that verl would ignore.

This runs in every verl run, so it imports the standard library alone.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
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

MANAGER = "tandem_verl.rollouts.TandemAgentLoopManager"
"""The agent-loop manager of every tandem run."""

MANAGER_KEY = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
"""The setting for the agent-loop manager."""

OWN_MANAGER_KEY = "trainer.v1.own_agent_loop_manager_class"
"""Where the user's own agent-loop manager is kept, which :data:`MANAGER` runs in tandem."""

SETTINGS = frozenset({
    "after", "boundaries", "cap", "drafts", "end", "first", "junior", "junior_name",
    "junior_stream", "lambda_jun", "max_unknown_share", "measure_every", "mode", "n", "p",
    "partner_logprobs", "record", "require", "rollouts", "schedule", "seed", "steps",
    "training_step", "unproven", "validation",
})  # fmt: skip
"""Tandem's settings and the parameters of its schedules; a test compares them with the core's."""

_OURS_ALONE = frozenset({"schedule", "junior", "junior_name", "lambda_jun"})
"""Those that no engine of verl's has as an argument of its own."""

_USERS = frozenset({
    "custom", "env_vars", "reward_kwargs", "sampler_kwargs", "apply_chat_template_kwargs"
})  # fmt: skip
"""Keys of verl's configuration below which names are the user's own, once the flag is given."""


def tandem_node(config: Any) -> Any | None:
    """The tandem node of a verl configuration; None if it does not enable tandem.

    config: the whole configuration, or only its ``actor_rollout_ref.rollout`` node, as verl's
    servers hold it; a mapping, an OmegaConf node or a dataclass.
    """
    rollout = _inner(_inner(config, "actor_rollout_ref"), "rollout")
    if rollout is None:
        rollout = config
    additional = _inner(_inner(_inner(rollout, "engine_kwargs"), "vllm"), "additional_config")
    return _inner(_parsed(additional), "tandem")


def _parsed(value: Any) -> Any:
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


def check_places(config: Any) -> None:
    """Raise :class:`ConfigError` for tandem settings that a run would ignore.

    config: verl's whole configuration, an OmegaConf node or a mapping. Hydra takes
    ``+any.path=value``, and verl ignores keys that it does not know: a run with a misplaced flag
    would train without tandem.
    """
    tandem, plain = tandem_node(config), _plain(config)
    places = list(_Misplaced(tandem, plain).below(plain))
    if tandem is None and os.environ.get("TANDEM_CONFIG", "").strip():
        places.append("the environment variable TANDEM_CONFIG")
    from_us = tandem is None and _at(plain, MANAGER_KEY) == MANAGER
    if not places and not from_us:
        return
    from tandem_plugin.errors import ConfigError

    if not places:
        raise ConfigError(
            "verl-manager-without-tandem", key=MANAGER_KEY, manager=MANAGER, flag=FLAG
        )
    outcome = "the run would train without tandem" if tandem is None else "they would be ignored"
    raise ConfigError(
        "verl-settings-misplaced", places=", ".join(places), outcome=outcome, flag=FLAG
    )


def _plain(config: Any) -> Any:
    """The configuration as mappings, with interpolations unresolved."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        return omegaconf.OmegaConf.to_container(config, resolve=False)
    return config


def _at(config: Any, path: str) -> Any | None:
    """The value at a dotted path; None if there is none."""
    return functools.reduce(_inner, path.split("."), config)


class _Misplaced:
    """Finds the keys that name tandem, misspell it or are its settings, outside :data:`FLAG`."""

    def __init__(self, tandem: Any | None, plain: Any) -> None:
        """tandem: the node of :data:`FLAG`. plain: the configuration that will be searched."""
        *path, name = FLAG.split(".")
        additional = _parsed(_at(plain, ".".join(path)))
        self._says_so = isinstance(additional, Mapping) and name in additional
        """Whether the flag is given, if only as null."""
        self._settings = SETTINGS | _parameters(tandem)

    def below(self, node: Any, path: str = "") -> Iterator[str]:
        """The path of each such key, without what is below it. path: of this node."""
        if path.endswith("additional_config"):
            node = _parsed(node)
        if isinstance(node, list | tuple):
            for number, value in enumerate(node):
                yield from self.below(value, f"{path}[{number}]")
        elif isinstance(node, Mapping):
            for key, value in node.items():
                yield from self._at(str(key), value, path)

    def _at(self, key: str, value: Any, parent: str) -> Iterator[str]:
        path = f"{parent}.{key}" if parent else key
        if path == FLAG or (key in _USERS and self._says_so):
            return
        if _names_tandem(key) or self._is_setting(key, parent):
            yield path
        else:
            yield from self.below(value, path)

    def _is_setting(self, key: str, parent: str) -> bool:
        if key in _OURS_ALONE and ".engine_kwargs" in parent:
            return True
        return key in self._settings and parent.endswith(".additional_config")


def _names_tandem(key: str) -> bool:
    """Whether a key contains the name, or a word that is nearly the name."""
    name = key.lower()
    return "tandem" in name or any(
        difflib.SequenceMatcher(None, word, "tandem").ratio() >= 0.8
        for word in re.split(r"[\W_]+", name)
    )


def _parameters(tandem: Any | None) -> frozenset[str]:
    """The parameters of the run's schedule, which may be a plugin's."""
    if tandem is not None:
        with suppress(Exception):  # reported where the settings are checked
            from tandem_plugin.plugins.selection import parameter_names

            return frozenset(parameter_names(str(_inner(tandem, "schedule"))))
    return frozenset()
