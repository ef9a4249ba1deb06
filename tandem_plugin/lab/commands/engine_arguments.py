"""``--engine NAME=VALUE``: arguments of vLLM's engine, as commands take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.terminal.assignments import assignments

__all__ = ["EngineOption", "engine_arguments"]

_REFUSED = ("model", "additional_config", "tandem")

EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An argument of vLLM's engine, such as max_model_len=4096. May be given several "
        "times.",
    ),
]


def engine_arguments(given: Sequence[str]) -> dict[str, Any]:
    """The engine's arguments by name; raises :class:`ConfigError` for what others say."""
    arguments = {k.replace("-", "_"): v for k, v in assignments("--engine", given).items()}
    for name in _REFUSED:
        if name in arguments:
            raise ConfigError("TP962", name=name)
    return arguments
