"""``tandem rollout``: responses of a senior and a junior to a file of problems."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem_plugin.lab.commands.options import (
    RESOLVERS,
    SCHEDULES,
    EngineOption,
    FieldsOption,
    JuniorOption,
    MapOption,
    MaxTokensOption,
    SamplesOption,
    SeedOption,
    SeniorOption,
    TemperatureOption,
    TemplateOption,
    TopPOption,
    complete_boundaries,
    complete_problems,
    complete_schedule,
    engine_arguments,
    tandem_settings,
    template_arguments,
)
from tandem_plugin.terminal.arguments import SettingsOption, rows_of_stdin
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.rollouts.run import RolledOut


def rollout(
    ctx: typer.Context,
    senior: SeniorOption,
    problems: Annotated[
        str,
        typer.Option(
            callback=rows_of_stdin,
            autocompletion=complete_problems,
            help="Problems, optionally with answers, as for `tandem data prepare`: a .jsonl, .json "
            "or .parquet file, - for JSON Lines from standard input, a set on the Hub or by name.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The rollout file to write or resume.")],
    junior: JuniorOption = None,
    schedule: Annotated[
        str,
        typer.Option(
            autocompletion=complete_schedule, help=f"The schedule: {SCHEDULES}, or a plugin's."
        ),
    ] = "word",
    boundaries: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_boundaries,
            help=f"The boundary resolver: {RESOLVERS}, or a plugin's. Default: the schedule's own.",
        ),
    ] = None,
    settings: SettingsOption = None,
    field: FieldsOption = None,
    map: MapOption = None,
    samples: SamplesOption = 1,
    seed: SeedOption = 0,
    max_tokens: MaxTokensOption = 2048,
    temperature: TemperatureOption = 1.0,
    top_p: TopPOption = 1.0,
    grade: Annotated[
        bool,
        typer.Option(
            "--grade",
            help="Ask for the answer in a box, as training data and `tandem eval` do, and "
            "grade each response. Every problem needs an answer.",
        ),
    ] = False,
    instruction: Annotated[
        str | None,
        typer.Option(
            help="Instruction to add to each problem. Default: with --grade, the common "
            "instruction to answer in a box, unless `tandem data prepare` wrote the file; "
            "otherwise none."
        ),
    ] = None,
    template_args: TemplateOption = None,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Let a senior and a junior answer every problem n times; write one line of JSON per response.

    Each line is written as soon as its response is finished. Run the same command again to resume
    after an interruption, or with a larger --samples. A file made with other settings, problems,
    answers or weights is rejected. `tandem replay` and
    `tandem view` read the file. With --grade, each line includes its reward, and the command prints
    the mean reward. The exit code is 130 if interrupted.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.lab.data import layout_of
    from tandem_plugin.lab.rollouts.run import RolloutOptions, RolloutStoppedError, roll_out
    from tandem_plugin.terminal.processes import end_with_this_process

    end_with_this_process()
    taken = tandem_settings(ctx, settings or (), [schedule])
    tandem = {**taken, "schedule": schedule, "boundaries": boundaries, "junior": junior}
    options = RolloutOptions(
        senior=senior,
        problems=problems,
        out=out,
        tandem=TandemConfig.from_mapping(tandem),
        layout=layout_of(field or (), map),
        samples=samples,
        seed=seed,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        grade=grade,
        instruction=instruction,
        template_args=template_arguments(template_args),
        engine=engine_arguments(engine),
    )
    try:
        done = roll_out(options, partial(echo, err=True))
    except RolloutStoppedError as stopped:
        echo(
            f"Stopped: {stopped.done:,} of {stopped.responses:,} responses are in {out}. Run the "
            "same command again to resume.",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    _show(done, grade, json)


def _show(done: RolledOut, grade: bool, json: bool) -> None:
    if json:
        result = {**asdict(done), "rollouts": str(done.rollouts)}
        graded = ("reward", "repeated")
        print_json({name: value for name, value in result.items() if grade or name not in graded})
        return
    echo(
        f"{done.rollouts}: wrote {done.written:,} responses, {done.found:,} already present, "
        f"{done.responses:,} in total."
    )
    if done.reward is not None:
        echo(f"Mean reward: {done.reward:.4f}.")
    if done.repeated:
        echo(f"Lines that repeat a response and are not counted: {done.repeated:,}.")
