"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.lab.protocols import defaults
from tandem_plugin.terminal.assignments import assignments

__all__ = [
    "EngineOption",
    "JuniorOption",
    "LegibilityOver",
    "MaxTokensOption",
    "OverOption",
    "ProtocolName",
    "ProtocolOption",
    "SamplesOption",
    "SeedOption",
    "SeniorOption",
    "TemperatureOption",
    "TopKOption",
    "TopOption",
    "TopPOption",
    "engine_arguments",
]


class LegibilityOver(str, Enum):
    """What a benchmark's cross-entropy and overlap are means over."""

    PROBLEMS = "problems"
    POSITIONS = "positions"
    RESPONSES = "responses"


class ProtocolName(str, Enum):
    """Whose settings a command takes where it is not told otherwise."""

    PAPER = "paper"
    RELEASE = "release"


def _take_protocol(ctx: typer.Context, name: ProtocolName | None) -> ProtocolName | None:
    """The protocol's settings become the defaults of the other options."""
    if name is not None:
        ctx.default_map = defaults(name.value)
    return name


ProtocolOption = Annotated[
    ProtocolName | None,
    typer.Option(
        "--protocol",
        is_eager=True,
        callback=_take_protocol,
        help="Take what the paper states, or what its release does, as the default of every "
        "option; what is given beside it comes first. The output records both.",
    ),
]
_REFUSED = ("model", "additional_config", "tandem")

SeniorOption = Annotated[str, typer.Option(help="The senior: a checkpoint's folder or name.")]
JuniorOption = Annotated[
    str | None, typer.Option(help="The junior; without it, the senior's own checkpoint.")
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An argument of vLLM's engine, such as max_model_len=4096. May be given several "
        "times.",
    ),
]
SamplesOption = Annotated[int, typer.Option("--n", min=1, help="Responses to each problem.")]
TemperatureOption = Annotated[float, typer.Option(min=0, help="The sampling temperature.")]
TopPOption = Annotated[float, typer.Option(min=0, max=1, help="Nucleus sampling.")]
TopKOption = Annotated[
    int | None, typer.Option(min=1, help="Sample among so many tokens. Default: all.")
]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="The longest response.")]
SeedOption = Annotated[
    int, typer.Option(min=0, help="The seed that draws and sampled tokens follow from.")
]
OverOption = Annotated[
    LegibilityOver,
    typer.Option(
        "--legibility-over",
        help="What a benchmark's cross-entropy and overlap are means over: problems, each the "
        "mean over its positions; positions, all of them at once; or responses, each the mean over "
        "its positions.",
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top", min=3, help="How many of the baseline's most displaced tokens recovery is about."
    ),
]


def engine_arguments(given: Sequence[str] | None) -> dict[str, Any]:
    """The engine's arguments by name; raises :class:`ConfigError` for what others say."""
    arguments = {k.replace("-", "_"): v for k, v in assignments("--engine", given or ()).items()}
    for name in _REFUSED:
        if name in arguments:
            raise ConfigError("TP962", name=name)
    return arguments
