"""``tandem eval``: the paper's evaluation of seniors, alone and with juniors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.lab.commands.compare_options import TopOption
from tandem_plugin.lab.commands.engine_arguments import EngineOption
from tandem_plugin.lab.commands.eval_inputs import (
    begin,
    check_same,
    find_checkpoints,
    read_benchmarks,
    team_schedules,
)
from tandem_plugin.lab.commands.eval_options import (
    BenchmarkOption,
    BoundariesOption,
    DeviceOption,
    DtypeOption,
    FrequentOption,
    JuniorOption,
    MaxTokensOption,
    OutOption,
    ReadOption,
    ScheduleOption,
    SeedOption,
    SeniorOption,
    SmoothingOption,
    TemperatureOption,
    TopPOption,
)
from tandem_plugin.lab.commands.eval_output import report
from tandem_plugin.terminal.assignments import SettingsOption
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo
from tandem_plugin.terminal.root import CommandGroup

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.benchmark import Benchmark
    from tandem_plugin.lab.evaluation.checkpoint import Checkpoint
    from tandem_plugin.lab.evaluation.sampling import Sampling

__all__ = ["evaluate"]

evaluate = typer.Typer(
    cls=CommandGroup,
    help="Evaluate seniors: alone, handing over to juniors, drift, legibility.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@evaluate.command(short_help="Let each senior answer alone, and grade: pass@k.")
def solo(
    senior: SeniorOption,
    benchmark: BenchmarkOption,
    out: OutOption,
    samples: Annotated[int, typer.Option("--n", min=1, help="Responses to each problem.")] = 32,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    max_tokens: MaxTokensOption = 3000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Let each senior answer alone, and grade: pass@k.

    Responses are written as they are finished; the same command goes on after a kill, and ends with
    the same result. A file that was made with other settings is refused.
    """
    from tandem_plugin.lab.evaluation.generated_runs import run_solo
    from tandem_plugin.lab.evaluation.sampling import Sampling

    sampling = Sampling(samples, temperature, top_p, max_tokens, seed)
    benchmarks, arguments = read_benchmarks(benchmark), _arguments(engine)
    seniors = find_checkpoints(senior)
    begin(out, seniors, (), benchmark, benchmarks)
    with _Interruptible():
        written = [run_solo(out, one, benchmarks, sampling, arguments) for one in seniors]
    report(written, json)


