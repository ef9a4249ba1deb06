"""The variables of the environment that tandem reads, by which a misspelt one is recognised."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tandem_plugin.errors import ConfigError, did_you_mean
from tandem_plugin.request import resembles_tandem

PREFIX = "TANDEM_"

VARIABLES = ("TANDEM_CONFIG", "TANDEM_REWARD", "TANDEM_ON_CPU", "TANDEM_RUN_MARK")
"""The settings of a run; and, of what `tandem train` starts, its reward, its stand-ins for what a
CPU lacks and the mark of its processes."""

_OURS = [name.removeprefix(PREFIX) for name in VARIABLES]


def check_variables(environ: Mapping[str, str] = os.environ) -> None:
    """Raise :class:`ConfigError` for a variable that is nearly one of ours, which nobody reads.

    Other programs may have variables that begin so.
    """
    for name in environ:
        if name not in VARIABLES and (suggestion := _suggestion(name)):
            raise ConfigError("variable-misspelt", name=name, meant=suggestion)


def _suggestion(name: str) -> str:
    """A question for the variable that a name with nearly the word tandem is most like."""
    if name.upper().startswith(PREFIX):
        return did_you_mean(name[len(PREFIX) :], _OURS).replace("'", f"'{PREFIX}", 1)
    return did_you_mean(name, VARIABLES) if resembles_tandem(name) else ""
