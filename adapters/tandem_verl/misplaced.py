"""Settings of tandem in a trainer's nested configuration, where nothing would read them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tandem_plugin.config import setting_names
from tandem_plugin.request import resembles_tandem
from tandem_plugin.training.command import parsed

_OURS_ALONE = frozenset({"schedule", "junior", "junior_name", "lambda_jun"})
"""Settings with a name that no engine argument has."""


class Misplaced:
    """Finds the keys that name tandem, misspell it or are its settings, outside the flag."""

    def __init__(
        self, flag: str, content: Any | None, engines: str, users: Collection[str]
    ) -> None:
        """flag: the dotted path of tandem's node, whose parent is vLLM's ``additional_config``.

        content: of that parent, if a run has it. engines: the key below which a configuration
        has arguments of engines. users: keys below which names are the user's own, once the flag is
        given.
        """
        self._additional, name = flag.split(".")[-2:]
        self._engines, content = engines, parsed(content)
        says_so = isinstance(content, Mapping) and name in content  # if only as null
        self._flag, self._free = flag, frozenset(users) if says_so else frozenset()
        node = content[name] if says_so else None
        schedule = str(node.get("schedule")) if isinstance(node, Mapping) else None
        self._settings = setting_names(schedule)

    def below(self, node: Any, path: str = "") -> Iterator[str]:
        """The path of each such key, without what is below it. path: of this node."""
        if path.endswith(self._additional):
            node = parsed(node)
        if isinstance(node, list | tuple):
            for number, value in enumerate(node):
                yield from self.below(value, f"{path}[{number}]")
        elif isinstance(node, Mapping):
            for key, value in node.items():
                yield from self._at(str(key), value, path)

    def _at(self, key: str, value: Any, parent: str) -> Iterator[str]:
        path = f"{parent}.{key}" if parent else key
        if path == self._flag or key in self._free:
            return
        if _names_tandem(key) or self._is_setting(key, parent):
            yield path
        else:
            yield from self.below(value, path)

    def _is_setting(self, key: str, parent: str) -> bool:
        if key in _OURS_ALONE and f".{self._engines}" in parent:
            return True
        return key in self._settings and parent.endswith(f".{self._additional}")


def _names_tandem(key: str) -> bool:
    """Whether a key contains the name, or a word that is nearly the name."""
    return resembles_tandem(key) or any(map(resembles_tandem, re.split(r"[\W_]+", key)))