@evaluate.command(short_help="Let each senior hand over to each junior, and grade.")
def handoff(
    senior: SeniorOption,
    junior: JuniorOption,
    benchmark: BenchmarkOption,
    out: OutOption,
    schedule: ScheduleOption = None,
    parameters: SettingsOption = None,
    boundaries: BoundariesOption = None,
    samples: Annotated[int, typer.Option("--n", min=1, help="Responses to each problem.")] = 8,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    max_tokens: MaxTokensOption = 3000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Let each senior answer together with each junior: by default, reasoning step by step.

    Goes on after a kill, as `tandem eval solo` does. Senior and junior share one engine, and token
    ids pass between them as they are.
    """
    from tandem_plugin.lab.evaluation.sampling import Sampling

    sampling = Sampling(samples, temperature, top_p, max_tokens, seed)
    asked = team_schedules(schedule, parameters, boundaries)
    benchmarks, arguments = read_benchmarks(benchmark), _arguments(engine)
    seniors, juniors = find_checkpoints(senior), find_checkpoints(junior)
    begin(out, seniors, juniors, benchmark, benchmarks, asked)
    with _Interruptible():
        written = _handoffs(out, seniors, juniors, asked, benchmarks, sampling, arguments)
    report(written, json)


@evaluate.command(short_help="Let each junior read each senior's own responses.")
def legibility(
    senior: SeniorOption,
    junior: JuniorOption,
    out: OutOption,
    read: ReadOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Let each junior read each senior's own responses: cross-entropy and distribution overlap.

    The responses are those of `tandem eval solo` in the same folder. Whole distributions of both
    models are compared, some positions at a time.
    """
    from tandem_plugin.lab.evaluation.legibility_run import run_legibility

    juniors, seniors = find_checkpoints(junior), find_checkpoints(senior)
    begin(out, seniors, juniors, (), ())
    with _Interruptible():
        written = [
            path
            for one in seniors
            for path in run_legibility(out, one, juniors, samples=read, dtype=dtype, device=device)
        ]
    report(written, json)


@evaluate.command(short_help="Compare each senior's vocabulary with the junior's.")
def drift(
    senior: Annotated[
        list[str], typer.Option(metavar="NAME", help="A senior's name. May be repeated.")
    ],
    junior: Annotated[str, typer.Option(metavar="NAME", help="The junior's name.")],
    out: OutOption,
    smoothing: SmoothingOption = 0.5,
    frequent: FrequentOption = 10,
    top: TopOption = 500,
    json: JsonOption = False,
) -> None:
    """Compare each senior's use of the vocabulary with the junior's.

    Reads solo runs of all of them in the same folder: `tandem eval solo --senior NAME=PATH`, the
    junior's own included. Of several seniors, the first that has drifted is the baseline whose
    drift others may recover.
    """
    from tandem_plugin.lab.evaluation.benchmark import checked_name
    from tandem_plugin.lab.evaluation.drift_run import DriftSettings, run_drift
    from tandem_plugin.lab.evaluation.senior_order import note_seniors

    chosen = DriftSettings(smoothing, frequent)
    for name in (*senior, junior):
        checked_name(name, "model")
    note_seniors(out, senior)
    report([run_drift(out, name, junior, chosen) for name in senior], json, top)


@evaluate.command(name="all", short_help="All of it; the first junior is the base.")
def everything(
    senior: SeniorOption,
    junior: JuniorOption,
    benchmark: BenchmarkOption,
    out: OutOption,
    schedule: ScheduleOption = None,
    samples: Annotated[
        int, typer.Option("--n", min=1, help="Responses to each problem by a senior alone.")
    ] = 32,
    team_samples: Annotated[
        int, typer.Option("--team-n", min=1, help="Responses to each problem by a team.")
    ] = 8,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    max_tokens: MaxTokensOption = 3000,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    read: ReadOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    smoothing: SmoothingOption = 0.5,
    frequent: FrequentOption = 10,
    json: JsonOption = False,
) -> None:
    """All of it: every senior alone and with every junior; the first junior is the base.

    Drift is measured from the first junior, which answers alone too, as one of the seniors.
    """
    from tandem_plugin.lab.evaluation.drift_run import DriftSettings, run_drift
    from tandem_plugin.lab.evaluation.generated_runs import check_handoffs, run_solo
    from tandem_plugin.lab.evaluation.legibility_run import run_legibility
    from tandem_plugin.lab.evaluation.sampling import Sampling

    alone = Sampling(samples, temperature, top_p, max_tokens, seed)
    team = Sampling(team_samples, temperature, top_p, max_tokens, seed)
    chosen = DriftSettings(smoothing, frequent)
    benchmarks, arguments = read_benchmarks(benchmark), _arguments(engine)
    seniors, juniors = find_checkpoints(senior), find_checkpoints(junior)
    asked = team_schedules(schedule)
    check_handoffs(seniors, asked)  # before the hours that solo runs take
    check_same(seniors, juniors)
    base = juniors[0]
    answering = [base, *(one for one in seniors if one.name != base.name)]
    begin(out, answering, juniors, benchmark, benchmarks, asked)
    written: list[Path] = []
    with _Interruptible():
        for one in answering:
            written.append(run_solo(out, one, benchmarks, alone, arguments))
        written += _handoffs(out, seniors, juniors, asked, benchmarks, team, arguments)
        for one in seniors:
            written += run_legibility(out, one, juniors, samples=read, dtype=dtype, device=device)
            written.append(run_drift(out, one.name, base.name, chosen))
    report(written, json)


class _Interruptible:
    """Turns an interrupt into a sentence and exit code 130."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            echo("Stopped. The same command goes on from what is written.", err=True)
            raise typer.Exit(INTERRUPTED)


def _handoffs(
    out: Path,
    seniors: Sequence[Checkpoint],
    juniors: Sequence[Checkpoint],
    schedules: Sequence[Mapping[str, Any]],
    benchmarks: Sequence[Benchmark],
    sampling: Sampling,
    arguments: dict[str, Any],
) -> list[Path]:
    from tandem_plugin.lab.evaluation.generated_runs import check_handoffs, run_handoff

    check_handoffs(seniors, schedules)
    return [
        path
        for one in seniors
        for other in juniors
        for path in run_handoff(out, one, other, schedules, benchmarks, sampling, arguments)
    ]


def _arguments(given: list[str] | None) -> dict[str, Any]:
    from tandem_plugin.lab.commands.engine_arguments import engine_arguments

    return engine_arguments(given or [])
