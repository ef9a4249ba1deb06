"""``tandem eval``: the paper's evaluation of seniors, alone and with juniors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from tandem_plugin.lab.commands.options import (
    MOST_SAMPLES,
    ContextOption,
    EngineOption,
    FieldsOption,
    MapOption,
    MaxTokensOption,
    OverOption,
    ProtocolOption,
    SeedOption,
    TeamTemperatureOption,
    TeamTopKOption,
    TeamTopPOption,
    TemperatureOption,
    TemplateOption,
    TopKOption,
    TopPOption,
    complete_schedule,
    engine_arguments,
    tandem_settings,
    template_arguments,
)
from tandem_plugin.lab.protocols import defaults, record
from tandem_plugin.terminal.arguments import SettingsOption
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.data import PromptTemplate
    from tandem_plugin.lab.evaluation.generation import Sampling
    from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint
    from tandem_plugin.lab.evaluation.measures import Over
    from tandem_plugin.lab.evaluation.run import Evaluation

Part: TypeAlias = Literal["all", "solo", "handoff", "legibility", "drift"]
"""What is evaluated."""

PartArgument = Annotated[
    Part,
    typer.Argument(
        help="all; or solo: each senior answers alone, graded (pass@k); handoff: each "
        "answers together with each junior, graded; legibility: each junior reads each "
        "senior's solo responses; drift: token usage of each senior's solo responses "
        "relative to the first junior's."
    ),
]
SeniorsOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=PATH",
        help="A senior: its name in results, and its checkpoint folder or name on the "
        "Hub (also name@commit). Can be repeated. For drift the name is enough.",
    ),
]
ResultsOption = Annotated[
    Path, typer.Option("--out", "-o", help="The results folder to write or resume.")
]
JuniorsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=PATH",
        help="A junior, in the same form. Each senior is paired with each junior.",
    ),
]
BenchmarksOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SOURCE",
        help="A benchmark: its name in results, and a problem set as for `tandem data "
        "prepare`. Can be repeated.",
    ),
]
SchedulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        autocompletion=complete_schedule,
        help="step (strict alternation), step-bernoulli, step-text (hands over text), or any "
        "schedule that `tandem plugins` lists. Can be repeated. Default: step.",
    ),
]
HandoverOption = Annotated[
    list[int] | None,
    typer.Option(
        metavar="TOKENS",
        min=1,
        help="Also hand over once, after this many tokens, in both directions: the junior finishes "
        "what the senior began (continued), and the senior what the junior began (recovered). Can "
        "be repeated.",
    ),
]
AloneSamplesOption = Annotated[
    int,
    typer.Option(
        "--samples",
        "--n",
        min=1,
        max=MOST_SAMPLES,
        help="Number of responses per problem by a senior alone. In handoff, the same as "
        "--team-samples.",
    ),
]
TeamSamplesOption = Annotated[
    int,
    typer.Option(
        "--team-samples",
        "--team-n",
        min=1,
        max=MOST_SAMPLES,
        help="Number of responses per problem by a team.",
    ),
]
ReadOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of responses per problem to read, from the first. Default: all.",
    ),
]
DtypeOption = Annotated[
    str,
    typer.Option(help="The dtype of the reading models; auto uses the checkpoint's own."),
]
FrequentOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="How often the junior must have written a token for it to count as frequent.",
    ),
]
GraderOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE",
        help="Another grader, whose pass@k is shown beside that of this package's own: a file "
        "with verl's compute_score, such as release=Tandem-RLVR/reward/math_boxed_reward.py of "
        "the paper's release, which needs the extra `release`. Can be repeated.",
    ),
]

_TEAM = {
    "samples": "team_samples",
    "temperature": "team_temperature",
    "top_p": "team_top_p",
    "top_k": "team_top_k",
}
"""The team's option for each option of the senior alone."""

_SAMPLING = {*_TEAM.keys() - {"samples"}, "max_tokens", "context", "seed", "engine"}
_SAMPLING |= {"template_args"}
_OPTIONS: dict[Part, set[str]] = {
    "solo": {*_SAMPLING, "protocol", "benchmark", "field", "map", "samples", "grader"},
    "handoff": {
        *(*_SAMPLING, "protocol", "benchmark", "field", "map", "grader"),
        *("junior", "schedule", "handover", "parameters", *_TEAM.values()),
    },
    "legibility": {"protocol", "junior", "read", "dtype", "over"},
    "drift": {"junior", "frequent"},
}
_OPTIONS["all"] = set().union(*_OPTIONS.values())
"""The options of each part, in addition to those that all parts have."""


