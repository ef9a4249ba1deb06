"""What a trainer refuses only because nobody has shown that it works, and a user may allow by name.

``tandem.unproven`` names it. What is known to be wrong has no name, and cannot be allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError

__all__ = ["Unproven"]


class Unproven:
    """What one run allows of the unproven, and which of it the run makes use of."""

    def __init__(self, tandem: TandemConfig, names: Mapping[str, str]) -> None:
        """names: what can be allowed with this trainer: a name, and what it stands for.

        Raises :class:`ConfigError` for an allowed name that is none of them.
        """
        for name in tandem.unproven:
            if name not in names:
                listed = ", ".join(f"{known} ({meaning})" for known, meaning in names.items())
                raise ConfigError(
                    f"tandem.unproven names {name!r}, which is nothing that this trainer could be "
                    f"allowed. Leave it out, or name one of: {listed or 'nothing'}."
                )
        self._allowed = frozenset(tandem.unproven)
        self.names = frozenset(names)
        """All that can be allowed with this trainer."""
        self.warnings: list[str] = []
        """A sentence for each thing that the run makes use of and nobody has shown to work."""

    def check(self, name: str, sentence: str) -> None:
        """Go on with something unproven if the run allows it by ``name``.

        sentence: what it is, that it was not tested, and what to choose in its place. Raises
        :class:`ConfigError` with it where the run does not allow it.
        """
        if name not in self.names:
            raise ValueError(f"{name!r} is none of the names that can be allowed.")
        if name not in self._allowed:
            raise ConfigError(
                f"{sentence} To run it although nobody has shown that it works, add {name} to "
                "tandem.unproven."
            )
        self.warnings.append(
            f"{sentence} tandem.unproven allows {name}: this run goes on, and NOBODY HAS SHOWN "
            "THAT WHAT IT LEARNS IS RIGHT. Batches are checked as ever."
        )

    def say(self) -> None:
        """Write the warnings to the log, where a trainer's logging level cannot hide them."""
        for warning in self.warnings:
            print(f"WARNING: {warning}", file=sys.stderr, flush=True)
