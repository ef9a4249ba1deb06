"""``tandem rollout``: responses of a senior and a junior to a file of problems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.lab.commands.engine_arguments import EngineOption
from tandem_plugin.terminal.assignments import SettingsOption, assignments
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.grading import Grader

__all__ = ["rollout"]


def rollout(
    senior: Annotated[str, typer.Option(help="The senior: a checkpoint's folder or name.")],
    problems: Annotated[
        str,
        typer.Option(
            help="Problems, perhaps with answers: a .jsonl, .json or .parquet file, the folder of "
            "a saved Hugging Face data set, or owner/name[:config][#split] on the Hub."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file of rollouts to write, or to resume.")],
    junior: Annotated[
        str | None, typer.Option(help="The junior; without it, the senior's own checkpoint.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="The schedule.")] = "word",
    boundaries: Annotated[
        str | None, typer.Option(help="The boundary resolver; without it, the schedule's own.")
    ] = None,
    settings: SettingsOption = None,
    samples: Annotated[int, typer.Option("--n", min=1, help="Responses to each problem.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="The seed that draws and sampled tokens follow from.")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest response.")] = 2048,
    temperature: Annotated[float, typer.Option(min=0, help="The sampling temperature.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Nucleus sampling.")] = 1.0,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Send each problem's text as it is, without the tokenizer's chat template.",
        ),
    ] = False,
    grade: Annotated[
        bool,
        typer.Option(
            "--grade",
            help="Ask for the answer in a box, as training data and `tandem eval` do, and grade "
            "each response. Every problem needs its answer.",
        ),
    ] = False,
    instruction: Annotated[
        str | None,
        typer.Option(
            help="What is asked beside each problem. Default: with --grade, the paper's "
            "instruction for a box; else nothing."
        ),
    ] = None,
    partner_logprobs: Annotated[
        bool,
        typer.Option(
            "--partner-logprobs",
            help="Write both models' log probability of every token, and their overlap there.",
        ),
    ] = False,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Let a senior and a junior answer every problem n times, one line of JSON a response.

    A line is written when its response is finished. The same command resumes where it was stopped
    or killed, and every response has seeds of its own that follow from --seed, its problem and its
    number, so that it does not matter where it stopped. A larger --n, or problems added at the end
    of the file, add responses. A file that was made with other settings, problems, answers or
    weights is rejected. `tandem replay` and `tandem view` read the file. Exit
    code 1 when a prompt is too long for the model, 130 when interrupted.

    With --grade a problem is asked as `tandem data prepare` and `tandem eval` ask it: with the
    instruction for a box, unless it mentions a box itself. Each line then has its reward, and the
    command ends with their mean.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.draws import check_seed
    from tandem_plugin.files import InputFiles, check_model
    from tandem_plugin.lab.commands.engine_arguments import engine_arguments
    from tandem_plugin.lab.commands.problems import Asking, check_longer, read_prompts
    from tandem_plugin.lab.commands.problems import noted as noted_problems
    from tandem_plugin.lab.commands.rollout_run import RolloutRun, mean_reward, write_rollouts
    from tandem_plugin.lab.data.records import record_files
    from tandem_plugin.lab.rollouts.engine import deciding, start_engine
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, run_file
    from tandem_plugin.terminal.tokenizers import model_files

    check_seed(seed)
    check_model(senior, "senior")
    check_model(junior or senior, "junior")
    asked = {"schedule": schedule, "boundaries": boundaries, **assignments("--set", settings or [])}
    if partner_logprobs:
        asked["partner_logprobs"] = True
    config = TandemConfig.from_mapping({**asked, "junior": junior})
    arguments = engine_arguments(engine or [])
    sampling = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p}
    asking = Asking.chosen(grade, instruction, raw)
    listed = read_prompts(problems, "required" if grade else "optional")
    grader = _grader() if grade else None
    noted = {
        "tandem_plugin": _version(),
        "senior": _named(senior),
        "junior": _named(junior or senior),
        **_fingerprints(senior, junior, arguments),
        "schedule": config.schedule,
        "parameters": _parameters(config),
        "boundaries": config.boundaries or config.make_schedule().boundaries,
        "problems": noted_problems(listed),
        "seed": seed,
        **sampling,
        "raw": raw,
        # None where nothing was asked for, so that a file without the field is gone on with.
        "instruction": asking.instruction,
        "grade": {"sympy": version("sympy")} if grade else None,
        "partner_logprobs": True if config.partner_logprobs else None,
        "engine": deciding(arguments),
    }
    places = [(i, j) for i in range(len(listed)) for j in range(samples)]
    models = {"senior": model_files(senior), "junior": model_files(junior or senior)}
    InputFiles(problems=record_files(problems), **models).check_outputs(out, run_file(out))
    longer = {"problems": lambda before: check_longer(before, listed)}
    with RolloutFile(out, noted, longer) as file:
        todo = [place for place in places if place not in file.done]
        before = len(places) - len(todo)
        skipped: dict[int, str] = {}
        if todo:
            try:
                llm = start_engine(senior, arguments, config.settings(), max_tokens)
                run = RolloutRun(llm, listed, asking, seed, sampling, skipped)
                write_rollouts(run, file, todo, len(places), grader)
            except KeyboardInterrupt:
                done = len(file.done & set(places))
                echo(
                    f"Stopped: {done:,} of {len(places):,} responses are in {out}. The same "
                    "command goes on from there.",
                    err=True,
                )
                raise typer.Exit(INTERRUPTED) from None
        written = len(file.done & set(places)) - before
    result = {
        "rollouts": str(out),
        "responses": len(places),
        "written": written,
        "found": before,
        "skipped": list(skipped.values()),
    }
    if grade:
        result["reward"] = mean_reward(out, set(places))
    _report(result, json)
    raise typer.Exit(1 if skipped else 0)


def _grader() -> Grader:
    """Made before the models load: it raises where computer algebra is missing."""
    from tandem_plugin.grading import Grader

    return Grader()


def _parameters(config: Any) -> dict[str, Any]:
    from tandem_plugin.schedules import schedule_parameters

    return schedule_parameters(config.make_schedule())


def _named(model: str) -> str:
    """A model as it is noted: a folder by its whole path, so that another start finds it."""
    return str(Path(model).resolve()) if os.path.exists(model) else model


def _fingerprints(
    senior: str, junior: str | None, arguments: Mapping[str, Any]
) -> dict[str, str | None]:
    """Of both models' weights: a folder may hold others than when the file was begun."""
    from tandem_plugin.progress import waiting

    with waiting("read the checkpoints"):
        ours = _fingerprint(senior, arguments.get("revision"), arguments.get("download_dir"))
        same = junior is None or _named(junior) == _named(senior)
        theirs = ours if same else _fingerprint(str(junior))
    return {"senior_fingerprint": ours, "junior_fingerprint": theirs}


def _fingerprint(model: str, *where: Any) -> str | None:
    """None for a model at an address, whose files are not here."""
    from tandem_plugin.files.checkpoints import checkpoint_folder, fingerprint_checkpoint

    if "://" in model:
        return None
    place = os.path.expanduser(model)
    if not os.path.isfile(place):
        place = str(checkpoint_folder(place, *where))
    return fingerprint_checkpoint(Path(place))


def _version() -> str:
    from tandem_plugin._version import __version__

    return __version__


def _report(result: dict[str, Any], json: bool) -> None:
    if json:
        print_json(result)
        return
    echo(
        f"{result['rollouts']}: wrote {result['written']:,} responses, found {result['found']:,} "
        f"there, of {result['responses']:,}."
    )
    if result.get("reward") is not None:
        echo(f"Mean reward: {result['reward']:.4f}.")
    for sentence in result["skipped"]:
        echo(sentence, err=True)
