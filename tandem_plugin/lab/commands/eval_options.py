"""The options that the commands of `tandem eval` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BenchmarkOption",
    "BoundariesOption",
    "DeviceOption",
    "DtypeOption",
    "FrequentOption",
    "JuniorOption",
    "MaxTokensOption",
    "OutOption",
    "ReadOption",
    "ScheduleOption",
    "SeedOption",
    "SeniorOption",
    "SmoothingOption",
    "TemperatureOption",
    "TopPOption",
]

SeniorOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=PATH",
        help="A senior: its name in results, and its checkpoint's folder or name. May be given "
        "several times.",
    ),
]
JuniorOption = Annotated[
    list[str],
    typer.Option(metavar="NAME=PATH", help="A junior, likewise. Each senior meets each junior."),
]
BenchmarkOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=SOURCE",
        help="A benchmark: its name in results, and a problem set as for `tandem data show`. May "
        "be given several times.",
    ),
]
OutOption = Annotated[Path, typer.Option(help="The folder of results to write, or to go on with.")]
TemperatureOption = Annotated[float, typer.Option(min=0, help="The sampling temperature.")]
TopPOption = Annotated[float, typer.Option(min=0, max=1, help="Nucleus sampling.")]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="The longest response.")]
SeedOption = Annotated[
    int, typer.Option(min=0, help="The seed that draws and sampled tokens follow from.")
]
ScheduleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        help="step (strict alternation), step-bernoulli, handover, or any other of `tandem "
        "plugins`. May be given several times. Default: step.",
    ),
]
BoundariesOption = Annotated[
    str | None,
    typer.Option(
        help="Another boundary resolver than each schedule's own, such as step for `--schedule "
        "handover`, which then counts reasoning steps and not tokens."
    ),
]
ReadOption = Annotated[
    int | None,
    typer.Option(
        "--read", min=1, help="Read only the first of each problem's responses; default: all."
    ),
]
DtypeOption = Annotated[
    str, typer.Option(help="The dtype that models read with; auto is the checkpoint's own.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="Where models read, such as cuda:1; default: a GPU, else the CPU."),
]
SmoothingOption = Annotated[
    float, typer.Option(min=0, help="Added to every token's count before it is divided.")
]
FrequentOption = Annotated[
    int,
    typer.Option(min=1, help="How often the junior must have written a token to be frequent."),
]
