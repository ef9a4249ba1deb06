"""``tandem eval``: the paper's evaluation of seniors, alone and with juniors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.lab.commands.options import (
    EngineOption,
    LegibilityOver,
    MaxTokensOption,
    OverOption,
    ProtocolName,
    ProtocolOption,
    SamplesOption,
    SeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    engine_arguments,
)
from tandem_plugin.lab.protocols import defaults, record
from tandem_plugin.terminal.assignments import SettingsOption, assignments
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.benchmark import Benchmark
    from tandem_plugin.lab.evaluation.checkpoint import Checkpoint

__all__ = ["evaluate"]

evaluate = typer.Typer(
    help="Evaluate seniors: alone, with juniors, legibility, drift.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SeniorOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=PATH",
        help="A senior: its name in results, and its checkpoint folder or name on the "
        "Hub (also name@commit). Can be repeated.",
    ),
]
JuniorOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=PATH",
        help="A junior, in the same form. Each senior is paired with each junior.",
    ),
]
BenchmarkOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=SOURCE",
        help="A benchmark: its name in results, and a problem set as for `tandem data "
        "prepare`. Can be repeated.",
    ),
]
OutOption = Annotated[Path, typer.Option(help="The results folder to write or resume.")]
ScheduleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        help="step (strict alternation), step-bernoulli, handover, or any other "
        "schedule that `tandem plugins` lists. Can be repeated. Default: step.",
    ),
]
ReadOption = Annotated[
    int | None,
    typer.Option(
        "--read",
        min=1,
        help="Number of responses per problem to read, from the first. Default: all.",
    ),
]
DtypeOption = Annotated[
    str, typer.Option(help="The dtype of the reading models; auto uses the checkpoint's own.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        help="Device of the reading models, such as cuda:1. Default: a GPU if there "
        "is one, otherwise the CPU."
    ),
]
FrequentOption = Annotated[
    int,
    typer.Option(
        min=1, help="How often the junior must have written a token for it to count as frequent."
    ),
]


@evaluate.command(short_help="Let each senior answer alone, and grade: pass@k.")
def solo(
    ctx: typer.Context,
    senior: SeniorOption,
    benchmark: BenchmarkOption,
    out: OutOption,
    samples: SamplesOption = 32,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    top_k: TopKOption = None,
    max_tokens: MaxTokensOption = 3000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    protocol: ProtocolOption = None,
    json: JsonOption = False,
) -> None:
    """Let each senior answer alone, and grade: pass@k.

    Each response is written as soon as it is finished. Run the same command again to resume after
    an interruption; the result is the same. A file made with other settings is rejected.
    """
    from tandem_plugin.lab.evaluation.generation import Sampling
    from tandem_plugin.lab.evaluation.solo_handoff import run_solo

    sampling = Sampling(samples, temperature, top_p, max_tokens, seed, top_k)
    benchmarks, arguments = _benchmarks(benchmark, protocol), engine_arguments(engine)
    noted = _noted(ctx, benchmarks)
    seniors = _checkpoints(senior)
    with _interruptible():
        written = [run_solo(out, one, benchmarks, sampling, arguments, noted) for one in seniors]
    _show(written, json)


@evaluate.command(short_help="Let each senior hand off to each junior, and grade.")
def handoff(
    ctx: typer.Context,
    senior: SeniorOption,
    junior: JuniorOption,
    benchmark: BenchmarkOption,
    out: OutOption,
    schedule: ScheduleOption = None,
    parameters: SettingsOption = None,
    team_samples: SamplesOption = 8,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    top_k: TopKOption = None,
    max_tokens: MaxTokensOption = 3000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    protocol: ProtocolOption = None,
    json: JsonOption = False,
) -> None:
    """Let each senior answer together with each junior: by default, reasoning step by step.

    Resumes after an interruption like `tandem eval solo`. Senior and junior share one engine and
    pass token ids to each other unchanged.
    """
    from tandem_plugin.lab.evaluation.generation import Sampling
    from tandem_plugin.lab.evaluation.solo_handoff import check_handoffs, run_handoff

    sampling = Sampling(team_samples, temperature, top_p, max_tokens, seed, top_k)
    schedules = _schedules(schedule, parameters)
    benchmarks, arguments = _benchmarks(benchmark, protocol), engine_arguments(engine)
    noted = _noted(ctx, benchmarks)
    seniors, juniors = _checkpoints(senior), _checkpoints(junior)
    check_handoffs(seniors, schedules)
    written: list[Path] = []
    with _interruptible():
        for pair in product(seniors, juniors):
            written += run_handoff(out, *pair, schedules, benchmarks, sampling, arguments, noted)
    _show(written, json)


@evaluate.command(short_help="Let each junior read each senior's own responses.")
def legibility(
    ctx: typer.Context,
    senior: SeniorOption,
    junior: JuniorOption,
    out: OutOption,
    read: ReadOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    over: OverOption = LegibilityOver.PROBLEMS,
    protocol: ProtocolOption = None,
    json: JsonOption = False,
) -> None:
    """Let each junior read each senior's own responses: cross-entropy and distribution overlap.

    The responses are those of `tandem eval solo` in the same folder. The full distributions of both
    models are compared, a few positions at a time.
    """
    from tandem_plugin.lab.evaluation.legibility import run_legibility

    juniors, seniors = _checkpoints(junior), _checkpoints(senior)
    noted = _noted(ctx)
    written: list[Path] = []
    with _interruptible():
        for one in seniors:
            written += run_legibility(out, one, juniors, read, dtype, device, noted)
    _show(written, json, over)


@evaluate.command(short_help="Compare each senior's vocabulary with the junior's.")
def drift(
    senior: Annotated[
        list[str], typer.Option(metavar="NAME", help="A senior's name. Can be repeated.")
    ],
    junior: Annotated[str, typer.Option(metavar="NAME", help="The junior's name.")],
    out: OutOption,
    frequent: FrequentOption = 10,
    json: JsonOption = False,
) -> None:
    """Compare each senior's token usage with the junior's.

    Reads the solo runs of all of them, including the junior's, from the same folder: `tandem eval
    solo --senior NAME=PATH`.
    """
    from tandem_plugin.lab.evaluation.drift import run_drift

    _show([run_drift(out, name, junior, frequent) for name in senior], json)


@evaluate.command(name="all", short_help="Run all evaluations; the first junior is the base.")
def everything(
    ctx: typer.Context,
    senior: SeniorOption,
    junior: JuniorOption,
    benchmark: BenchmarkOption,
    out: OutOption,
    schedule: ScheduleOption = None,
    samples: Annotated[
        int, typer.Option("--n", min=1, help="Number of responses per problem by a senior alone.")
    ] = 32,
    team_samples: Annotated[
        int, typer.Option("--team-n", min=1, help="Number of responses per problem by a team.")
    ] = 8,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    top_k: TopKOption = None,
    max_tokens: MaxTokensOption = 3000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    read: ReadOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    frequent: FrequentOption = 10,
    over: OverOption = LegibilityOver.PROBLEMS,
    protocol: ProtocolOption = None,
    json: JsonOption = False,
) -> None:
    """Run all evaluations: every senior alone and with every junior.

    Drift is measured relative to the first junior, which also answers alone, as one of the seniors.
    """
    from tandem_plugin.lab.evaluation.drift import run_drift
    from tandem_plugin.lab.evaluation.generation import Sampling
    from tandem_plugin.lab.evaluation.legibility import run_legibility
    from tandem_plugin.lab.evaluation.solo_handoff import check_handoffs, run_handoff, run_solo

    alone = Sampling(samples, temperature, top_p, max_tokens, seed, top_k)
    team = replace(alone, samples=team_samples)
    benchmarks, arguments = _benchmarks(benchmark, protocol), engine_arguments(engine)
    noted = _noted(ctx, benchmarks)
    seniors, juniors = _checkpoints(senior), _checkpoints(junior)
    schedules = _schedules(schedule)
    check_handoffs(seniors, schedules)  # before the solo runs, which take hours
    base = juniors[0]
    answering = [base, *(one for one in seniors if one.name != base.name)]
    written: list[Path] = []
    with _interruptible():
        for one in answering:
            written.append(run_solo(out, one, benchmarks, alone, arguments, noted))
        for pair in product(seniors, juniors):
            written += run_handoff(out, *pair, schedules, benchmarks, team, arguments, noted)
        for one in seniors:
            written += run_legibility(out, one, juniors, read, dtype, device, noted)
            written.append(run_drift(out, one.name, base.name, frequent))
    _show(written, json, over)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turns an interrupt into a message and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        echo("Stopped. Run the same command again to resume.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _schedules(
    names: list[str] | None, parameters: list[str] | None = None
) -> list[dict[str, Any]]:
    """The settings of each named schedule; ``step`` if none is named.

    parameters: ``NAME=VALUE`` of the option ``--set``, applied to each of them.
    """
    from tandem_plugin.lab.evaluation.generation import team_schedule

    given = assignments("--set", parameters or ())
    return [team_schedule(name, given) for name in dict.fromkeys(names or ["step"])]


def _benchmarks(given: Sequence[str], protocol: ProtocolName | None) -> list[Benchmark]:
    from tandem_plugin.lab.data import PromptTemplate
    from tandem_plugin.lab.evaluation.benchmark import read_benchmark

    stated = {} if protocol is None else defaults(protocol.value)
    template = PromptTemplate()
    if "instruction" in stated:
        template = PromptTemplate(
            stated["template"], stated["instruction"], always=stated["always_instructed"]
        )
    benchmarks = [read_benchmark(one, template) for one in given]
    _check_names([one.name for one in benchmarks], "--benchmark")
    return benchmarks


def _noted(ctx: typer.Context, benchmarks: Sequence[Benchmark] = ()) -> dict[str, Any] | None:
    """The results' record of the protocol, with the settings used instead."""
    used = dict(ctx.params)
    if "schedule" in used:
        used["schedule"] = used["schedule"] or ["step"]
    if "over" in used:
        used["over"] = LegibilityOver(used["over"]).value
    for benchmark in benchmarks[:1]:  # all get the same prompts
        asked = benchmark.template
        used |= {
            "template": asked.template,
            "instruction": asked.instruction,
            "always_instructed": asked.always,
        }
    protocol = used["protocol"]
    return record(None if protocol is None else ProtocolName(protocol).value, used)


def _checkpoints(given: Sequence[str]) -> list[Checkpoint]:
    from tandem_plugin.lab.evaluation.checkpoint import find_checkpoint
    from tandem_plugin.progress import waiting

    with waiting("read the checkpoints"):
        checkpoints = [find_checkpoint(one) for one in given]
    _check_names([one.name for one in checkpoints], "--senior or --junior")
    return checkpoints


def _check_names(names: Sequence[str], option: str) -> None:
    from tandem_plugin.errors import EvaluationError

    for name in names:
        if names.count(name) > 1:
            raise EvaluationError("TP963", option=option, name=name)


def _show(
    written: Sequence[Path], json: bool, over: LegibilityOver = LegibilityOver.PROBLEMS
) -> None:
    """Print the headline numbers of each run; written: the paths of their summaries."""
    from rich.table import Table
    from rich.text import Text

    from tandem_plugin.lab.evaluation.measures import headline
    from tandem_plugin.lab.evaluation.results import read_summary

    runs = [(one, headline(one, over.value)) for one in map(read_summary, written)]
    if json:
        rows = [
            {
                "kind": one.kind,
                "senior": one.senior,
                "junior": one.junior,
                "summary": str(one.folder / "summary.json"),
                **numbers,
            }
            for one, numbers in runs
        ]
        print_json({"runs": rows})
        return
    shown = Table("senior", "run", "result", box=None, pad_edge=False)
    for one, numbers in runs:
        values = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        shown.add_row(Text(one.senior), Text(one.label), values)
    table_console().print(shown)
