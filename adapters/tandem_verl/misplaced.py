"""Settings of tandem in a trainer's nested configuration, where nothing would read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.request import resembles_tandem
from tandem_verl.settings import (
    FLAG,
    MANAGER,
    MANAGER_KEY,
    at,
    by_variable,
    parsed,
    plain,
    tandem_node,
)

_ADDITIONAL, _NAME = FLAG.split(".")[-2:]
"""The argument of vLLM that has tandem's node, and the node's name."""

_OURS_ALONE = frozenset({"schedule", "junior", "junior_name", "lambda_jun"})
"""Settings with a name that no engine argument has."""

_USERS = frozenset({
    "custom", "env_vars", "reward_kwargs", "sampler_kwargs", "apply_chat_template_kwargs"
})  # fmt: skip
"""Keys of verl's configuration below which names are the user's own, once the flag is given."""


def check_places(config: Any) -> None:
    """Raise :class:`ConfigError` for tandem settings that a run would ignore.

    config: verl's whole configuration, an OmegaConf node or a mapping. Hydra takes
    ``+any.path=value``, and verl ignores keys that it does not know: a run with a misplaced flag
    would train without tandem.
    """
    tandem, settings = tandem_node(config), plain(config)
    places = list(Misplaced(at(settings, FLAG.rpartition(".")[0])).below(settings))
    if tandem is None and by_variable():
        places.append("the environment variable TANDEM_CONFIG")
    from_us = tandem is None and at(settings, MANAGER_KEY) == MANAGER
    if not places and not from_us:
        return
    if not places:
        raise ConfigError(
            "verl-manager-without-tandem", key=MANAGER_KEY, manager=MANAGER, flag=FLAG
        )
    outcome = "the run would train without tandem" if tandem is None else "they would be ignored"
    raise ConfigError(
        "verl-settings-misplaced", places=", ".join(places), outcome=outcome, flag=FLAG
    )


class Misplaced:
    """Finds the keys that name tandem, misspell it or are its settings, outside the flag."""

    def __init__(self, content: Any | None) -> None:
        """content: of vLLM's ``additional_config``, if a run has it."""
        content = parsed(content)
        says_so = isinstance(content, Mapping) and _NAME in content  # if only as null
        self._free = _USERS if says_so else frozenset()
        node = content[_NAME] if says_so else None
        self._schedule = str(node.get("schedule")) if isinstance(node, Mapping) else None

    def below(self, node: Any, path: str = "") -> Iterator[str]:
        """The path of each such key, without what is below it. path: of this node."""
        if path.endswith(_ADDITIONAL):
            node = parsed(node)
        if isinstance(node, list | tuple):
            for number, value in enumerate(node):
                yield from self.below(value, f"{path}[{number}]")
        elif isinstance(node, Mapping):
            for key, value in node.items():
                yield from self._at(str(key), value, path)

    def _at(self, key: str, value: Any, parent: str) -> Iterator[str]:
        path = f"{parent}.{key}" if parent else key
        if path == FLAG or key in self._free:
            return
        if resembles_tandem(key) or self._is_setting(key, parent):
            yield path
        else:
            yield from self.below(value, path)

    def _is_setting(self, key: str, parent: str) -> bool:
        if key in _OURS_ALONE and ".engine_kwargs" in parent:
            return True
        is_argument = parent.endswith(f".{_ADDITIONAL}")
        return is_argument and bool(TandemConfig.recognised([key], self._schedule))