def evaluate(
    ctx: typer.Context,
    part: PartArgument,
    senior: SeniorsOption,
    out: ResultsOption,
    junior: JuniorsOption = None,
    benchmark: BenchmarksOption = None,
    field: FieldsOption = None,
    map: MapOption = None,
    schedule: SchedulesOption = None,
    handover: HandoverOption = None,
    parameters: SettingsOption = None,
    samples: AloneSamplesOption = 32,
    team_samples: TeamSamplesOption = 8,
    temperature: TemperatureOption = 0.6,
    top_p: TopPOption = 0.95,
    top_k: TopKOption = None,
    team_temperature: TeamTemperatureOption = None,
    team_top_p: TeamTopPOption = None,
    team_top_k: TeamTopKOption = None,
    max_tokens: MaxTokensOption = 3000,
    context: ContextOption = None,
    seed: SeedOption = 0,
    template_args: TemplateOption = None,
    engine: EngineOption = None,
    read: ReadOption = None,
    dtype: DtypeOption = "auto",
    frequent: FrequentOption = 10,
    grader: GraderOption = None,
    over: OverOption = "problems",
    protocol: ProtocolOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate seniors: alone, with juniors, legibility, drift.

    Each response is written as soon as it is finished. Run the same command again to resume after
    an interruption; the result is the same. A file made with other settings is rejected. Senior and
    junior share one engine and pass token ids to each other unchanged. For legibility the full
    distributions of both models are compared, a few positions at a time. The first junior is the
    base: with `all` it also answers alone, and drift is measured relative to it.
    """
    from tandem_plugin.lab.evaluation.run import PARTS
    from tandem_plugin.lab.evaluation.run import evaluate as run
    from tandem_plugin.terminal.processes import end_with_this_process

    end_with_this_process()
    evaluation = _evaluation(_settings(ctx, part), part)
    try:
        written = run(evaluation, tuple(PARTS) if part == "all" else (part,))
    except KeyboardInterrupt:
        echo("Stopped. Run the same command again to resume.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _show(written, json, over)


def _evaluation(params: Mapping[str, Any], part: Part) -> Evaluation:
    """What a command's parameters ask for."""
    from tandem_plugin.lab.evaluation.graders import read_grader
    from tandem_plugin.lab.evaluation.inputs import named_path
    from tandem_plugin.lab.evaluation.run import Evaluation

    alone, team = _sampling(params)
    benchmarks = _benchmarks(params)
    graders = [read_grader(grader) for grader in params["grader"] or ()]
    _check_names([grader.name for grader in graders], "--grader")
    seniors, juniors = params["senior"], params["junior"] or ()
    return Evaluation(
        out=params["out"],
        senior_names=[named_path(senior)[0] for senior in seniors],
        junior_names=[named_path(junior)[0] for junior in juniors],
        protocol=_noted(params, part, benchmarks),
        seniors=[] if part == "drift" else _checkpoints(seniors),
        juniors=[] if part == "drift" else _checkpoints(juniors),
        benchmarks=benchmarks,
        schedules=_schedules(params),
        alone=alone,
        team=team,
        engine=engine_arguments(params["engine"]),
        read=params["read"],
        dtype=params["dtype"],
        frequent=params["frequent"],
        graders=graders,
    )


def _sampling(params: Mapping[str, Any]) -> tuple[Sampling, Sampling]:
    """The settings of a senior alone, and of a team."""
    from tandem_plugin.lab.evaluation.generation import Sampling

    names = ("samples", "temperature", "top_p", "max_tokens", "seed", "top_k", "context")
    alone = Sampling(**{name: params[name] for name in names})
    return alone, replace(alone, **_teams_own(params))


def _schedules(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    from tandem_plugin.lab.evaluation.generation import handovers, team_schedule

    names = dict.fromkeys(params["schedule"])
    teams = [team_schedule(name, params["parameters"]) for name in names]
    return [*teams, *handovers(params["handover"] or ())]


def _given(ctx: typer.Context) -> set[str]:
    """The names of the options given on the command line."""
    names = [str(option.name) for option in ctx.command.params]
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return {
        name for name, source in sources.items() if getattr(source, "name", "") == "COMMANDLINE"
    }


def _settings(ctx: typer.Context, part: Part) -> dict[str, Any]:
    """A command's settings; rejects a missing option, or one without effect on this part.

    In ``handoff``, where no senior answers alone, ``--samples`` is ``--team-samples``, and likewise
    the temperature, top-p and top-k.
    """
    from tandem_plugin.lab.evaluation.generation import TEXT

    settings, set_by_user, used = dict(ctx.params), _given(ctx), _OPTIONS[part]
    if part == "handoff":
        settings |= {
            _TEAM[name]: settings[name]
            for name in _TEAM.keys() & set_by_user
            if _TEAM[name] not in set_by_user
        }
        set_by_user.discard("samples")
    for name, option in ((str(param.name), param.opts[0]) for param in ctx.command.params):
        if name in ("junior", "benchmark") and name in used and not settings[name]:
            raise typer.BadParameter(f"{option} is needed for {part}.")
        if name in set_by_user & _OPTIONS["all"] - used:
            raise typer.BadParameter(f"{option} has no effect on {part}.")
    settings["schedule"] = settings["schedule"] or ["step"]
    names = [name for name in settings["schedule"] if name != TEXT]  # it is of eval alone
    settings["parameters"] = tandem_settings(ctx, settings["parameters"] or (), names, ())
    return settings


def _teams_own(params: Mapping[str, Any]) -> dict[str, Any]:
    """The team's samples, temperature, top-p and top-k where they differ from the senior's.

    Top-k 0 is all tokens.
    """
    of_team = {name: params[team] for name, team in _TEAM.items() if params[team] is not None}
    return of_team | ({"top_k": of_team["top_k"] or None} if "top_k" in of_team else {})


def _benchmarks(params: Mapping[str, Any]) -> list[Benchmark]:
    from tandem_plugin.lab.data import layout_of
    from tandem_plugin.lab.data.sources import check_layout
    from tandem_plugin.lab.evaluation.inputs import named_source, read_benchmark

    sources = params["benchmark"] or ()
    rendering = template_arguments(params["template_args"])
    layout = layout_of(params["field"] or (), params["map"])
    check_layout(layout, *(named_source(source)[1] for source in sources))
    template = _template(params["protocol"])
    read = [read_benchmark(source, template, layout) for source in sources]
    benchmarks = [replace(benchmark, template_args=rendering) for benchmark in read]
    _check_names([benchmark.name for benchmark in benchmarks], "--benchmark")
    for note in (note for benchmark in benchmarks for note in benchmark.notes()):
        echo(note, err=True)
    return benchmarks


def _template(protocol: str | None) -> PromptTemplate | None:
    """The prompt that a protocol states, if it states one."""
    from tandem_plugin.lab.data import PromptTemplate

    stated = {} if protocol is None else defaults(protocol)
    if "instruction" not in stated:
        return None
    return PromptTemplate(
        stated["template"], stated["instruction"], always=stated["always_instructed"]
    )


def _noted(
    params: Mapping[str, Any], part: Part, benchmarks: Sequence[Benchmark]
) -> dict[str, Any] | None:
    """The results' record of the protocol, with the settings used instead."""
    used = {name: value for name, value in params.items() if name in _OPTIONS[part]}
    for benchmark in benchmarks[:1]:  # each one's own are in its results
        template = benchmark.written or benchmark.template
        used |= {
            "template": template.template,
            "instruction": template.instruction,
            "always_instructed": template.always,
        }
    return record(params["protocol"], used)


def _checkpoints(models: Sequence[str]) -> list[Checkpoint]:
    from tandem_plugin.lab.evaluation.inputs import find_checkpoint
    from tandem_plugin.progress import waiting

    with waiting("read the checkpoints", bar=True):
        checkpoints = [find_checkpoint(model) for model in models]
    _check_names([checkpoint.name for checkpoint in checkpoints], "--senior or --junior")
    return checkpoints


def _check_names(names: Sequence[str], option: str) -> None:
    from tandem_plugin.errors import EvaluationError

    for name in names:
        if names.count(name) > 1:
            raise EvaluationError("option-name-used-twice", option=option, name=name)


def _show(written: Sequence[Path], json: bool, over: Over) -> None:
    """Print the headline numbers of each run; written: the paths of their summaries."""
    from tandem_plugin.lab.evaluation.measures import headline
    from tandem_plugin.lab.evaluation.results import read_summary

    runs = [(run, headline(run, over)) for run in map(read_summary, written)]
    if json:
        rows = [
            {
                "kind": run.kind,
                "senior": run.senior,
                "junior": run.junior,
                "summary": str(run.folder / "summary.json"),
                **numbers,
            }
            for run, numbers in runs
        ]
        print_json({"runs": rows})
        return
    for run, numbers in runs:
        values = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        echo(f"{run.senior}, {run.label}: {values}")
