"""``tandem eval``: the paper's evaluation of seniors, alone and with juniors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import typer

from tandem_plugin.lab.commands.options import (
    MOST_SAMPLES,
    ContextOption,
    EngineOption,
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
    engine_arguments,
    template_arguments,
)
from tandem_plugin.lab.protocols import defaults, record
from tandem_plugin.terminal.arguments import SettingsOption, assignments
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint
    from tandem_plugin.lab.evaluation.measures import Over

Part: TypeAlias = Literal["all", "solo", "handoff", "legibility", "drift"]
"""What is evaluated."""

_TEAM = {
    "samples": "team_samples",
    "temperature": "team_temperature",
    "top_p": "team_top_p",
    "top_k": "team_top_k",
}
"""The team's own option beside each one of the senior alone."""

_SAMPLING = {*_TEAM.keys() - {"samples"}, "max_tokens", "context", "seed", "engine"}
_SAMPLING |= {"template_args"}
_OPTIONS: dict[Part, set[str]] = {
    "solo": {*_SAMPLING, "protocol", "benchmark", "samples", "grader"},
    "handoff": {
        *(*_SAMPLING, "protocol", "benchmark", "grader"),
        *("junior", "schedule", "parameters", *_TEAM.values()),
    },
    "legibility": {"protocol", "junior", "read", "dtype", "over"},
    "drift": {"junior", "frequent"},
}
_OPTIONS["all"] = set().union(*_OPTIONS.values())
"""The options of each part, in addition to those that all parts have."""


def evaluate(
    ctx: typer.Context,
    part: Annotated[
        Part,
        typer.Argument(
            help="all; or solo: each senior answers alone, graded (pass@k); handoff: each "
            "answers together with each junior, graded; legibility: each junior reads each "
            "senior's solo responses; drift: token usage of each senior's solo responses "
            "relative to the first junior's."
        ),
    ],
    senior: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PATH",
            help="A senior: its name in results, and its checkpoint folder or name on the "
            "Hub (also name@commit). Can be repeated. For drift the name is enough.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The results folder to write or resume.")
    ],
    junior: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="A junior, in the same form. Each senior is paired with each junior.",
        ),
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="A benchmark: its name in results, and a problem set as for `tandem data "
            "prepare`. Can be repeated.",
        ),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            help="step (strict alternation), step-bernoulli, step-text (hands over text), or any "
            "schedule that `tandem plugins` lists. Can be repeated. Default: step.",
        ),
    ] = None,
    parameters: SettingsOption = None,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            "--n",
            min=1,
            max=MOST_SAMPLES,
            help="Number of responses per problem by a senior alone. In handoff, the same as "
            "--team-samples.",
        ),
    ] = 32,
    team_samples: Annotated[
        int,
        typer.Option(
            "--team-samples",
            "--team-n",
            min=1,
            max=MOST_SAMPLES,
            help="Number of responses per problem by a team.",
        ),
    ] = 8,
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
    read: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of responses per problem to read, from the first. Default: all.",
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="The dtype of the reading models; auto uses the checkpoint's own."),
    ] = "auto",
    frequent: Annotated[
        int,
        typer.Option(
            min=1,
            help="How often the junior must have written a token for it to count as frequent.",
        ),
    ] = 10,
    grader: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Another grader, whose pass@k is shown beside that of this package's own: a file "
            "with verl's compute_score, such as release=Tandem-RLVR/reward/math_boxed_reward.py of "
            "the paper's release, which needs the extra `release`. Can be repeated.",
        ),
    ] = None,
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
    from tandem_plugin.lab.evaluation.drift import run_drift
    from tandem_plugin.lab.evaluation.generation import Sampling, team_schedule
    from tandem_plugin.lab.evaluation.graders import read_grader
    from tandem_plugin.lab.evaluation.inputs import named_path
    from tandem_plugin.lab.evaluation.solo_handoff import (
        check_handoffs,
        check_tokenizers,
        run_handoff,
        run_solo,
    )

    _check_options(ctx, part)
    parts = get_args(Part) if part == "all" else (part,)
    alone = Sampling(samples, temperature, top_p, max_tokens, seed, top_k, context)
    team = replace(alone, **_teams_own(ctx.params))
    rendering, arguments = template_arguments(template_args), engine_arguments(engine)
    benchmarks = _benchmarks(benchmark or (), protocol, rendering)
    graders = [read_grader(one) for one in grader or ()]
    _check_names([one.name for one in graders], "--grader")
    noted = _noted(ctx, part, benchmarks)
    seniors, juniors = [], []
    if part != "drift":
        seniors, juniors = _checkpoints(senior), _checkpoints(junior or ())
    given = assignments("--set", parameters or ())
    schedules = [team_schedule(name, given) for name in dict.fromkeys(schedule or ["step"])]
    # Before the solo runs, which take hours.
    if "solo" in parts:
        check_tokenizers([*juniors[:1], *seniors])
    if "handoff" in parts:
        check_handoffs(seniors, schedules, arguments)
    written: list[Path] = []
    try:
        if "solo" in parts:
            base = juniors[:1]
            answering = [*base, *(one for one in seniors if one.name not in {b.name for b in base})]
            written += [
                run_solo(out, s, benchmarks, alone, arguments, noted, graders) for s in answering
            ]
        if "handoff" in parts:
            for pair in product(seniors, juniors):
                written += run_handoff(
                    out, *pair, schedules, benchmarks, team, arguments, noted, graders
                )
        if "legibility" in parts:
            from tandem_plugin.lab.evaluation.legibility import run_legibility

            for one in seniors:
                written += run_legibility(out, one, juniors, read, dtype, noted)
        if "drift" in parts:
            base_name, *_ = (named_path(one)[0] for one in junior or ())
            names = (named_path(one)[0] for one in senior)
            written += [run_drift(out, name, base_name, frequent) for name in names]
    except KeyboardInterrupt:
        echo("Stopped. Run the same command again to resume.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _show(written, json, over)


def _check_options(ctx: typer.Context, part: Part) -> None:
    """Reject a missing option, or one without effect on this part.

    In ``handoff``, where no senior answers alone, ``--samples`` is ``--team-samples``, and likewise
    the temperature, top-p and top-k.
    """
    used, options = _OPTIONS[part], {str(one.name): one.opts[0] for one in ctx.command.params}
    sources = {name: getattr(ctx.get_parameter_source(name), "name", "") for name in options}
    given = {name for name, source in sources.items() if source == "COMMANDLINE"}
    if part == "handoff":
        for name in _TEAM.keys() & given:
            if _TEAM[name] not in given:
                ctx.params[_TEAM[name]] = ctx.params[name]
        given.discard("samples")
    for name, option in options.items():
        if name in ("junior", "benchmark") and name in used and not ctx.params[name]:
            raise typer.BadParameter(f"{option} is needed for {part}.")
        if name in given & _OPTIONS["all"] - used:
            raise typer.BadParameter(f"{option} has no effect on {part}.")


def _teams_own(params: Mapping[str, Any]) -> dict[str, Any]:
    """The team's samples, temperature, top-p and top-k where they differ from the senior's.

    Top-k 0 is all tokens.
    """
    own = {name: params[team] for name, team in _TEAM.items() if params[team] is not None}
    return own | ({"top_k": own["top_k"] or None} if "top_k" in own else {})


def _benchmarks(
    given: Sequence[str], protocol: str | None, template_args: Mapping[str, Any]
) -> list[Benchmark]:
    from tandem_plugin.lab.data import PromptTemplate
    from tandem_plugin.lab.evaluation.inputs import read_benchmark

    stated = {} if protocol is None else defaults(protocol)
    template = None
    if "instruction" in stated:
        template = PromptTemplate(
            stated["template"], stated["instruction"], always=stated["always_instructed"]
        )
    read = [read_benchmark(one, template) for one in given]
    benchmarks = [replace(one, template_args=template_args) for one in read]
    _check_names([one.name for one in benchmarks], "--benchmark")
    for note in (note for one in benchmarks for note in one.notes()):
        echo(note, err=True)
    return benchmarks


def _noted(
    ctx: typer.Context, part: Part, benchmarks: Sequence[Benchmark]
) -> dict[str, Any] | None:
    """The results' record of the protocol, with the settings used instead."""
    used = {name: value for name, value in ctx.params.items() if name in _OPTIONS[part]}
    if "schedule" in used:
        used["schedule"] = used["schedule"] or ["step"]
    for benchmark in benchmarks[:1]:  # each one's own are in its results
        asked = benchmark.written or benchmark.template
        used |= {
            "template": asked.template,
            "instruction": asked.instruction,
            "always_instructed": asked.always,
        }
    return record(ctx.params["protocol"], used)


def _checkpoints(given: Sequence[str]) -> list[Checkpoint]:
    from tandem_plugin.lab.evaluation.inputs import find_checkpoint
    from tandem_plugin.progress import waiting

    with waiting("read the checkpoints", bar=True):
        checkpoints = [find_checkpoint(one) for one in given]
    _check_names([one.name for one in checkpoints], "--senior or --junior")
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

    runs = [(one, headline(one, over)) for one in map(read_summary, written)]
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
    for one, numbers in runs:
        values = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        echo(f"{one.senior}, {one.label}: {values}")
